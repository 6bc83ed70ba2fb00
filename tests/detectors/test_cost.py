"""A budget in money: what calls cost, who is asked, and how far it goes."""

from __future__ import annotations

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
from otel_loopguard.settings.prices import PriceTable
from tests.agents import agent, provider_with, tool_call
from tests.calls import Run
from tests.escalation.agents import asked as waiting_of
from tests.escalation.agents import until

MODEL = "gpt-4o-2024-08-06"
CALL = 0.02


def model(agent: str | None = None, *, name: str = MODEL, **more: Any) -> Step:
    """A model call that tells its tokens, of a price of two cents."""
    return Step(Kind.MODEL, name, model=name, tokens_in=4000, tokens_out=1000, agent=agent, **more)


def spent(run: Run) -> list[tuple[str, str]]:
    return [(one.reason, one.action.value) for one in run.decisions]


def test_a_call_that_tells_tokens_alone_has_the_cost_of_its_tokens() -> None:
    """Of all agents of a session together; a span that tells the cost is believed."""
    assert PriceTable.load().cost(MODEL, 4000, 1000) == pytest.approx(CALL)
    run = Run(Settings(budget_cost=0.1, budget_action="pause"))
    run.calls(model("boss"), model("writer"), model("checker"), model("writer", cost=0.03))
    assert spent(run) == [("cost_near", "hint")]
    run.calls(model("boss"))
    assert spent(run) == [("cost_near", "hint"), ("cost_limit", "pause")]
    assert run.decisions[1].count == pytest.approx(0.11)


def test_tokens_out_of_a_cache_cost_less() -> None:
    """The same tokens, most of them read from a cache."""
    run = Run(Settings(budget_cost=0.079, budget_action="pause"))
    run.calls(*(model(cache_read=4000) for _ in range(5)))
    assert [reason for reason, _ in spent(run)] == ["cost_near"]
    run.calls(model())
    assert [reason for reason, _ in spent(run)] == ["cost_near", "cost_limit"]


def test_limits_of_one_agent_and_one_task_take_prices_too() -> None:
    run = Run(Settings(agent_limits={"writer": {"cost": 0.04, "action": "pause"}}))
    run.calls(model("boss"), model("boss"), model("writer"), model("writer"))
    assert spent(run) == [("agent_cost_limit", "pause")]


def test_prices_of_your_own(tmp_path: Path) -> None:
    """A model that the package does not know."""
    path = tmp_path / "prices.toml"
    path.write_text('[models]\n"house" = { input = 100, output = 100 }\n')
    run = Run(Settings(budget_cost=1, budget_action="pause", prices_file=str(path)))
    run.calls(model(name="house-2026-01-01"), model(name="house"))
    assert spent(run) == [("cost_limit", "pause")]


def test_a_broken_file_of_prices_fails_at_the_start(tmp_path: Path) -> None:
    path = tmp_path / "prices.toml"
    path.write_text('[models]\n"house" = { input = "much", output = 1 }\n')
    with pytest.raises(LoopGuardSettingsError, match=r"prices_file=.*line 2: .*= 'much'"):
        LoopGuard(Settings(prices_file=str(path)), clock="replay")


def test_what_cannot_be_seen_is_counted_and_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """A model without a price, and a call without tokens."""
    found: list[Decision] = []
    guard = LoopGuard(Settings(budget_cost=0.04), on_decision=lambda _, one: found.append(one))
    with caplog.at_level("WARNING", "otel_loopguard"):
        for step in (model(name="house"), Step(Kind.MODEL, "m"), model(name="house"), model()):
            guard.observe(step, "spends")
        guard.observe(model(), "spends")
    guard.shutdown()
    assert caplog.text.count("no price is known of the model 'house'") == 1
    assert caplog.text.count("neither a cost nor tokens") == 1
    assert found[-1].message.endswith("USD are used, not counting 3 model calls of unknown cost")


def test_without_a_limit_of_money_nothing_is_priced(caplog: pytest.LogCaptureFixture) -> None:
    guard = LoopGuard(Settings(budget_tokens=1_000_000))
    with caplog.at_level("WARNING", "otel_loopguard"):
        guard.observe(model(name="house"), "spends")
    guard.shutdown()
    assert "price" not in caplog.text


@pytest.fixture
def asked() -> Iterator[list[Any]]:
    """Somebody who can be asked, and gives the answers of a list."""
    answers: list[Any] = []
    forget = control.on_escalation(lambda found: answers.pop(0) if answers else None)
    yield answers
    forget()


def live(calls: int, guard: LoopGuard) -> None:
    for _ in range(calls):
        guard.observe(model(), "spends")


@pytest.mark.parametrize(
    ("settings", "somebody", "nobody"),
    [
        ({}, ["hint", "pause"], ["hint", "abort"]),
        ({"budget_action": "ask"}, ["hint", "ask"], ["hint", "ask"]),
        ({"budget_action": "allow"}, ["allow", "allow"], ["allow", "allow"]),
        ({"max_action": "hint"}, ["hint", "hint"], ["hint", "hint"]),
    ],
)
def test_it_pauses_and_asks_where_somebody_can_answer(
    settings: dict[str, Any], somebody: list[str], nobody: list[str], request: Any
) -> None:
    """What a setting says goes first."""
    for expected in (nobody, somebody):
        if expected is somebody:
            request.getfixturevalue("asked")
        assert decided(Settings(budget_cost=0.05, **settings)) == expected


def decided(settings: Settings) -> list[str]:
    """What a live guard does near a budget of five cents and at it."""
    found: list[Decision] = []
    guard = LoopGuard(settings, on_decision=lambda _, one: found.append(one))
    guard.observe(model(cost=0.041), "spends")
    guard.observe(model(), "spends")
    guard.shutdown()
    return [one.action.value for one in found if "cost" in one.reason]


def test_an_answer_raises_the_budget(asked: list[Any]) -> None:
    """It is asked about once, and again at the new limit."""
    asked.append({"answer": "continue", "limit": 0.09, "by": "anna"})
    found: list[Decision] = []
    guard = LoopGuard(Settings(budget_cost=0.05), on_decision=lambda _, one: found.append(one))
    live(3, guard)
    flag = guard.flag_of("spends")
    assert flag is not None
    until(lambda: not flag.held)
    live(1, guard)
    assert [one.reason for one in found] == ["cost_limit", "cost_near"]
    live(1, guard)
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
    live(5, guard)
    assert len(found) == 3
    guard.shutdown()


def test_a_bare_continue_lets_the_session_spend(asked: list[Any]) -> None:
    """The same limit is not asked about again."""
    asked.append("continue")
    found: list[Decision] = []
    guard = LoopGuard(Settings(budget_cost=0.05), on_decision=lambda _, one: found.append(one))
    live(3, guard)
    flag = guard.flag_of("spends")
    assert flag is not None
    until(lambda: not flag.held)
    live(9, guard)
    guard.shutdown()
    assert [one.reason for one in found] == ["cost_limit"]


def test_an_answer_gives_a_task_more_time(asked: list[Any]) -> None:
    """Where the timer found that its time is over; steps are held against the new limit."""
    found: list[str] = []
    with set_testing(True) as rehearsal:
        guard = LoopGuard(
            Settings(budget_elapsed_s=100), on_decision=lambda _, one: found.append(one.reason)
        )
        tracer = provider_with(LoopGuardSpanProcessor(guard)).get_tracer("my.agent")
        with session("takes-long"), agent(tracer):
            tool_call(tracer)
            rehearsal.advance(101)
            tool_call(tracer)
            assert found == ["operation_limit"]
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
        assert found[1:] == ["elapsed_s_limit"]
        guard.shutdown()


def test_a_limit_is_no_answer_to_a_loop() -> None:
    """Only a spent budget can be raised."""
    guard = LoopGuard(Settings(max_action="pause"))
    for _ in range(4):
        guard.observe(Step(Kind.TOOL, "search", args={"q": "x"}, outcome="No results."), "repeats")
    (waiting,) = waiting_of(guard)
    with pytest.raises(EscalationError, match="is about no budget"):
        control.answer(waiting.id, "continue", limit=3)
    control.answer(waiting.id, "continue")
    guard.shutdown()
