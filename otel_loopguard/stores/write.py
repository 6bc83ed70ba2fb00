"""One thing that is to be written, and how it is joined with another one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from otel_loopguard.stores.store import Store

Family = Literal["records", "journal", "value"]


class Write(NamedTuple):
    """One thing that is to be written.

    Attributes:
        family: What it is: records of a tool, entries of a journal, or a value.
        name: Name of the tool, key of the session, or kind of the value.
        key: Key of the value.
        items: Records; ids and values of entries; value and seconds kept, or nothing to delete it.
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
    if last.family == "value":
        return last._replace(writes=count, size=size)
    items = tuple(item for write in found for item in write.items)
    return last._replace(items=items, writes=count, size=size)
