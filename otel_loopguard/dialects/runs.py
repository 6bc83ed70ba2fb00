"""Traces that turned out to be one run."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_LIMIT = 4096


class Runs:
    """Which traces belong together, because one call was seen in both. Bounded in number.

    Args:
        joined: Called with two trace ids that were found to be one run, once for each pair found.
    """

    def __init__(self, joined: Callable[[int, int], None] | None) -> None:
        self._joined = joined
        self._first: dict[int, int] = {}
        self._tied: dict[tuple[int, str], int] = {}

    def first(self, trace: int) -> int:
        """The trace that stands for the run of a trace."""
        return self._first.get(trace, trace)

    def may_join(self, trace: int, scope: str, other: int, other_scope: str) -> bool:
        """Whether two traces may be one run: no scope writes two of the traces of a run."""
        return all(
            self._tied.get((run, name), own) == own
            for run in (self.first(trace), self.first(other))
            for name, own in ((scope, trace), (other_scope, other))
        )

    def join(self, trace: int, scope: str, other: int, other_scope: str) -> None:
        """Puts two traces into one run."""
        if len(self._first) >= _LIMIT:
            self._first.clear()
            self._tied.clear()
        run, merged = self.first(trace), self.first(other)
        for one, into in tuple(self._first.items()):
            if into == merged:
                self._first[one] = run
        self._first[trace] = self._first[merged] = self._first[other] = run
        for (at, name), own in tuple(self._tied.items()):
            if at == merged:
                self._tied[run, name] = own
        self._tied[run, scope] = trace
        self._tied[run, other_scope] = other
        if self._joined is not None:
            self._joined(trace, other)
