"""Names that go on metrics: only so many different ones."""

from __future__ import annotations

from typing import Final

UNKNOWN: Final = "unknown"
OTHER: Final = "other"
_LONGEST: Final = 200


class Names:
    """The first so many different names; all others are `other`. Takes no lock.

    Two threads may each add the last one; that is one too many, and does no harm.

    Args:
        most: How many.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: dict[str, None] = {}

    def of(self, name: str | None) -> str:
        """A name as it goes on a metric: `unknown` for none, cut at 200 characters."""
        if not name:
            return UNKNOWN
        name = name[:_LONGEST]
        if name not in self._known:
            if len(self._known) >= self._most:
                return OTHER
            self._known[name] = None
        return name

    @property
    def all(self) -> tuple[str, ...]:
        """The names that are known, in the order in which they came."""
        return tuple(self._known)
