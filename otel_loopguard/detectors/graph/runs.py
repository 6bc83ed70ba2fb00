"""What a detector keeps of each graph run."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Generic, TypeVar

if TYPE_CHECKING:
    from otel_loopguard.core import Visit

_RUNS: Final = 4

T = TypeVar("T")


class GraphRuns(Generic[T]):
    """One value for each of the four graph runs that were visited last.

    Args:
        make: Makes the value of a run that is not known yet.
    """

    __slots__ = ("_make", "_runs")

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._runs: OrderedDict[int, T] = OrderedDict()

    def of(self, visit: Visit) -> T:
        """The value of the graph run that a visit belongs to."""
        found = self._runs.get(visit.graph)
        if found is None:
            found = self._runs[visit.graph] = self._make()
            if len(self._runs) > _RUNS:
                self._runs.popitem(last=False)
        else:
            self._runs.move_to_end(visit.graph)
        return found

    def clear(self) -> None:
        """Forgets all runs."""
        self._runs.clear()
