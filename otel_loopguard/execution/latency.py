"""What is known of one tool from its past calls."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import accumulate
from math import ceil, exp
from statistics import fmean
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple, cast

import orjson

if TYPE_CHECKING:
    from otel_loopguard.settings import Settings


@dataclass(frozen=True, slots=True)
class ResourceSample:
    """Load of the machine while a call ran. None is *not measured*, never nothing.

    Attributes:
        cpu_percent: CPU in use, in % of all processors, 0 to 100.
        memory_mb: Memory in use by the process, in MB.
        io_wait_percent: Time that processors waited for input and output, in %, 0 to 100.
    """

    cpu_percent: float | None = None
    memory_mb: float | None = None
    io_wait_percent: float | None = None


_MOST_CHARS: Final = 10_000
_MOST_FIELDS: Final = 50
_MOST_CONTAINERS: Final = 20
_LOOKED_AT: Final = 100_000
_OPTIONS: Final = orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS


class Arguments(NamedTuple):
    """What is measured of the arguments of one call; nothing of them is kept.

    Attributes:
        size: Bytes of them as JSON; None if they were not captured, or are no data.
        complexity: 0 for the plainest, 1 for the most complex.
        key: Equal for equal arguments, within this process only; None without a size.
    """

    size: int | None
    complexity: float
    key: int | None


_UNKNOWN: Final = Arguments(None, 0.0, None)


def measure(args: object) -> Arguments:
    """Measures arguments. Never throws, whatever they are; microseconds for a few kilobytes.

    A JSON text and the equal map measure about the same. Complexity is the mean of three shares,
    each at most 1: bytes of 10,000, fields of 50, maps and lists of 20.
    """
    if args is None:
        return _UNKNOWN
    if isinstance(args, str):
        raw = args[:_LOOKED_AT].encode("utf-8", "surrogatepass")
        return _measured(raw, max(len(raw), len(args)))
    try:
        raw = orjson.dumps(args, default=_named, option=_OPTIONS)
    except (TypeError, ValueError, RecursionError):
        return _UNKNOWN
    return _measured(raw, len(raw))


def _measured(raw: bytes, size: int) -> Arguments:
    looked = raw if len(raw) <= _LOOKED_AT else raw[:_LOOKED_AT]
    fields = looked.count(b":") / _MOST_FIELDS
    containers = (looked.count(b"{") + looked.count(b"[")) / _MOST_CONTAINERS
    length = size / _MOST_CHARS
    if length > 1 or fields > 1 or containers > 1:
        length, fields, containers = min(length, 1.0), min(fields, 1.0), min(containers, 1.0)
    return Arguments(size, (length + fields + containers) / 3, hash(looked) ^ size)


def _named(value: object) -> str:
    """What stands for a value that JSON has no word for."""
    return type(value).__name__


_FORM: Final = 1
_FIELDS: Final = 10


class CallRecord(NamedTuple):
    """One finished call of a tool (A1). Nothing of its arguments or its result is in it.

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
        (time, ms, size, session, success, cached, complexity, cpu, io_wait, memory) = self
        return orjson.dumps(
            [
                time, _FORM, round(ms, 4), size, session, int(success) | int(cached) << 1,
                round(complexity, 4), cpu, io_wait, memory,
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
        if len(fields) != _FIELDS or fields[1] != _FORM:
            return None
        time, _, ms, size, session, flags, complexity, cpu, io_wait, memory = fields
        numbers = [_number(each) for each in (ms, complexity, cpu, io_wait, memory)]
        whole = isinstance(time, int) and time > 0 and isinstance(flags, int)
        if not whole or numbers[0] is None or not isinstance(session, str):
            return None
        return cls(
            cast("int", time), numbers[0], size if isinstance(size, int) else None, session,
            bool(cast("int", flags) & 1), bool(cast("int", flags) & 2), numbers[1] or 0.0,
            *numbers[2:],
        )  # fmt: skip


def _number(value: object) -> float | None:
    """A number that is not negative and not infinite; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if 0 <= value < 1e15 else None


class Window:
    """The newest calls, sorted as they come: O(log n) to find a place, no sorting anew.

    Attributes:
        rows: Size (-1 where it is not known), milliseconds and complexity, the smallest first.
        longest: Milliseconds, negative, and size: the longest first.
    """

    __slots__ = ("_most", "_order", "longest", "rows")

    def __init__(self, most: int) -> None:
        self._most = most
        self._order: deque[tuple[int, float, float]] = deque()
        self.rows: list[tuple[int, float, float]] = []
        self.longest: list[tuple[float, int]] = []

    def take(self, record: CallRecord) -> None:
        """Takes a call that went well; the oldest goes if there are too many."""
        size = -1 if record.size is None else record.size
        row = (size, record.ms, record.complexity)
        self._order.append(row)
        insort(self.rows, row)
        insort(self.longest, (-record.ms, size))
        if len(self._order) > self._most:
            self.forget()

    def forget(self) -> None:
        """Lets go of the oldest."""
        row = self._order.popleft()
        del self.rows[bisect_left(self.rows, row)]
        del self.longest[bisect_left(self.longest, (-row[1], row[0]))]


_NEWEST_ERRORS: Final = 100
_LEAST: Final = -1.0
_MOST: Final = 3.0


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
        self._newest: deque[bool] = deque(maxlen=_NEWEST_ERRORS)
        self._hits = 0

    @property
    def within(self) -> float | None:
        """Share of the newest 100 calls that stayed within their estimate; None before the first.

        Calls before the first record of a tool are not counted.
        """
        return self._hits / len(self._newest) if self._newest else None

    def take(self, *, within: bool) -> None:
        """Takes a call that ended, within its estimate or past it."""
        newest = self._newest
        if len(newest) == _NEWEST_ERRORS:
            self._hits -= newest[0]
        newest.append(within)
        self._hits += within
        moved = self.offset + self._step * (self._share - within)
        self.offset = min(max(moved, _LEAST), _MOST)


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
"""Milliseconds by the name of the tool (A2). Users add theirs in `profile_defaults_ms`."""


_SHARED: Final = 5
"""Calls of like size that weigh as much as all calls of the tool together."""

_LEAST_MS: Final = 0.001
_REMEMBERED: Final = 64


class Knowledge(str, Enum):
    """What an estimate rests on."""

    UNKNOWN = "unknown"
    DEFAULT = "default"
    BLEND = "blend"
    PROFILE = "profile"

    __str__ = str.__str__


class Estimate(NamedTuple):
    """How long one call will take (A2).

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


class Alike(NamedTuple):
    """What the calls of like size say of a call.

    Attributes:
        ms: How long it takes, the complexity of its arguments aside.
        similar: How many they are.
        complexity: Their mean complexity; that of all calls if there is none.
    """

    ms: float
    similar: int
    complexity: float


class Basis(NamedTuple):
    """What estimates of one tool are made from; replaced as a whole, so that readers never wait.

    Attributes:
        sizes: Bytes of the arguments of the newest successful calls, the smallest first; -1 where
            they are not known.
        longest: Milliseconds, negative, and size of these calls: the longest first.
        sums: Sums of their complexities: of the first none, the first one, the first two, …
        all_ms: The percentile of all of them; 0 without any.
        median_ms: Their median; 0 without any.
        longest_ms: The longest successful call that is kept; 0 without one.
        prior_ms: The default for the tool.
        given: Whether that is of the table or the user's own.
        offset: Log of the factor that keeps the estimate calibrated.
        within: Share of the newest calls within their estimate.
        alike: What was found out by it already, by size of arguments; at most 64.
    """

    sizes: tuple[int, ...]
    longest: tuple[tuple[float, int], ...]
    sums: tuple[float, ...]
    all_ms: float
    median_ms: float
    longest_ms: float
    prior_ms: float
    given: bool
    offset: float
    within: float | None
    alike: dict[int | None, Alike]


def percentile(ordered: Sequence[float], share: float) -> float:
    """The value that the next one stays within with a chance of `share`, as far as there is one.

    Of n values it is number ⌈(n + 1) · share⌉, at most the largest: with the plain percentile of
    few values the next one would be above it too often.
    """
    return ordered[place_of(len(ordered), share) - 1]


def place_of(count: int, share: float) -> int:
    """Which of so many values the `percentile` is, the smallest being number 1."""
    return min(ceil((count + 1) * share), count)


def estimated(basis: Basis, arguments: Arguments, settings: Settings) -> Estimate:
    """The estimate of one call.

    Calls of like size weigh n / (n + 5) against all calls of the tool, and the default weighs less
    with every record until there are `tuning.latency.prior_records`; both in logarithms.
    """
    count = len(basis.sizes)
    if not count:
        source = Knowledge.DEFAULT if basis.given else Knowledge.UNKNOWN
        return Estimate(basis.prior_ms, 0, 0, source, basis.within)
    alike = basis.alike.get(arguments.size)
    if alike is None:
        alike = _alike(basis, arguments.size, settings)
        if len(basis.alike) < _REMEMBERED:
            basis.alike[arguments.size] = alike
    ms, similar, mean = alike
    if arguments.size is not None:
        share = settings.tuning.latency.complexity
        ms *= (1 + share * arguments.complexity) / (1 + share * mean)
    weight = _weight(count, settings)
    if weight >= 1:
        return Estimate(ms, count, similar, Knowledge.PROFILE, basis.within)
    blended = _between(basis.prior_ms, ms, weight) if weight else basis.prior_ms
    source = Knowledge.BLEND if weight else Knowledge.DEFAULT
    return Estimate(blended, count, similar, source, basis.within)


def _alike(basis: Basis, size: int | None, settings: Settings) -> Alike:
    """What the calls of like size say; all of them for a size that is unknown."""
    sizes, count, ratio = basis.sizes, len(basis.sizes), settings.tuning.latency.similar
    first, last = 0, count
    if size is not None:
        first, last = bisect_left(sizes, size / ratio), bisect_right(sizes, size * ratio)
    similar, ms = last - first, basis.all_ms
    if size is not None and settings.tuning.latency.min_records <= similar < count:
        above = similar - place_of(similar, settings.tuning.latency.percentile)
        own = _after(basis.longest, above, size / ratio, size * ratio)
        ms = _between(ms, own, similar / (similar + _SHARED))
    low, high = (first, last) if similar else (0, count)
    mean = (basis.sums[high] - basis.sums[low]) / (high - low)
    return Alike(ms * exp(basis.offset), similar, mean)


def _after(longest: Sequence[tuple[float, int]], above: int, low: float, high: float) -> float:
    """The longest call of a size from `low` to `high`, apart from so many above it."""
    for ms, size in longest:
        if low <= size <= high:
            if not above:
                return -ms
            above -= 1
    return 0.0


def _weight(count: int, settings: Settings) -> float:
    """How much the records weigh against the default, 0 to 1."""
    enough = settings.tuning.latency.prior_records
    if count >= enough:
        return 1.0 if enough or count >= settings.tuning.latency.min_records else 0.0
    return count / enough


def _between(one: float, other: float, weight: float) -> float:
    """The mean of two durations in logarithms; `weight` is that of the other."""
    one = max(one, _LEAST_MS)
    return one * (max(other, _LEAST_MS) / one) ** weight


@dataclass(frozen=True, slots=True)
class ResourceProfile:
    """Mean load while the calls of one tool ran (A8).

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


def resources_of(records: Sequence[CallRecord], settings: Settings) -> ResourceProfile:
    """The resource profile of the records of one tool."""
    cpu = _mean(record.cpu_percent for record in records)
    memory = _mean(record.memory_mb for record in records)
    io_wait = _mean(record.io_wait_percent for record in records)
    return ResourceProfile(
        samples=sum(any(each is not None for each in record[-3:]) for record in records),
        cpu_percent=cpu,
        memory_mb=memory,
        io_wait_percent=io_wait,
        cpu_intensive=cpu is not None and cpu > settings.tuning.latency.cpu_percent,
        memory_intensive=memory is not None and memory > settings.tuning.latency.memory_mb,
        io_intensive=io_wait is not None and io_wait > settings.tuning.latency.io_percent,
    )


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


_IDENTITIES: Final = 256
_DAY_NS: Final = 86_400_000_000_000


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


class Profile:
    """The newest calls of one tool, and what estimates are made from.

    Written by one thread at a time; read by any, without a lock.

    Attributes:
        tool: Name of the tool.
        records: Its newest calls, oldest first.
        asked: Whether the store was asked for what it knows.
        read: Whether it answered.
    """

    __slots__ = (
        "_basis", "_calibration", "_given", "_longest_ms", "_prior_ms", "_seen", "_settings",
        "_timed", "_window", "asked", "read", "records", "tool",
    )  # fmt: skip

    def __init__(self, tool: str, settings: Settings) -> None:
        self.tool = tool
        self.records: deque[CallRecord] = deque(maxlen=settings.tuning.latency.records)
        self.asked = False
        self.read = False
        self._settings = settings
        self._calibration = Calibration(
            settings.tuning.latency.percentile, settings.tuning.latency.adapts
        )
        self._seen: OrderedDict[int, None] = OrderedDict()
        self._timed: deque[CallRecord] = deque()
        self._window = Window(settings.tuning.latency.newest)
        self._longest_ms = 0.0
        prior = settings.profile_defaults_ms.get(tool, DEFAULTS_MS.get(tool))
        self._given = prior is not None
        self._prior_ms = settings.tuning.latency.default_ms if prior is None else prior
        self._basis = self._based()

    def estimate(self, arguments: Arguments) -> Estimate:
        """How long a call will take; microseconds."""
        return estimated(self._basis, arguments, self._settings)

    @property
    def longest_ms(self) -> float:
        """The longest call that went well, of those that are kept; 0 without one."""
        return self._basis.longest_ms

    def is_cache_hit(self, key: int | None, ms: float) -> bool:
        """Whether a call was made before with equal arguments, and was now much faster (A1).

        Every call is remembered by this, the newest 256.
        """
        if key is None:
            return False
        again = key in self._seen
        self._seen[key] = None
        self._seen.move_to_end(key)
        if len(self._seen) > _IDENTITIES:
            self._seen.popitem(last=False)
        enough = len(self._basis.sizes) >= self._settings.tuning.latency.min_records
        return (
            again
            and enough
            and ms <= self._settings.tuning.latency.cache_hit * self._basis.median_ms
        )

    def take(self, record: CallRecord) -> None:
        """Takes a finished call. O(newest calls), which are 50."""
        self.records.append(record)
        if record.timed:
            self._calibrate(record)
            if len(self._timed) >= self._settings.tuning.latency.records:
                self._forget()
            self._timed.append(record)
            self._window.take(record)
            self._longest_ms = max(self._longest_ms, record.ms)
        oldest = record.time - self._settings.tuning.latency.days * _DAY_NS
        while self.records[0].time < oldest:
            self.records.popleft()
        while self._timed and self._timed[0].time < oldest:
            self._forget()
        self._basis = self._based()

    def with_stored(self, stored: Iterable[CallRecord]) -> Profile:
        """A profile of what a store knows and of its own calls, each once, in order of time."""
        known = {(record.time, record.session): record for record in (*stored, *self.records)}
        made = Profile(self.tool, self._settings)
        made.asked = made.read = True
        for record in sorted(known.values(), key=lambda each: each.time):
            made.take(record)
        made._seen = self._seen
        return made

    def summary(self) -> Summary:
        """What it holds, for people."""
        ordered = sorted(record.ms for record in self.records if record.timed)
        estimate = self.estimate(Arguments(None, 0.0, None))
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

    def _calibrate(self, record: CallRecord) -> None:
        """Follows its own misses, from where the default no longer weighs."""
        estimate = self.estimate(Arguments(record.size, record.complexity, None))
        if estimate.source is Knowledge.PROFILE:
            self._calibration.take(within=record.ms <= estimate.duration_ms)

    def _forget(self) -> None:
        """Lets go of the oldest call that went well."""
        if len(self._timed) <= self._settings.tuning.latency.newest:
            self._window.forget()
        gone = self._timed.popleft()
        if gone.ms >= self._longest_ms:
            self._longest_ms = max([one.ms for one in self._timed], default=0.0)

    def _based(self) -> Basis:
        rows, longest = self._window.rows, self._window.longest
        count = len(rows)
        share = self._settings.tuning.latency.percentile
        return Basis(
            sizes=tuple([row[0] for row in rows]),
            longest=tuple(longest),
            sums=tuple(accumulate([row[2] for row in rows], initial=0.0)),
            all_ms=-longest[count - place_of(count, share)][0] if count else 0.0,
            median_ms=-longest[count // 2][0] if count else 0.0,
            longest_ms=self._longest_ms,
            prior_ms=self._prior_ms,
            given=self._given,
            offset=self._calibration.offset,
            within=self._calibration.within,
            alike={},
        )
