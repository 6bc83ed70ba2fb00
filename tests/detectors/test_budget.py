"""Budgets that are spent, and milestones that are missed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from otel_loopguard import Action, LoopGuard, LoopGuardSettingsError, Settings, control, session
from otel_loopguard.core import Decision, Kind, Step
from otel_loopguard.core.milestones import Milestones, Reached
from tests.calls import EPOCH, SECOND, Run, call

if TYPE_CHECKING:
    from otel_loopguard.core import Decision
    from otel_loopguard.sessions import Session


USER = Step(Kind.OTHER, "user", text="now something else")


def news(number: int, *, error: str | None = None, **times: float) -> Step:
    """A call that has nothing to do with any other."""
    said = f"answer {number} tells of things that no other answer tells of: {number * 7919:x}"
    return call("read", {"page": number}, None if error else said, error=error, **times)


def model(tokens: int, cost: float | None = None, agent: str | None = None) -> Step:
    """A model call."""
    return Step(Kind.MODEL, "m", tokens_in=tokens, cost=cost, agent=agent)


def reasons(run: Run, detector: str = "spending_limit") -> list[tuple[str, int]]:
    """Rule and step of all decisions of a detector."""
    return [(one.reason, one.step) for one in run.decisions if one.detector == detector]


def said(run: Run) -> list[str]:
    """Actions of all decisions, those that only note something too."""
    return [one.action.value for one in run.decisions]


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
    run = Run(Settings(**limits))
    for number in range(130):
        at = number * 27 + number % 7
        run.calls(model(10_000, 0.03, agent="ab"[number // 9 % 2]), news(number, at=at))
    assert run.decisions == []


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
    run = Run(Settings(**limits))
    run.calls(news(0, at=0), *[step] * 40)
    stops = [one for one in run.decisions if one.action.stops]
    assert (stops[0].action, stops[0].reason) == ("pause" if somebody else "abort", reason)
    told = [one.levelname for one in caplog.records if "used" in one.message]
    limits_told = [one for one in run.decisions if one.detector.endswith("_limit")]
    assert told == ["WARNING"] * len(limits_told)


def test_a_warning_at_four_fifths_and_a_stop_at_the_limit(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Each is said once, at the step that reaches it, and logged as a warning."""
    run = Run(Settings(budget_steps=50))
    run.calls(*(news(number) for number in range(79)))
    assert reasons(run) == [("steps_near", 39), ("steps_limit", 49)]
    assert said(run) == ["hint", "abort"]
    assert [one.levelname for one in caplog.records] == ["WARNING", "WARNING"]
    assert [one.severity.value for one in run.decisions] == ["warning", "fatal"]


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
            {"budget_phases": 3, "tuning": {"budget": {"warning": 1}}},
            [model(1, agent=name) for name in ("a", "a", "b", "a")],
            ["phases_limit"],
        ),
    ],
    ids=["tokens", "cost", "actions", "task", "errors", "time", "phases"],
)
def test_every_budget(settings: dict[str, float], steps: list[Step], expected: list[str]) -> None:
    """Each is held against what it limits; a warning that was leapt over is not said after."""
    run = Run(Settings(**settings))
    run.calls(*steps)
    assert [reason for reason, _ in reasons(run)] == expected


@pytest.mark.parametrize("action", ["allow", "hint", "ask", "pause", "abort"])
def test_the_setting_says_what_follows(action: str) -> None:
    """The limit leads to `budget_action`, the warning to a hint at most."""
    run = Run(Settings(budget_action=action, budget_actions=10))
    run.calls(*(news(number) for number in range(10)))
    assert said(run) == ["allow" if action == "allow" else "hint", action]


def test_a_checkpoint_is_advised_every_twenty_five_calls() -> None:
    """Whatever else is in between, once it is asked for."""
    run = Run(Settings(tuning={"budget": {"checkpoint_every": 25}}))
    for number in range(60):
        run.calls(news(number), model(1))
    assert [step for _, step in reasons(run, "checkpoint_advice")] == [48, 98]


@pytest.mark.parametrize(
    ("settings", "used"),
    [({}, 0.0), ({"budget_actions": 20}, 0.5), ({"budget_actions": 5}, 1.0)],
    ids=["none was set", "half", "more than all"],
)
def test_only_a_budget_that_was_set_is_used(settings: dict[str, int], used: float) -> None:
    """Thresholds tighten by what the user set, never by a default (D12)."""
    seen: list[float] = []

    def note(session: Session, _index: int, _step: Step) -> None:
        seen.append(session.state.progress.used)

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


def test_times_that_cannot_be_are_borne() -> None:
    """Ends before starts, and steps without times."""
    run = Run(Settings(budget_steps=0, tuning={"budget": {"checkpoint_every": 0}}))
    run.calls(
        Step(Kind.TOOL, "t", start=EPOCH, end=EPOCH - SECOND),
        Step(Kind.TOOL, "t", start=0, end=None),
        Step(Kind.MODEL, None, start=EPOCH, end=0, tokens_in=2**70, cost=1e300),
    )
    assert run.guard.faults.counts == {}


def read_by(number: int, agent: str | None, *, error: bool = False) -> Step:
    said = f"answer {number} tells of things that no other answer tells of: {number * 7919:x}"
    step = Step(Kind.TOOL, "read", agent=agent, args={"n": number}, outcome=said)
    step.error = error
    return step


def made(**settings: object) -> tuple[LoopGuard, list[Decision]]:
    """A guard, and what it says of limits that are an agent's or a type's own."""
    found: list[Decision] = []

    def note(_session: object, decision: Decision) -> None:
        if decision.detector == "own_limit":
            found.append(decision)

    return LoopGuard(Settings(**settings), on_decision=note), found


def test_an_agent_has_limits_of_its_own() -> None:
    """Its calls count and those of others do not; said once near and once at the limit."""
    limits = {"writer": {"actions": 5, "action": "ask"}}
    guard, found = made(agent_limits=limits)
    for number in range(20):
        guard.observe(read_by(number, "critic"), "a")
        if number < 8:
            guard.observe(read_by(100 + number, "writer"), "a")
    assert [(one.reason, one.action, one.count) for one in found] == [
        ("agent_actions_near", Action.HINT, 4),
        ("agent_actions_limit", Action.ASK, 5),
    ]
    assert "agent 'writer' used 5 of 5 tool calls" in found[1].message


def test_tokens_cost_and_errors_of_an_agent() -> None:
    """Each on its own; a success ends a row of errors."""
    limits = {"writer": {"tokens": 1000, "cost": 1, "errors": 3}}
    guard, found = made(agent_limits=limits, budget_action="ask", tuning={"budget": {"warning": 1}})
    guard.observe(Step(Kind.MODEL, "m", agent="critic", tokens_in=5000, cost=9), "a")
    guard.observe(Step(Kind.MODEL, "m", agent="writer", tokens_in=900, tokens_out=200), "a")
    guard.observe(Step(Kind.MODEL, "m", agent="writer", cost=2), "a")
    for number, failed in enumerate([True, True, False, True, True, True]):
        guard.observe(read_by(number, "writer", error=failed), "a")
    assert [one.reason for one in found] == [
        "agent_tokens_limit", "agent_cost_limit", "agent_errors_limit",
    ]  # fmt: skip
    assert {one.action for one in found} == {Action.ASK}


def test_a_type_of_task_has_limits_of_its_own() -> None:
    """In the sessions that say so, also before their first step."""
    guard, found = made(task_limits={"question": {"actions": 5, "steps": 9, "action": "pause"}})
    # Guards of other tests may know sessions of simple names.
    for name, kind in (("asks", "question"), ("searches", "research")):
        with session(name):
            assert control.task_type(kind)
    for name in ("asks", "searches", "other"):
        for number in range(5):
            guard.observe(read_by(number, None), name)
    assert [(one.session, one.reason) for one in found] == [
        ("asks", "task_actions_near"), ("asks", "task_actions_limit"),
    ]  # fmt: skip
    assert guard.flag_of("asks").control.action is Action.PAUSE


@pytest.mark.parametrize(
    "settings",
    [
        {"agent_limits": {"writer": {"actions": 0}}},
        {"agent_limits": {"writer": {"steps": 3}}},
        {"task_limits": {"question": {"action": "deny"}}},
    ],
)
def test_wrong_limits_are_refused(settings: dict[str, object]) -> None:
    """With name and value; a type of task has a name."""
    with pytest.raises(LoopGuardSettingsError, match="_limits"):
        Settings(**settings)
    with pytest.raises(ValueError, match="not empty"):
        control.task_type("")


@pytest.mark.parametrize(
    ("settings", "steps"),
    [
        # An agent's span repeats what its model calls used.
        ({"budget_tokens": 1000, "budget_cost": 1},
         [model(700, 0.7), *[Step(Kind.AGENT, "a", tokens_in=700, cost=0.7)] * 2]),
        # Live, a run's root span ends with the task.
        ({"budget_task_actions": 10},
         [*map(news, range(9)), Step(Kind.AGENT, "a", span_id=7), *map(news, range(9, 18))]),
        # Only who goes on after all others have ended begins a new phase.
        ({"budget_phases": 3},
         [replace(news(n, at=n, took=2), agent="ab"[n % 2]) for n in range(12)]),
    ],
    ids=["totals", "the root of a run", "agents side by side"],
)  # fmt: skip
def test_what_is_counted_once(settings: dict[str, Any], steps: list[Step]) -> None:
    run = Run(Settings(tuning={"budget": {"warning": 1}}, **settings))
    run.calls(*steps)
    assert run.decisions == []


RISE = [round(300 * 1.33**number) for number in range(24)]
SIZES = {"a": 1000, "b": 12_000, "c": 90_000}
ORDER = "aaaaabbbbbccccc"


@pytest.mark.parametrize(
    ("tokens", "agents", "limits", "told"),
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
    tokens: list[int | None], agents: str, limits: str, told: list[str]
) -> None:
    """Growth in proportion, a leap, outliers, small numbers and unknown tokens are no rise."""
    run = Run(Settings(limits=limits, switched_off="spending_limit"))
    run.calls(
        *(
            Step(Kind.MODEL, "m", tokens_in=count, agent=agents[number % len(agents)])
            for number, count in enumerate(tokens)
        )
    )
    assert [one.action for one in run.decisions if one.detector == "token_rate"] == told


@pytest.fixture
def run() -> Run:
    """A session that has begun, in which only milestones are judged."""
    made = Run(Settings(switched_off="budget"))
    made.calls(news(1000))
    return made


def board(run: Run) -> Milestones:
    """The board of the session."""
    flag = run.guard.flag_named("run")
    return flag.milestones


READ, WRITE = "read", "write"
DONE, FAILED = Reached.DONE, Reached.FAILED
Move = tuple[str, Any]


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
    ],
    ids=[
        "no milestones", "ten steps", "of any kind", "reached in time", "said twice", "the last",
        "optional", "a new plan", "a new task",
    ],
)  # fmt: skip
def test_ten_steps_without_a_milestone_are_a_stall(run: Run, moves: list[Move], told: str) -> None:
    plan: dict[str, int] = {}
    number = 0
    for what, given in moves:
        if what in {"plan", "new plan", "optional"}:
            plan = {given: 1} if what == "new plan" else {**plan, given: 1}
            board(run).declare(plan, (given,) if what == "optional" else ())
        elif what == "user":
            run.calls(USER)
        elif what == "nodes":
            run.calls(*(Step(Kind.NODE, f"node {each}") for each in range(given)))
        elif what == "steps":
            run.calls(*(news(number + each) for each in range(given)))
            number += given
        else:
            board(run).report(given, what)
    assert [f"{one.step} {one.action}" for one in run.decisions] == ([told] if told else [])


def test_a_stall_says_how_many_there_are(run: Run) -> None:
    """One of three, so that two are open."""
    board(run).report("first", Reached.DONE, of=3)
    run.calls(*(news(number) for number in range(12)))
    assert "1 of 3 are done (33.3 %)" in run.decisions[0].message


def test_a_minute_without_a_milestone_is_a_stall(run: Run) -> None:
    """From the second step on, for one slow call is none."""
    board(run).declare({"read": 1}, ())
    run.calls(news(0, at=0), news(1, at=70))
    assert said(run) == []
    run.calls(news(2, at=75))
    assert run.decisions[0].reason == "no_milestone"


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


def test_many_milestones_are_bounded() -> None:
    """The oldest that are done are only counted."""
    many = Milestones()
    for number in range(5000):
        assert many.report(str(number), Reached.DONE)
    assert many.percent() == 100.0
    assert many.standing(0, 0, 0, 0).done == 5000
    full = Milestones()
    assert [full.report(str(number), Reached.OPEN) for number in range(300)].count(True) == 256
