"""Milestones that the application reports, and what is left of the limits that were set."""

import json
from concurrent.futures import ThreadPoolExecutor
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
from otel_loopguard.core import Kind, Remaining, Step
from tests.agents import agent, provider_with, tool_call
from tests.control.messages import control_of, flag, new_name
from tests.tables import rows


def step(number: int) -> Step:
    """A call that is like no other."""
    return Step(Kind.TOOL, "read", args={"page": number}, outcome=f"page {number:x} says {number}")


@pytest.fixture
def guard() -> LoopGuard:
    """A live guard."""
    return LoopGuard(Settings(switched_off="budget"))


@pytest.fixture
def begun(guard: LoopGuard) -> Any:
    """The key of a session that the guard knows, and the context names."""
    with session(new_name()) as key:
        guard.observe(step(0), key)
        yield key


def test_the_percentage_goes_by_shares(begun: str, caplog: pytest.LogCaptureFixture) -> None:
    """A plan in percent, by names alone, or by the number of what is not declared, or is seen."""
    assert control.milestones({"read": 20, "build": 60, "write": 20})
    assert control.milestone("read") == 20.0
    assert control.milestone("build", failed=True) == 20.0
    assert control.milestone("build") == 80.0
    assert control.milestones(["build", "test", "ship"])
    assert control.milestone("ship", done=False) == 33.3
    assert control.milestone("ship") == 66.7
    with session(new_name()):
        assert [control.milestone(f"item {number}", of=10) for number in range(3)] == [10, 20, 30]
    with session(new_name()):
        assert [control.milestone(name, failed=name == "b") for name in "abc"] == [100, 50, 66.7]
    assert not caplog.records


def test_where_no_session_is_known_nothing_is() -> None:
    assert control.milestones(["a"]) is False
    assert control.milestone("a") is None
    assert control.remaining("nobody-knows-this-session") is None


def test_a_plan_made_before_the_first_step_is_kept(guard: LoopGuard) -> None:
    """A named session gets it when its first step is seen."""
    with session(new_name()) as key:
        assert control.milestones(["a", "b"])
        assert control.milestone("a") == 50.0
        for number in range(14):
            guard.observe(step(number), key)
        assert control.milestone("b") == 100.0
    decision = control_of(guard, key).decision
    assert decision is not None
    assert decision.detector == "milestone_stall"


@pytest.mark.parametrize("conversation", [{}, {"gen_ai.conversation.id": "talk"}], ids=["", "id"])
def test_a_plan_made_in_a_span_is_kept(guard: LoopGuard, conversation: dict[str, str]) -> None:
    """Under the trace, until its spans say which session it is."""
    tracer = provider_with(LoopGuardSpanProcessor(guard)).get_tracer("my.agent")
    with tracer.start_as_current_span("run"):
        assert control.milestones(["a", "b"])
        tool_call(tracer, more=conversation)
        assert control.milestone("a") == 50.0


def test_many_threads_report_at_once(guard: LoopGuard, begun: str) -> None:
    """Nothing is lost while the guard reads."""
    control.milestones([f"{thread}-{number}" for thread in range(4) for number in range(50)])

    def report(thread: int) -> None:
        with session(begun):
            for number in range(50):
                control.milestone(f"{thread}-{number}")

    with ThreadPoolExecutor(4) as pool:
        reports = pool.map(report, range(4))
        for number in range(50):
            guard.observe(step(number), begun)
        list(reports)
    assert flag(guard, begun).milestones.percent() == 100.0


@pytest.mark.parametrize("optional", [[], ["data read", "report written"]], ids=["", "optional"])
def test_a_milestone_that_was_not_declared_does_not_count(
    caplog: pytest.LogCaptureFixture, optional: list[str]
) -> None:
    """Where others were; that is told once, with the one that is meant, and how to declare more."""
    name = f"data raed {len(optional)}"
    with session(new_name()):
        control.milestones(["data read", "report written"], optional=optional)
        assert control.milestone("data read") == 50.0
        assert control.milestone(name) == 50.0
        assert control.milestone(name, failed=True) == 50.0
        assert f"{name!r} was not declared and does not count" in caplog.text
        assert "was 'data read' meant?" in caplog.text
        assert control.milestone("report sent", done=False) == 33.3
        assert control.milestone("report sent") == 66.7
    assert len(caplog.records) == 1


@pytest.mark.parametrize(("_limits", "settings", "left"), rows(__file__, "left"))
def test_what_is_left_of_each_limit_that_was_set(_limits: str, settings: str, left: str) -> None:
    """After two calls and a model call; None of what was not set, and never below nothing."""
    guard, expected = LoopGuard(Settings(**json.loads(settings))), Remaining(**json.loads(left))
    with session(new_name()) as key:
        for number in range(2):
            guard.observe(step(number), key)
        guard.observe(Step(Kind.MODEL, "m", tokens_in=600, tokens_out=100, cost=0.25), key)
        assert control.remaining() == control.remaining(session=key) == expected


def test_the_time_that_is_left_runs_while_nothing_ends() -> None:
    """Of the limit that comes first; between two runs all of the next one."""
    with set_testing(True) as rehearsal, session(new_name()):
        guard = LoopGuard(Settings(stall_run_s=300, stall_overall_s=500, budget_tokens=10))
        tracer = provider_with(LoopGuardSpanProcessor(guard)).get_tracer("my.agent")
        assert control.remaining() is None
        left: list[Remaining | None] = []
        with agent(tracer):
            tool_call(tracer)
            rehearsal.advance(100)
            left.append(control.remaining())
            rehearsal.advance(150)
        left.append(control.remaining())
        guard.shutdown()
    seconds = [one and one.seconds for one in left]
    # Less what a slow machine took.
    assert seconds == [pytest.approx(200, abs=20), pytest.approx(250, abs=20)]
    assert [one and one.tokens for one in left] == [10, 10]
