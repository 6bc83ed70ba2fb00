"""Budgets that are spent, and milestones that are missed: what `budget.txt` cannot say."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from otel_loopguard import (
    LoopGuard,
    LoopGuardSettingsError,
    LoopGuardSpanProcessor,
    Settings,
    control,
    session,
    set_testing,
)
from otel_loopguard.core import Decision, Kind, Step
from otel_loopguard.core.progress import Milestones, Reached
from otel_loopguard.errors import EscalationError
from tests.agents import agent, provider_with, tool_call
from tests.calls import EPOCH, SECOND, Run, call
from tests.escalation.agents import asked as waiting_of
from tests.escalation.agents import until
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


MODEL = "gpt-4o-2024-08-06"


def model(name: str = MODEL) -> Step:
    """A model call that tells its tokens, of a price of two cents."""
    return Step(Kind.MODEL, name, model=name, tokens_in=4000, tokens_out=1000)


def test_prices_of_your_own(tmp_path: Path) -> None:
    """A model that the package does not know; a broken file fails at the start."""
    path = tmp_path / "prices.toml"
    path.write_text('[models]\n"house" = { input = 100, output = 100 }\n')
    run = Run(Settings(budget_cost=1, budget_action="pause", prices_file=str(path)))
    run.calls(model("house-2026-01-01"), model("house"))
    assert [(one.reason, one.action, one.count) for one in run.decisions] == [
        ("cost_limit", "pause", 1.0)
    ]
    path = tmp_path / "broken.toml"
    path.write_text('[models]\n"house" = { input = "much", output = 1 }\n')
    with pytest.raises(LoopGuardSettingsError, match=r"prices_file .*house\.input = 'much'"):
        LoopGuard(Settings(prices_file=str(path)), clock="replay")


def live(**settings: Any) -> tuple[LoopGuard, list[Decision]]:
    """A live guard with a budget of money, and what it decides."""
    found: list[Decision] = []
    guard = LoopGuard(
        Settings(**{"budget_cost": 0.05, **settings}), on_decision=lambda _, one: found.append(one)
    )
    return guard, found


def spend(guard: LoopGuard, calls: int) -> None:
    for _ in range(calls):
        guard.observe(model(), "spends")


def test_what_cannot_be_seen_is_counted_and_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """A model without a price, and a call without tokens; not where there is no such limit."""
    guard, found = live(budget_cost=0.04)
    LoopGuard(Settings(budget_tokens=1_000_000)).observe(model("house"), "spends")
    assert "price" not in caplog.text
    for step in (model("house"), Step(Kind.MODEL, "m"), model("house"), model()):
        guard.observe(step, "spends")
    spend(guard, 1)
    guard.shutdown()
    assert caplog.text.count("no price is known for the model 'house'") == 1
    assert caplog.text.count("neither a cost nor tokens") == 1
    assert found[-1].message.endswith("USD are used, not counting 3 model calls of unknown cost")


@pytest.mark.parametrize("limit", ["budget_tokens", "budget_cost", "budget_actions"])
@pytest.mark.parametrize("seen", [False, True])
def test_a_limit_of_what_nobody_sees_is_told(
    limit: str, seen: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Thirty calls of tools without one of a model, where tokens or money are limited."""
    guard = LoopGuard(Settings(**{limit: 1_000_000}))
    steps = [Step(Kind.TOOL, "read", args={"page": page}) for page in range(40)]
    for step in [model(), *steps] if seen else steps:
        guard.observe(step, "spends")
    guard.shutdown()
    told = caplog.text.count("30 calls of tools came and none of a model")
    assert told == (limit != "budget_actions" and not seen)


@pytest.fixture
def asked() -> Iterator[list[Any]]:
    """Somebody who can be asked, and gives the answers of a list."""
    answers: list[Any] = []
    forget = control.on_escalation(lambda found: answers.pop(0) if answers else None)
    yield answers
    forget()


def test_an_answer_raises_the_budget(asked: list[Any]) -> None:
    """It is asked about once, and again at the new limit."""
    asked.append({"answer": "continue", "limit": 0.09, "by": "anna"})
    guard, found = live()
    spend(guard, 3)
    flag = guard.flag_named("spends")
    until(lambda: not flag.held)
    spend(guard, 1)
    assert [one.reason for one in found] == ["cost_limit", "cost_near"]
    spend(guard, 1)
    assert [one.reason for one in found][2:] == ["cost_limit"]
    assert found[-1].threshold == 0.09
    (waiting,) = waiting_of(guard)
    assert any("raise the budget" in one.text for one in waiting.suggestions)
    for limit, says in ((0.09, "above the 0.1 spent, got 0.09"), ("x", "above 0, got 'x'")):
        with pytest.raises(EscalationError, match=says):
            control.answer(waiting.id, "continue", limit=limit)  # pyright: ignore[reportArgumentType]
    with pytest.raises(EscalationError, match="a limit goes with the answer continue"):
        control.answer(waiting.id, "abort", limit=1)
    assert flag.held
    control.answer(waiting.id, "continue", limit=1)
    spend(guard, 5)
    assert len(found) == 3
    guard.shutdown()


def test_a_bare_continue_lets_the_session_spend(asked: list[Any]) -> None:
    """The same limit is not asked about again."""
    asked.append("continue")
    guard, found = live()
    spend(guard, 3)
    flag = guard.flag_named("spends")
    until(lambda: not flag.held)
    spend(guard, 9)
    guard.shutdown()
    assert [one.reason for one in found] == ["cost_limit"]


def test_an_answer_gives_a_task_more_time(asked: list[Any]) -> None:
    """Where the timer found that its time is over; steps are held against the new limit."""
    with set_testing(True) as rehearsal:
        guard, found = live(budget_cost=0, budget_elapsed_s=100)
        tracer = provider_with(LoopGuardSpanProcessor(guard)).get_tracer("my.agent")
        with session("takes-long"), agent(tracer):
            tool_call(tracer)
            rehearsal.advance(101)
            tool_call(tracer)
            assert [one.reason for one in found] == ["operation_limit"]
            (waiting,) = waiting_of(guard)
            control.answer(waiting.id, "continue", limit=200, by="anna")
            rehearsal.advance(50)
            tool_call(tracer)
            assert len(found) == 1
            left = control.remaining()
            assert left is not None
            assert 0 < (left.seconds or 0) < 50  # less what a slow machine took
            rehearsal.advance(60)
            tool_call(tracer)
        assert [one.reason for one in found[1:]] == ["elapsed_s_limit"]
        guard.shutdown()
