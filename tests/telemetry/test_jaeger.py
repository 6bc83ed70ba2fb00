"""Jaeger's page draws every trace that the guard wrote on."""

import time
from collections.abc import Callable

import pytest
from opentelemetry import trace
from opentelemetry.trace import NonRecordingSpan, SpanContext, Tracer

from tests.agents import agent, tool_call
from tests.jaeger import exported, undrawn
from tests.telemetry.scene import Scene

SEARCH = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search"}


def _loops(tracer: Tracer) -> None:
    with agent(tracer):
        for _ in range(5):
            tool_call(tracer)


def _remote_parent(tracer: Tracer) -> None:
    remote = SpanContext(0xA1, 0xB2, is_remote=True, trace_flags=trace.TraceFlags(1))
    with trace.use_span(NonRecordingSpan(remote)):
        _loops(tracer)


def _nested(tracer: Tracer) -> None:
    """A tool that calls itself, in a span without a parent."""
    call = {**SEARCH, "gen_ai.tool.call.arguments": '{"q": "x"}'}
    with tracer.start_as_current_span("execute_tool search", attributes=call) as span:
        for _ in range(4):
            tool_call(tracer)
        span.set_attribute("gen_ai.tool.call.result", "nothing found")


def _hands_off(tracer: Tracer) -> None:
    """Two agents that hand over to each other, each in the span of the one before."""

    def run(left: int) -> None:
        name = "ab"[left % 2]
        attributes = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": name}
        with tracer.start_as_current_span(f"invoke_agent {name}", attributes=attributes):
            tool_call(tracer, f"transfer_to_{'ab'[1 - left % 2]}", "{}", "ok")
            if left:
                run(left - 1)

    run(12)


@pytest.mark.parametrize("play", [_loops, _remote_parent, _nested, _hands_off])
def test_the_trace_of_an_agent_that_loops_is_drawn(play: Callable[[Tracer], None]) -> None:
    """All of its spans are below a root, with the events and the links of decisions on them."""
    scene = Scene(span_events=True)
    play(scene.tracer)
    traces = exported(scene.spans.get_finished_spans())
    assert scene.total("loopguard.decisions")
    assert [undrawn(each) for each in traces] == [set()]


def test_the_trace_of_a_call_that_hangs_is_drawn() -> None:
    """The decision is on the open call, after others like it had been made."""
    scene = Scene(step_timeout_s=5, span_events=True)
    with agent(scene.tracer):
        for _ in range(3):
            tool_call(scene.tracer)
        with scene.tracer.start_as_current_span("execute_tool search", attributes=SEARCH):
            scene.guard.tick(time.time_ns() + 120 * 10**9)
    assert scene.total("loopguard.detector.decisions", loopguard__detector__name="stall")
    assert [undrawn(each) for each in exported(scene.spans.get_finished_spans())] == [set()]
