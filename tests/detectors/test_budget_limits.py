"""Budgets: said once each, of their own, and without effect unless asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from otel_loopguard import LoopGuard, Settings
from otel_loopguard.core import Kind, Step
from tests.calls import EPOCH, SECOND, Run, call

if TYPE_CHECKING:
    from otel_loopguard.core import Decision
    from otel_loopguard.sessions import Session

USER = Step(Kind.OTHER, "user", text="now something else")


def news(number: int, *, error: str | None = None, at: float | None = None) -> Step:
    """A call that has nothing to do with any other."""
    said = f"answer {number} tells of things that no other answer tells of: {number * 7919:x}"
    return call("read", {"page": number}, None if error else said, error=error, at=at)


def model(tokens: int, cost: float | None = None, agent: str | None = None) -> Step:
    """A model call."""
    return Step(Kind.MODEL, "m", tokens_in=tokens, cost=cost, agent=agent)


def reasons(run: Run, detector: str = "spending_limit") -> list[tuple[str, int]]:
    """Rule and step of all decisions of a detector."""
    return [(one.reason, one.step) for one in run.decisions if one.detector == detector]


def said(run: Run) -> list[str]:
    """Actions of all decisions, those that only note something too."""
    return [one.action.value for one in run.decisions]


def test_nobody_is_told_of_limits_that_nobody_set() -> None:
    """A long healthy run: length is no sign by itself, and no budget holds by default."""
    run = Run()
    run.calls(*(news(number) for number in range(600)))
    assert run.decisions == []


def test_a_long_run_is_noted_and_nothing_more() -> None:
    """All budgets that only say allow: they touch nothing."""
    run = Run(Settings(budget_action="allow"))
    run.calls(*(news(number) for number in range(600)))
    assert set(said(run)) == {"allow"}
    assert run.guard.flag_of("run") is not None
    assert not run.guard.flag_of("run").raised  # pyright: ignore[reportOptionalMemberAccess]


def test_a_warning_at_four_fifths_and_a_word_at_the_limit() -> None:
    """Each is said once, at the step that reaches it."""
    run = Run(Settings(budget_action="allow"))
    run.calls(*(news(number) for number in range(79)))
    assert reasons(run) == [("steps_near", 39), ("steps_limit", 49)]
    severities = [one.severity.value for one in run.decisions if one.detector == "spending_limit"]
    assert severities == ["warning", "critical"]


@pytest.mark.parametrize(
    ("settings", "steps", "expected"),
    [
        ({"budget_tokens": 1000}, [model(300)] * 4, ["tokens_near", "tokens_limit"]),
        ({"budget_cost": 1}, [model(1, 0.25)] * 4, ["cost_limit"]),
        ({"budget_actions": 5}, [news(n) for n in range(5)], ["actions_near", "actions_limit"]),
        (
            {"budget_task_actions": 5},
            [news(n) for n in range(5)],
            ["task_actions_near", "task_actions_limit"],
        ),
        (
            {"budget_errors": 4, "tuning": {"budget": {"warning": 1}}},
            [news(n, error=f"{'abcdef'[n]} is odd") for n in range(4)],
            ["errors_limit"],
        ),
        (
            {"budget_elapsed_s": 100},
            [news(n, at=n * 45) for n in range(4)],
            ["elapsed_s_near", "elapsed_s_limit"],
        ),
        (
            {"budget_operation_tokens": 1000, "budget_tokens": 0},
            [model(900), model(100)],
            ["operation_tokens_near", "operation_tokens_limit"],
        ),
        (
            {"budget_phases": 3, "tuning": {"budget": {"warning": 1}}},
            [model(1, agent=name) for name in ("a", "a", "b", "a")],
            ["phases_limit"],
        ),
    ],
    ids=["tokens", "cost", "actions", "task", "errors", "time", "operation", "phases"],
)
def test_every_budget(settings: dict[str, float], steps: list[Step], expected: list[str]) -> None:
    """Each is held against what it limits; a warning that was leapt over is not said after."""
    run = Run(Settings(**settings))
    run.calls(*steps)
    assert [reason for reason, _ in reasons(run)] == expected


def test_nought_is_no_limit() -> None:
    """A budget of 0 says nothing."""
    run = Run(Settings(budget_steps=0, tuning={"budget": {"checkpoint_every": 0}}))
    run.calls(*(news(number) for number in range(79)))
    assert said(run) == []


def test_tokens_and_cost_that_were_not_captured_are_not_counted() -> None:
    """Missing is not empty, and it is no number either."""
    run = Run(Settings(budget_tokens=1, budget_cost=0.01, budget_steps=0))
    run.calls(*(Step(Kind.MODEL, "m") for _ in range(30)))
    assert said(run) == []


def test_totals_on_agent_spans_are_not_counted_twice() -> None:
    """An agent's span repeats what its model calls used."""
    run = Run(Settings(budget_tokens=1000, budget_cost=1))
    agent = Step(Kind.AGENT, "a", tokens_in=700, cost=0.7)
    run.calls(model(700, 0.7), agent, agent)
    assert said(run) == []


@pytest.mark.parametrize("action", ["allow", "hint", "ask", "pause", "abort"])
def test_the_setting_says_what_follows(action: str) -> None:
    """The limit leads to `budget_action`, the warning to a hint at most."""
    run = Run(
        Settings(
            budget_action=action, budget_actions=10, tuning={"budget": {"checkpoint_every": 0}}
        )
    )
    run.calls(*(news(number) for number in range(10)))
    assert said(run) == ["allow" if action == "allow" else "hint", action]


def test_max_action_goes_before_budget_action() -> None:
    """Who wants to be told only is told only."""
    run = Run(Settings(budget_action="abort", max_action="hint", budget_actions=5))
    run.calls(*(news(number) for number in range(5)))
    assert said(run) == ["hint", "hint"]


def test_a_user_starts_a_new_task() -> None:
    """What is limited per task begins anew, what is limited per session does not."""
    run = Run(
        Settings(budget_task_actions=10, budget_actions=18, tuning={"budget": {"warning": 1}})
    )
    for turn in range(3):
        run.calls(*(news(turn * 9 + number) for number in range(9)), USER)
    assert [reason for reason, _ in reasons(run)] == ["actions_limit"]


def test_each_task_has_its_limit() -> None:
    """A second task that goes too far is told of, too."""
    run = Run(Settings(budget_task_actions=4, tuning={"budget": {"warning": 1}}, budget_steps=0))
    run.calls(*(news(number) for number in range(5)), USER, *(news(9 + n) for n in range(5)))
    assert [reason for reason, _ in reasons(run)] == ["task_actions_limit"] * 2


def test_the_root_of_a_run_ends_a_task() -> None:
    """Live, a run's root span ends with the task."""
    run = Run(Settings(budget_task_actions=10, tuning={"budget": {"warning": 1}}, budget_steps=0))
    root = Step(Kind.AGENT, "a", span_id=7)
    run.calls(*(news(number) for number in range(9)), root, *(news(9 + n) for n in range(9)))
    assert reasons(run) == []


def test_agents_side_by_side_are_one_phase() -> None:
    """Only who goes on after all others have ended begins a new phase."""
    run = Run(Settings(budget_phases=3, tuning={"budget": {"warning": 1}}))
    for number in range(12):
        step = model(1, agent="ab"[number % 2])
        step.start, step.end = EPOCH + number * SECOND, EPOCH + (number + 2) * SECOND
        run.calls(step)
    assert reasons(run) == []


def test_a_success_ends_a_row_of_errors() -> None:
    """In a row means in a row."""
    run = Run(Settings(budget_errors=3, tuning={"budget": {"warning": 1}}))
    bad = [news(n, error=f"{'abcdefgh'[n]} is odd") for n in range(8)]
    run.calls(bad[0], bad[1], news(90), bad[2], bad[3], news(91), bad[4], bad[5])
    assert reasons(run) == []


def test_a_checkpoint_is_advised_every_twenty_five_calls() -> None:
    """Whatever else is in between, once it is asked for."""
    run = Run(Settings(tuning={"budget": {"checkpoint_every": 25}}))
    for number in range(60):
        run.calls(news(number), model(1))
    assert [step for _, step in reasons(run, "checkpoint_advice")] == [48, 98]


def test_a_budget_is_no_loop() -> None:
    """It takes no hint from a loop, and confirms none."""
    run = Run(Settings(budget_action="hint", budget_actions=3, tuning={"budget": {"warning": 1}}))
    run.calls(
        *(call("search", {"q": 1}, "the same long answer, word by word, again") for _ in "abc")
    )
    assert sorted(one.detector for one in run.decisions) == ["exact_repeat", "spending_limit"]
    assert set(said(run)) == {"hint"}


@pytest.mark.parametrize(
    ("settings", "used"),
    [({}, 0.0), ({"budget_actions": 20}, 0.5), ({"budget_actions": 5}, 1.0)],
    ids=["none was set", "half", "more than all"],
)
def test_only_a_budget_that_was_set_is_used(settings: dict[str, int], used: float) -> None:
    """Thresholds tighten by what the user set, never by a default (D12)."""
    seen: list[float] = []

    def note(session: Session, _index: int, _step: Step) -> None:
        seen.append(session.progress.used)

    guard = LoopGuard(Settings(**settings), clock="replay", on_step=note)
    for number in range(10):
        guard.observe(news(number), "run")
    assert seen[-1] == used


def equal_calls(**settings: object) -> list[tuple[int, float]]:
    """Step and threshold of the first hint at equal calls, after a budget was used up."""
    found: list[tuple[int, float]] = []

    def note(_session: Session, decision: Decision) -> None:
        if decision.detector == "exact_repeat":
            found.append((decision.step - 9, decision.threshold))

    budget = {"budget_actions": 10, "budget_action": "allow"}
    guard = LoopGuard(Settings(**{**budget, **settings}), clock="replay", on_decision=note)
    for number in range(10):
        guard.observe(news(number), "run")
    for _ in range(3):
        guard.observe(call("search", {"q": 1}, "the same long answer, word by word"), "run")
    return found[:1]


@pytest.mark.parametrize(
    ("settings", "first"),
    [
        ({}, (3, 3)),
        ({"tuning": {"budget": {"tighten": 0.25}}}, (3, 2.25)),
        ({"tuning": {"budget": {"tighten": 0.3}}}, (2, 2.1)),
        ({"tuning": {"budget": {"tighten": 0.5}}}, (2, 2)),
        ({"tuning": {"budget": {"tighten": 0.5}}, "budget_actions": 0}, (3, 3)),
    ],
    ids=["default", "too little", "just enough", "half", "no budget"],
)
def test_thresholds_tighten_where_it_is_wanted(
    settings: dict[str, object], first: tuple[int, float]
) -> None:
    """By default they do not; the decision has the threshold that was in force (D12)."""
    assert equal_calls(**settings) == [first]


def test_the_detectors_can_be_switched_off() -> None:
    """By family, as all others."""
    run = Run(Settings(switched_off="budget"))
    run.calls(*(news(number) for number in range(80)))
    assert said(run) == []


def test_times_that_cannot_be_are_borne() -> None:
    """Ends before starts, and steps without times."""
    run = Run(Settings(budget_steps=0, tuning={"budget": {"checkpoint_every": 0}}))
    run.calls(
        Step(Kind.TOOL, "t", start=EPOCH, end=EPOCH - SECOND),
        Step(Kind.TOOL, "t", start=0, end=None),
        Step(Kind.MODEL, None, start=EPOCH, end=0, tokens_in=2**70, cost=1e300),
    )
    assert run.guard.faults.counts == {}
