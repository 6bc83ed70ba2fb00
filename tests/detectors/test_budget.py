"""Budgets that are spent, and milestones that are missed: what `budget.txt` cannot say."""

from pathlib import Path
from typing import Any

import pytest

from otel_loopguard import LoopGuardSettingsError, Settings, control, session
from otel_loopguard.core import Decision, Kind, Step
from otel_loopguard.core.milestones import Milestones, Reached
from tests.calls import EPOCH, SECOND, Run, call
from tests.evidence.test_readings import rows

ROWS = rows(Path(__file__).with_name("milestones.rows"))


def news(number: int, **times: float) -> Step:
    """A call that has nothing to do with any other."""
    said = f"answer {number} tells of things that no other answer tells of: {number * 7919:x}"
    return call("read", {"page": number}, said, **times)


@pytest.mark.parametrize("somebody", [True, False], ids=["asked", "nobody"])
def test_a_limit_that_was_set_stops(somebody: bool, request: Any) -> None:
    """By a pause where somebody can answer, else by an abort; both are logged as warnings."""
    caplog = request.getfixturevalue("caplog")
    if somebody:
        request.addfinalizer(control.on_escalation(lambda _: None))
    run = Run(Settings(budget_tokens=30_000))
    run.calls(*[Step(Kind.MODEL, "m", tokens_in=10_000)] * 40)
    assert run.actions == ["pause" if somebody else "abort"]
    logged = [one.levelname for one in caplog.records if "used" in one.message]
    assert logged == ["WARNING"]


def test_odd_times_are_no_time() -> None:
    """Ends before starts, and steps without times."""
    run = Run(Settings(budget_steps=0, tuning={"stalls": {"compact_tokens": 2**71}}))
    run.calls(Step(Kind.TOOL, "t", start=EPOCH, end=EPOCH - SECOND), Step(Kind.TOOL, "t", end=None))
    run.calls(Step(Kind.MODEL, None, start=EPOCH, end=0, tokens_in=2**70, cost=1e300))
    assert (run.decisions, run.guard.faults.counts) == ([], {})


def test_a_type_of_task_has_limits_of_its_own() -> None:
    """In the sessions that say so, also before their first step."""
    run = Run(Settings(task_limits={"question": {"actions": 5, "steps": 9, "action": "pause"}}))
    # Guards of other tests may know sessions of simple names.
    for name, kind in (("asks", "question"), ("searches", "research")):
        with session(name):
            assert control.task_type(kind)
    for name in ("asks", "searches", "other"):
        for number in range(5):
            run.guard.observe(news(number), name)
    assert [(one.session, one.reason) for one in run.decisions] == [
        ("asks", "task_actions_near"), ("asks", "task_actions_limit"),
    ]  # fmt: skip
    assert run.guard.flag_named("asks").control.action == "pause"


@pytest.mark.parametrize(
    "settings",
    [
        {"agent_limits": {"writer": {"actions": 0}}},
        {"agent_limits": {"writer": {"steps": 3}}},
        {"task_limits": {"question": {"action": "deny"}}},
    ],
)
def test_wrong_limits_are_refused(settings: dict[str, Any]) -> None:
    """With name and value; a type of task has a name."""
    with pytest.raises(LoopGuardSettingsError, match="_limits"):
        Settings(**settings)
    with pytest.raises(ValueError, match="not empty"):
        control.task_type("")


def planned(*moves: str, **settings: Any) -> list[Decision]:
    """What is said of a session in which only milestones are judged, after its first step."""
    run = Run(Settings(switched_off="budget", **settings))
    run.calls(news(1000))
    board = run.guard.flag_named("run").milestones
    plan: dict[str, int] = {}
    number = 0
    for what, _, given in (move.partition(" ") for move in moves):
        if what in {"plan", "replan", "optional"}:
            plan = {given: 1} if what == "replan" else {**plan, given: 1}
            board.declare(plan, (given,) if what == "optional" else ())
        elif what == "user":
            run.calls(Step(Kind.OTHER, "user", text=given))
        elif what == "at":
            run.calls(news(int(given), at=int(given)))
        elif what == "nodes":
            run.calls(*(Step(Kind.NODE, f"node {each}") for each in range(int(given))))
        elif what == "steps":
            run.calls(*(news(number + each) for each in range(int(given))))
            number += int(given)
        else:
            board.report(given, Reached(what), of=3 if given == "one of three" else None)
    return run.decisions


@pytest.mark.parametrize(("_", "told", "moves"), ROWS)
def test_steps_without_a_milestone_are_a_stall(_: str, told: str, moves: list[str]) -> None:
    found = planned(*moves)
    assert " ".join(f"{one.step} {one.action} {one.reason}" for one in found) == told.strip("-")
    for one in found:
        assert one.action != "pause" or "'read'" in one.message


def test_a_stall_says_how_many_there_are() -> None:
    """One of three, so that two are open."""
    (found,) = planned("done one of three", "steps 12")
    assert "1 of 3 are done (33.3 %)" in found.message


@pytest.mark.parametrize(
    ("action", "most"), [("allow", "abort"), ("hint", "abort"), ("pause", "hint")]
)
def test_what_follows_is_a_setting(action: str, most: str) -> None:
    """And never more than `max_action`."""
    settings = {"tuning": {"milestones": {"failed_action": action}}, "max_action": most}
    (found,) = planned("plan read", "failed read", "steps 1", **settings)
    assert found.action == ("hint" if most == "hint" else action)


def test_many_milestones_are_bounded() -> None:
    """The oldest that are done are only counted."""
    many = Milestones()
    for number in range(5000):
        assert many.report(str(number), Reached.DONE)
    assert many.percent() == 100.0
    assert many.standing(0, 0, 0, 0).done == 5000
    full = Milestones()
    assert [full.report(str(number), Reached.OPEN) for number in range(300)].count(True) == 256
