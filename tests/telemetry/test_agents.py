"""Decisions name the agent, whatever the span is that they are about."""

from collections.abc import Callable

import pytest
from opentelemetry.trace import Tracer

from tests.agents import agent, tool_call
from tests.telemetry.scene import Scene


def _chat(tracer: Tracer, **attributes: object) -> None:
    said = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m", **attributes}
    with tracer.start_as_current_span("chat m", attributes=said):  # type: ignore[arg-type]
        pass


def _spends(tracer: Tracer) -> None:
    for _ in range(3):
        _chat(tracer, **{"gen_ai.usage.input_tokens": 1000})


def _hands_off(tracer: Tracer) -> None:
    task = '{"task": "please find the order number of the customer in the archive"}'
    for number in range(16):
        tool_call(tracer, f"transfer_to_{'bc'[number % 2]}", task, "ok")


@pytest.mark.parametrize(
    ("play", "settings", "span"),
    [(_spends, {"budget_tokens": 1500}, "chat m"), (_hands_off, {}, "execute_tool transfer")],
)
def test_a_decision_names_the_nearest_agent_above(
    play: Callable[[Tracer], None], settings: dict[str, object], span: str
) -> None:
    """On the span, in the log event and on metrics."""
    scene = Scene(**settings)
    with agent(scene.tracer):
        play(scene.tracer)
    spans = (one for one in scene.spans.get_finished_spans() if one.name.startswith(span))
    decided = [one.attributes for one in spans if "loopguard.decision.action" in one.attributes]
    assert {attributes["gen_ai.agent.name"] for attributes in decided} == {"a"}
    events = scene.events("loopguard.decision")
    assert {event.attributes["gen_ai.agent.name"] for event in events} == {"a"}
    for metric in ("decisions", "detections", "steps"):
        found = scene.values(f"loopguard.{metric}")
        assert {labels["gen_ai.agent.name"] for labels, _ in found} == {"a"}


def test_a_span_that_names_an_agent_keeps_the_name() -> None:
    """What an instrumentation wrote stays."""
    scene = Scene(budget_tokens=1500)
    with agent(scene.tracer):
        for _ in range(3):
            _chat(scene.tracer, **{"gen_ai.usage.input_tokens": 1000, "gen_ai.agent.name": "b"})
    *chats, _ = scene.spans.get_finished_spans()
    assert [span.attributes["gen_ai.agent.name"] for span in chats] == ["b"] * 3
