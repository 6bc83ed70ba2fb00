"""What the application asks and reports about the session of its context."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from opentelemetry.sdk.trace import TracerProvider

from otel_loopguard import LoopGuard, LoopGuardSpanProcessor, control, session, sessions

CALL = {
    "gen_ai.tool.name": "search",
    "gen_ai.tool.call.arguments": '{"q": "x"}',
    "gen_ai.tool.call.result": "light rain in the west, twenty degrees, and a little wind",
}


@pytest.fixture
def provider() -> Iterator[TracerProvider]:
    made = TracerProvider()
    made.add_span_processor(LoopGuardSpanProcessor(LoopGuard()))
    yield made
    made.shutdown()


def search(provider: TracerProvider, times: int) -> None:
    tracer = provider.get_tracer("my.agent")
    for _ in range(times):
        with tracer.start_as_current_span("execute_tool search", attributes=CALL):
            pass


def test_the_report_of_the_current_session(provider: TracerProvider) -> None:
    """By its context, or by its key from anywhere."""
    with session("report-run"):
        assert sessions.report() is None
        search(provider, 2)
        report = sessions.report()
    assert report is not None
    assert (report.session, report.actions) == ("report-run", 2)
    assert sessions.report("report-run") == report
    assert sessions.report("nobody") is None
    assert sessions.report() is None


def test_the_current_span_names_the_session_too(provider: TracerProvider) -> None:
    """Without a name the trace is the session."""
    tracer = provider.get_tracer("my.agent")
    with tracer.start_as_current_span("invoke_agent helper"):
        search(provider, 3)
        report = sessions.report()
    assert report is not None
    assert report.actions == 3


def test_of_several_guards_the_one_that_saw_most_reports(provider: TracerProvider) -> None:
    """A guard that only knows the name of the session has little to say."""
    other = LoopGuard()
    other.bind(1, "two-guards")
    with session("two-guards"):
        search(provider, 2)
        report = sessions.report()
    assert report is not None
    assert report.actions == 2


def test_what_is_remembered_can_be_recalled(provider: TracerProvider) -> None:
    """For the session of the context, or one that is named."""
    assert not sessions.remember("insight", "too early")
    assert sessions.recall() is None
    with session("remembering"):
        search(provider, 1)
        assert sessions.remember("insight", "the tests need Python 3.12")
        assert sessions.remember("pattern", "ids begin with A", "remembering")
        known = sessions.recall()
    assert known is not None
    assert known.insights == ("the tests need Python 3.12",)
    assert known.patterns == ("ids begin with A",)


@pytest.mark.parametrize("conversation", [{}, {"gen_ai.conversation.id": "noted"}], ids=["", "id"])
def test_what_is_remembered_before_the_first_span_is_kept(
    provider: TracerProvider, conversation: dict[str, str]
) -> None:
    """By the key of the session, in its context, or under a trace whose session comes later."""
    tracer = provider.get_tracer("my.agent")
    key = f"early {len(conversation)}"
    assert sessions.remember("pattern", "ids begin with A", key)
    with session(key):
        assert sessions.remember("insight", "the tests need Python 3.12")
        assert sessions.recall() is None
        search(provider, 1)
        known = sessions.recall()
    assert known is not None
    assert (known.insights, known.patterns) == (
        ("the tests need Python 3.12",), ("ids begin with A",),
    )  # fmt: skip
    with tracer.start_as_current_span("run"):
        assert sessions.remember("insight", "in a trace")
        with tracer.start_as_current_span("execute_tool", attributes={**CALL, **conversation}):
            pass
        known = sessions.recall()
    assert known is not None
    assert known.insights == ("in a trace",)
    with pytest.raises(ValueError, match="topic must be one of"):
        sessions.remember("idea", "x", "nobody")  # type: ignore[arg-type]


def test_feedback_is_counted_and_may_change(provider: TracerProvider) -> None:
    """Who speaks last is right; an unknown decision is refused."""
    with session("told"):
        search(provider, 3)
        decision = control.current().decision_id
        assert decision is not None
        assert sessions.feedback(decision, false_alarm=True)
        first = sessions.report()
        assert sessions.feedback(decision, false_alarm=False)
        second = sessions.report()
    assert first is not None
    assert second is not None
    assert (first.false_alarms, first.confirmed, first.precision) == (1, 0, 0)
    assert (second.false_alarms, second.confirmed, second.precision) == (0, 1, 1)
    assert not sessions.feedback("0" * 16, false_alarm=True)


def test_feedback_about_a_session_that_is_gone() -> None:
    """The decision may still be known; its session is not, and nothing keeps it alive."""
    import gc

    from otel_loopguard import Settings
    from tests.calls import call

    found = []
    guard = LoopGuard(
        Settings(max_sessions=1), clock="replay", on_decision=lambda _, one: found.append(one.id)
    )
    for _ in range(3):
        guard.observe(call("search", {"q": "x"}, "light rain in the west, twenty degrees"), "old")
    guard.observe(call(), "new")
    gc.collect()
    assert found
    assert not guard.feedback(found[0], false_alarm=True)
