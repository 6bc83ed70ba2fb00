"""Confidence intervals of shares: how far a figure from these runs can be trusted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from math import sqrt
from random import Random
from typing import Final

_Z: Final = 1.959964
_SAMPLES: Final = 1000
_TAIL: Final = 0.025


def wilson(hits: float, of: float) -> tuple[float, float]:
    """Wilson's 95 % interval of a share.

    Args:
        hits: How many there were.
        of: Of how many, more than 0. Neither needs to be whole.

    Returns:
        Lower and upper bound, 0 to 1.
    """
    share, square = hits / of, _Z * _Z
    middle = (share + square / (2 * of)) / (1 + square / of)
    half = _Z / (1 + square / of) * sqrt(share * (1 - share) / of + square / (4 * of * of))
    return max(0.0, middle - half), min(1.0, middle + half)


def interval(found: Iterable[tuple[str, bool]]) -> tuple[float, float] | None:
    """The 95 % interval of a share among runs of which some are related.

    Runs that stand alone give Wilson's interval. Where several runs share a group (agents at one
    task), whole groups are drawn 1,000 times with replacement, from a fixed seed; where all runs or
    none are hits, so that drawing shows no spread, it is Wilson's with the groups as its number.

    Args:
        found: Group (empty for a run that stands alone) and whether it is a hit, for each run.

    Returns:
        Lower and upper bound, 0 to 1; None without runs.
    """
    alone: list[tuple[int, int]] = []
    groups: dict[str, tuple[int, int]] = {}
    for group, hit in found:
        if group:
            hits, of = groups.get(group, (0, 0))
            groups[group] = (hits + hit, of + 1)
        else:
            alone.append((int(hit), 1))
    counts = Counter([*alone, *groups.values()])
    return _of_groups(tuple(sorted(counts.items()))) if counts else None


@lru_cache(maxsize=1024)
def _of_groups(counts: tuple[tuple[tuple[int, int], int], ...]) -> tuple[float, float]:
    hits = sum(one[0] * times for one, times in counts)
    runs = sum(one[1] * times for one, times in counts)
    groups = sum(times for _, times in counts)
    if groups == runs or hits in (0, runs):
        return wilson(hits / runs * groups, groups)
    return _drawn([one for one, _ in counts], [times for _, times in counts], groups)


def _drawn(
    kinds: Sequence[tuple[int, int]], weights: list[int], groups: int
) -> tuple[float, float]:
    dice = Random(groups)  # noqa: S311  # the same figures in every run
    shares: list[float] = []
    for _ in range(_SAMPLES):
        drawn = Counter(dice.choices(kinds, weights, k=groups))
        hits = sum(one[0] * times for one, times in drawn.items())
        shares.append(hits / sum(one[1] * times for one, times in drawn.items()))
    shares.sort()
    low = round(_TAIL * (_SAMPLES - 1))
    return shares[low], shares[-1 - low]
