"""Which spans showed a call, an answer or an error first: what a loop is linked to."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from otel_loopguard.core import Evidence, Step

_MOST: Final = 48

Spot = tuple[int, int]
"""Trace and span id."""


class Firsts:
    """The spans that showed the newest 48 calls, answers and errors of a session first.

    What is seen again stays, so that the calls of a loop that goes on are not forgotten. Not
    thread-safe: the guard's lock is held.
    """

    __slots__ = ("_spots",)

    def __init__(self) -> None:
        self._spots: dict[int, Spot] = {}

    def see(self, step: Step, seen: Evidence) -> None:
        """Takes a finished call.

        Args:
            step: The call; without a span it is passed over.
            seen: What was seen of it.
        """
        if not step.span_id:
            return
        spot = (step.trace_id, step.span_id)
        self._keep(seen.call, spot)
        self._keep(seen.outcome, spot)
        if seen.error:
            self._keep(seen.error_shape, spot)
            self._keep(seen.error_line, spot)

    def of(self, keys: Iterable[int], step: Step, most: int) -> tuple[Spot, ...]:
        """The spans that showed first what a loop is made of, each once.

        Args:
            keys: Identities of the loop.
            step: The step at which it was found, which is no link to itself.
            most: How many at most.
        """
        found = dict.fromkeys(self._spots[key] for key in keys if key in self._spots)
        found.pop((step.trace_id, step.span_id), None)
        return tuple(found)[:most]

    def _keep(self, key: int | None, spot: Spot) -> None:
        if key is None:
            return
        spots = self._spots
        spots[key] = spots.pop(key, spot)
        if len(spots) > _MOST:
            del spots[next(iter(spots))]
