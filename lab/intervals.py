"""The 95 % interval of a share among runs of which some are related."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from random import Random
from typing import Final

from otel_loopguard.cli.evaluate import Judgement, wilson

# 2.5 % are left out at each end.
_TAIL: Final = 0.025
# Draws for an interval: the bounds of shares move by about a percent between seeds.
_DRAWS: Final = 1000


def of_judgements(about: Sequence[Judgement], level: str) -> tuple[float, float]:
    """The interval of the share of runs that were hit at a level."""
    return interval((judged.group, judged.at(level) is not None) for judged in about) or (0.0, 1.0)


def interval(found: Iterable[tuple[str, bool]]) -> tuple[float, float] | None:
    """The 95 % interval of a share among runs of which some are related.

    Runs that stand alone give Wilson's interval. Where several runs share a group (agents at one
    task), whole groups are drawn 1,000 times with replacement, from a fixed seed; where all runs or
    none are hits, so that drawing shows no spread, it is Wilson's with the groups as its number.
    """
    single: list[tuple[int, int]] = []
    groups: dict[str, tuple[int, int]] = {}
    for group, hit in found:
        if group:
            hits, of = groups.get(group, (0, 0))
            groups[group] = (hits + hit, of + 1)
        else:
            single.append((int(hit), 1))
    counts = Counter([*single, *groups.values()])
    return _of_groups(tuple(sorted(counts.items()))) if counts else None


@lru_cache(maxsize=1024)  # slices of one source and tier have the same counts
def _of_groups(counts: tuple[tuple[tuple[int, int], int], ...]) -> tuple[float, float]:
    hits = sum(one[0] * times for one, times in counts)
    runs = sum(one[1] * times for one, times in counts)
    groups = sum(times for _, times in counts)
    if groups == runs or hits in (0, runs):
        return wilson(hits / runs * groups, groups)
    dice = Random(groups)  # the same figures in every run
    kinds, weights = [one for one, _ in counts], [times for _, times in counts]
    shares: list[float] = []
    for _ in range(_DRAWS):
        drawn = Counter(dice.choices(kinds, weights, k=groups))
        found = sum(one[0] * times for one, times in drawn.items())
        shares.append(found / sum(one[1] * times for one, times in drawn.items()))
    shares.sort()
    low = round(_TAIL * (_DRAWS - 1))
    return shares[low], shares[-1 - low]
