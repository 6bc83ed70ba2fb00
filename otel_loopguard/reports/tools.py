"""Which tools a session uses, and how often each fails; bounded."""

from __future__ import annotations

from typing import Final

_MOST: Final = 48
_NAMED: Final = 100


class ToolCount:
    """Calls of one tool.

    Attributes:
        calls: Finished calls.
        errors: Those that failed.
        failing: Whether the newest one failed.
    """

    __slots__ = ("calls", "errors", "failing")

    def __init__(self) -> None:
        self.calls = 0
        self.errors = 0
        self.failing = False


class Tools(dict[str, ToolCount]):
    """Counts of the 48 tools used most, by name; a further tool takes the place of the least used.

    So the figures of tools that are hardly used may be too low; those used most are exact, unless a
    session has more than 48 tools from its start.
    """

    __slots__ = ()

    def add(self, name: str) -> ToolCount:
        """The counts of a tool that is not there under its full name, made if need be."""
        name = name[:_NAMED]
        if name in self:
            return self[name]
        if len(self) >= _MOST:
            del self[min(self, key=lambda known: self[known].calls)]
        count = self[name] = ToolCount()
        return count

    def most_used(self, limit: int) -> list[tuple[str, ToolCount]]:
        """Tools and their counts, the most used first, then by name."""
        return sorted(self.items(), key=lambda one: (-one[1].calls, one[0]))[:limit]
