"""The tables of what `make bench`, `bench/fleet.py` and `lab/effect` measured last."""

import json
from textwrap import fill
from typing import Any

from bench import aims as bench_aims
from bench import fleet
from lab.effect.__main__ import read
from lab.effect.report import pairs, report
from tests.docs.markdown import ROOT, table


def _found() -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    found = json.loads((ROOT / "bench" / "results.json").read_text(encoding="utf-8"))
    return found.pop("machine"), found


def aims() -> str:
    """Each aim beside what 0.3 had and what the last `make bench` measured."""
    machine, found = _found()
    return (
        f"Measured on {machine['when']} with Python {machine['python']}, opentelemetry-sdk "
        f"{machine['opentelemetry-sdk']}, {machine['system']}, {machine['cpus']} CPUs.\n\n"
        + table(bench_aims.HEAD, bench_aims.rows(found))
    )


def figures() -> str:
    _, found = _found()
    rows = (
        (what, f"`{name}`", f"{value:,}" if isinstance(value, (int, float)) else str(value))
        for what, of in found.items()
        for name, value in of.items()
    )
    return table(("what", "figure", "value"), rows)


def workers() -> str:
    """What `bench/fleet.py` measured, and what it comes to with a million sessions."""
    found: dict[str, Any] = json.loads(fleet.RESULTS.read_text(encoding="utf-8"))
    machine, rows = found["machine"], [fleet.Row(**row) for row in found["rows"]]
    about = (
        f"Measured on {machine['when']} with Python {machine['python']}, {machine['system']}, "
        f"{machine['cpus']} CPUs, whose load was {machine['load']} before."
    )
    return f"{about}\n\n{fleet.table(rows)}\n{fill(fleet.paper(rows), 100)}\n"


def effect() -> str:
    """What the effect on real models was, of `lab/effect/results.json`."""
    about, runs = read(ROOT / "lab" / "effect" / "results.json")
    return (
        f"{about['model']}, {len(pairs(runs))} pairs of runs of {about['tasks']} tasks, at most "
        f"{about['steps']} requests in a run; otel-loopguard {about['otel-loopguard']}, "
        f"{about['when']}.\n\n{report(runs)}"
    )
