"""Cycles of any period."""

from __future__ import annotations

import pytest

from otel_loopguard.core import Effect, ErrorClass, Evidence
from otel_loopguard.detectors.cycle import Cycle
from otel_loopguard.settings import Settings
from tests.calls import Run, call


def evidence(symbol: int, index: int, *, outcome: int | None = 7, epoch: int = 0) -> Evidence:
    return Evidence(
        number=index, tool="t", call=symbol, call_exact=symbol, guessed=False, fresh=False,
        outcome=outcome,
        outcome_exact=outcome, outcome_size=9, error=False, error_class=ErrorClass.UNKNOWN,
        error_shape=None, call_error=False, effect=Effect.READ, epoch=epoch, gap=None,
        waiting=False, time=0, round=index,
    )  # fmt: skip


def periods(symbols: list[int], **given: int) -> list[int]:
    cycle = Cycle(Settings())
    found = [
        cycle.observe(evidence(symbol, index, **given)) for index, symbol in enumerate(symbols)
    ]
    return [detection.period for detection in found if detection]


@pytest.mark.parametrize("period", range(2, 17))
def test_every_period_to_sixteen_is_found(period: int) -> None:
    """A cycle is found within three turns, with its own period."""
    found = periods(list(range(period)) * 3)
    assert found[:1] == [period]


@pytest.mark.parametrize("period", range(2, 17))
def test_one_turn_is_no_cycle(period: int) -> None:
    """Doing a thing once more in the same order is not enough for short cycles."""
    turns = 2 if period < 9 else 1
    assert periods(list(range(period)) * turns) == []


def test_one_call_over_and_over_is_no_cycle() -> None:
    """A repeat has another detector."""
    assert periods([1] * 60) == []


def test_a_cycle_starts_anywhere() -> None:
    """What went before does not hide it."""
    assert periods([90, 91, 92, 1, 2, 3, 1, 2, 3, 1, 2, 3])[:1] == [3]


def test_a_cycle_is_broken_by_what_differs() -> None:
    """A different call, an unknown outcome or a new epoch is no part of the cycle."""
    assert periods([1, 2, 1, 2, 3, 1, 2, 1, 2, 4]) == []
    assert periods([1, 2] * 10, outcome=None) == []
    cycle = Cycle(Settings())
    steps = [evidence(1 + index % 2, index, epoch=index // 2) for index in range(40)]
    assert [cycle.observe(step) for step in steps] == [None] * 40


def test_the_same_edit_that_never_works_is_a_cycle() -> None:
    """read, edit (no match), test: nothing changes, and it is noticed."""
    run = Run()
    for _ in range(4):
        run.calls(
            call("bash", {"command": "cat a.py"}, "def a(): return 1"),
            call("edit", {"path": "a.py", "old": "x", "new": "y"}, "no match for old text"),
            call("bash", {"command": "pytest -q"}, "1 failed, 2 passed"),
        )
    assert run.actions[:1] == ["hint"]
    assert run.decisions[0].step <= 9
