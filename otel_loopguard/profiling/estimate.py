"""How long a call will take: from its tool's past, from the default, or from both."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from enum import Enum
from math import ceil, exp
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from otel_loopguard.profiling.complexity import Arguments
    from otel_loopguard.settings import Settings

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

    Args:
        ordered: Values, the smallest first; at least one.
        share: 0 to 1.
    """
    return ordered[place_of(len(ordered), share) - 1]


def place_of(count: int, share: float) -> int:
    """Which of so many values the `percentile` is, the smallest being number 1."""
    return min(ceil((count + 1) * share), count)


def estimated(basis: Basis, arguments: Arguments, settings: Settings) -> Estimate:
    """The estimate of one call.

    Calls of like size weigh n / (n + 5) against all calls of the tool, and the default weighs less
    with every record until there are `profile_prior_records`; both in logarithms.
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
        share = settings.profile_complexity
        ms *= (1 + share * arguments.complexity) / (1 + share * mean)
    weight = _weight(count, settings)
    if weight >= 1:
        return Estimate(ms, count, similar, Knowledge.PROFILE, basis.within)
    blended = _between(basis.prior_ms, ms, weight) if weight else basis.prior_ms
    source = Knowledge.BLEND if weight else Knowledge.DEFAULT
    return Estimate(blended, count, similar, source, basis.within)


def _alike(basis: Basis, size: int | None, settings: Settings) -> Alike:
    """What the calls of like size say; all of them for a size that is unknown."""
    sizes, count, ratio = basis.sizes, len(basis.sizes), settings.profile_similar
    first, last = 0, count
    if size is not None:
        first, last = bisect_left(sizes, size / ratio), bisect_right(sizes, size * ratio)
    similar, ms = last - first, basis.all_ms
    if size is not None and settings.profile_min_records <= similar < count:
        above = similar - place_of(similar, settings.profile_percentile)
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
    enough = settings.profile_prior_records
    if count >= enough:
        return 1.0 if enough or count >= settings.profile_min_records else 0.0
    return count / enough


def _between(one: float, other: float, weight: float) -> float:
    """The mean of two durations in logarithms; `weight` is that of the other."""
    one = max(one, _LEAST_MS)
    return one * (max(other, _LEAST_MS) / one) ** weight
