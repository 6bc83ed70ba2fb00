"""The one face of profiles: takes finished calls, answers how long the next one may take."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from otel_loopguard.core import Kind
from otel_loopguard.locks import new_lock
from otel_loopguard.logger import logger
from otel_loopguard.profiling.batch import BatchEstimate, PlannedCall, batch
from otel_loopguard.profiling.complexity import measure
from otel_loopguard.profiling.profile import Profile, Summary
from otel_loopguard.profiling.record import CallRecord
from otel_loopguard.profiling.resource_profile import ResourceProfile, resources_of
from otel_loopguard.profiling.sample import ResourceSample

if TYPE_CHECKING:
    from otel_loopguard.core import Step
    from otel_loopguard.profiling.estimate import Estimate
    from otel_loopguard.settings import Settings
    from otel_loopguard.stores import Writer

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

    Args:
        settings: Settings.
        writer: Reads and writes a store in the background; None: nothing outlives the process.
        resources: The newest sample of the machine's load, from memory.
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
        """Takes a finished tool call or agent run (A1). Other steps, and those without times, pass.

        Args:
            step: The step.
            session: Key of its session; by default what the step itself says.
        """
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
        """How long a call that is about to run will take (A2). Never waits.

        Args:
            tool: Name of the tool.
            args: Its arguments, a JSON value or text; None if they are not known.
        """
        return self._known(tool).estimate(measure(args))

    def limit_for(self, tool: str, args: object = None) -> float | None:
        """Seconds after which a running call is stalled (D4). Never waits.

        Three times its estimate; and not less than 30 s, nor than the longest call of the tool that
        went well: what a tool came back from before is no stall.

        Returns:
            The limit; None for a tool with fewer than 20 successful calls, and for one that is
            exempt: nothing can be said of these.
        """
        settings = self._settings
        if tool in settings.exempt:
            return None
        profile = self._known(tool)
        estimate = profile.estimate(measure(args))
        if estimate.records < settings.profile_stall_records:
            return None
        ms = max(settings.profile_stall_factor * estimate.duration_ms, profile.longest_ms)
        return max(ms / 1e3, settings.profile_stall_min_s)

    def time_limit(self, tool: str, args: object = None) -> float:
        """Seconds that a call may take: five times its estimate, within 30 to 600 (E3).

        600 where nothing is known of the tool.
        """
        settings = self._settings
        estimate = self.estimate(tool, args)
        if not estimate.known:
            return settings.profile_limit_max_s
        seconds = settings.profile_limit_factor * estimate.duration_ms / 1e3
        longest = max(settings.profile_limit_max_s, settings.profile_limit_min_s)
        return min(max(seconds, settings.profile_limit_min_s), longest)

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
