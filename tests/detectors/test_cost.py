"""A budget in money: what calls cost, who is asked, and how far it goes."""

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
from otel_loopguard.errors import EscalationError
from tests.agents import agent, provider_with, tool_call
from tests.calls import Run
from tests.escalation.agents import asked as waiting_of
from tests.escalation.agents import until

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
    with pytest.raises(LoopGuardSettingsError, match=r"prices_file=.*house\.input = 'much'"):
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
    with caplog.at_level("WARNING", "otel_loopguard"):
        LoopGuard(Settings(budget_tokens=1_000_000)).observe(model("house"), "spends")
        assert "price" not in caplog.text
        for step in (model("house"), Step(Kind.MODEL, "m"), model("house"), model()):
            guard.observe(step, "spends")
        spend(guard, 1)
    guard.shutdown()
    assert caplog.text.count("no price is known of the model 'house'") == 1
    assert caplog.text.count("neither a cost nor tokens") == 1
    assert found[-1].message.endswith("USD are used, not counting 3 model calls of unknown cost")


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
            assert left.seconds == pytest.approx(49, abs=1)
            rehearsal.advance(60)
            tool_call(tracer)
        assert [one.reason for one in found[1:]] == ["elapsed_s_limit"]
        guard.shutdown()
