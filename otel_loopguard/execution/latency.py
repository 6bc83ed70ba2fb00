"""Latency of one tool's calls: estimates for the next one, and load of the machine."""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from itertools import islice
from math import ceil, exp, fsum, isnan, nan
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, cast

import orjson

from otel_loopguard._util.values import NamedTuple, dataclass

if TYPE_CHECKING:
    from otel_loopguard.settings import Settings


class ResourceSample(NamedTuple):
    """Load of the machine while a call ran. None is *not measured*, never nothing."""

    cpu_percent: float | None = None  # of all processors, 0 to 100
    memory_mb: float | None = None  # of the process
    io_wait_percent: float | None = None  # time that processors waited, 0 to 100


class Arguments(NamedTuple):
    """What is measured of the arguments of one call; nothing of them is kept."""

    size: int | None = None  # bytes as JSON; None if they were not captured, or are no data
    complexity: float = 0.0  # 0 for the plainest, 1 for the most complex
    key: int | None = None  # equal for equal arguments in this process; None without a size


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
    return Arguments(*measured(args))


def measured(args: object) -> tuple[int | None, float, int | None]:
    """As `measure`, in a plain tuple: for every call that ends."""
    if args is None:
        return _UNKNOWN
    if isinstance(args, str):
        text = args[:_LOOKED_AT]
        try:
            raw = text.encode()
        except UnicodeEncodeError:
            raw = text.encode("utf-8", "surrogatepass")
        size = len(raw)
        if size >= _LOOKED_AT:
            size = max(size, len(args))
    else:
        try:
            raw = orjson.dumps(args, default=lambda value: type(value).__name__, option=_OPTIONS)
        except (TypeError, ValueError, RecursionError):
            return _UNKNOWN
        size = len(raw)
        raw = raw[:_LOOKED_AT]
    # To look whether there is a list costs a tenth of counting them, and min() as much as that.
    lists = raw.count(b"[") if b"[" in raw else 0
    length, fields = size / _MOST_CHARS, raw.count(b":") / _MOST_FIELDS
    containers = (raw.count(b"{") + lists) / _MOST_CONTAINERS
    if length > 1.0 or fields > 1.0 or containers > 1.0:
        length, fields, containers = min(length, 1.0), min(fields, 1.0), min(containers, 1.0)
    return size, (length + fields + containers) / 3, hash(raw) ^ size


_FORM: Final = 1
"""Version of the stored form of a record."""
LATEST: Final = 1 << 63
"""Times and sizes from here on are no times and sizes."""


class CallRecord(NamedTuple):
    """One finished call of a tool. Nothing of its arguments or its result is in it."""

    time: int  # its end, nanoseconds since the epoch
    ms: float
    size: int | None  # bytes of its arguments; None if they were not captured
    session: str
    success: bool
    cached: bool = False  # it looks answered from a cache: a repeat, much faster than usual
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
        time, _, given_ms, given_size, session, flags, *others = fields
        ms, size, complexity, cpu, io_wait, memory = map(_number, (given_ms, given_size, *others))
        if not isinstance(time, int) or not 0 < time < LATEST or ms is None:
            return None
        if not isinstance(flags, int) or not isinstance(session, str):
            return None
        return cls(
            time, ms, None if size is None else int(size), session, bool(flags & 1),
            bool(flags & 2), complexity or 0.0, cpu, io_wait, memory,
        )  # fmt: skip


Fields = tuple[
    int, float, int | None, str, bool, bool, float, float | None, float | None, float | None
]
"""What a `CallRecord` consists of."""


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
        within: Share of the newest 100 calls that stayed within their estimate; None before the
            first. Calls before the first record of a tool are not counted.
    """

    __slots__ = ("_newest", "_share", "_step", "offset", "within")

    def __init__(self, share: float, step: float) -> None:
        self.offset = 0.0
        self._share = share
        self._step = step
        self._newest = bytearray()
        self.within: float | None = None

    def add(self, *, within: bool) -> None:
        """Adds a call that ended, within its estimate or past it."""
        self._newest.append(within)
        del self._newest[:-100]
        self.within = self._newest.count(1) / len(self._newest)
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
"""Milliseconds by the name of the tool. Users add theirs in `tools`, as `duration_ms`."""
_DEFAULT_MS: Final = 5000.0
"""Of a tool in no table: the middle of the table."""
_ESTIMATED: Final = 50
"""Newest calls that estimates are made from (feature A2): half of those kept."""
_PERCENTILE: Final = 0.9
"""Share of calls that an estimate holds for: of ten calls one may take longer."""
_LIKE_SIZE: Final = 2.0
"""Arguments of half to twice the size are alike."""
FEW_RECORDS: Final = 3
"""Calls of like size from which these say something by themselves: two may be chance."""
_CACHE_HIT: Final = 0.1
"""Share of the median below which an identical call was answered from a cache: no tool is ten times
as fast by chance."""
# Means above which a tool is said to need much of the machine (feature A8).
_CPU_PERCENT: Final = 60.0
_MEMORY_MB: Final = 500.0
_IO_PERCENT: Final = 20.0


class Knowledge(str, Enum):
    """What an estimate rests on."""

    UNKNOWN = "unknown"
    DEFAULT = "default"
    BLEND = "blend"
    PROFILE = "profile"

    __str__ = str.__str__


class Estimate(NamedTuple):
    """How long one call will take."""

    duration_ms: float  # nine of ten such calls stay within
    records: int  # successful calls that it was made from, no cache hits
    similar: int  # those of them whose arguments are of about the same size
    source: Knowledge
    within: float | None = None  # share of the newest calls that stayed within theirs

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
    cached: int
    p50_ms: float | None  # of the calls that did the work, as the next one
    p90_ms: float | None
    estimate_ms: float  # of a call with arguments of unknown size
    source: Knowledge
    within: float | None


class _Newest(NamedTuple):
    """The newest calls that did the work, as estimates see them."""

    ordered: Sequence[float]  # how long they took, the shortest first
    sizes: Sequence[int]
    complexities: Sequence[float]
    least: int
    most: int
    complexity: float


_SHARED: Final = 5
"""Calls of like size that weigh as much as all calls of the tool together."""
_KEYS: Final = 256
_DAY_NS: Final = 86_400_000_000_000
_SUCCESS, _CACHED = 1, 2
_CALL: Final = struct.Struct("<qdqqdBddd")
_FLAGS: Final = struct.calcsize("<qdqqd")
_CALIBRATES: Final = 24
"""Of the calls since somebody asked last, the newest so many calibrate estimates."""
_MOST_OFF: Final = 1000.0
"""One call that took no time must not be the mean."""


class Profile:
    """The newest calls of one tool, and the estimates made from them. Not thread-safe.

    A call that ended is only appended. What follows from it is worked out when somebody asks: of
    more calls than are kept, from those that are. They are kept as bytes, and not as objects.
    """

    __slots__ = (
        "_calibration", "_calls", "_complexities", "_default", "_fresh", "_keys", "_misses", "_ms",
        "_newest", "_rule", "_sessions", "_sizes", "_times", "_unsaved", "asked", "queued", "read",
        "tool",
    )  # fmt: skip

    def __init__(self, tool: str, settings: Settings) -> None:
        self.tool = tool
        self.asked = False  # the store was asked for what it knows
        self.read = False  # it answered
        self.queued = False  # the store's writer is to come for what is not stored yet
        self._rule = settings.tuning.latency
        own = settings.tools[tool].duration_ms if tool in settings.tools else None
        self._default = DEFAULTS_MS.get(tool) if own is None else own
        self._keys = array("q")
        self._misses = array("d")
        self._clear()

    def _clear(self) -> None:
        rule = self._rule
        self._calls = bytearray()
        self._sessions: deque[str] = deque(maxlen=rule.records)
        # Of the newest calls: those that estimates do not know yet, and the store.
        self._fresh = self._unsaved = 0
        self._calibration = Calibration(_PERCENTILE, rule.adapts)
        # The newest calls that did the work, oldest first; a size that is not known is -1.
        self._times, self._sizes = array("q"), array("q")
        self._ms, self._complexities = array("d"), array("d")
        # Between two calls that end, somebody may ask often.
        self._newest: _Newest | None = None

    def add(self, record: Fields, key: int | None = None) -> None:
        """Adds a finished call; `key` identifies calls with the same arguments."""
        time, ms, size, session, success, cached, complexity, cpu, io_wait, memory = record
        calls = self._calls
        calls += _CALL.pack(
            time, ms, -1 if size is None else size, key or 0, complexity, success | cached << 1,
            nan if cpu is None else cpu, nan if io_wait is None else io_wait,
            nan if memory is None else memory,
        )  # fmt: skip
        sessions = self._sessions
        if len(sessions) == sessions.maxlen:
            del calls[: _CALL.size]
        sessions.append(session)
        self._fresh += 1
        self._unsaved += 1

    @property
    def records(self) -> list[CallRecord]:
        """Its newest calls, oldest first."""
        self._settle()
        return self._newest_records(len(self._sessions))

    def _newest_records(self, count: int) -> list[CallRecord]:
        calls, first = self._calls, len(self._sessions) - count
        return [
            CallRecord(
                time, ms, None if size < 0 else size, session, bool(flags & _SUCCESS),
                bool(flags & _CACHED), complexity, *(None if isnan(one) else one for one in load),
            )
            for session, (time, ms, size, _, complexity, flags, *load) in zip(
                islice(self._sessions, first, None),
                _CALL.iter_unpack(calls[first * _CALL.size :]),
                strict=True,
            )
        ]  # fmt: skip

    @property
    def longest_ms(self) -> float:
        """The longest of the newest calls that did the work; 0 without one."""
        self._settle()
        return max(self._ms, default=0.0)

    def misses(self) -> Sequence[float]:
        """Returns errors of estimates in percent, for the newest calls, each once."""
        self._settle()
        found, self._misses = self._misses, array("d")
        return found

    def unsaved(self) -> list[CallRecord]:
        """Returns the calls that are not stored yet, and marks them as stored."""
        self._settle()
        count, self._unsaved, self.queued = self._unsaved, 0, False
        return self._newest_records(count)

    def estimate(self, arguments: Arguments) -> Estimate:
        """How long a call will take.

        Calls of like size weigh n / (n + 5) against all calls of the tool, and the default weighs
        less with every record until there are `tuning.latency.prior_records`; both in logarithms.
        """
        self._settle()
        within = self._calibration.within
        count = min(len(self._ms), _ESTIMATED)
        default = _DEFAULT_MS if self._default is None else self._default
        if not count:
            source = Knowledge.UNKNOWN if self._default is None else Knowledge.DEFAULT
            return Estimate(default, 0, 0, source, within)
        size = -1 if arguments.size is None else arguments.size
        if self._newest is None:
            self._newest = self._look(array("d", sorted(self._ms[-_ESTIMATED:])))
        ms, similar = self._from_records(size, arguments.complexity, self._newest)
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
        return 1.0 if enough or count >= FEW_RECORDS else 0.0

    def _look(self, ordered: Sequence[float]) -> _Newest:
        newest = -_ESTIMATED
        sizes, compared = self._sizes[newest:], self._complexities[newest:]
        mean = sum(compared) / len(compared)
        return _Newest(ordered, sizes, compared, min(sizes), max(sizes), mean)

    def _from_records(self, size: int, complexity: float, known: _Newest) -> tuple[float, int]:
        """How long a call takes by the records alone, and how many are of like size."""
        rule, sizes, mean = self._rule, known.sizes, known.complexity
        ms = percentile(known.ordered, _PERCENTILE)
        factor = exp(self._calibration.offset)
        if size < 0:
            return ms * factor, len(sizes)
        least, most, similar = size / _LIKE_SIZE, size * _LIKE_SIZE, len(sizes)
        if known.least < least or known.most > most:
            alike = [place for place, one in enumerate(sizes) if least <= one <= most]
            similar = len(alike)
            if similar:
                mean = sum([known.complexities[place] for place in alike]) / similar
            if similar >= FEW_RECORDS:
                durations = self._ms[-_ESTIMATED:]
                own = percentile(sorted([durations[place] for place in alike]), _PERCENTILE)
                ms = _between(ms, own, similar / (similar + _SHARED))
        share = rule.complexity
        return ms * factor * ((1 + share * complexity) / (1 + share * mean)), similar

    def _settle(self) -> None:
        """Works in the calls that estimates do not know yet, oldest first."""
        if not self._fresh:
            return
        self._newest = None
        rule, calls, keys, times = self._rule, self._calls, self._keys, self._times
        fresh, self._fresh = min(self._fresh, len(self._sessions)), 0
        seen, oldest, calibrates = set(keys), 0.0, len(calls) - _CALIBRATES * _CALL.size
        ordered: list[float] = []
        for place in range(len(calls) - fresh * _CALL.size, len(calls), _CALL.size):
            time, ms, size, key, complexity, flags, _, _, _ = _CALL.unpack_from(calls, place)
            if key:
                if flags == _SUCCESS and key in seen and self._is_cache_hit(ms):
                    calls[place + _FLAGS] = flags = _SUCCESS | _CACHED
                seen.add(key)
                keys.append(key)
            if flags == _SUCCESS:
                if place >= calibrates:
                    self._calibrate(ms, size, complexity, ordered)
                times.append(time)
                self._ms.append(ms)
                self._sizes.append(size)
                self._complexities.append(complexity)
            oldest = time - rule.days * _DAY_NS
            while len(times) > rule.records or (times and times[0] < oldest):
                del times[0], self._ms[0], self._sizes[0], self._complexities[0]
                if len(times) < _ESTIMATED:
                    ordered.clear()
        del keys[:-_KEYS]
        while _CALL.unpack_from(calls)[0] < oldest:
            del calls[: _CALL.size]
            self._sessions.popleft()
        self._unsaved = min(self._unsaved, len(self._sessions))

    def _calibrate(self, ms: float, size: int, complexity: float, ordered: list[float]) -> None:
        """Follows its own misses, from where the default no longer weighs.

        The newest durations are sorted once, and kept so, instead of for each call.
        """
        newest = _ESTIMATED
        known = min(len(self._ms), newest)
        if not known or self._weight(known) < 1:
            return
        if len(ordered) != known:
            ordered[:] = sorted(self._ms[-newest:])
        estimate, _ = self._from_records(size, complexity, self._look(ordered))
        self._calibration.add(within=ms <= estimate)
        if ms > 0:
            self._misses.append(min(100 * abs(estimate - ms) / ms, _MOST_OFF))
            del self._misses[:-_CALIBRATES]
        insort(ordered, ms)
        if known == newest:
            del ordered[bisect_left(ordered, self._ms[-newest])]

    def _is_cache_hit(self, ms: float) -> bool:
        """Whether a call that was made before with equal arguments was now much faster."""
        ordered = sorted(self._ms[-_ESTIMATED:])
        count = len(ordered)
        if count < FEW_RECORDS:
            return False
        return ms <= _CACHE_HIT * ordered[count - 1 - count // 2]

    def merge(self, stored: Iterable[CallRecord]) -> None:
        """Adds what a store knows: each call once, in order of time."""
        known = {(record.time, record.session): record for record in (*stored, *self.records)}
        self._clear()
        for record in sorted(known.values(), key=lambda each: each.time):
            self.add(record)
            self._settle()
        self._unsaved = 0

    def summary(self) -> Summary:
        """What it holds, for people."""
        records, estimate = self.records, self.estimate(_UNKNOWN)
        ordered = sorted(record.ms for record in records if record.timed)
        return Summary(
            self.tool,
            len(records),
            sum(not record.success for record in records),
            sum(record.cached for record in records),
            percentile(ordered, 0.5) if ordered else None,
            percentile(ordered, 0.9) if ordered else None,
            estimate.duration_ms,
            estimate.source,
            estimate.within,
        )

    def resources(self) -> ResourceProfile:
        """What the calls cost the machine."""
        records = self.records
        cpu = _mean(record.cpu_percent for record in records)
        memory = _mean(record.memory_mb for record in records)
        io_wait = _mean(record.io_wait_percent for record in records)
        return ResourceProfile(
            samples=sum(any(each is not None for each in record[-3:]) for record in records),
            cpu_percent=cpu,
            memory_mb=memory,
            io_wait_percent=io_wait,
            cpu_intensive=cpu is not None and cpu > _CPU_PERCENT,
            memory_intensive=memory is not None and memory > _MEMORY_MB,
            io_intensive=io_wait is not None and io_wait > _IO_PERCENT,
        )


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fsum(known) / len(known) if known else None
