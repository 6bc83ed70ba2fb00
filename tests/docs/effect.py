"""The tables of `lab/effect/results.json`."""

from __future__ import annotations

from lab.effect.__main__ import read
from lab.effect.report import pairs, report
from tests.docs.markdown import ROOT


def results() -> str:
    """What was measured, and what came of it."""
    about, runs = read(ROOT / "lab" / "effect" / "results.json")
    return (
        f"{about['model']}, {len(pairs(runs))} pairs of runs of {about['tasks']} tasks, at most "
        f"{about['steps']} requests in a run; otel-loopguard {about['otel-loopguard']}, "
        f"{about['when']}.\n\n{report(runs)}"
    )
