"""The span processor, on real SDK spans."""

import asyncio
import concurrent.futures
import contextvars

import pytest
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import StatusCode, Tracer

from otel_loopguard import (
    LoopGuard,
    LoopGuardAbort,
    LoopGuardSpanProcessor,
    Settings,
    control,
    session,
)
from otel_loopguard.core import Decision
from tests.agents import Ended, agent, provider_with, settle, tool_call


def listening(**settings: object) -> tuple[LoopGuard, list[Decision], Tracer, Ended]:
    """A guard, what it decides, a tracer that it sees, and what ended."""
    found: list[Decision] = []
    ended = Ended()
    guard = LoopGuard(Settings(**settings), on_decision=lambda _, decision: found.append(decision))
    tracer = provider_with(LoopGuardSpanProcessor(guard), ended).get_tracer("my.agent")
    return guard, found, tracer, ended


def stuck(tracer: Tracer, calls: int = 8) -> None:
    """A run with equal calls, each judged before the next."""
    with agent(tracer):
        for _ in range(calls):
            tool_call(tracer, args='{"q": "s3cret"}', result="no cl4ssified data found")
            settle()


def test_one_line_stops_a_stuck_agent() -> None:
    """hint, deny, then `control.check()` raises inside the agent's own loop."""
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(LoopGuardSpanProcessor())
    tracer = provider.get_tracer("my.agent")
    seen = []
    with agent(tracer), pytest.raises(LoopGuardAbort) as stop:
        for _ in range(20):
            control.check()
            seen.append(control.current().action.value)
            tool_call(tracer)
    assert seen == [*["allow"] * 3, "hint", *["deny"] * 3]
    assert "'search' was called 7 times" in str(stop.value)
    assert stop.value.decision is not None
    assert stop.value.decision.action == "abort"


@pytest.mark.parametrize("span_events", [True, False])
def test_the_open_agent_span_says_what_was_decided(span_events: bool) -> None:
    """In place, red if aborted; events are off, for OpenTelemetry gives them up for log events."""
    _, _, tracer, ended = listening(span_events=span_events)
    stuck(tracer)
    (root,) = ended.named("invoke_agent")
    attributes = dict(root.attributes or {})
    assert attributes["loopguard.decision.action"] == "abort"
    assert attributes["loopguard.detector.name"] == "exact_repeat"
    assert attributes["error.type"] == "loopguard_abort"
    assert isinstance(attributes["loopguard.detection.repeat_count"], float)
    assert isinstance(attributes["loopguard.detection.cycle.length"], int)
    assert attributes["loopguard.session.id"] == f"{root.context.trace_id:032x}"
    assert root.status.status_code is StatusCode.ERROR
    assert [event.name for event in root.events] == ["loopguard.decision"] * 3 * span_events
    assert "s3cret" not in str(attributes) + str(root.events)
    assert "cl4ssified" not in str(attributes) + str(root.events)


@pytest.mark.parametrize(("calls", "action"), [(3, "hint"), (8, "deny")])
def test_a_hint_and_a_deny_leave_the_status_alone(calls: int, action: str) -> None:
    """A red span for a warning would be noise; the next call of a denied loop carries the deny."""
    _, _, tracer, ended = listening(max_action="deny")
    stuck(tracer, calls)
    (root,) = ended.named("invoke_agent")
    assert (root.attributes or {})["loopguard.decision.action"] == action
    assert root.status.status_code is StatusCode.UNSET
    for call in ended.named("execute_tool")[5:6]:
        assert (call.attributes or {})["loopguard.decision.action"] == "deny"
        assert "error.type" not in (call.attributes or {})


def test_the_topmost_span_and_the_agent_are_both_marked() -> None:
    """An agent inside a span of another scope marks that span too."""
    ended = Ended()
    provider = provider_with(LoopGuardSpanProcessor(), ended)
    with provider.get_tracer("my.web").start_as_current_span("POST /chat"):
        stuck(provider.get_tracer("my.agent"))
    for name, status in (("invoke_agent", StatusCode.ERROR), ("POST /chat", StatusCode.UNSET)):
        (span,) = ended.named(name)
        assert (span.attributes or {})["loopguard.decision.action"] == "abort"
        assert span.status.status_code is status


def test_several_providers_in_one_process() -> None:
    """Each guard sees its own spans; `control` finds the right one."""
    first, second = provider_with(LoopGuardSpanProcessor()), provider_with(LoopGuardSpanProcessor())
    one, other = first.get_tracer("my.agent"), second.get_tracer("my.agent")
    with agent(one):
        for _ in range(8):
            tool_call(one)
        assert control.current().action == "abort"
        with agent(other):
            pass
    with trace.use_span(trace.INVALID_SPAN), agent(other):
        tool_call(other)
        control.check()
        assert control.current().action == "allow"


def test_sessions_by_conversation_id() -> None:
    """Two conversations in one trace are two sessions; one over many traces is one."""
    guard, found, tracer, _ = listening()
    for number in range(6):
        more = {"gen_ai.conversation.id": f"c{number % 2}"}
        tool_call(tracer, args="{}", more=more)
    guard.settle()
    assert {decision.session for decision in found} == {"c0", "c1"}
    assert all(decision.action == "hint" for decision in found)


def test_an_id_learned_late_names_the_session_of_its_trace() -> None:
    """Steps before the id was known belong to the session all the same."""
    _, found, tracer, _ = listening()
    with agent(tracer):
        for _number in range(3):
            tool_call(tracer)
            with tracer.start_as_current_span("chat") as span:
                span.set_attribute("gen_ai.operation.name", "chat")
                span.set_attribute("gen_ai.conversation.id", "late")
        assert control.current().session == "late"
    assert [decision.session for decision in found] == ["late"]


def test_an_explicit_session_goes_before_all_ids() -> None:
    """What the context names wins, across traces and whatever the spans say."""
    _, found, tracer, _ = listening()
    other = {"gen_ai.operation.name": "chat", "gen_ai.conversation.id": "other"}
    with session("mine"), pytest.raises(LoopGuardAbort) as stop:
        for _ in range(9):
            control.check()
            with tracer.start_as_current_span("chat", attributes=other):
                tool_call(tracer)
    assert stop.value.session == "mine"
    assert {decision.session for decision in found} == {"mine"}


def test_the_flag_is_seen_from_threads_tasks_and_where_no_span_is_current() -> None:
    """Wherever the context reaches, the flag is the same."""
    tracer = provider_with(LoopGuardSpanProcessor()).get_tracer("my.agent")

    async def in_task() -> str:
        await asyncio.sleep(0)
        return control.current().action.value

    async def from_tasks() -> list[str]:
        return list(await asyncio.gather(*(in_task() for _ in range(3))))

    with session("run"):
        for _ in range(8):
            tool_call(tracer)
        assert control.current().action == "abort"
        assert asyncio.run(from_tasks()) == ["abort"] * 3
        context = contextvars.copy_context()
        with concurrent.futures.ThreadPoolExecutor() as pool:
            assert pool.submit(context.run, control.current).result().action == "abort"
            assert pool.submit(control.current).result().action == "allow"
        with agent(tracer), tracer.start_as_current_span("inner"), pytest.raises(LoopGuardAbort):
            control.check()
    control.check()


@pytest.mark.parametrize("why", ["switched off", "shut down"])
def test_switched_off_or_shut_down_it_does_nothing(why: str) -> None:
    """Spans and flags are left alone; settings beside a guard would be ignored, and are refused."""
    guard = LoopGuard(Settings(enabled=why != "switched off"))
    processor, ended = LoopGuardSpanProcessor(guard), Ended()
    tracer = provider_with(processor, ended).get_tracer("my.agent")
    assert processor.force_flush()
    if why == "shut down":
        processor.shutdown()
        assert guard.attached  # so that an exporter that is shut down later feeds nothing twice
    stuck(tracer)
    control.check()
    assert not any("loopguard" in key for span in ended.spans for key in span.attributes or {})
    with pytest.raises(ValueError, match="repeat_threshold"):
        LoopGuardSpanProcessor(guard, repeat_threshold=4)
    with pytest.raises(TypeError, match="LoopGuard"):
        LoopGuardSpanProcessor(guard.settings)  # type: ignore[arg-type]


def test_a_scope_that_shows_itself_late_belongs_to_the_named_session() -> None:
    """Its first span has no telling attribute at its start; the context still names its session."""
    guard, found, tracer, _ = listening()
    with session("mine"):
        for _ in range(3):
            with tracer.start_as_current_span("work") as span:
                span.set_attribute("gen_ai.operation.name", "execute_tool")
                span.set_attribute("gen_ai.tool.name", "work")
                span.set_attribute("gen_ai.tool.call.arguments", "{}")
                span.set_attribute("gen_ai.tool.call.result", "nothing was found")
    guard.settle()
    assert [decision.session for decision in found] == ["mine"]
    assert found[0].step == 2


def test_a_sub_agent_with_a_trace_of_its_own_is_no_turn_of_the_user() -> None:
    """While the run of its conversation is open, another root span halves nothing."""
    guard, found, tracer, _ = listening()
    with agent(tracer, gen_ai__conversation__id="c"):
        for _ in range(8):
            attributes = {"gen_ai.operation.name": "invoke_agent", "gen_ai.conversation.id": "c"}
            root = tracer.start_span("invoke_agent sub", Context(), attributes=attributes)
            with trace.use_span(root, end_on_exit=True):
                tool_call(tracer)
    guard.settle()
    assert [decision.action.value for decision in found] == ["hint", "deny", "abort"]
