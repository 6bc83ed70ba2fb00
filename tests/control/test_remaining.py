"""What is left of the limits that were set."""

from __future__ import annotations

from typing import Any

import pytest

from otel_loopguard import (
    LoopGuard,
    LoopGuardSpanProcessor,
    Settings,
    control,
    session,
    set_testing,
)
from otel_loopguard.control import Remaining
from otel_loopguard.core import Kind, Step
from tests.agents import agent, provider_with, tool_call


def after_two_calls(key: str, **settings: Any) -> Remaining | None:
    """What is left after two calls and a model call of 700 tokens and a quarter of a dollar."""
    guard = LoopGuard(Settings(**settings))
    for number in range(2):
        guard.observe(Step(Kind.TOOL, "read", args={"n": number}, outcome=f"page {number}"), key)
    guard.observe(Step(Kind.MODEL, "m", tokens_in=600, tokens_out=100, cost=0.25), key)
    with session(key):
        left = control.remaining()
    assert left == control.remaining(session=key)
    guard.shutdown()
    return left


@pytest.mark.parametrize(
    ("settings", "left"),
    [
        ({}, Remaining()),
        ({"budget_steps": 50}, Remaining(steps=47)),
        ({"budget_actions": 40, "budget_tokens": 1000}, Remaining(actions=38, tokens=300)),
        ({"budget_actions": 40, "budget_task_actions": 9}, Remaining(actions=7)),
        ({"budget_cost": 1.0, "budget_errors": 5}, Remaining(cost=0.75)),
        ({"budget_tokens": 500}, Remaining(tokens=0)),
    ],
    ids=["none", "steps", "several", "of two the lesser", "money", "spent"],
)
def test_what_is_left_of_each_limit_that_was_set(settings: dict[str, Any], left: object) -> None:
    """None of what was not set; never below nothing."""
    assert after_two_calls(f"left-{sorted(settings)}", **settings) == left


def test_the_time_that_is_left_runs_while_nothing_ends() -> None:
    """Of the limit that comes first; between two runs all of the next one."""
    with set_testing(True) as rehearsal:
        guard = LoopGuard(Settings(stall_run_s=300, stall_overall_s=500, budget_tokens=10))
        tracer = provider_with(LoopGuardSpanProcessor(guard)).get_tracer("my.agent")
        with session("time-left"):
            assert control.remaining() is None
            with agent(tracer):
                tool_call(tracer)
                rehearsal.advance(100)
                left = control.remaining()
                assert left is not None
                assert left.seconds == pytest.approx(200, abs=1)
                rehearsal.advance(150)
            left = control.remaining()
            assert left is not None
            assert left.seconds == pytest.approx(250, abs=1)
            assert left.tokens == 10
        guard.shutdown()


def test_a_limit_that_a_person_raised_counts_as_it_is_now() -> None:
    guard = LoopGuard(Settings(budget_tokens=1000))
    guard.observe(Step(Kind.MODEL, "m", tokens_in=900), "raised")
    flag = guard.flag_of("raised")
    assert flag is not None
    flag.raised_budgets = {"tokens": 5000.0}
    left = control.remaining("raised")
    assert left is not None
    assert left.tokens == 4100
    guard.shutdown()


def test_where_nothing_is_known_nothing_is_said() -> None:
    assert control.remaining("nobody-knows-this-session") is None
