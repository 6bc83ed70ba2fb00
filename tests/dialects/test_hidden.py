"""What is kept off the spans, or cut, is unknown: what stands there is not the same value again."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from langchain_core.tools import tool
from openinference.instrumentation import TraceConfig
from openinference.instrumentation.langchain import LangChainInstrumentor
from opentelemetry.sdk.trace import SpanLimits, TracerProvider
from opentelemetry.trace import Tracer

from otel_loopguard import Action, LoopGuardSpanProcessor, control
from tests.agents import provider_with
from tests.dialects.test_readings import span_of
from tests.dialects.told import sections

HIDDEN = [title for title in sections("spans.txt") if "hidden: " in title and "beside" not in title]


def _call(args: Mapping[str, str], result: str) -> dict[str, str]:
    said = {"gen_ai.tool.call.arguments": json.dumps(args), "gen_ai.tool.call.result": result}
    return {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search", **said}


@pytest.fixture
def tracer() -> Tracer:
    return provider_with(LoopGuardSpanProcessor()).get_tracer("framework")


def called(tracer: Tracer, *calls: Mapping[str, Any]) -> list[Action]:
    found: list[Action] = []
    with tracer.start_as_current_span("invoke_agent looper"):
        for attributes in calls:
            with tracer.start_as_current_span("search", attributes=attributes):
                pass
            found.append(control.current().action)
    return found


@pytest.mark.parametrize("case", HIDDEN)
def test_a_run_with_hidden_content_is_left_alone(case: str, tracer: Tracer) -> None:
    """Thirty calls of which nothing is known look alike, and may all be different."""
    said = span_of(sections("spans.txt")[case][:-1]).attributes
    assert not any(action.stops for action in called(tracer, *[said] * 30))


@pytest.mark.parametrize("shown", ["arguments", "results", "nothing"])
def test_a_real_run_whose_content_is_hidden(shown: str) -> None:
    """Different calls of LangChain under OpenInference, with its own settings."""
    provider, search = provider_with(LoopGuardSpanProcessor()), tool(_search)
    config = TraceConfig(hide_inputs=shown != "arguments", hide_outputs=shown != "results")
    instrumentor = LangChainInstrumentor()
    instrumentor.instrument(tracer_provider=provider, config=config, skip_dep_check=True)
    try:
        with provider.get_tracer("agent").start_as_current_span("invoke_agent looper"):
            for number in range(30):
                search.invoke({"query": f"city {number}"})
                assert control.current().action in {Action.ALLOW, Action.HINT}
    finally:
        instrumentor.uninstrument()


@pytest.mark.parametrize("once", [(), ("search",)])
@pytest.mark.parametrize("text", ["# Copyright 2026 by the authors, see LICENSE.{}", "No results."])
def test_a_run_whose_content_is_cut(text: str, once: tuple[str, ...]) -> None:
    """Files that lie deep and begin alike: a limit of attributes leaves the beginning."""
    limits = SpanLimits(max_span_attribute_length=64)
    provider = TracerProvider(span_limits=limits, shutdown_on_exit=False)
    provider.add_span_processor(LoopGuardSpanProcessor(once_tools=once))
    path = "/home/user/projects/some/long/prefix/of/all/the/files/{}.py"
    calls = [_call({"path": path.format(n)}, text.format(n)) for n in range(30)]
    assert {*called(provider.get_tracer("framework"), *calls)} <= {Action.ALLOW, Action.HINT}


def test_json_that_a_model_does_not_end_is_stopped(tracer: Tracer) -> None:
    """It looks as though a limit had cut it, but the tool refuses it."""
    said = _call({"path": "/srv/app/main.py", "content": "import os\n" * 50}, "Error: invalid JSON")
    said["gen_ai.tool.call.arguments"] = said["gen_ai.tool.call.arguments"][:-10]
    assert called(tracer, *[said] * 15)[-1] is Action.ABORT


def _search(query: str) -> str:
    """Searches."""
    return f"{query}: {hash(query)} inhabitants."


@pytest.mark.parametrize(
    ("args", "result"),
    [
        ({"url": "a"}, "All about it. " * 300 + "[Scrubbed due to 'password'] is what it writes."),
        ({"query": "what does [Scrubbed due to 'password'] mean"}, "no results"),
    ],
    ids=["on a page", "in arguments"],
)
def test_the_words_of_a_mask_hide_no_loop(
    args: dict[str, str], result: str, tracer: Tracer
) -> None:
    """One call, one page that quotes a mask: it ends in an abort like any other."""
    assert called(tracer, *[_call(args, result)] * 15)[-1] is Action.ABORT
