"""How people reach the sessions of live guards from outside: by a store, by a Unix socket."""

from __future__ import annotations

from otel_loopguard.escalation.admin.protocol import AdminHandlers

__all__ = ["AdminHandlers"]
