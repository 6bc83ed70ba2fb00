"""How long a call or a batch will take."""

from __future__ import annotations

import re
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from heapq import heapreplace
from typing import TYPE_CHECKING, Final, NamedTuple

import orjson

from otel_loopguard._util.locks import new_lock
from otel_loopguard._util.logger import logger
from otel_loopguard.core import Kind
from otel_loopguard.execution.latency import (
    CallRecord,
    Profile,
    ResourceProfile,
    ResourceSample,
    Summary,
    measure,
    resources_of,
)

if TYPE_CHECKING:
    from otel_loopguard.core import Step
    from otel_loopguard.execution.latency import Estimate
    from otel_loopguard.settings import Settings
    from otel_loopguard.stores import Writer

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
    """The estimate of a batch from those of its calls."""
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


_NAMED: Final = 200
_AGAIN_S: Final = 30.0
_NOTHING: Final = ResourceSample()
AGENT: Final = "agent:"
"""Before the name of an agent, where profiles are kept by the names of tools."""


class Profiler:
    """The profiles of all tools and agents of one guard (A1, A2, A3, A8, D4, E3).

    May be used from any thread. Everything is answered from memory. What a store knows of a tool is
    read once, in the background, when the tool is first seen; a store that fails is asked again
    after 30 seconds. Finished calls are written behind.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        writer: Writer | None = None,
        resources: Callable[[], ResourceSample | None] | None = None,
    ) -> None:
        self._settings = settings
        self._writer = writer
        self._resources = resources
        self._resting_until = 0.0
        self._profiles: OrderedDict[str, Profile] = OrderedDict()
        # Re-entrant: a finalizer may end a span, and with it a call, while it is held.
        self._lock = new_lock()

    def forked(self) -> None:
        """Makes the lock anew in the child of a fork; what was not read yet is asked for again."""
        self._lock = new_lock()
        for profile in self._profiles.values():
            profile.asked = profile.read

    @property
    def tools(self) -> tuple[str, ...]:
        """Names of what has a profile, the one unused for longest first; agents after `agent:`."""
        return tuple(self._profiles)

    def started(self, tool: str) -> None:
        """Says that a tool is about to be used, so that its past is read in time."""
        self._asked(self._of(tool[:_NAMED]))

    def finished(self, step: Step, session: str = "") -> None:
        """Adds a finished tool call or agent run; ignores other steps and those without times."""
        ms = _duration_ms(step)
        name = _name_of(step)
        if ms is None or name is None:
            return
        arguments = measure(step.args)
        sample = (self._resources() if self._resources is not None else None) or _NOTHING
        with self._lock:
            profile = self._of(name)
            hit = profile.is_cache_hit(arguments.key, ms) and not step.error
            record = CallRecord(
                step.end or 0, ms, arguments.size, session or step.session or "", not step.error,
                hit, arguments.complexity,
                sample.cpu_percent, sample.io_wait_percent, sample.memory_mb,
            )  # fmt: skip
            profile.take(record)
            self._asked(profile)
        if self._writer is not None:
            self._writer.add_records(name, [record.encoded()])

    def estimate(self, tool: str, args: object = None) -> Estimate:
        """How long a call that is about to run will take (A2). Never waits."""
        return self._known(tool).estimate(measure(args))

    def limit_for(self, tool: str, args: object = None) -> float | None:
        """Seconds after which a running call is stalled (D4). Never waits.

        Three times its estimate; and not less than 30 s, nor than the longest call of the tool that
        went well: what a tool came back from before is no stall.
        """
        settings = self._settings
        if tool in settings.exempt:
            return None
        profile = self._known(tool)
        estimate = profile.estimate(measure(args))
        if estimate.records < settings.tuning.latency.stall_records:
            return None
        ms = max(settings.tuning.latency.stall_factor * estimate.duration_ms, profile.longest_ms)
        return max(ms / 1e3, settings.tuning.latency.stall_min_s)

    def time_limit(self, tool: str, args: object = None) -> float:
        """Seconds that a call may take: five times its estimate, within 30 to 600 (E3).

        600 where nothing is known of the tool.
        """
        settings = self._settings
        estimate = self.estimate(tool, args)
        if not estimate.known:
            return settings.tuning.latency.limit_max_s
        seconds = settings.tuning.latency.limit_factor * estimate.duration_ms / 1e3
        longest = max(settings.tuning.latency.limit_max_s, settings.tuning.latency.limit_min_s)
        return min(max(seconds, settings.tuning.latency.limit_min_s), longest)

    def agent_limit(self, agent: str) -> float:
        """Seconds that a run of an agent may take: as `time_limit`, from its own past runs (E3)."""
        return self.time_limit(AGENT + agent)

    def batch(self, calls: Sequence[PlannedCall]) -> BatchEstimate:
        """How long several calls take, and whether they may run at the same time (A3)."""
        estimates = [self.estimate(call.tool, call.args) for call in calls]
        return batch(calls, estimates, self.is_safe, self._settings.profile_max_parallel)

    def is_safe(self, tool: str) -> bool:
        """Whether a tool is declared safe to run beside others: read-only, or named so (A3)."""
        settings = self._settings
        return tool in settings.profile_parallel_tools or settings.effects.get(tool) == "read"

    def resources(self, tool: str) -> ResourceProfile | None:
        """What the calls of a tool cost the machine (A8); None for a tool without a profile."""
        profile = self._profiles.get(tool[:_NAMED])
        if profile is None:
            return None
        with self._lock:
            records = list(profile.records)
        return resources_of(records, self._settings)

    def summary(self, tool: str) -> Summary | None:
        """The profile of a tool, for people; None for a tool without one."""
        profile = self._profiles.get(tool[:_NAMED])
        if profile is None:
            return None
        with self._lock:
            return profile.summary()

    def _known(self, tool: str) -> Profile:
        """The profile of a tool, without a lock where there is one; its past is asked for."""
        profile = self._profiles.get(tool[:_NAMED])
        if profile is None or not profile.asked:
            self.started(tool)
            profile = self._of(tool[:_NAMED])
        return profile

    def _of(self, name: str) -> Profile:
        with self._lock:
            profile = self._profiles.get(name)
            if profile is None:
                profile = self._profiles[name] = Profile(name, self._settings)
                if len(self._profiles) > self._settings.profile_max_tools:
                    self._profiles.popitem(last=False)
            else:
                self._profiles.move_to_end(name)
            return profile

    def _asked(self, profile: Profile) -> None:
        """Asks for what the store knows of a tool, once."""
        writer, tool = self._writer, profile.tool
        if profile.asked or time.monotonic() < self._resting_until:
            return
        profile.asked = True

        def loaded(found: list[bytes]) -> None:
            self._loaded(tool, found)

        def failed() -> None:
            profile.asked = False
            self._resting_until = time.monotonic() + _AGAIN_S

        if writer is not None and not writer.ask(lambda store: store.records(tool), loaded, failed):
            failed()

    def _loaded(self, tool: str, found: list[bytes]) -> None:
        """Takes what the store knows of a tool; on the writer's thread."""
        records = [CallRecord.decoded(raw) for raw in found]
        known = [record for record in records if record is not None]
        if len(known) < len(found):
            strange = len(found) - len(known)
            logger.warning(
                "tool profile %r: %d records in the store are not understood and are left out",
                tool,
                strange,
            )
        with self._lock:
            profile = self._profiles.get(tool)
            if profile is not None:
                profile.read = True
            if profile is not None and known:
                self._profiles[tool] = profile.with_stored(known)


def _name_of(step: Step) -> str | None:
    if step.kind is Kind.TOOL and step.name:
        return step.name[:_NAMED]
    return (AGENT + step.name)[:_NAMED] if step.kind is Kind.AGENT and step.name else None


def _duration_ms(step: Step) -> float | None:
    """How long a step took; None where its times are not known, or go backwards."""
    if not step.end or step.start <= 0 or step.end < step.start:
        return None
    return (step.end - step.start) / 1e6
