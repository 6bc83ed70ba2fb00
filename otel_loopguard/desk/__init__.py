"""How people reach the sessions of live guards from outside: by a store, by a Unix socket (C8)."""

from otel_loopguard.desk.desk import Desk
from otel_loopguard.desk.doors import Doors

__all__ = ["Desk", "Doors"]
