"""How long a call or a batch will take."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Sequence
from functools import partial
from graphlib import CycleError, TopologicalSorter
from heapq import heapreplace
from typing import TYPE_CHECKING, Final

import orjson

from otel_loopguard._util.bounded import BoundedDict
from otel_loopguard._util.locks import new_lock
from otel_loopguard._util.logger import logger
from otel_loopguard._util.values import NamedTuple, dataclass
from otel_loopguard.core import Kind
from otel_loopguard.execution.latency import (
    LATEST,
    CallRecord,
    Profile,
    ResourceProfile,
    ResourceSample,
    Summary,
    measure,
    measured,
)

if TYPE_CHECKING:
    from otel_loopguard.core import Step
    from otel_loopguard.execution.latency import Estimate
    from otel_loopguard.settings import Settings
    from otel_loopguard.stores import Writer

_MOST_PROFILES: Final = 1000
"""Tools that have a profile; the least recently used one is dropped first. Agents have a few dozen;
one that makes up names of tools does not fill the memory."""
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
    """How long several calls take, in milliseconds."""

    sequential_ms: float  # one after the other
    parallel_ms: float  # as many at a time as allowed, dependencies kept, unsafe ones alone
    can_run_in_parallel: bool  # none needs the result of another, and every tool is declared safe
    reason: str  # why, or why not
    estimates: tuple[Estimate, ...]  # of each call, in their order


def batch(
    calls: Sequence[PlannedCall],
    estimates: Sequence[Estimate],
    is_safe: Callable[[str], bool],
    lanes: int,
) -> BatchEstimate:
    """The estimate of a batch from those of its calls."""
    durations = [estimate.duration_ms for estimate in estimates]
    total = parallel = sum(durations)
    needs = _needs(calls)
    alone = [not is_safe(call.tool) for call in calls]
    unsafe = sorted({call.tool for call, own in zip(calls, alone, strict=True) if own})
    if len(calls) < 2:
        reason = "there is one call" if calls else "there is no call"
    elif any(needs.values()):
        reason = "some calls need the result of others"
    elif unsafe:
        reason = f"not declared safe: {', '.join(unsafe)}"
    else:
        reason = _FREE
    try:
        order = TopologicalSorter(needs)
        order.prepare()
    except CycleError:
        reason = "the calls need each other in a circle"
    else:
        parallel = 0.0
        while level := order.get_ready():
            order.done(*level)
            parallel += sum(durations[place] for place in level if alone[place])
            # The longest first, to whichever lane is free.
            free = [0.0] * lanes
            for duration in sorted((durations[p] for p in level if not alone[p]), reverse=True):
                heapreplace(free, free[0] + duration)
            parallel += max(free)
    return BatchEstimate(total, parallel, reason == _FREE, reason, tuple(estimates))


_FREE: Final = "no call needs another, and every tool is declared safe"


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


_NAMED: Final = 200
_AGAIN_S: Final = 30.0
_NOTHING: Final = (None, None, None)
_TOOL: Final = Kind.TOOL
_AGENT: Final = Kind.AGENT
AGENT: Final = "agent:"
"""Before the name of an agent, where profiles are kept by the names of tools."""


class Profiler:
    """The profiles of all tools and agents of one guard.

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
        self.sample = resources  # returns the newest reading of the machine
        self._resting_until = 0.0
        self._profiles: BoundedDict[str, Profile] = BoundedDict(_MOST_PROFILES)
        # Re-entrant: a finalizer may end a span, and with it a call, while it is held.
        self._lock = new_lock()

    def forked(self) -> None:
        """In the child of a fork: what was not read is asked for again."""
        self._lock = new_lock()
        for profile in self._profiles.values():
            profile.asked = profile.read
            profile.unsaved()  # the parent writes them

    @property
    def tools(self) -> tuple[str, ...]:
        """Names of what has a profile, the one unused for longest first; agents after `agent:`."""
        with self._lock:
            return tuple(self._profiles)

    def finished(self, step: Step, session: str = "") -> None:
        """Adds a finished tool call or agent run; ignores other steps and those without times."""
        kind, name, start, end = step.kind, step.name, step.start, step.end
        if not name or not end or not 0 < start <= end < LATEST:
            return
        if kind is _AGENT:
            name = AGENT + name
        elif kind is not _TOOL:
            return
        size, complexity, key = measured(step.args)
        load = None if self.sample is None else self.sample()
        cpu, memory, io_wait = _NOTHING if load is None else load
        record = (
            end, (end - start) / 1e6, size, session or step.session or "", not step.error, False,
            complexity, cpu, io_wait, memory,
        )  # fmt: skip
        with self._lock:
            profile = self._profile(name)
            profile.add(record, key)
        if self._writer is not None and not profile.queued:
            # Set first: the writer may be here at once.
            profile.queued = True
            if not self._writer.add_records(profile.tool, partial(self._unsaved, profile)):
                profile.queued = False

    def _unsaved(self, profile: Profile) -> list[bytes]:
        """Returns the records of a tool to store; on the writer's thread."""
        with self._lock:
            records = profile.unsaved()
        return [record.encoded() for record in records]

    def estimate(self, tool: str, args: object = None) -> Estimate:
        """How long a call that is about to run will take, from memory."""
        arguments = measure(args)
        with self._lock:
            return self._profile(tool).estimate(arguments)

    def misses(self) -> list[float]:
        """By how much estimates of tools were off since this was asked last, in percent."""
        with self._lock:
            known = [one for name, one in self._profiles.items() if not name.startswith(AGENT)]
        found: list[float] = []
        for profile in known:
            # One at a time: whoever ends a span waits for the lock.
            with self._lock:
                found.extend(profile.misses())
        return found

    def limit_for(self, tool: str, args: object = None) -> float | None:
        """Seconds after which a running call is stalled; None below 20 successful calls.

        Three times its estimate; and not less than 30 s, nor than the longest call of the tool that
        went well: what a tool came back from before is no stall.
        """
        rule = self._settings.tuning.latency
        if tool in self._settings.exempt:
            return None
        with self._lock:
            profile = self._profile(tool)
            estimate, longest_ms = profile.estimate(measure(args)), profile.longest_ms
        if estimate.records < rule.stall_records:
            return None
        ms = max(rule.stall_factor * estimate.duration_ms, longest_ms)
        return max(ms / 1e3, rule.stall_min_s)

    def time_limit(self, tool: str, args: object = None) -> float:
        """Seconds that a call may take: five times its estimate, within 30 to 600; else 600."""
        rule, estimate = self._settings.tuning.latency, self.estimate(tool, args)
        if not estimate.known:
            return rule.limit_max_s
        seconds = max(rule.limit_factor * estimate.duration_ms / 1e3, rule.limit_min_s)
        return min(seconds, max(rule.limit_max_s, rule.limit_min_s))

    def agent_limit(self, agent: str) -> float:
        """Seconds that a run of an agent may take: as `time_limit`, from its own past runs."""
        return self.time_limit(AGENT + agent)

    def batch(self, calls: Sequence[PlannedCall]) -> BatchEstimate:
        """How long several calls take, and whether they may run at the same time."""
        estimates = [self.estimate(call.tool, call.args) for call in calls]
        return batch(calls, estimates, self.is_safe, self._settings.tuning.execution.max_parallel)

    def is_safe(self, tool: str) -> bool:
        """Whether a tool is declared safe to run beside others: read-only, or named so."""
        own, settings = self._settings.tools.get(tool), self._settings
        return (own is not None and own.parallel) or settings.effects.get(tool) == "read"

    def resources(self, tool: str) -> ResourceProfile | None:
        """What the calls of a tool cost the machine; None for a tool without a profile."""
        with self._lock:
            profile = self._profiles.get(tool[:_NAMED])
            return None if profile is None else profile.resources()

    def summary(self, tool: str) -> Summary | None:
        """The profile of a tool, for people; None for a tool without one."""
        with self._lock:
            profile = self._profiles.get(tool[:_NAMED])
            return None if profile is None else profile.summary()

    def _profile(self, name: str) -> Profile:
        """The profile of a tool, made if need be; its past is asked for. The lock is held."""
        name = name[:_NAMED]
        profile = self._profiles.get(name)
        if profile is None:
            profile = self._profiles[name] = Profile(name, self._settings)
        else:
            self._profiles.move_to_end(name)
        if not profile.asked and time.monotonic() >= self._resting_until:
            self._ask(profile)
        return profile

    def _ask(self, profile: Profile) -> None:
        """Asks for what the store knows of a tool, once."""
        writer, tool = self._writer, profile.tool
        profile.asked = True

        def failed() -> None:
            profile.asked = False
            self._resting_until = time.monotonic() + _AGAIN_S

        if writer is not None and not writer.ask(
            lambda store: store.records(tool), lambda found: self._loaded(tool, found), failed
        ):
            failed()

    def _loaded(self, tool: str, found: list[bytes]) -> None:
        """Adds what the store knows of a tool; on the writer's thread."""
        known = [record for raw in found if (record := CallRecord.decoded(raw)) is not None]
        if len(known) < len(found):
            logger.warning(
                "tool profile %r: %d records in the store are not understood and are left out",
                tool,
                len(found) - len(known),
            )
        own: list[CallRecord] = []
        with self._lock:
            profile = self._profiles.get(tool)
            if profile is not None:
                profile.read = True
                if known:
                    own = profile.unsaved()
                    profile.merge(known)
        if own and self._writer is not None:
            self._writer.add_records(tool, [record.encoded() for record in own])
