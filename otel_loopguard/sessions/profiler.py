"""Profiles of all tools and agents: how long a call or a batch will take, and what it uses."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from graphlib import CycleError, TopologicalSorter
from heapq import heapreplace
from itertools import islice
from math import ceil, fsum
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, cast

import orjson

from otel_loopguard._util.bounded import BoundedDict
from otel_loopguard._util.errors import logger
from otel_loopguard._util.locks import new_lock
from otel_loopguard._util.tables import read_texts
from otel_loopguard._util.text import StrEnum, encoded
from otel_loopguard.core import Kind, Step
from otel_loopguard.plans import needs

if TYPE_CHECKING:
    from otel_loopguard.core.task import Task
    from otel_loopguard.settings import Settings
    from otel_loopguard.stores import Writer


class ResourceSample(NamedTuple):
    """Load of the machine while a call ran. None is *not measured*, never nothing."""

    cpu_percent: float | None = None  # of all processors, 0 to 100
    memory_mb: float | None = None  # of the process
    io_wait_percent: float | None = None  # time that processors waited, 0 to 100


# Arguments of this much count as complex in full: a page of text, a form of fifty fields, twenty
# maps and lists in each other. Rough on purpose: complexity moves an estimate by half at most.
_FULL_CHARS: Final = 10_000
_FULL_FIELDS: Final = 50
_FULL_CONTAINERS: Final = 20
# Characters that are looked through. Ten times what counts in full, and well under a millisecond.
_LOOKED_AT: Final = 100_000
_JSON: Final = orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS


def measure(args: object) -> tuple[int | None, float]:
    """Returns size and complexity of arguments; nothing of them is kept. Never throws.

    The size is in characters of JSON: a JSON text and the equal map measure about the same. It is
    None for arguments that were not captured, or are no data. Complexity, 0 to 1, is the mean of
    three shares: the size, the fields, and the maps and lists.
    """
    if args is None:
        return None, 0.0
    if isinstance(args, str):
        text, size = args, len(args)
    else:
        try:
            text = orjson.dumps(args, lambda value: type(value).__name__, _JSON).decode()
        except (TypeError, ValueError, RecursionError):
            return None, 0.0
        size = len(text)
    if size > _LOOKED_AT:
        text = text[:_LOOKED_AT]
    length, fields = size / _FULL_CHARS, text.count(":") / _FULL_FIELDS
    containers = (text.count("{") + text.count("[")) / _FULL_CONTAINERS
    # Three times min() costs as much as all of the counting.
    if length > 1.0 or fields > 1.0 or containers > 1.0:
        length, fields, containers = min(length, 1.0), min(fields, 1.0), min(containers, 1.0)
    return size, (length + fields + containers) / 3


_FORM: Final = 1
"""Version of the stored form of a record; a later one is not read."""
LATEST: Final = 1 << 63
"""Nanoseconds from which on a time is invalid: a store and OTLP have 63 bits for one."""
_HIGHEST: Final = 1e15
"""Numbers in a stored record from which on it is damaged: a duration of 30,000 years."""


class CallRecord(NamedTuple):
    """One finished call of a tool. Nothing of its arguments or its result is in it."""

    time: int  # its end, nanoseconds since the epoch
    ms: float
    size: int | None  # characters of its arguments; None if they were not captured
    session: str
    success: bool
    complexity: float = 0.0
    load: ResourceSample | None = None

    def encoded(self) -> bytes:
        """A JSON list that starts with the time; about 80 bytes."""
        cpu, memory, io_wait = self.load or ResourceSample()
        return encoded(
            [
                self.time, _FORM, round(self.ms, 4), self.size, self.session, int(self.success),
                round(self.complexity, 4), cpu, io_wait, memory,
            ]
        )  # fmt: skip

    @classmethod
    def decoded(cls, raw: bytes) -> CallRecord | None:
        """The record that was `encoded`; None if it is damaged, or of a later form."""
        try:
            time, form, ms, size, session, flags, *others = orjson.loads(raw)
            ms, size, complexity, cpu, io_wait, memory = map(_number, (ms, size, *others))
        except (TypeError, ValueError):  # it is no JSON, no list, or not so long
            return None
        if form != _FORM or not isinstance(time, int) or not 0 < time < LATEST or ms is None:
            return None
        if not isinstance(flags, int) or not isinstance(session, str):
            return None
        load = ResourceSample(cpu, memory, io_wait)
        return cls(
            time, ms, None if size is None else int(size), session, bool(flags & 1),
            complexity or 0.0, load if any(one is not None for one in load) else None,
        )  # fmt: skip


def _number(value: object) -> float | None:
    """A number that is not negative and not infinite; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if 0 <= value < _HIGHEST else None


DEFAULTS_MS: Final = {tool: float(ms) for tool, ms in read_texts(__name__, "durations.txt").items()}
"""Milliseconds by the name of the tool."""
_UNKNOWN_MS: Final = 5_000.0
"""Milliseconds for an unknown tool: about the median of the table."""


class Knowledge(StrEnum):
    """Basis of an estimate."""

    UNKNOWN = "unknown"
    DEFAULT = "default"
    PROFILE = "profile"
    GIVEN = "given"


class Estimate(NamedTuple):
    """Estimated duration of one call."""

    duration_ms: float  # nine of ten such calls stay within
    records: int  # successful calls of the tool that are known, 50 at most
    source: Knowledge

    @property
    def known(self) -> bool:
        """True if anything is known about the tool."""
        return self.source is not Knowledge.UNKNOWN


@dataclass(frozen=True, slots=True)
class ResourceProfile:
    """Mean load while the calls of one tool ran, whatever else the machine did.

    A mean is None where nothing was measured; its sign is then False.
    """

    samples: int  # calls of which anything was measured
    cpu_percent: float | None
    memory_mb: float | None
    io_wait_percent: float | None
    cpu_intensive: bool
    memory_intensive: bool
    io_intensive: bool


class Summary(NamedTuple):
    """A profile, for people."""

    tool: str
    calls: int
    failures: int
    p50_ms: float | None  # of the calls that went well, as the next one
    p90_ms: float | None
    estimate_ms: float  # of a call with arguments of unknown size
    source: Knowledge


# A tool changes: what it did a week or a hundred calls ago says little of today. Stores keep the
# same hundred, and 1,000 tools with a hundred records each take about 25 MB.
_RECORDS: Final = 100
_KEPT_NS: Final = 7 * 86_400_000_000_000
# The newest records that estimates are made from: enough for a 90th percentile, soon renewed.
_NEWEST: Final = 50
# Fewer records than these say less than the table of defaults.
_MIN_RECORDS: Final = 3
# The next of nine calls is within the slowest of them nine times in ten: from fewer of like size no
# estimate holds as often as it should, and all calls of the tool make it.
_MIN_ALIKE: Final = 9
# Arguments of half to twice the size are alike.
_ALIKE: Final = 2.0
# Share of the calls that an estimate holds for. Higher ones are made of the one slowest call.
_SHARE: Final = 0.9
# Share that the most complex arguments add to an estimate.
_COMPLEXITY: Final = 0.5
# From these means on a tool is marked as CPU-, memory- or I/O-intensive: above them two such calls
# side by side are slower than one after the other on a machine with two cores and 2 GB.
_INTENSIVE: Final = ResourceSample(cpu_percent=60.0, memory_mb=500.0, io_wait_percent=20.0)
# Newest calls whose estimates are compared with their durations whenever errors are asked for:
# each costs 20 µs on the thread that exports metrics.
_COMPARED: Final = 24
# Percent that one call counts for at most: one that took no time must not be the mean.
_MOST_OFF: Final = 1000.0


class _Window(NamedTuple):
    """The newest calls that went well, as estimates see them."""

    calls: Sequence[CallRecord]
    ms: float  # what nine of ten stay within
    smallest: int  # sizes of arguments; -1 if one is not known
    largest: int
    complexity: float  # mean


class Profile:
    """The newest calls of one tool, and the estimates made from them. Not thread-safe.

    A call that ends is only appended. What follows from it is worked out when somebody asks.
    """

    __slots__ = ("_calls", "_default", "_fresh", "_unsaved", "_window", "asked", "queued",
                 "read", "tool")  # fmt: skip

    def __init__(self, tool: str, settings: Settings) -> None:
        self.tool = tool
        self.asked = False  # the store was asked for what it knows
        self.read = False  # it answered
        self.queued = False  # the store's writer is to come for what is not stored yet
        own = settings.declared.get(tool)
        self._default = (own and own.duration_ms) or DEFAULTS_MS.get(tool)
        self._calls: deque[CallRecord] = deque(maxlen=_RECORDS)
        # Of the newest calls: those that `misses` has not compared, and those not stored yet.
        self._fresh = self._unsaved = 0
        # Between two calls that end, somebody may ask often.
        self._window: _Window | None = None

    def add(self, record: CallRecord) -> None:
        """Adds a finished call."""
        self._calls.append(record)
        self._window = None
        self._fresh += 1
        self._unsaved += 1

    @property
    def records(self) -> Sequence[CallRecord]:
        """Its newest calls, oldest first."""
        calls = self._calls
        while calls and calls[0].time < calls[-1].time - _KEPT_NS:
            calls.popleft()
        return calls

    @property
    def longest_ms(self) -> float:
        """The longest of the newest calls that went well; 0 without one."""
        return max((call.ms for call in self.records if call.success), default=0.0)

    def unsaved(self) -> list[CallRecord]:
        """Returns the calls that are not stored yet, and marks them as stored."""
        records, count = self.records, self._unsaved
        self._unsaved, self.queued = 0, False
        return list(islice(records, max(len(records) - count, 0), None))

    def estimate(self, size: int | None = None, complexity: float = 0.0) -> Estimate:
        """Estimates the duration of a call by the size and complexity of its arguments."""
        window = self._window
        if window is None:
            went_well = [call for call in self.records if call.success]
            window = self._window = _look(went_well[-_NEWEST:])
        count = len(window.calls)
        if count < _MIN_RECORDS:
            if self._default is None:
                return Estimate(_UNKNOWN_MS, count, Knowledge.UNKNOWN)
            return Estimate(self._default, count, Knowledge.DEFAULT)
        return Estimate(_from(window, size, complexity), count, Knowledge.PROFILE)

    def misses(self) -> list[float]:
        """Returns by how much estimates were off, in percent, for the newest calls, each once."""
        records = list(self.records)
        fresh, self._fresh = min(self._fresh, len(records), _COMPARED), 0
        found: list[float] = []
        for place in range(len(records) - fresh, len(records)):
            call = records[place]
            before = [one for one in records[:place] if one.success][-_NEWEST:]
            if call.success and call.ms > 0 and len(before) >= _MIN_RECORDS:
                ms = _from(_look(before), call.size, call.complexity)
                found.append(min(100 * abs(ms - call.ms) / call.ms, _MOST_OFF))
        return found

    def merge(self, stored: Iterable[CallRecord]) -> None:
        """Adds what a store knows: each call once, in order of time."""
        known = {(record.time, record.session): record for record in (*stored, *self._calls)}
        self._calls.clear()
        self._calls.extend(sorted(known.values(), key=lambda each: each.time))
        self._window, self._unsaved = None, 0

    def summary(self) -> Summary:
        """Contents, for people."""
        records, estimate = self.records, self.estimate()
        ordered = sorted(record.ms for record in records if record.success)
        return Summary(
            self.tool,
            len(records),
            sum(not record.success for record in records),
            percentile(ordered, 0.5) if ordered else None,
            percentile(ordered, 0.9) if ordered else None,
            estimate.duration_ms,
            estimate.source,
        )

    def resources(self) -> ResourceProfile:
        """Resources that the calls used on the machine."""
        loads = [record.load for record in self.records if record.load is not None]
        means = ResourceSample(*(_mean(load[place] for load in loads) for place in range(3)))
        limits = zip(means, _INTENSIVE, strict=True)
        flags = [mean is not None and mean > cast("float", limit) for mean, limit in limits]
        return ResourceProfile(len(loads), *means, *flags)


def percentile(ordered: Sequence[float], share: float) -> float:
    """The value that the next one stays within with a chance of `share`, as far as there is one.

    Of n values it is number ⌈(n + 1) · share⌉, at most the largest: with the plain percentile of
    few values the next one would be above it too often.
    """
    return ordered[min(ceil((len(ordered) + 1) * share), len(ordered)) - 1]


def _look(calls: Sequence[CallRecord]) -> _Window:
    if not calls:
        return _Window(calls, 0.0, -1, -1, 0.0)
    sizes = [-1 if call.size is None else call.size for call in calls]
    return _Window(
        calls,
        percentile(sorted([call.ms for call in calls]), _SHARE),
        min(sizes),
        max(sizes),
        fsum(call.complexity for call in calls) / len(calls),
    )


def _from(window: _Window, size: int | None, complexity: float) -> float:
    """Duration of a call by its records, or by those of similar size."""
    if size is None:
        return window.ms
    if size > window.smallest * _ALIKE or size < window.largest / _ALIKE:
        least, most = size / _ALIKE, size * _ALIKE
        alike = [c for c in window.calls if c.size is not None and least <= c.size <= most]
        if len(alike) >= _MIN_ALIKE:
            window = _look(alike)
    factor = (1 + _COMPLEXITY * complexity) / (1 + _COMPLEXITY * window.complexity)
    return window.ms * factor


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fsum(known) / len(known) if known else None


class BatchEstimate(NamedTuple):
    """Estimated duration of several calls, in milliseconds."""

    sequential_ms: float  # one after the other
    parallel_ms: float  # as many at a time as allowed, dependencies kept, unsafe ones alone
    can_run_in_parallel: bool  # none needs the result of another, and every tool is declared safe
    reason: str  # why, or why not
    estimates: tuple[Estimate, ...]  # of each call, in their order


class Machine(Protocol):
    """What is measured of the machine while calls run: `Resources`, once somebody asks for it."""

    sample: ResourceSample | None


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
        self.machine: Machine | None = None
        self._resting_until = 0.0
        self._profiles: BoundedDict[str, Profile] = BoundedDict(_PROFILES)
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
        if not name or not end or not 0 < start <= end < LATEST:
            return
        if kind is _AGENT:
            name = AGENT + name
        elif kind is not _TOOL:
            return
        size, complexity = measure(step.args)
        record = CallRecord(
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

    def _unsaved(self, profile: Profile) -> list[bytes]:
        """Returns the records of a tool to store; on the writer's thread."""
        with self._lock:
            records = profile.unsaved()
        return [record.encoded() for record in records]

    def estimate(self, tool: str, args: object = None) -> Estimate:
        """Estimates the duration of a call that is about to run, from memory."""
        size, complexity = measure(args)
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
        size, complexity = measure(args)
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
            else Estimate(task.estimate_ms, 0, Knowledge.GIVEN)
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
        own = self._settings.declared.get(tool)
        return self._settings.effects.get(tool) == "read" or (own is not None and own.parallel)

    def resources(self, tool: str) -> ResourceProfile | None:
        """Resources that a tool's calls use on the machine; None for a tool without a profile."""
        with self._lock:
            profile = self._profiles.get(tool[:_LONGEST_NAME])
            return None if profile is None else profile.resources()

    def summary(self, tool: str) -> Summary | None:
        """The profile of a tool, for people; None for a tool without one."""
        with self._lock:
            profile = self._profiles.get(tool[:_LONGEST_NAME])
            return None if profile is None else profile.summary()

    def _profile(self, name: str) -> Profile:
        """The profile of a tool, created if need be; asks the store once. The lock is held."""
        name = name[:_LONGEST_NAME]
        profile = self._profiles.get(name)
        if profile is None:
            profile = self._profiles[name] = Profile(name, self._settings)
        else:
            self._profiles.move_to_end(name)
        if self._writer is not None and not profile.asked:
            self._ask(profile, self._writer)
        return profile

    def _ask(self, profile: Profile, writer: Writer) -> None:
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
            self._writer.add_records(tool, lambda: [record.encoded() for record in own])
