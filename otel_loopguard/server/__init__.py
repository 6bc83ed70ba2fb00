"""A server that judges the spans of agents in any language; needs the extra `server`."""

from __future__ import annotations

from otel_loopguard.server.access import Tenants
from otel_loopguard.server.server import Server, ServerSettings

__all__ = ["Server", "ServerSettings", "Tenants"]
