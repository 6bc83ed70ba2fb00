"""Where what outlives a session is kept: memory, or Redis behind a thread that writes."""

from __future__ import annotations

from otel_loopguard.stores.digest import Digests
from otel_loopguard.stores.factory import open_store, open_writer
from otel_loopguard.stores.memory import MemoryStore
from otel_loopguard.stores.store import PubSub, Store, Subscription
from otel_loopguard.stores.write_behind import State, Told, Writer, WriterStatus

__all__ = [
    "Digests",
    "MemoryStore",
    "PubSub",
    "State",
    "Store",
    "Subscription",
    "Told",
    "Writer",
    "WriterStatus",
    "open_store",
    "open_writer",
]
