"""Where what outlives a session is kept: memory, or Redis behind a thread that writes."""

from otel_loopguard.stores.channel import Channel, Subscription
from otel_loopguard.stores.digest import Digests
from otel_loopguard.stores.health import Standing, State
from otel_loopguard.stores.memory import MemoryStore
from otel_loopguard.stores.opening import open_store, open_writer
from otel_loopguard.stores.store import Store
from otel_loopguard.stores.write import Told
from otel_loopguard.stores.writer import Writer

__all__ = [
    "Channel",
    "Digests",
    "MemoryStore",
    "Standing",
    "State",
    "Store",
    "Subscription",
    "Told",
    "Writer",
    "open_store",
    "open_writer",
]
