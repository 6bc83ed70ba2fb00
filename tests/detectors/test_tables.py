"""What is decided about runs that are told in the `*.txt` files beside: `scenarios/README.md`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lab import tables
from tests.detectors.told import decided, told

if TYPE_CHECKING:
    from lab.tables import Table

CASES = [
    pytest.param(table, id=f"{path.stem}: {table.name}")
    for path in sorted(Path(__file__).parent.glob("*.txt"))
    for table in tables.load(path)
]


@pytest.mark.parametrize("table", CASES)
def test_it_is_told(table: Table) -> None:
    """Reason, action and step of each decision, and nothing else; in one short line each."""
    decisions = decided(table)
    assert told(decisions) == table.told
    for decision in decisions:
        assert decision.message.isprintable()
        assert 0 < len(decision.message) < 500
        assert "{" not in decision.message
        assert decision.advice == "" or decision.advice.endswith((".", "?"))
