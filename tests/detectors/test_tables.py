"""What is decided about runs that are told in the `*.txt` files beside: `scenarios/README.md`."""

import re
from itertools import groupby
from pathlib import Path

import pytest

from lab import tables
from lab.tables import Table
from otel_loopguard.core import Decision
from tests.detectors.alone import NAMES, alone, steps_of

TIMED = re.compile(r"  (?:after|took) |^(?:wait|together):")
CASES = [
    pytest.param(table, id=f"{path.stem}: {table.name}")
    for path in sorted(Path(__file__).parent.glob("*.txt"))
    for table in tables.load(path)
]


def decided(table: Table) -> list[Decision]:
    """About a session, without times where none are told; `[error_repeat: …]` is about that one."""
    texts = [line.text for line in tables.every(table.lines)] + [cell for _, cell in table.values]
    steps = steps_of(table)
    if not any(map(TIMED.search, texts)):
        for step in steps:
            step.start = step.end = 0
    detector = table.name.partition(":")[0]
    if detector not in NAMES:
        return alone("all", *steps, **table.settings)
    found = alone(detector, *steps, **table.settings)
    return [one for one in found if one.detector == detector]  # and not what the ladder adds


@pytest.mark.parametrize("table", CASES)
def test_it_is_told(table: Table) -> None:
    """Reason, action and step of each decision, and nothing else; in one short line each."""
    decisions = decided(table)
    told = "; ".join(
        f"{reason}: {', '.join(f'{one.action}@{one.step + 1}' for one in run)}"
        for reason, run in groupby(decisions, key=lambda one: one.reason)
    )
    assert (told or "nothing") == table.told
    for decision in decisions:
        assert decision.message.isprintable()
        assert 0 < len(decision.message) < 500
        assert "{" not in decision.message
        assert decision.advice == "" or decision.advice.endswith((".", "?"))
