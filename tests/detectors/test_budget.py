"""Budgets that are spent, and milestones that are missed: what `budget.txt` cannot say."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from otel_loopguard import LoopGuardSettingsError, Settings, control, session
from otel_loopguard.core import Kind, Step
from otel_loopguard.core.milestones import Milestones, Reached
from tests.calls import EPOCH, SECOND, Run, call

if TYPE_CHECKING:
    from otel_loopguard.core import Decision

USER = Step(Kind.OTHER, "user", text="now something else")
FULL = {"tuning": {"budget": {"warning": 1}}}


def news(number: int, *, error: str | None = None, **times: float) -> Step:
    """A call that has nothing to do with any other."""
    said = f"answer {number} tells of things that no other answer tells of: {number * 7919:x}"
    return call("read", {"page": number}, None if error else said, error=error, **times)


def model(tokens: int | None, cost: float | None = None, agent: str | None = None) -> Step:
    """A model call."""
    return Step(Kind.MODEL, "m", tokens_in=tokens, cost=cost, agent=agent)


def told(*steps: Step, **settings: Any) -> list[Decision]:
    """What is decided about a session."""
    run = Run(Settings(**settings))
    run.calls(*steps)
    assert run.guard.faults.counts == {}
    return run.decisions


def reasons(*steps: Step, **settings: Any) -> list[str]:
    return [one.reason for one in told(*steps, **settings)]


@pytest.mark.parametrize(
    "limits",
    [
        {"budget_tokens": 2_000_000, "budget_action": "abort"},
        {"budget_cost": 5.0, "budget_action": "abort"},
        {"budget_steps": 2000, "budget_action": "pause"},
        {"budget_cost": 5.0},
    ],
    ids=["tokens", "cost", "steps", "cost without an action"],
)
def test_a_limit_stops_nothing_but_what_passes_it(limits: dict[str, Any]) -> None:
    """130 healthy calls over an hour, a thinking model of a minute now and then: not a word."""
    steps: list[Step] = []
    for number in range(130):
        at = number * 27 + number % 7
        steps += [model(10_000, 0.03, agent="ab"[number // 9 % 2]), news(number, at=at)]
    assert told(*steps, **limits) == []


@pytest.mark.parametrize(
    ("limits", "step", "reason"),
    [
        ({"budget_tokens": 30_000}, model(10_000), "tokens_limit"),
        ({"budget_cost": 0.01}, model(10, 0.25), "cost_limit"),
        ({"budget_steps": 20}, model(1), "steps_limit"),
        ({"budget_elapsed_s": 10}, news(2, at=11), "elapsed_s_limit"),
        ({"agent_limits": {"a": {"tokens": 90_000}}}, model(9000, agent="a"), "agent_tokens_limit"),
    ],
    ids=["tokens", "cost", "steps", "seconds", "of an agent"],
)
@pytest.mark.parametrize("somebody", [True, False], ids=["asked", "nobody"])
def test_a_limit_that_was_set_stops(
    limits: dict[str, Any], step: Step, reason: str, somebody: bool, request: Any
) -> None:
    """By a pause where somebody can answer, else by an abort; both are logged as warnings."""
    caplog = request.getfixturevalue("caplog")
    if somebody:
        request.addfinalizer(control.on_escalation(lambda _: None))
    found = told(news(0, at=0), *[step] * 40, **limits)
    stops = [one for one in found if one.action.stops]
    assert (stops[0].action, stops[0].reason) == ("pause" if somebody else "abort", reason)
    logged = [one.levelname for one in caplog.records if "used" in one.message]
    assert logged == ["WARNING"] * sum(one.detector.endswith("_limit") for one in found)


@pytest.mark.parametrize(
    ("settings", "steps", "expected"),
    [
        ({"budget_tokens": 1000}, [model(300)] * 4, ["tokens_near", "tokens_limit"]),
        # A warning that was leapt over is not said after.
        ({"budget_cost": 1}, [model(1, 0.25)] * 4, ["cost_limit"]),
        ({"budget_phases": 3, **FULL}, [model(1, agent=name) for name in "aaba"], ["phases_limit"]),
        # An agent's span repeats what its model calls used.
        ({"budget_tokens": 1000, "budget_cost": 1, **FULL},
         [model(700, 0.7), *[Step(Kind.AGENT, "a", tokens_in=700, cost=0.7)] * 2], []),
        # Live, a run's root span ends with the task.
        ({"budget_task_actions": 10, **FULL},
         [*map(news, range(9)), Step(Kind.AGENT, "a", span_id=7), *map(news, range(9, 18))], []),
        # Only who goes on after all others have ended begins a new phase.
        ({"budget_phases": 3, **FULL},
         [replace(news(n, at=n, took=2), agent="ab"[n % 2]) for n in range(12)], []),
        # Ends before starts, and steps without times.
        ({"budget_steps": 0, "tuning": {"stalls": {"compact_tokens": 2**71}}},
         [Step(Kind.TOOL, "t", start=EPOCH, end=EPOCH - SECOND), Step(Kind.TOOL, "t", end=None),
          Step(Kind.MODEL, None, start=EPOCH, end=0, tokens_in=2**70, cost=1e300)], []),
        # Each limit of an agent on its own; a success ends a row of errors.
        ({"agent_limits": {"writer": {"tokens": 1000, "cost": 1, "errors": 3}},
          "budget_action": "ask", **FULL},
         [model(5000, 9, "critic"), model(1100, None, "writer"), model(None, 2, "writer"),
          *(replace(news(n), agent="writer", error=n != 2) for n in range(6))],
         ["agent_tokens_limit", "agent_cost_limit", "agent_errors_limit"]),
    ],
    ids=["tokens", "cost", "phases", "totals", "the root of a run", "agents side by side",
         "odd times", "of an agent"],
)  # fmt: skip
def test_what_is_counted(settings: dict[str, Any], steps: list[Step], expected: list[str]) -> None:
    assert reasons(*steps, switched_off="error_repeat", **settings) == expected


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


RISE = [round(300 * 1.33**number) for number in range(24)]
SIZES = {"a": 1000, "b": 12_000, "c": 90_000}
ORDER = "aaaaabbbbbccccc"


@pytest.mark.parametrize(
    ("tokens", "agents", "limits", "actions"),
    [
        # Every call a third more than the one before: advice, and a hint with the standard limits.
        (RISE, "a", "standard", ["hint"]),
        (RISE, "a", "", ["allow"]),
        ([2000 + 900 * n for n in range(40)], "a", "standard", []),
        ([1500 * (n + 1) for n in range(40)], "a", "standard", []),
        ([3000 if n < 15 else 90_000 for n in range(40)], "a", "standard", []),
        ([90_000 if n % 7 == 3 else 3000 for n in range(40)], "a", "standard", []),
        ([round(10 * 1.33 ** (n % 16)) for n in range(40)], "a", "standard", []),
        ([None if n % 2 else 4000 for n in range(40)], "a", "standard", []),
        # Every agent has a context of its own.
        ([SIZES[name] for name in ORDER * 3], ORDER, "standard", []),
    ],
    ids=[
        "a third more each time", "noted by default", "a conversation", "from nothing",
        "a large file", "single calls", "small", "unknown", "agents by turns",
    ],
)  # fmt: skip
def test_a_steep_rise_is_said_once(
    tokens: list[int | None], agents: str, limits: str, actions: list[str]
) -> None:
    """Growth in proportion, a leap, outliers, small numbers and unknown tokens are no rise."""
    steps = [model(each, agent=agents[n % len(agents)]) for n, each in enumerate(tokens)]
    found = told(*steps, limits=limits, switched_off="spending_limit")
    assert [one.action for one in found if one.detector == "token_rate"] == actions


READ, WRITE = "read", "write"
DONE, FAILED = Reached.DONE, Reached.FAILED
Move = tuple[str, Any]


def planned(moves: list[Move], **settings: Any) -> list[Decision]:
    """What is said of a session in which only milestones are judged, after its first step."""
    run = Run(Settings(switched_off="budget", **settings))
    run.calls(news(1000))
    board = run.guard.flag_named("run").milestones
    plan: dict[str, int] = {}
    number = 0
    for what, given in moves:
        if what in {"plan", "new plan", "optional"}:
            plan = {given: 1} if what == "new plan" else {**plan, given: 1}
            board.declare(plan, (given,) if what == "optional" else ())
        elif what == "user":
            run.calls(USER)
        elif what == "at":
            run.calls(news(given, at=given))
        elif what == "nodes":
            run.calls(*(Step(Kind.NODE, f"node {each}") for each in range(given)))
        elif what == "steps":
            run.calls(*(news(number + each) for each in range(given)))
            number += given
        else:
            board.report(given, what, of=3 if given == "one of three" else None)
    return run.decisions


ASIDE = [("plan", READ), ("plan", WRITE), ("optional", "art")]


@pytest.mark.parametrize(
    ("moves", "told"),
    [
        # Nobody said that there would be any.
        ([("steps", 40)], ""),
        # It is hinted at once, and at most hinted at; nodes and models are steps, too.
        ([("plan", READ), ("steps", 30)], "11 hint"),
        ([("plan", READ), ("nodes", 12)], "11 hint"),
        # Every nine steps one is reached.
        ([("plan", READ), *[("steps", 9), (DONE, READ), ("plan", READ)] * 4], ""),
        # An agent that reports what it has reported goes nowhere.
        ([("plan", READ), ("plan", WRITE), *[(DONE, READ), ("steps", 1)] * 15], "11 hint"),
        # Nothing more was promised.
        ([(DONE, "all of it"), ("steps", 30)], ""),
        # So may what was never declared as part of the plan.
        ([("plan", READ), ("optional", "art"), (DONE, READ), (FAILED, "art"), (FAILED, "more"),
          ("steps", 30)], ""),
        # What failed in the plan before is not required any more.
        ([("plan", READ), (FAILED, READ), ("new plan", WRITE), (DONE, WRITE), ("steps", 30)], ""),
        # What was declared before the user spoke is not held against the next task.
        ([("plan", READ), ("steps", 1), ("user", 1), ("steps", 30), (DONE, "aside"),
          ("steps", 30)], ""),
        # A minute is too long from the second step on, for one slow call is none.
        ([("plan", READ), ("at", 0), ("at", 70)], ""),
        ([("plan", READ), ("at", 0), ("at", 70), ("at", 75)], "3 hint"),
        # A required one failed and none is open: said at the next step, once.
        ([*ASIDE, (FAILED, READ), ("steps", 1), (DONE, WRITE), ("steps", 1)], ""),
        ([*ASIDE, (FAILED, READ), ("steps", 1), (DONE, WRITE), ("steps", 1), (FAILED, "art"),
          ("steps", 20)], "3 pause"),
    ],
    ids=[
        "no milestones", "ten steps", "of any kind", "reached in time", "said twice", "the last",
        "optional", "a new plan", "a new task", "one slow call", "a minute", "one is open",
        "a plan that cannot succeed",
    ],
)  # fmt: skip
def test_ten_steps_without_a_milestone_are_a_stall(moves: list[Move], told: str) -> None:
    found = planned(moves)
    assert [f"{one.step} {one.action}" for one in found] == ([told] if told else [])
    for one in found:
        assert one.reason == ("cannot_succeed" if one.action == "pause" else "no_milestone")
        assert one.action != "pause" or "'read'" in one.message


def test_a_stall_says_how_many_there_are() -> None:
    """One of three, so that two are open."""
    (found,) = planned([(DONE, "one of three"), ("steps", 12)])
    assert "1 of 3 are done (33.3 %)" in found.message


@pytest.mark.parametrize(
    ("action", "most"), [("allow", "abort"), ("hint", "abort"), ("pause", "hint")]
)
def test_what_follows_is_a_setting(action: str, most: str) -> None:
    """And never more than `max_action`."""
    settings = {"tuning": {"milestones": {"failed_action": action}}, "max_action": most}
    (found,) = planned([("plan", READ), (FAILED, READ), ("steps", 1)], **settings)
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
