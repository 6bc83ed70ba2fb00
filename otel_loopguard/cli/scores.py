"""Scores: how often a detector was right about labelled runs, and how soon."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Final

from otel_loopguard.cli.intervals import interval
from otel_loopguard.core import Action

if TYPE_CHECKING:
    from otel_loopguard.recordings import Run

ALL: Final = "all"
"""Stands for every tier, or every source."""

LEVELS: Final = ("noticed", "stopped")
"""What is scored: a hint or stronger; a deny, pause or abort."""


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
        group: What it shares with related runs; empty if it stands alone.
    """

    detector: str
    tier: str
    source: str
    loop: bool | None
    steps: int
    onset: int | None
    noticed: int | None
    stopped: int | None
    group: str = ""

    def at(self, level: str) -> int | None:
        """Index of the step of the first decision of a level; see `LEVELS`."""
        return self.noticed if level == "noticed" else self.stopped


def judgement(detector: str, run: Run, verdicts: Iterable[tuple[int, Action]]) -> Judgement:
    """What a detector's verdicts come to.

    Args:
        detector: Name of the detector.
        run: The run.
        verdicts: Index of the step and action, in order; read up to the first stop.
    """
    noticed = stopped = None
    for step, action in verdicts:
        if noticed is None and action.rank >= Action.HINT.rank:
            noticed = step
        if action.stops:
            stopped = step
            break
    return Judgement(
        detector, run.tier, run.source, run.loop, len(run.steps), run.onset_step, noticed, stopped,
        run.group,
    )  # fmt: skip


def score(detector: str, tier: str, source: str, about: Sequence[Judgement]) -> dict[str, object]:
    """One row of figures.

    Runs without a label count in `n`, `unlabelled` and `unlabelled_*` only. `…_recall` is a share
    of the stuck runs, `…_false` of the healthy ones, each with `…_low` and `…_high`, its 95 %
    interval. `false_stops_per_1000` is false positives at "stopped" in 1,000 steps of healthy runs.
    The medians are over true positives with an onset; below 0 is before it. What cannot be said
    (nothing to divide by) is None.
    """
    looping = [judged for judged in about if judged.loop is True]
    healthy = [judged for judged in about if judged.loop is False]
    unlabelled = [judged for judged in about if judged.loop is None]
    steps = sum(judged.steps for judged in healthy)
    false_stops = _count(healthy, "stopped")
    return {
        "table": "scores",
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
    detectors = list(dict.fromkeys(judged.detector for judged in judgements))
    for tier, source in _slices(judgements):
        for detector in detectors:
            about = [
                judged
                for judged in judgements
                if judged.detector == detector
                and tier in (ALL, judged.tier)
                and source in (ALL, judged.source)
            ]
            yield score(detector, tier, source, about)


def _slices(judgements: Sequence[Judgement]) -> Iterator[tuple[str, str]]:
    pairs = sorted({(judged.tier, judged.source) for judged in judgements})
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
        **_share(f"{level}_recall", looping, level),
        **_share(f"{level}_false", healthy, level),
        f"{level}_median_steps": _delay(looping, level),
    }


def _share(name: str, about: Sequence[Judgement], level: str) -> dict[str, object]:
    bounds = interval((judged.group, judged.at(level) is not None) for judged in about)
    low, high = bounds or (None, None)
    share = _count(about, level) / len(about) if about else None
    return {name: share, f"{name}_low": low, f"{name}_high": high}


def _count(about: Sequence[Judgement], level: str) -> int:
    return sum(judged.at(level) is not None for judged in about)


def _delay(looping: Sequence[Judgement], level: str) -> float | None:
    delays = [
        at - judged.onset
        for judged in looping
        if judged.onset is not None and (at := judged.at(level)) is not None
    ]
    return median(delays) if delays else None
