"""What the application asks and reports about the session of its context."""

import gc
from collections.abc import Iterator

import pytest
from opentelemetry.trace import Tracer

from otel_loopguard import (
    LoopGuard,
    LoopGuardSpanProcessor,
    Settings,
    control,
    resilience,
    session,
    sessions,
)
from otel_loopguard.core.report import Report
from tests.agents import provider_with, tool_call
from tests.calls import Run, call

ANSWER = "light rain in the west, twenty degrees, and a little wind"


@pytest.fixture
def tracer() -> Iterator[Tracer]:
    provider = provider_with(LoopGuardSpanProcessor(LoopGuard()))
    yield provider.get_tracer("my.agent")
    provider.shutdown()


def search(tracer: Tracer, times: int = 1, **more: str) -> None:
    for _ in range(times):
        tool_call(tracer, result=ANSWER, more=more)


def reported(key: str | None = None) -> Report:
    report = sessions.report() if key is None else sessions.report(key)
    assert report is not None
    return report


def test_the_report_of_the_current_session(tracer: Tracer) -> None:
    """By its context, by its span, or by its key; of two guards the one that saw most reports."""
    other = LoopGuard()
    other.bind(1, "report-run")
    with session("report-run"):
        assert reported().actions == 0
        search(tracer, 2)
        report = reported()
    assert (report.session, report.actions) == ("report-run", 2)
    assert str(report).startswith("session report-run: the flag is allow\n")
    assert reported("report-run") == report
    assert sessions.report("nobody") is sessions.report() is None
    with tracer.start_as_current_span("invoke_agent helper"):
        assert sessions.report() is None
        search(tracer, 3)
        assert reported().actions == 3


@pytest.mark.parametrize("conversation", [{}, {"gen_ai.conversation.id": "noted"}], ids=["", "id"])
def test_what_is_remembered_is_recalled(tracer: Tracer, conversation: dict[str, str]) -> None:
    """By the key of the session, in its context, or under a trace whose session comes later."""
    assert not sessions.remember("insight", "of no session")
    assert sessions.recall() is None
    key = f"early {len(conversation)}"
    assert sessions.remember("pattern", "ids begin with A", key)
    with session(key):
        assert sessions.remember("insight", "before the first span")
        assert sessions.recall() is None
        search(tracer)
        assert sessions.remember("insight", "after it")
        known = sessions.recall()
    assert known is not None
    assert known.insights == ("before the first span", "after it")
    assert known.patterns == ("ids begin with A",)
    with tracer.start_as_current_span("run"):
        assert sessions.remember("insight", "in a trace")
        search(tracer, **conversation)
        known = sessions.recall()
    assert known is not None
    assert known.insights == ("in a trace",)
    with pytest.raises(ValueError, match="topic must be one of"):
        sessions.remember("idea", "x", "nobody")  # type: ignore[arg-type]


def test_feedback_is_counted_and_may_change(tracer: Tracer) -> None:
    """Who speaks last is right; an unknown decision is refused, and that of a session now gone."""
    with session("told"):
        search(tracer, 3)
        decision = control.current().decision_id
        assert decision is not None
        for false_alarm, told in ((True, (1, 0, 0)), (False, (0, 1, 1))):
            assert sessions.feedback(decision, false_alarm=false_alarm)
            report = reported()
            assert (report.false_alarms, report.confirmed, report.precision) == told
    assert not sessions.feedback("0" * 16, false_alarm=True)
    run = Run(Settings(max_sessions=1))
    run.calls(*[call("search", {"q": "x"}, ANSWER)] * 3)
    run.guard.observe(call(), "new")
    gc.collect()
    assert not run.guard.feedback(run.decisions[0].id, false_alarm=True)


def test_retries_and_degraded_steps_are_counted(tracer: Tracer) -> None:
    """The further tries; a degraded result once as a step, and once where a step builds on it."""
    with session("troubled-run"):
        search(tracer)
        for attempt in resilience.retrying(limit=3, delay_s=0):
            with attempt:
                if attempt.retry_state.attempt_number < 3:
                    raise TimeoutError
        search_failed = resilience.degraded("search", "time-out")
        part = resilience.combined({"search": search_failed, "read": "text"})
        mail = resilience.degraded("mail", "no account")
        whole = resilience.combined({"part": part, "mail": mail})
    assert set(whole.missing) == {"search", "mail"}
    assert resilience.degraded("search", "outside of a session").reason == "outside of a session"
    run = reported("troubled-run").run
    assert (run.retries, run.degraded, run.missing_dependencies) == (2, 2, 2)
