"""What past calls of one tool say: how long the next one takes, and what calls cost the machine."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from math import ceil, exp, inf
from statistics import fmean
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple, cast

import orjson

from otel_loopguard._util.bounded import BoundedDict

if TYPE_CHECKING:
    from otel_loopguard.settings import Settings


class ResourceSample(NamedTuple):
    """Load of the machine while a call ran. None is *not measured*, never nothing.

    Attributes:
        cpu_percent: CPU in use, in % of all processors, 0 to 100.
        memory_mb: Memory in use by the process, in MB.
        io_wait_percent: Time that processors waited for input and output, in %, 0 to 100.
    """

    cpu_percent: float | None = None
    memory_mb: float | None = None
    io_wait_percent: float | None = None


class Arguments(NamedTuple):
    """What is measured of the arguments of one call; nothing of them is kept.

    Attributes:
        size: Bytes of them as JSON; None if they were not captured, or are no data.
        complexity: 0 for the plainest, 1 for the most complex.
        key: Equal for equal arguments, within this process only; None without a size.
    """

    size: int | None = None
    complexity: float = 0.0
    key: int | None = None


_UNKNOWN: Final = Arguments()
_MOST_CHARS: Final = 10_000
_MOST_FIELDS: Final = 50
_MOST_CONTAINERS: Final = 20
_LOOKED_AT: Final = 100_000
_OPTIONS: Final = orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS


def measure(args: object) -> Arguments:
    """Measures arguments. Never throws, whatever they are; microseconds for a few kilobytes.

    A JSON text and the equal map measure about the same. Complexity is the mean of three shares,
    each at most 1: bytes of 10,000, fields of 50, maps and lists of 20.
    """
    if args is None:
        return _UNKNOWN
    if isinstance(args, str):
        raw = args[:_LOOKED_AT].encode("utf-8", "surrogatepass")
        size = max(len(raw), len(args))
    else:
        try:
            raw = orjson.dumps(args, default=lambda value: type(value).__name__, option=_OPTIONS)
        except (TypeError, ValueError, RecursionError):
            return _UNKNOWN
        size = len(raw)
        raw = raw[:_LOOKED_AT]
    length = min(size / _MOST_CHARS, 1.0)
    fields = min(raw.count(b":") / _MOST_FIELDS, 1.0)
    containers = min((raw.count(b"{") + raw.count(b"[")) / _MOST_CONTAINERS, 1.0)
    return Arguments(size, (length + fields + containers) / 3, hash(raw) ^ size)


_FORM: Final = 1
"""Version of the stored form of a record."""


class CallRecord(NamedTuple):
    """One finished call of a tool. Nothing of its arguments or its result is in it.

    Attributes:
        time: Its end, nanoseconds since the epoch.
        ms: How long it took, in milliseconds.
        size: Bytes of its arguments; None if they were not captured.
        session: Key of its session.
        success: Whether it went well.
        cached: Whether it looks answered from a cache: a repeat, much faster than usual.
        complexity: Complexity of its arguments, 0 to 1.
        cpu_percent: CPU in use when it ended, in %; None if it was not measured.
        io_wait_percent: Time spent waiting for input and output, in %; None if not measured.
        memory_mb: Memory of the process, in MB; None if it was not measured.
    """

    time: int
    ms: float
    size: int | None
    session: str
    success: bool
    cached: bool = False
    complexity: float = 0.0
    cpu_percent: float | None = None
    io_wait_percent: float | None = None
    memory_mb: float | None = None

    @property
    def timed(self) -> bool:
        """Whether estimates are made from it: it went well, and did the work."""
        return self.success and not self.cached

    def encoded(self) -> bytes:
        """A JSON list that starts with the time; about 80 bytes."""
        flags = int(self.success) | int(self.cached) << 1
        return orjson.dumps(
            [
                self.time, _FORM, round(self.ms, 4), self.size, self.session, flags,
                round(self.complexity, 4), *self[-3:],
            ]
        )  # fmt: skip

    @classmethod
    def decoded(cls, raw: bytes) -> CallRecord | None:
        """The record that was `encoded`; None for bytes that are none, or of a later form."""
        try:
            value = orjson.loads(raw)
        except ValueError:
            return None
        fields = cast("list[object]", value) if isinstance(value, list) else []
        if len(fields) != len(cls._fields) or fields[1] != _FORM:
            return None
        time, _, given_ms, size, session, flags, *others = fields
        ms, complexity, cpu, io_wait, memory = map(_number, (given_ms, *others))
        if not isinstance(time, int) or time <= 0 or ms is None:
            return None
        if not isinstance(flags, int) or not isinstance(session, str):
            return None
        return cls(
            time, ms, size if isinstance(size, int) else None, session, bool(flags & 1),
            bool(flags & 2), complexity or 0.0, cpu, io_wait, memory,
        )  # fmt: skip


def _number(value: object) -> float | None:
    """A number that is not negative and not infinite; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if 0 <= value < 1e15 else None


class Calibration:
    """Follows the share of calls of one tool that stayed within their estimate.

    After a miss estimates grow a little, after a hit they shrink by a ninth of that (at 90 %), so
    that the two balance at the share that is wanted, whatever the durations are distributed like
    and even where they drift (adaptive conformal inference, Gibbs and Candès 2021).

    Attributes:
        offset: Log of the factor that estimates are multiplied by, -1 to 3.
    """

    __slots__ = ("_hits", "_newest", "_share", "_step", "offset")

    def __init__(self, share: float, step: float) -> None:
        self.offset = 0.0
        self._share = share
        self._step = step
        self._newest: deque[bool] = deque(maxlen=100)
        self._hits = 0

    @property
    def within(self) -> float | None:
        """Share of the newest 100 calls that stayed within their estimate; None before the first.

        Calls before the first record of a tool are not counted.
        """
        return self._hits / len(self._newest) if self._newest else None

    def add(self, *, within: bool) -> None:
        """Adds a call that ended, within its estimate or past it."""
        newest = self._newest
        if len(newest) == newest.maxlen:
            self._hits -= newest[0]
        newest.append(within)
        self._hits += within
        self.offset = min(max(self.offset + self._step * (self._share - within), -1.0), 3.0)


DEFAULTS_MS: Final[Mapping[str, float]] = MappingProxyType(
    {
        "web_search": 3_000,
        "web_crawl": 12_000,
        "web_scrape": 8_000,
        "file_read": 500,
        "file_write": 1_000,
        "file_process": 5_000,
        "database_query": 2_000,
        "database_insert": 3_000,
        "api_call": 4_000,
        "api_batch": 15_000,
        "mcp_tool": 5_000,
        "data_analysis": 20_000,
        "image_process": 10_000,
        "video_process": 60_000,
    }
)
"""Milliseconds by the name of the tool. Users add theirs in `profile_defaults_ms`."""


class Knowledge(str, Enum):
    """What an estimate rests on."""

    UNKNOWN = "unknown"
    DEFAULT = "default"
    BLEND = "blend"
    PROFILE = "profile"

    __str__ = str.__str__


class Estimate(NamedTuple):
    """How long one call will take.

    Attributes:
        duration_ms: Milliseconds that nine of ten such calls stay within.
        records: Successful calls that it was made from; cache hits are not among them.
        similar: Those of them whose arguments are of about the same size.
        source: `profile`, `blend` (default and few records), `default` (the table or the user's
            own), or `unknown` (no default, no record: the number says nothing).
        within: Share of the newest calls that stayed within their estimate, 0 to 1; None before
            the first.
    """

    duration_ms: float
    records: int
    similar: int
    source: Knowledge
    within: float | None = None

    @property
    def known(self) -> bool:
        """Whether anything is known of the tool."""
        return self.source is not Knowledge.UNKNOWN


def percentile(ordered: Sequence[float], share: float) -> float:
    """The value that the next one stays within with a chance of `share`, as far as there is one.

    Of n values it is number ⌈(n + 1) · share⌉, at most the largest: with the plain percentile of
    few values the next one would be above it too often.
    """
    return ordered[min(ceil((len(ordered) + 1) * share), len(ordered)) - 1]


def _between(one: float, other: float, weight: float) -> float:
    """The mean of two durations in logarithms; `weight` is that of the other."""
    one = max(one, 0.001)
    return one * (max(other, 0.001) / one) ** weight


@dataclass(frozen=True, slots=True)
class ResourceProfile:
    """Mean load while the calls of one tool ran.

    A mean is None where nothing was measured; its sign is then False. What else the machine did at
    the time is in these numbers too.

    Attributes:
        samples: Calls of which anything was measured.
        cpu_percent: CPU in use, in %.
        memory_mb: Memory of the process, in MB.
        io_wait_percent: Time spent waiting for input and output, in %.
        cpu_intensive: Whether CPU is above `tuning.latency.cpu_percent` (60).
        memory_intensive: Whether memory is above `tuning.latency.memory_mb` (500).
        io_intensive: Whether I/O wait is above `tuning.latency.io_percent` (20).
    """

    samples: int
    cpu_percent: float | None
    memory_mb: float | None
    io_wait_percent: float | None
    cpu_intensive: bool
    memory_intensive: bool
    io_intensive: bool


class Summary(NamedTuple):
    """A profile, for people.

    Attributes:
        tool: Name of the tool.
        calls: Calls that are kept.
        failures: Those of them that failed.
        cached: Those of them that were cache hits.
        p50_ms: Median of the others; None if there are none.
        p90_ms: Their 90th percentile.
        estimate_ms: What a call with arguments of unknown size is estimated at.
        source: What that rests on.
        within: Share of the newest 100 calls that stayed within their estimate.
    """

    tool: str
    calls: int
    failures: int
    cached: int
    p50_ms: float | None
    p90_ms: float | None
    estimate_ms: float
    source: Knowledge
    within: float | None


_SHARED: Final = 5
"""Calls of like size that weigh as much as all calls of the tool together."""
_IDENTITIES: Final = 256
_DAY_NS: Final = 86_400_000_000_000


class Profile:
    """The newest calls of one tool, and the estimates made from them. Not thread-safe.

    Attributes:
        tool: Name of the tool.
        records: Its newest calls, oldest first.
        longest_ms: The longest of the successful calls that are kept; 0 without one.
        asked: Whether the store was asked for what it knows.
        read: Whether it answered.
    """

    __slots__ = (
        "_calibration", "_default", "_ms", "_rows", "_rule", "_seen", "_timed", "asked",
        "longest_ms", "read", "records", "tool",
    )  # fmt: skip

    def __init__(self, tool: str, settings: Settings) -> None:
        self.tool = tool
        self.asked = False
        self.read = False
        self._rule = settings.tuning.latency
        self._default = settings.profile_defaults_ms.get(tool, DEFAULTS_MS.get(tool))
        self._seen: BoundedDict[int, None] = BoundedDict(_IDENTITIES)
        self._clear()

    def _clear(self) -> None:
        rule = self._rule
        self.records: deque[CallRecord] = deque(maxlen=rule.records)
        self.longest_ms = 0.0
        self._calibration = Calibration(rule.percentile, rule.adapts)
        self._timed: deque[CallRecord] = deque()
        # The newest of them, kept sorted: by size (-1: unknown), and by time taken.
        self._rows: list[tuple[float, float, float]] = []
        self._ms: list[float] = []

    def estimate(self, arguments: Arguments) -> Estimate:
        """How long a call will take.

        Calls of like size weigh n / (n + 5) against all calls of the tool, and the default weighs
        less with every record until there are `tuning.latency.prior_records`; both in logarithms.
        """
        rule, count, within = self._rule, len(self._ms), self._calibration.within
        default = rule.default_ms if self._default is None else self._default
        if not count:
            source = Knowledge.UNKNOWN if self._default is None else Knowledge.DEFAULT
            return Estimate(default, 0, 0, source, within)
        ms, similar = self._from_records(arguments)
        weight = self._weight(count)
        if weight >= 1:
            return Estimate(ms, count, similar, Knowledge.PROFILE, within)
        if not weight:
            return Estimate(default, count, similar, Knowledge.DEFAULT, within)
        ms = _between(default, ms, weight)
        return Estimate(ms, count, similar, Knowledge.BLEND, within)

    def _weight(self, count: int) -> float:
        """How much the records weigh against the default, 0 to 1."""
        enough = self._rule.prior_records
        if count < enough:
            return count / enough
        return 1.0 if enough or count >= self._rule.min_records else 0.0

    def _from_records(self, arguments: Arguments) -> tuple[float, int]:
        """How long a call takes by the records alone, and how many are of like size."""
        rule, rows, size = self._rule, self._rows, arguments.size
        ms, factor = percentile(self._ms, rule.percentile), exp(self._calibration.offset)
        if size is None:
            return ms * factor, len(rows)
        first = bisect_left(rows, (size / rule.similar,))
        alike = rows[first : bisect_left(rows, (size * rule.similar, inf))]
        if rule.min_records <= len(alike) < len(rows):
            own = percentile(sorted([row[1] for row in alike]), rule.percentile)
            ms = _between(ms, own, len(alike) / (len(alike) + _SHARED))
        compared = alike or rows
        mean = sum([row[2] for row in compared]) / len(compared)
        share = rule.complexity
        scaled = ms * factor * ((1 + share * arguments.complexity) / (1 + share * mean))
        return scaled, len(alike)

    def is_cache_hit(self, key: int | None, ms: float) -> bool:
        """Whether a call was made before with equal arguments, and was now much faster.

        Every call is remembered by this, the newest 256.
        """
        if key is None:
            return False
        again = key in self._seen
        self._seen[key] = None
        count = len(self._ms)
        if not again or count < self._rule.min_records:
            return False
        return ms <= self._rule.cache_hit * self._ms[count - 1 - count // 2]

    def add(self, record: CallRecord) -> None:
        """Adds a finished call; O(newest calls), which are 50."""
        self.records.append(record)
        timed = self._timed
        if record.timed:
            # It follows its own misses from where the default no longer weighs.
            if self._ms and self._weight(len(self._ms)) >= 1:
                arguments = Arguments(record.size, record.complexity)
                within = record.ms <= self._from_records(arguments)[0]
                self._calibration.add(within=within)
            if len(timed) >= self._rule.records:
                self._forget()
            timed.append(record)
            insort(self._rows, _row(record))
            insort(self._ms, record.ms)
            if len(timed) > self._rule.newest:
                self._unsort(timed[-1 - self._rule.newest])
            self.longest_ms = max(self.longest_ms, record.ms)
        oldest = record.time - self._rule.days * _DAY_NS
        while self.records[0].time < oldest:
            self.records.popleft()
        while timed and timed[0].time < oldest:
            self._forget()

    def _forget(self) -> None:
        """Removes the oldest call that went well."""
        if len(self._timed) <= self._rule.newest:
            self._unsort(self._timed[0])
        gone = self._timed.popleft()
        if gone.ms >= self.longest_ms:
            self.longest_ms = max([one.ms for one in self._timed], default=0.0)

    def _unsort(self, record: CallRecord) -> None:
        del self._rows[bisect_left(self._rows, _row(record))]
        del self._ms[bisect_left(self._ms, record.ms)]

    def merge(self, stored: Iterable[CallRecord]) -> None:
        """Adds what a store knows: each call once, in order of time."""
        known = {(record.time, record.session): record for record in (*stored, *self.records)}
        self._clear()
        for record in sorted(known.values(), key=lambda each: each.time):
            self.add(record)

    def summary(self) -> Summary:
        """What it holds, for people."""
        ordered = sorted(record.ms for record in self.records if record.timed)
        estimate = self.estimate(_UNKNOWN)
        return Summary(
            self.tool,
            len(self.records),
            sum(not record.success for record in self.records),
            sum(record.cached for record in self.records),
            percentile(ordered, 0.5) if ordered else None,
            percentile(ordered, 0.9) if ordered else None,
            estimate.duration_ms,
            estimate.source,
            estimate.within,
        )

    def resources(self) -> ResourceProfile:
        """What the calls cost the machine."""
        rule, records = self._rule, self.records
        cpu = _mean(record.cpu_percent for record in records)
        memory = _mean(record.memory_mb for record in records)
        io_wait = _mean(record.io_wait_percent for record in records)
        return ResourceProfile(
            samples=sum(any(each is not None for each in record[-3:]) for record in records),
            cpu_percent=cpu,
            memory_mb=memory,
            io_wait_percent=io_wait,
            cpu_intensive=cpu is not None and cpu > rule.cpu_percent,
            memory_intensive=memory is not None and memory > rule.memory_mb,
            io_intensive=io_wait is not None and io_wait > rule.io_percent,
        )


def _row(record: CallRecord) -> tuple[float, float, float]:
    return (-1 if record.size is None else record.size, record.ms, record.complexity)


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None
