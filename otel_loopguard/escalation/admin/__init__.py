"""How people reach the sessions of live guards from outside: by a store, by a Unix socket."""

from __future__ import annotations

from otel_loopguard.escalation.admin.handlers import AdminHandlers
from otel_loopguard.escalation.admin.socket import Listeners

__all__ = ["AdminHandlers", "Listeners"]
