"""Scores: how often a detector was right about labelled runs, and how soon."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

ALL: Final = "all"
"""Stands for every tier, or every source."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """What one detector said of one labelled run.

    Attributes:
        detector: Name of the detector.
        tier: How the label came about.
        source: Where the run comes from.
        loop: The label; None where nobody said.
        steps: Length of the run.
        onset: Index of the step at which the label places the trouble, if it does.
        noticed: Index of the step of the first hint or stronger, if there was one.
        stopped: Index of the step of the first deny, pause or abort, if there was one.
    """

    detector: str
    tier: str
    source: str
    loop: bool | None
    steps: int
    onset: int | None
    noticed: int | None
    stopped: int | None


def score(detector: str, tier: str, source: str, about: Sequence[Judgement]) -> dict[str, object]:
    """One row of figures.

    Runs without a label count in `n`, `unlabelled` and `unlabelled_*` only. `false_stops_per_1000`
    is false positives at "stopped" in 1,000 steps of the runs labelled as no loop. The medians are
    over true positives with an onset; below 0 is before it. What cannot be said (nothing to divide
    by) is None.
    """
    looping = [judgement for judgement in about if judgement.loop is True]
    healthy = [judgement for judgement in about if judgement.loop is False]
    unlabelled = [judgement for judgement in about if judgement.loop is None]
    steps = sum(judgement.steps for judgement in healthy)
    false_stops = _count(healthy, "stopped")
    return {
        "detector": detector,
        "tier": tier,
        "source": source,
        "n": len(about),
        "loops": len(looping),
        "healthy": len(healthy),
        "unlabelled": len(unlabelled),
        **_rates("noticed", looping, healthy),
        **_rates("stopped", looping, healthy),
        "unlabelled_noticed": _count(unlabelled, "noticed"),
        "unlabelled_stopped": _count(unlabelled, "stopped"),
        "healthy_steps": steps,
        "false_stops_per_1000": 1000 * false_stops / steps if steps else None,
    }


def rows(judgements: Sequence[Judgement]) -> Iterator[dict[str, object]]:
    """The figures of every detector: in all, per tier, per source, per tier and source."""
    detectors = list(dict.fromkeys(judgement.detector for judgement in judgements))
    for tier, source in _slices(judgements):
        for detector in detectors:
            about = [
                judgement
                for judgement in judgements
                if judgement.detector == detector
                and tier in (ALL, judgement.tier)
                and source in (ALL, judgement.source)
            ]
            yield score(detector, tier, source, about)


def _slices(judgements: Sequence[Judgement]) -> Iterator[tuple[str, str]]:
    pairs = sorted({(judgement.tier, judgement.source) for judgement in judgements})
    yield ALL, ALL
    for tier in sorted({tier for tier, _ in pairs}):
        yield tier, ALL
    for source in sorted({source for _, source in pairs}):
        yield ALL, source
    yield from pairs


def _rates(
    level: str, looping: Sequence[Judgement], healthy: Sequence[Judgement]
) -> dict[str, object]:
    found, wrong = _count(looping, level), _count(healthy, level)
    return {
        f"{level}_tp": found,
        f"{level}_fp": wrong,
        f"{level}_precision": found / (found + wrong) if found + wrong else None,
        f"{level}_recall": found / len(looping) if looping else None,
        f"{level}_median_steps": _delay(looping, level),
    }


def _at(judgement: Judgement, level: str) -> int | None:
    return judgement.noticed if level == "noticed" else judgement.stopped


def _count(about: Sequence[Judgement], level: str) -> int:
    return sum(_at(judgement, level) is not None for judgement in about)


def _delay(looping: Sequence[Judgement], level: str) -> float | None:
    delays = [
        at - judgement.onset
        for judgement in looping
        if judgement.onset is not None and (at := _at(judgement, level)) is not None
    ]
    return median(delays) if delays else None
