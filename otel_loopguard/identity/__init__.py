"""Step -> evidence: canonical and masked forms, error classes, effects, epochs."""

from otel_loopguard.identity.canonical import parsed
from otel_loopguard.identity.errors import error_class
from otel_loopguard.identity.observer import Observer

__all__ = ["Observer", "error_class", "parsed"]
