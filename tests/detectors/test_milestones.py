"""Milestones: a stall between them, and a plan that cannot succeed any more."""

from __future__ import annotations

import pytest

from otel_loopguard import Settings
from otel_loopguard.core import Kind, Milestones, Reached, Step
from tests.calls import Run
from tests.detectors.test_budget_limits import USER, news, said


@pytest.fixture
def run() -> Run:
    """A session that has begun, in which only milestones are judged."""
    made = Run(Settings(switched_off="budget"))
    made.calls(news(1000))
    return made


def board(run: Run) -> Milestones:
    """The board of the session."""
    flag = run.guard.flag_of("run")
    assert flag is not None
    return flag.milestones


def test_without_milestones_nothing_is_said(run: Run) -> None:
    """Nobody said that there would be any."""
    run.calls(*(news(number) for number in range(40)))
    assert said(run) == []


def test_ten_steps_without_a_milestone_are_a_stall(run: Run) -> None:
    """It is hinted at once, and at most hinted at."""
    board(run).declare({"read": 1, "write": 3}, ())
    board(run).report("read", Reached.DONE)
    run.calls(*(news(number) for number in range(30)))
    (decision,) = run.decisions
    assert (decision.action, decision.detector, decision.step) == ("hint", "milestone_stall", 11)
    assert "1 of 2 are done (25 %)" in decision.message


def test_a_minute_without_a_milestone_is_a_stall(run: Run) -> None:
    """From the second step on, for one slow call is none."""
    board(run).declare({"read": 1}, ())
    run.calls(news(0, at=0), news(1, at=70))
    assert said(run) == []
    run.calls(news(2, at=75))
    assert run.decisions[0].reason == "no_milestone"


def test_a_milestone_starts_the_count_anew(run: Run) -> None:
    """Every nine steps one is reached."""
    board(run).declare({str(number): 1 for number in range(9)}, ())
    for number in range(9):
        run.calls(*(news(number * 9 + step) for step in range(9)))
        board(run).report(str(number), Reached.DONE)
    assert said(run) == []


def test_saying_the_same_twice_is_no_progress(run: Run) -> None:
    """An agent that reports what it has reported goes nowhere."""
    board(run).declare({"a": 1, "b": 1}, ())
    for number in range(15):
        board(run).report("a", Reached.DONE)
        run.calls(news(number))
    assert said(run) == ["hint"]


def test_after_the_last_milestone_there_is_no_stall(run: Run) -> None:
    """Nothing more was promised."""
    board(run).report("all of it", Reached.DONE)
    run.calls(*(news(number) for number in range(30)))
    assert said(run) == []


def test_of_says_how_many_there_are(run: Run) -> None:
    """One of three, so that two are open."""
    board(run).report("first", Reached.DONE, of=3)
    run.calls(*(news(number) for number in range(12)))
    assert "1 of 3 are done (33.3 %)" in run.decisions[0].message


def test_a_plan_that_cannot_succeed_pauses_the_run(run: Run) -> None:
    """A required milestone failed and none is open: said at the next step, once."""
    board(run).declare({"read": 1, "write": 1, "pictures": 1}, ("pictures",))
    board(run).report("read", Reached.FAILED)
    run.calls(news(0))
    board(run).report("write", Reached.DONE)
    run.calls(news(1))
    assert said(run) == []
    board(run).report("pictures", Reached.FAILED)
    run.calls(*(news(2 + number) for number in range(20)))
    assert said(run) == ["pause"]
    assert run.decisions[0].reason == "cannot_succeed"
    assert "'read'" in run.decisions[0].message


@pytest.mark.parametrize(
    ("action", "most"), [("allow", "abort"), ("hint", "abort"), ("pause", "hint")]
)
def test_what_follows_is_a_setting(action: str, most: str) -> None:
    """And never more than `max_action`."""
    run = Run(
        Settings(
            tuning={"milestones": {"failed_action": action}}, max_action=most, switched_off="budget"
        )
    )
    run.calls(news(0))
    board(run).declare({"read": 1}, ())
    board(run).report("read", Reached.FAILED)
    run.calls(news(1))
    assert said(run) == ["hint" if most == "hint" else action]


def test_what_is_optional_may_fail(run: Run) -> None:
    """So may what was never declared as part of the plan."""
    board(run).declare({"read": 1, "pictures": 1}, ("pictures",))
    board(run).report("read", Reached.DONE)
    board(run).report("pictures", Reached.FAILED)
    board(run).report("something else", Reached.FAILED)
    run.calls(*(news(number) for number in range(30)))
    assert said(run) == []


def test_a_new_plan_stands_for_itself(run: Run) -> None:
    """What failed in the plan before is not required any more."""
    board(run).declare({"bus": 1}, ())
    board(run).report("bus", Reached.FAILED)
    board(run).declare({"train": 1}, ())
    board(run).report("train", Reached.DONE)
    run.calls(*(news(number) for number in range(30)))
    assert said(run) == []


def test_a_new_task_has_no_plan_yet(run: Run) -> None:
    """What was declared before the user spoke is not held against the next task."""
    board(run).declare({"read": 1}, ())
    run.calls(news(0), USER, *(news(1 + number) for number in range(30)))
    board(run).report("aside", Reached.DONE)
    run.calls(*(news(40 + number) for number in range(30)))
    assert said(run) == []


def test_many_milestones_are_bounded() -> None:
    """The oldest that are done are only counted."""
    many = Milestones()
    for number in range(5000):
        assert many.report(str(number), Reached.DONE)
    assert many.percent() == 100.0
    assert many.standing(0, 0, 0, 0).done == 5000
    full = Milestones()
    assert [full.report(str(number), Reached.OPEN) for number in range(300)].count(True) == 256


def test_a_step_of_any_kind_counts(run: Run) -> None:
    """Model calls and nodes are steps, too."""
    board(run).declare({"read": 1}, ())
    run.calls(*(Step(Kind.NODE, f"node {number}") for number in range(12)))
    assert run.decisions[0].detector == "milestone_stall"
