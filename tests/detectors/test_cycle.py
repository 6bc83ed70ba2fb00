"""Cycles of any period."""

from __future__ import annotations

from typing import Any

import pytest

from otel_loopguard.core import Kind, Step
from otel_loopguard.detectors.repetition import Cycle
from otel_loopguard.settings import Settings
from tests.calls import Run, call
from tests.detectors.alone import actions, alone, evidence


def periods(symbols: list[int], **given: Any) -> list[int]:
    cycle = Cycle(Settings())
    found = [
        cycle.observe(evidence(index, call=symbol, **given)) for index, symbol in enumerate(symbols)
    ]
    return [detection.period for detection in found if detection]


def turns(number: int, pages: int = 3) -> list[Step]:
    """Pages that are read again and again in one order."""
    return [
        call("read", {"page": n % pages}, f"the text of page {n % pages} is this")
        for n in range(number)
    ]


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
    steps = [evidence(index, call=1 + index % 2, epoch=index // 2) for index in range(40)]
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


def test_a_stubborn_cycle_is_denied_and_aborted() -> None:
    """The hint comes at the third turn; each round that still shows the cycle climbs."""
    decisions = alone("cycle", *turns(12))
    assert actions(decisions) == ["hint", "deny", "abort"]
    assert [decision.step for decision in decisions] == [8, 9, 10]
    assert {decision.period for decision in decisions} == {3}
    assert len({decision.loop for decision in decisions}) == 1


def test_a_cycle_of_guessed_calls_hints_at_most() -> None:
    """What rests on a value that only looks volatile stops nothing."""
    symbols = [1, 2, 3] * 6
    cycle = Cycle(Settings())
    found = [
        cycle.observe(evidence(number, call=symbol, guessed=True))
        for number, symbol in enumerate(symbols)
    ]
    assert {one.max_action.value for one in found if one} == {"hint"}


def test_waits_are_passed_over() -> None:
    """A wait between the calls of a cycle neither hides it nor is part of it."""
    cycle = Cycle(Settings())
    steps = [
        step
        for number, symbol in enumerate([1, 2, 3] * 3)
        for step in (
            evidence(2 * number, call=symbol),
            evidence(2 * number + 1, call=9, waiting=True),
        )
    ]
    assert [one.period for one in map(cycle.observe, steps) if one] == [3]


def test_parallel_duplicates_are_one_call() -> None:
    """A call that is made twice in one round does not break the cycle."""
    cycle = Cycle(Settings())
    steps = [
        evidence(2 * number + twin, call=symbol, round=number)
        for number, symbol in enumerate([1, 2, 3] * 3)
        for twin in (0, 1)
    ]
    assert [one.period for one in map(cycle.observe, steps) if one] == [3]


@pytest.mark.parametrize(
    ("settings", "pages", "first"),
    [
        pytest.param({"cycle_repeats": 5}, 3, 14, id="more turns"),
        pytest.param({"cycle_repeats": 2}, 3, 5, id="fewer turns"),
        pytest.param({"tuning": {"calls": {"cycle_max_period": 4}}}, 4, 9, id="longest period"),
    ],
)
def test_the_settings_say_when(settings: dict[str, Any], pages: int, first: int) -> None:
    """`cycle_repeats` turns of at most `tuning.calls.cycle_max_period` calls."""
    decisions = alone("cycle", *turns(40, pages), **settings)
    assert decisions[0].step == first


def test_a_cycle_longer_than_the_longest_is_not_looked_for() -> None:
    """`tuning.calls.cycle_max_period` bounds what is kept."""
    assert alone("cycle", *turns(60, 5), tuning={"calls": {"cycle_max_period": 4}}) == []


def test_a_user_turn_halves_it() -> None:
    """What went round before a user spoke counts half."""
    user = Step(Kind.OTHER, "user", text="again, please")
    assert actions(alone("cycle", *turns(8), user, *turns(12)[8:9])) == []
    assert actions(alone("cycle", *turns(9)))[:1] == ["hint"]


def test_a_press_and_a_picture_that_is_left_out_are_work() -> None:
    """A cycle with a press in it, none of whose answers says anything, takes twenty turns."""
    run = Run()
    for _ in range(19):
        run.calls(call("press_key", {"key": "tab"}, "ok"), call("take_screenshot", {}, "<image>"))
    assert run.actions == []
    for _ in range(6):
        run.calls(call("press_key", {"key": "tab"}, "ok"), call("take_screenshot", {}, "<image>"))
    assert set(run.actions) == {"hint"}
