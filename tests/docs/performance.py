"""The table of `bench/results.json`, beside what is aimed at."""

from __future__ import annotations

import json

from tests.docs.markdown import ROOT

AIMS = {
    ("tool span with arguments and result", "guard_over_sdk"): 1.15,
    ("span of no interest, known scope", "guard_over_sdk"): 1.01,
    ("span of no interest, unknown scope", "guard_over_sdk"): 1.01,
    ("tool span, journal and profiles in Redis", "guard_with_redis_over_guard"): 1.1,
    ("one step, by length of the session", "at_10000_over_at_100"): 1.1,
    ("a hook, until there are 10,000 sessions of 40 steps", "hook_p999_us"): 2_000,
    ("a hook, until there are 10,000 sessions of 40 steps", "hook_worst_ms"): 100,
    ("memory", "session_at_10000_steps_kb"): 64,
    ("execution.admit()", "admit_p50_us"): 30,
    ("execution.admit()", "admit_p99_us"): 200,
}
"""Figures that are aimed at: at most so much."""


def results() -> str:
    """Every figure of the last `make bench`, and whether an aim is reached."""
    found = json.loads((ROOT / "bench" / "results.json").read_text(encoding="utf-8"))
    machine = found.pop("machine")
    assert all(name in found[what] for what, name in AIMS), "an aim has no figure"
    lines = [
        (
            f"Measured on {machine['when']} with Python {machine['python']}, opentelemetry-sdk "
            f"{machine['opentelemetry-sdk']}, {machine['system']}, {machine['cpus']} CPUs.\n\n"
        ),
        "| what | figure | value | aim | reached |\n| --- | --- | --- | --- | --- |\n",
    ]
    for what, figures in found.items():
        for name, value in figures.items():
            aim = AIMS.get((what, name))
            said = ("", "") if aim is None else (f"≤ {aim:g}", "yes" if value <= aim else "**no**")
            lines.append(f"| {what} | `{name}` | {value:,} | {said[0]} | {said[1]} |\n")
    return "".join(lines)
