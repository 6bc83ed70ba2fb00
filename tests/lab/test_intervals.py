"""How far a share can be trusted, among runs of which some are related."""

from __future__ import annotations

import pytest

from lab.intervals import interval
from otel_loopguard.cli.evaluate import wilson


def test_related_runs_say_less() -> None:
    """Ten runs of one task that all go the same way say as much as about one run."""
    related = [(f"task {i % 10}", i % 10 < 5) for i in range(100)]
    alone = interval([("", hit) for _, hit in related])
    found = interval(related)
    assert found is not None
    assert alone is not None
    assert found[1] - found[0] > 2 * (alone[1] - alone[0])
    assert found[0] < 0.5 < found[1]


def test_the_same_every_time() -> None:
    """Drawing begins at a fixed seed, and the order of the runs does not matter."""
    runs = [(f"task {i % 7}", i % 3 == 0) for i in range(50)]
    assert interval(runs) == interval(runs[::-1])


@pytest.mark.parametrize(
    ("found", "low", "high"),
    [
        ([("", False)] * 428, 0.0, 0.0089),
        ([("", True)] * 17 + [("", False)] * 5, 0.566, 0.899),
        ([("", True)] * 72, 0.949, 1.0),
        ([("", True), ("", False)], 0.0945, 0.9055),
        ([(f"task {i}", i < 3) for i in range(9)], *wilson(3, 9)),
        ([(f"task {i % 10}", False) for i in range(100)], *wilson(0, 10)),
        ([(f"task {i % 10}", True) for i in range(100)], *wilson(10, 10)),
    ],
    ids=["none", "most", "all", "one of two", "each its own group", "no group", "all groups"],
)
def test_intervals(found: list[tuple[str, bool]], low: float, high: float) -> None:
    """Wilson's; where drawing groups shows no spread, with the groups as its number."""
    assert interval(found) == pytest.approx((low, high), abs=0.0005)
    assert interval([]) is None
