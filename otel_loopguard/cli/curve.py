"""The curve: what is found against what is wrongly touched, as all thresholds move together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from otel_loopguard.cli.picture import Line, Panel, Point, drawn
from otel_loopguard.cli.scores import ALL, LEVELS
from otel_loopguard.cli.trials import SENSITIVITIES, Tried

if TYPE_CHECKING:
    from otel_loopguard.cli.scores import Judgement

_Pairs = Sequence[tuple["Judgement", Tried]]


def rows(pairs: _Pairs) -> Iterator[dict[str, object]]:
    """One row per sensitivity and tier of runs with a label, and for all healthy runs together.

    Args:
        pairs: The runs with a label, each with its trials.
    """
    slices = [
        (tier, loop) for loop, tier in sorted({(judged.loop, judged.tier) for judged, _ in pairs})
    ]
    for place, sensitivity in enumerate(SENSITIVITIES):
        for tier, loop in (*slices, (ALL, False)):
            trials = [
                tried[place]
                for judged, tried in pairs
                if judged.loop is loop and tier in (ALL, judged.tier)
            ]
            yield {
                "table": "curve",
                "sensitivity": sensitivity,
                "tier": tier,
                "loops": loop,
                "n": len(trials),
                "noticed": sum(trial.noticed for trial in trials),
                "stopped": sum(trial.stopped for trial in trials),
            }


def picture(pairs: _Pairs) -> str:
    """The curve as an SVG document: a panel for notices and one for stops, a line per tier."""
    healthy = [tried for judged, tried in pairs if judged.loop is False]
    tiers = sorted({judged.tier for judged, _ in pairs if judged.loop is True})
    found = {
        tier: [tried for judged, tried in pairs if judged.loop is True and judged.tier == tier]
        for tier in tiers
    }
    panels = [
        Panel(
            f"{level.capitalize()}",
            f"healthy runs {level}, % of {len(healthy)}",
            f"stuck runs {level}, %",
            [
                Line(f"{tier} ({len(runs)})", _points(runs, healthy, level))
                for tier, runs in found.items()
            ],
        )
        for level in LEVELS
    ]
    note = f"one point per sensitivity: {', '.join(f'{each:g}' for each in SENSITIVITIES)}"
    return drawn(panels, f"{note}; ring: 1, the default")


def _points(runs: Sequence[Tried], healthy: Sequence[Tried], level: str) -> list[Point]:
    return [
        Point(
            _percent(healthy, place, level),
            _percent(runs, place, level),
            f"sensitivity {sensitivity:g}",
            ringed=sensitivity == 1,
        )
        for place, sensitivity in enumerate(SENSITIVITIES)
    ]


def _percent(about: Sequence[Tried], place: int, level: str) -> float:
    trials = [tried[place] for tried in about]
    hits = sum(trial.noticed if level == "noticed" else trial.stopped for trial in trials)
    return 100 * hits / len(trials) if trials else 0.0
