"""`control.milestone` and `control.milestones`: from the application to the guard."""

from __future__ import annotations

import threading
import uuid

import pytest
from opentelemetry.sdk.trace import TracerProvider

import otel_loopguard
from otel_loopguard import LoopGuard, LoopGuardSpanProcessor, Settings, control
from otel_loopguard.core import Kind, Step

CALL = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "read"}


@pytest.fixture
def guard() -> LoopGuard:
    """A live guard."""
    return LoopGuard(Settings(switched_off="budget"))


def step(number: int) -> Step:
    """A call that is like no other."""
    return Step(Kind.TOOL, "read", args={"page": number}, outcome=f"page {number:x} says {number}")


def test_the_percentage_goes_by_shares(guard: LoopGuard) -> None:
    """A plan in percent, by names alone, or by the number of what is not declared."""
    with otel_loopguard.session("by shares") as key:
        guard.observe(step(0), key)
        assert control.milestones({"read": 20, "build": 60, "write": 20})
        assert control.milestone("read") == 20.0
        assert control.milestone("build", failed=True) == 20.0
        assert control.milestone("build") == 80.0
        assert control.milestones(["build", "test", "ship"])
        assert control.milestone("ship", done=False) == 33.3
        assert control.milestone("ship") == 66.7
    with otel_loopguard.session("of ten") as key:
        guard.observe(step(0), key)
        assert [control.milestone(f"item {number}", of=10) for number in range(3)] == [10, 20, 30]


def test_a_failed_plan_reaches_the_runtime(guard: LoopGuard) -> None:
    """The gate holds the run at its next step."""
    with otel_loopguard.session("failed plan") as key:
        guard.observe(step(0), key)
        control.milestones(["log in"])
        control.milestone("log in", failed=True)
        assert control.current().action == "allow"
        guard.observe(step(1), key)
        assert control.current().action == "pause"
        assert "'log in'" in (control.current().reason or "")
        with pytest.raises(otel_loopguard.LoopGuardPaused):
            control.gate(limit_s=0.01)


def test_outside_of_any_session_it_says_so() -> None:
    """No span is current and no session is named."""
    assert control.milestones(["a"]) is False
    assert control.milestone("a") is None


def test_a_plan_made_before_the_first_step_is_kept(guard: LoopGuard) -> None:
    """A named session gets it when its first step is seen."""
    with otel_loopguard.session("early") as key:
        assert control.milestones(["a", "b"])
        assert control.milestone("a") == 50.0
        for number in range(14):
            guard.observe(step(number), key)
        assert control.milestone("b") == 100.0
    flag = guard.flag_of("early")
    assert flag is not None
    assert flag.control.decision is not None
    assert flag.control.decision.detector == "milestone_stall"


@pytest.mark.parametrize("conversation", [{}, {"gen_ai.conversation.id": "talk"}], ids=["", "id"])
def test_a_plan_made_in_a_span_is_kept(conversation: dict[str, str]) -> None:
    """Under the trace, until its spans say which session it is."""
    provider = TracerProvider()
    provider.add_span_processor(LoopGuardSpanProcessor(switched_off="budget"))
    tracer = provider.get_tracer("my.agent")
    with tracer.start_as_current_span("run"):
        assert control.milestones(["a", "b"])
        with tracer.start_as_current_span("execute_tool read", attributes={**CALL, **conversation}):
            pass
        assert control.milestone("a") == 50.0
    provider.shutdown()


def test_many_threads_report_at_once(guard: LoopGuard) -> None:
    """Nothing is lost while the guard reads."""
    with otel_loopguard.session("threads") as key:
        guard.observe(step(0), key)
        control.milestones([f"{thread}-{number}" for thread in range(4) for number in range(50)])

    def report(thread: int) -> None:
        with otel_loopguard.session("threads"):
            for number in range(50):
                control.milestone(f"{thread}-{number}")

    threads = [threading.Thread(target=report, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for number in range(50):
        guard.observe(step(number), "threads")
    for thread in threads:
        thread.join()
    flag = guard.flag_of("threads")
    assert flag is not None
    assert flag.milestones.percent() == 100.0


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda: control.milestone(""), "not empty"),
        (lambda: control.milestone("a", of=0), "of must be"),
        (lambda: control.milestones({"a": -1}), "share of the milestone 'a'"),
        (lambda: control.milestones({"a": float("nan")}), "share of the milestone 'a'"),
        (lambda: control.milestones([""]), "not empty"),
    ],
    ids=["no name", "of nothing", "negative", "no number", "no name in a plan"],
)
def test_what_cannot_be_is_refused(wrong: object, said: str) -> None:
    """With the value, in a sentence."""
    assert callable(wrong)
    with pytest.raises(ValueError, match=said):
        wrong()


@pytest.mark.parametrize("optional", [[], ["data read", "report written"]], ids=["", "optional"])
def test_a_milestone_that_was_not_declared_does_not_count(
    caplog: pytest.LogCaptureFixture, optional: list[str]
) -> None:
    """Where others were; that is told once, with the one that is meant, and how to declare more."""
    name = f"data raed {len(optional)}"
    with otel_loopguard.session(uuid.uuid4().hex):
        control.milestones(["data read", "report written"], optional=optional)
        assert control.milestone("data read") == 50.0
        assert control.milestone(name) == 50.0
        assert control.milestone(name, failed=True) == 50.0
        (record,) = caplog.records
        assert f"{name!r} was not declared and does not count" in record.getMessage()
        assert "was 'data read' meant?" in record.getMessage()
        assert control.milestone("report sent", done=False) == 33.3
        assert control.milestone("report sent") == 66.7
    assert len(caplog.records) == 1


def test_where_none_was_declared_each_one_counts(caplog: pytest.LogCaptureFixture) -> None:
    """Numbered ones, and those of which one failed."""
    with otel_loopguard.session(uuid.uuid4().hex):
        assert control.milestone("first") == 100.0
        assert control.milestone("second", failed=True) == 50.0
        assert control.milestone("third") == 66.7
    assert not caplog.records
