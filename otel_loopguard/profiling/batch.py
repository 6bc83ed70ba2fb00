"""How long several calls take, one after the other and at the same time."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from heapq import heapreplace
from typing import TYPE_CHECKING, Final, NamedTuple

import orjson

if TYPE_CHECKING:
    from otel_loopguard.profiling.estimate import Estimate

_REFERENCE: Final = re.compile(r"\$(?:\{\s*)?([\w-]+)|\{\{\s*([\w-]+)")


class PlannedCall(NamedTuple):
    """A call that is about to be made.

    Attributes:
        tool: Name of the tool.
        args: Its arguments; None if they are not known yet.
        id: What other calls of the batch name it by; empty: by its place, from "0".
        after: Ids of the calls whose results it needs. Given ids that its arguments refer to, as
            in `${id}`, `$id.output` or `{{ id }}`, count as well; ids that are not in the batch
            do not.
    """

    tool: str
    args: object = None
    id: str = ""
    after: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class BatchEstimate:
    """How long several calls take (A3). Times in milliseconds.

    Attributes:
        sequential_ms: One after the other.
        parallel_ms: With as many at a time as allowed, dependencies kept, unsafe ones alone.
        can_run_in_parallel: Whether none needs the result of another, and every tool is declared
            safe.
        reason: Why, or why not.
        estimates: The estimate of each call, in their order.
    """

    sequential_ms: float
    parallel_ms: float
    can_run_in_parallel: bool
    reason: str
    estimates: tuple[Estimate, ...]


def batch(
    calls: Sequence[PlannedCall],
    estimates: Sequence[Estimate],
    is_safe: Callable[[str], bool],
    lanes: int,
) -> BatchEstimate:
    """The estimate of a batch from those of its calls.

    Args:
        calls: The calls.
        estimates: Their estimates, in the same order.
        is_safe: Whether the calls of a tool may run at the same time as others.
        lanes: Calls that run at the same time, at least 1.
    """
    durations = [estimate.duration_ms for estimate in estimates]
    total = sum(durations)
    needs = _needs(calls)
    unsafe = sorted({call.tool for call in calls if not is_safe(call.tool)})
    reason = _reason(len(calls), any(needs.values()), unsafe)
    levels = _levels(needs)
    alone = [not is_safe(call.tool) for call in calls]
    if levels is None:
        reason, parallel = "the calls need each other in a circle", total
    else:
        parallel = sum(_span(level, durations, alone, lanes) for level in levels)
    return BatchEstimate(total, parallel, reason == _FREE, reason, tuple(estimates))


_FREE: Final = "no call needs another, and every tool is declared safe"


def _reason(count: int, linked: bool, unsafe: list[str]) -> str:
    if count < 2:
        return "there is one call" if count else "there is no call"
    if linked:
        return "some calls need the result of others"
    return f"not declared safe: {', '.join(unsafe)}" if unsafe else _FREE


def _needs(calls: Sequence[PlannedCall]) -> dict[int, set[int]]:
    """The places of the calls that each call needs."""
    named = {call.id: place for place, call in enumerate(calls) if call.id}
    places = {str(place): place for place in range(len(calls))} | named
    return {
        place: {places[name] for name in call.after if name in places}
        # A text may well say "$1" and mean money: only ids that were given are referred to.
        | {named[name] for name in _references(call.args) if name in named}
        for place, call in enumerate(calls)
    }


def _references(args: object) -> set[str]:
    """Names that arguments refer to; none for what is no data."""
    if args is None:
        return set()
    try:
        text = args if isinstance(args, str) else orjson.dumps(args).decode()
    except (TypeError, ValueError, RecursionError):
        return set()
    return {one or other for one, other in _REFERENCE.findall(text)}


def _levels(needs: dict[int, set[int]]) -> list[list[int]] | None:
    """The calls by depth of dependency; None if they go in a circle."""
    order = TopologicalSorter(needs)
    try:
        order.prepare()
    except CycleError:
        return None
    levels: list[list[int]] = []
    while order.is_active():
        level = list(order.get_ready())
        order.done(*level)
        levels.append(level)
    return levels


def _span(
    level: Sequence[int], durations: Sequence[float], alone: Sequence[bool], lanes: int
) -> float:
    """How long independent calls take: the longest first to whichever lane is free."""
    free = [0.0] * lanes
    for duration in sorted((durations[place] for place in level if not alone[place]), reverse=True):
        heapreplace(free, free[0] + duration)
    return max(free) + sum(durations[place] for place in level if alone[place])
