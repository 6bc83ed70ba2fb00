"""One thing that is to be written, and how it is joined with another one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from otel_loopguard.stores.channel import Channel

if TYPE_CHECKING:
    from otel_loopguard.stores.store import Store

Family = Literal["records", "journal", "value", "notice"]


class Told(NamedTuple):
    """A value that others are told of.

    Attributes:
        value: The value.
        ttl_s: Seconds that it is kept; None for good.
        topic: On which topic it is published; not at all where the store has none.
        stands: Whether what is in the store goes before it: then nothing happens.
    """

    value: bytes
    ttl_s: float | None
    topic: str
    stands: Callable[[bytes], bool]

    def do(self, store: Store, kind: str, key: str) -> None:
        """Puts the value and publishes it, unless what goes before it is there.

        Args:
            store: The store.
            kind: Kind of the value.
            key: Its key.

        Raises:
            StoreError: The store cannot.
        """
        before = store.get(kind, key)
        if before is not None and self.stands(before):
            return
        store.put(kind, key, self.value, self.ttl_s)
        if isinstance(store, Channel):
            store.publish(self.topic, self.value)


class Write(NamedTuple):
    """One thing that is to be written.

    Attributes:
        family: What it is: records of a tool, entries of a journal, a value, or one that others
            are told of.
        name: Name of the tool, key of the session, or kind of the value.
        key: Key of the value.
        items: Records; ids and values of entries; value and seconds kept, or nothing to delete it;
            what others are told.
        writes: How many writes it counts for.
        size: Bytes of what is written.
    """

    family: Family
    name: str
    key: str
    items: tuple[Any, ...]
    writes: int
    size: int

    @property
    def place(self) -> str:
        """What it is about, for messages."""
        return " ".join(part for part in (self.family, self.name, self.key) if part)

    def do(self, store: Store) -> None:
        """Writes it.

        Raises:
            StoreError: The store cannot.
        """
        if self.family == "records":
            store.add_records(self.name, self.items)
        elif self.family == "journal":
            store.append(self.name, self.items)
        elif self.family == "notice":
            self.items[0].do(store, self.name, self.key)
        elif self.items:
            value, ttl_s = self.items
            store.put(self.name, self.key, value, ttl_s)
        else:
            store.delete(self.name, self.key)


def joined(writes: Iterable[Write]) -> list[Write]:
    """The same in fewer writes: what goes to one place is one; of values the newest counts."""
    places: dict[tuple[str, str, str], list[Write]] = {}
    for write in writes:
        places.setdefault((write.family, write.name, write.key), []).append(write)
    return [_one(found) for found in places.values()]


def _one(found: list[Write]) -> Write:
    last = found[-1]
    if len(found) == 1:
        return last
    count = sum(write.writes for write in found)
    size = sum(write.size for write in found)
    if last.family in {"value", "notice"}:
        return last._replace(writes=count, size=size)
    items = tuple(item for write in found for item in write.items)
    return last._replace(items=items, writes=count, size=size)
