"""What is known of one tool from its past calls."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable
from itertools import accumulate
from typing import TYPE_CHECKING, Final, NamedTuple

from otel_loopguard.profiling.calibration import Calibration
from otel_loopguard.profiling.complexity import Arguments
from otel_loopguard.profiling.defaults import DEFAULTS_MS
from otel_loopguard.profiling.estimate import (
    Basis,
    Estimate,
    Knowledge,
    estimated,
    percentile,
    place_of,
)
from otel_loopguard.profiling.window import Window

if TYPE_CHECKING:
    from otel_loopguard.profiling.record import CallRecord
    from otel_loopguard.settings import Settings

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
        self.records: deque[CallRecord] = deque(maxlen=settings.profile_records)
        self.asked = False
        self.read = False
        self._settings = settings
        self._calibration = Calibration(settings.profile_percentile, settings.profile_adapts)
        self._seen: OrderedDict[int, None] = OrderedDict()
        self._timed: deque[CallRecord] = deque()
        self._window = Window(settings.profile_newest)
        self._longest_ms = 0.0
        prior = settings.profile_defaults_ms.get(tool, DEFAULTS_MS.get(tool))
        self._given = prior is not None
        self._prior_ms = settings.profile_default_ms if prior is None else prior
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
        enough = len(self._basis.sizes) >= self._settings.profile_min_records
        return again and enough and ms <= self._settings.profile_cache_hit * self._basis.median_ms

    def take(self, record: CallRecord) -> None:
        """Takes a finished call. O(newest calls), which are 50."""
        self.records.append(record)
        if record.timed:
            self._calibrate(record)
            if len(self._timed) >= self._settings.profile_records:
                self._forget()
            self._timed.append(record)
            self._window.take(record)
            self._longest_ms = max(self._longest_ms, record.ms)
        oldest = record.time - self._settings.profile_days * _DAY_NS
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
        if len(self._timed) <= self._settings.profile_newest:
            self._window.forget()
        gone = self._timed.popleft()
        if gone.ms >= self._longest_ms:
            self._longest_ms = max([one.ms for one in self._timed], default=0.0)

    def _based(self) -> Basis:
        rows, longest = self._window.rows, self._window.longest
        count = len(rows)
        share = self._settings.profile_percentile
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
