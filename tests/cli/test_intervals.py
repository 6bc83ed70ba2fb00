"""Intervals of shares: how far figures of so many runs can be trusted."""

from __future__ import annotations

import pytest

from otel_loopguard.cli.evaluation.scores import interval, wilson


@pytest.mark.parametrize(
    ("hits", "of", "low", "high"),
    [
        (0, 428, 0.0, 0.0089),
        (17, 22, 0.566, 0.899),
        (72, 72, 0.949, 1.0),
        (1, 2, 0.0945, 0.9055),
    ],
    ids=["none", "most", "all", "one of two"],
)
def test_wilson(hits: int, of: int, low: float, high: float) -> None:
    """The bounds are those of Wilson's formula, also where all runs or none are hits."""
    assert wilson(hits, of) == pytest.approx((low, high), abs=0.0005)


def test_runs_that_stand_alone() -> None:
    """Without related runs the interval is Wilson's."""
    assert interval([("", True)] * 17 + [("", False)] * 5) == wilson(17, 22)
    assert interval([(f"task {i}", i < 3) for i in range(9)]) == wilson(3, 9)


def test_no_runs() -> None:
    """Of no run at all there is no interval."""
    assert interval([]) is None


def test_related_runs_say_less() -> None:
    """Ten runs of one task that all go the same way say as much as about one run."""
    related = [(f"task {i % 10}", i % 10 < 5) for i in range(100)]
    alone = interval([("", hit) for _, hit in related])
    found = interval(related)
    assert found is not None
    assert alone is not None
    assert found[1] - found[0] > 2 * (alone[1] - alone[0])
    assert found[0] < 0.5 < found[1]


def test_related_runs_without_a_hit() -> None:
    """Where drawing shows no spread the number of groups counts, not that of the runs."""
    assert interval([(f"task {i % 10}", False) for i in range(100)]) == wilson(0, 10)
    assert interval([(f"task {i % 10}", True) for i in range(100)]) == wilson(10, 10)


def test_the_same_every_time() -> None:
    """Drawing begins at a fixed seed, and the order of the runs does not matter."""
    runs = [(f"task {i % 7}", i % 3 == 0) for i in range(50)]
    assert interval(runs) == interval(runs[::-1])
