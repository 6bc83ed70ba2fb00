"""Profiles of all tools and agents: how long a call or a batch will take."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from graphlib import CycleError, TopologicalSorter
from heapq import heapreplace
from typing import TYPE_CHECKING, Final, NamedTuple

from otel_loopguard._util.bounded import BoundedDict
from otel_loopguard._util.errors import logger
from otel_loopguard._util.locks import new_lock
from otel_loopguard.core import Kind, Step
from otel_loopguard.execution import latency
from otel_loopguard.plans import needs

if TYPE_CHECKING:
    from otel_loopguard.core.task import Task
    from otel_loopguard.execution.resources import Resources
    from otel_loopguard.settings import Settings
    from otel_loopguard.stores import Writer


class BatchEstimate(NamedTuple):
    """Estimated duration of several calls, in milliseconds."""

    sequential_ms: float  # one after the other
    parallel_ms: float  # as many at a time as allowed, dependencies kept, unsafe ones alone
    can_run_in_parallel: bool  # none needs the result of another, and every tool is declared safe
    reason: str  # why, or why not
    estimates: tuple[latency.Estimate, ...]  # of each call, in their order


# Characters of a tool's name. Longer ones are cut: a model may make up names of any length.
_LONGEST_NAME: Final = 200
# Tools and agents that have a profile; the one unused for longest goes first. With a hundred calls
# each they take 25 MB.
_PROFILES: Final = 1000
# Seconds for which a store that failed is not asked: each question waits for its time-out.
_AGAIN_S: Final = 30.0
# Calls from which a longer one is a stall: from fewer a 90th percentile is a guess.
_STALL_RECORDS: Final = 20
# Times its estimate that a call or a run of an agent may take.
_LIMIT: Final = 5.0
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

    def __init__(self, settings: Settings, *, writer: Writer | None = None) -> None:
        self._settings = settings
        self._writer = writer
        self.machine: Resources | None = None  # what is measured of it while calls run
        self._resting_until = 0.0
        self._profiles: BoundedDict[str, latency.Profile] = BoundedDict(_PROFILES)
        self._lock = new_lock()

    def forked(self) -> None:
        """In the child of a fork: asks again for what was not read; the parent stores its calls."""
        for profile in self._profiles.values():
            profile.asked = profile.read
            profile.unsaved()

    @property
    def tools(self) -> tuple[str, ...]:
        """Names of profiles, the one unused for longest first; agents with the prefix `agent:`."""
        with self._lock:
            return tuple(self._profiles)

    def finished(self, step: Step, session: str = "") -> None:
        """Adds a finished tool call or agent run; ignores other steps and those without times."""
        kind, name, start, end = step.kind, step.name, step.start, step.end
        if not name or not end or not 0 < start <= end < latency.LATEST:
            return
        if kind is _AGENT:
            name = AGENT + name
        elif kind is not _TOOL:
            return
        size, complexity = latency.measure(step.args)
        record = latency.CallRecord(
            end, (end - start) / 1e6, size, session or step.session or "", not step.error,
            complexity, None if self.machine is None else self.machine.sample,
        )  # fmt: skip
        with self._lock:
            profile = self._profile(name)
            profile.add(record)
        if self._writer is not None and not profile.queued:
            # Set first: the writer may be here at once.
            profile.queued = True
            if not self._writer.add_records(profile.tool, partial(self._unsaved, profile)):
                profile.queued = False

    def _unsaved(self, profile: latency.Profile) -> list[bytes]:
        """Returns the records of a tool to store; on the writer's thread."""
        with self._lock:
            records = profile.unsaved()
        return [record.encoded() for record in records]

    def estimate(self, tool: str, args: object = None) -> latency.Estimate:
        """Estimates the duration of a call that is about to run, from memory."""
        size, complexity = latency.measure(args)
        with self._lock:
            return self._profile(tool).estimate(size, complexity)

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
        size, complexity = latency.measure(args)
        with self._lock:
            profile = self._profile(tool)
            estimate, longest_ms = profile.estimate(size, complexity), profile.longest_ms
        if estimate.records < _STALL_RECORDS:
            return None
        ms = max(rule.stall_factor * estimate.duration_ms, longest_ms)
        return max(ms / 1e3, rule.stall_min_s)

    def time_limit(self, tool: str, args: object = None) -> float:
        """Seconds that a call may take: five times its estimate, within 30 to 600; else 600."""
        rule, estimate = self._settings.tuning.latency, self.estimate(tool, args)
        if not estimate.known:
            return rule.limit_max_s
        seconds = max(_LIMIT * estimate.duration_ms / 1e3, rule.limit_min_s)
        return min(seconds, max(rule.limit_max_s, rule.limit_min_s))

    def agent_limit(self, agent: str) -> float:
        """Seconds that a run of an agent may take: as `time_limit`, from its own past runs."""
        return self.time_limit(AGENT + agent)

    def batch(self, tasks: Sequence[Task]) -> BatchEstimate:
        """Estimates the duration of several calls, and whether they may run at the same time.

        A call waits for those that it depends on, and for those that its arguments name. A task's
        own estimate takes precedence.
        """
        estimates = [
            self.estimate(task.tool or "", task.args)
            if task.estimate_ms is None
            else latency.Estimate(task.estimate_ms, 0, latency.Knowledge.GIVEN)
            for task in tasks
        ]
        durations = {task.id: one.duration_ms for task, one in zip(tasks, estimates, strict=True)}
        waits = needs(tasks)
        alone = {task.id for task in tasks if not self.is_safe(task.tool or "")}
        reason = ""
        if len(tasks) < 2:
            reason = "there is one call" if tasks else "there is no call"
        elif any(waits.values()):
            reason = "some calls need the result of others"
        elif alone:
            unsafe = {task.tool or "" for task in tasks if task.id in alone}
            reason = f"not declared safe: {', '.join(sorted(unsafe))}"
        total = parallel = sum(durations.values())
        order = TopologicalSorter(waits)
        try:
            order.prepare()
        except CycleError:
            reason = "the calls need each other in a circle"
        else:
            parallel = 0.0
            while level := order.get_ready():
                order.done(*level)
                parallel += sum(durations[name] for name in level if name in alone)
                # The longest first, to whichever lane is free.
                lanes = [0.0] * self._settings.tuning.plans.max_parallel
                rest = (durations[name] for name in level if name not in alone)
                for duration in sorted(rest, reverse=True):
                    heapreplace(lanes, lanes[0] + duration)
                parallel += max(lanes)
        why = reason or "no call needs another, and every tool is declared safe"
        return BatchEstimate(total, parallel, not reason, why, tuple(estimates))

    def is_safe(self, tool: str) -> bool:
        """True for a tool that may run beside others: declared to, or to read only."""
        own = self._settings.tools.get(tool)
        return self._settings.effects.get(tool) == "read" or (own is not None and own.parallel)

    def resources(self, tool: str) -> latency.ResourceProfile | None:
        """Resources that a tool's calls use on the machine; None for a tool without a profile."""
        with self._lock:
            profile = self._profiles.get(tool[:_LONGEST_NAME])
            return None if profile is None else profile.resources()

    def summary(self, tool: str) -> latency.Summary | None:
        """The profile of a tool, for people; None for a tool without one."""
        with self._lock:
            profile = self._profiles.get(tool[:_LONGEST_NAME])
            return None if profile is None else profile.summary()

    def _profile(self, name: str) -> latency.Profile:
        """The profile of a tool, created if need be; asks the store once. The lock is held."""
        name = name[:_LONGEST_NAME]
        profile = self._profiles.get(name)
        if profile is None:
            profile = self._profiles[name] = latency.Profile(name, self._settings)
        else:
            self._profiles.move_to_end(name)
        if self._writer is not None and not profile.asked:
            self._ask(profile, self._writer)
        return profile

    def _ask(self, profile: latency.Profile, writer: Writer) -> None:
        """Asks the store for a tool's records, once; again only some time after it failed."""
        if time.monotonic() < self._resting_until:
            return
        tool, profile.asked = profile.tool, True

        def failed() -> None:
            profile.asked = False
            self._resting_until = time.monotonic() + _AGAIN_S

        if not writer.ask(
            lambda store: store.records(tool), lambda found: self._loaded(tool, found), failed
        ):
            failed()

    def _loaded(self, tool: str, found: list[bytes]) -> None:
        """Adds what the store knows of a tool; on the writer's thread."""
        known = [record for raw in found if (record := latency.CallRecord.decoded(raw)) is not None]
        if len(known) < len(found):
            logger.warning(
                "tool profile %r: %d records in the store are not understood and are left out",
                tool,
                len(found) - len(known),
            )
        own: list[latency.CallRecord] = []
        with self._lock:
            profile = self._profiles.get(tool)
            if profile is not None:
                profile.read = True
                if known:
                    own = profile.unsaved()
                    profile.merge(known)
        if own and self._writer is not None:
            self._writer.add_records(tool, lambda: [record.encoded() for record in own])
