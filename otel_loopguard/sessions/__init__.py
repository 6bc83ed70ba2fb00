"""Sessions: the steps of one conversation or run, and which step belongs to which."""

from otel_loopguard.sessions.session import Finding, Session
from otel_loopguard.sessions.table import Sessions

__all__ = ["Finding", "Session", "Sessions"]
