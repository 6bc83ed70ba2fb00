"""Tests of an agent: `pip install pytest otel-loopguard`, then `pytest examples/test_my_agent.py`.

The agent is a small one of its own. With a framework, `ask` is your agent with a scripted model,
and its instrumentation writes the spans.
"""

import json

import pytest
from opentelemetry import trace

from otel_loopguard import control

tracer = trace.get_tracer("my.agent")
PAGES = {"weather paris": "Rain until noon, 14 degrees."}


def search(query):
    arguments = json.dumps({"query": query})
    call = {"gen_ai.tool.name": "search", "gen_ai.tool.call.arguments": arguments}
    with tracer.start_as_current_span("execute_tool search", attributes=call) as span:
        found = PAGES.get(query, "No results.")
        span.set_attribute("gen_ai.tool.call.result", found)
        return found


def ask(queries):
    """The agent: it searches until it finds something, as its model says."""
    with tracer.start_as_current_span("invoke_agent helper"):
        for query in queries:
            control.check()
            found = search(query)
            if found != "No results.":
                return found
        return "I found nothing."


def test_it_answers_without_going_in_circles(loopguard):
    assert ask(["weather in Paris", "weather paris"]).startswith("Rain")
    loopguard.assert_no_loops()


def test_a_stuck_model_is_stopped(loopguard):
    outcome = loopguard.run(ask, ["weather in Paris"] * 50)
    assert outcome.stop is not None
    assert loopguard.assert_stopped().detector == "exact_repeat"
    assert len(loopguard.spans) < 10


@pytest.mark.loopguard(mode="shadow")
def test_what_would_have_been_said(loopguard):
    assert ask(["weather in Paris"] * 4) == "I found nothing."
    loopguard.assert_no_loops(max_severity="critical")
    assert [decision.action for decision in loopguard.decisions] == ["hint", "deny"]
