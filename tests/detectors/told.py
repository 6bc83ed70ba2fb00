"""What is decided about a table of steps, in the words in which the table says it."""

from __future__ import annotations

import re
from itertools import groupby
from typing import TYPE_CHECKING

from lab import recorded, tables
from otel_loopguard import LoopGuard, Settings
from otel_loopguard.detectors import DETECTORS, Registry

if TYPE_CHECKING:
    from lab.tables import Table
    from otel_loopguard.core import Decision

_ENTRIES = Registry(Settings(), DETECTORS).entries
# A name that is a family's as well would switch off more than the one detector.
_OTHERS = frozenset(entry.name for entry in _ENTRIES) - {entry.family for entry in _ENTRIES}
_NAMES = frozenset(entry.name for entry in _ENTRIES)
_TIMED = re.compile(r"  (?:after|took) |^(?:wait|together):")


def decided(table: Table) -> list[Decision]:
    """What is decided about a session; without times where the table has none.

    A table that is called `[error_repeat: …]` is about this detector alone.
    """
    found: list[Decision] = []
    alone = table.name.partition(":")[0]
    alone = alone if alone in _NAMES else ""
    switched_off = _OTHERS - {alone} if alone else frozenset[str]()
    guard = LoopGuard(
        Settings(**{"switched_off": switched_off, **table.settings}),
        clock="replay",
        on_decision=lambda _, decision: found.append(decision),
    )
    texts = [line.text for line in tables.every(table.lines)] + [cell for _, cell in table.values]
    timed = any(map(_TIMED.search, texts))
    for step in recorded.steps(table.draw(bare=True)):
        if not timed:
            step.start = step.end = 0
        guard.observe(step, "run")
    return [one for one in found if not alone or one.detector == alone]


def told(decisions: list[Decision]) -> str:
    """Reason, action and number of the step of each decision: `call_error: hint@2, deny@3`."""
    return (
        "; ".join(
            f"{reason}: {', '.join(f'{one.action}@{one.step + 1}' for one in run)}"
            for reason, run in groupby(decisions, key=lambda one: one.reason)
        )
        or "nothing"
    )
