"""What is kept off the spans, or cut, is unknown: what stands there is not the same value again."""

from __future__ import annotations

import json
from typing import Any

import pytest
from langchain_core.tools import tool
from openinference.instrumentation import TraceConfig
from openinference.instrumentation.langchain import LangChainInstrumentor
from opentelemetry.sdk.trace import SpanLimits, TracerProvider

from otel_loopguard import LoopGuardSpanProcessor, control
from otel_loopguard.core import Action, Kind, Step
from otel_loopguard.spans.reader import Reader
from otel_loopguard.spans.values import hidden
from otel_loopguard.spans.views import RecordedSpan

_GENAI = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search"}
_OPENINFERENCE = {"openinference.span.kind": "TOOL", "tool.name": "search"}

TOOLS: dict[str, dict[str, Any]] = {
    "openinference": _OPENINFERENCE
    | {"input.value": "__REDACTED__", "output.value": "__REDACTED__"},
    "strands": _GENAI
    | {
        "gen_ai.event.start_time": "2026-11-22T10:00:00Z",
        "gen_ai.tool.call.arguments": "[REDACTED]",
        "gen_ai.tool.call.result": "[REDACTED]",
    },
    "adk": _GENAI
    | {"gcp.vertex.agent.tool_call_args": "{}", "gcp.vertex.agent.tool_response": "{}"},
    "langsmith": {
        "langsmith.span.kind": "tool",
        "gen_ai.tool.name": "search",
        "gen_ai.prompt": "{}",
        "gen_ai.completion": "{}",
    },
    "langfuse": {
        "langfuse.observation.type": "tool",
        "langfuse.observation.input": "<fully masked due to failed mask function>",
        "langfuse.observation.output": "<fully masked due to failed mask function>",
    },
    "genai": _GENAI
    | {
        "gen_ai.tool.call.arguments": '{"query": "[REDACTED]"}',
        "gen_ai.tool.call.result": '{"result": "[REDACTED]"}',
    },
}


def _read(attributes: dict[str, Any], **more: Any) -> Step:
    span = RecordedSpan(name="search", start=1, end=2, attributes=attributes, **more)
    step = Reader().read(span)
    assert step is not None
    return step


@pytest.mark.parametrize("dialect", TOOLS)
def test_hidden_content_is_unknown(dialect: str) -> None:
    """Neither arguments nor result."""
    step = _read(TOOLS[dialect])
    assert (step.kind, step.dialect, step.name) == (Kind.TOOL, dialect, "search")
    assert (step.args, step.outcome) == (None, None)


@pytest.mark.parametrize("dialect", TOOLS)
def test_a_run_with_hidden_content_is_left_alone(dialect: str) -> None:
    """Thirty calls of which nothing is known look alike, and may all be different."""
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(LoopGuardSpanProcessor())
    tracer = provider.get_tracer("framework")
    with tracer.start_as_current_span("invoke_agent looper"):
        for _ in range(30):
            with tracer.start_as_current_span("search", attributes=TOOLS[dialect]):
                pass
            assert not control.current().action.stops


@pytest.mark.parametrize(
    "value",
    [
        "__REDACTED__", "[REDACTED]", "<redacted>", "REDACTED", "[Filtered]", "<masked>", "****",
        "***-**-****", '{"a": "***"}', '{"a": "[redacted]", "b": "***-**-****"}',
        "<replaced>", "<not serializable>", '"[REDACTED]"', '{"a": "__REDACTED__", "b": "***"}',
        "[Scrubbed due to 'password']", "[Scrubbed due to \"pass'word\"]",
        '{"user": "a", "password": "[Scrubbed due to \'password\']"}',
        '{"a": [1, {"b": "[Scrubbed due to \'auth\']"}], "c": 2}',
        '{"text": "{\\"password\\": \\"[Scrubbed due to \'password\']\\"}", "n": 1}',
        '{"password": "[Scrubbed due to \'password\']", "text": "cut he',
        "[" + "[]," * 20_000 + '"[Scrubbed due to \'password\']"]',
    ],
)  # fmt: skip
def test_what_stands_in_place_of_a_value(value: str) -> None:
    """What instrumentations write, and what people's own masks do."""
    assert hidden(value)


@pytest.mark.parametrize(
    "value",
    [
        "", "{}", "[]", "removed", "hidden", "**bold**", "__init__", "[redactedness]", "[1, 2]",
        "* * *", '{"a": "*** a"}',
        "The name was [REDACTED].", '{"user": "[REDACTED]", "query": "x"}', '{"a": "***", "n": 1}',
        "<html></html>", "(hidden) 5 files", None, 5,
        "A page on logfire, which writes [Scrubbed due to 'password'] in place of a value.",
        "[Scrubbed due to 'password'] and more", "[Scrubbed due to",
        '{"page": "It writes [Scrubbed due to \'password\'] there.", "n": 1}',
        '{"page": "a, \\"[Scrubbed due to \'password\']\\", b"}',
        "x" * 5_000 + "[Scrubbed due to 'password']",
    ],
)  # fmt: skip
def test_what_is_a_value(value: object) -> None:
    """Words beside it, or other values, tell one call from another."""
    assert not hidden(value)


def test_of_a_text_nothing_is_known() -> None:
    """A model's text that is hidden is not an empty one, and not one that it repeats."""
    said = {"openinference.span.kind": "LLM", "llm.token_count.prompt": 10}
    whole = said | {"output.value": "__REDACTED__"}
    content = said | {
        "llm.output_messages.0.message.role": "assistant",
        "llm.output_messages.0.message.content": "__REDACTED__",
    }
    assert [_read(one).text for one in (whole, content)] == [None, None]


def test_what_adk_and_langsmith_do_show() -> None:
    """`{}` is hidden only where it may be: beside a result ADK's arguments are known."""
    adk = TOOLS["adk"] | {"gcp.vertex.agent.tool_response": json.dumps({"result": "ok"})}
    assert (_read(adk).args, _read(adk).outcome) == ("{}", "ok")
    smith = TOOLS["langsmith"] | {"gen_ai.prompt": '{"query": "x"}'}
    assert (_read(smith).args, _read(smith).outcome) == ('{"query": "x"}', None)


@pytest.mark.parametrize("shown", ["arguments", "results", "nothing"])
def test_a_real_run_whose_content_is_hidden(shown: str) -> None:
    """Different calls of LangChain under OpenInference, with its own settings."""
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(LoopGuardSpanProcessor())
    config = TraceConfig(hide_inputs=shown != "arguments", hide_outputs=shown != "results")
    search = tool(_search)
    instrumentor = LangChainInstrumentor()
    instrumentor.instrument(tracer_provider=provider, config=config, skip_dep_check=True)
    try:
        with provider.get_tracer("agent").start_as_current_span("invoke_agent looper"):
            for number in range(30):
                search.invoke({"query": f"city {number}"})
                assert control.current().action in {Action.ALLOW, Action.HINT}
    finally:
        instrumentor.uninstrument()


def test_a_run_whose_content_is_cut() -> None:
    """Files that lie deep and begin alike: a limit of attributes leaves the beginning."""
    limits = SpanLimits(max_span_attribute_length=64)
    provider = TracerProvider(span_limits=limits, shutdown_on_exit=False)
    provider.add_span_processor(LoopGuardSpanProcessor())
    tracer = provider.get_tracer("framework")
    folder = "/home/user/projects/some/long/prefix/of/all/files"
    with tracer.start_as_current_span("invoke_agent looper"):
        for number in range(30):
            args = json.dumps({"path": f"{folder}/{number}.py"})
            said = _GENAI | {"gen_ai.tool.call.arguments": args}
            with tracer.start_as_current_span("execute_tool search", attributes=said) as span:
                text = f"# Copyright 2026 by the authors of this project, see LICENSE.\n{number}"
                span.set_attribute("gen_ai.tool.call.result", text)
            assert control.current().action in {Action.ALLOW, Action.HINT}


def _search(query: str) -> str:
    """Searches."""
    return f"{query}: {hash(query)} inhabitants."


def test_the_words_of_a_mask_on_a_page_hide_no_loop() -> None:
    """One call, one page that quotes a mask: it ends in an abort like any other."""
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(LoopGuardSpanProcessor())
    tracer = provider.get_tracer("framework")
    page = f"{'All about scrubbing. ' * 200}[Scrubbed due to 'password'] is what it writes."
    said = _GENAI | {"gen_ai.tool.call.arguments": '{"url": "a"}', "gen_ai.tool.call.result": page}
    with tracer.start_as_current_span("invoke_agent looper"):
        for _ in range(15):
            with tracer.start_as_current_span("execute_tool search", attributes=said):
                pass
        assert control.current().action is Action.ABORT


def test_the_words_of_a_mask_in_arguments_hide_no_loop() -> None:
    """They are what is asked for."""
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(LoopGuardSpanProcessor())
    tracer = provider.get_tracer("framework")
    asked = json.dumps({"query": "what does [Scrubbed due to 'password'] mean"})
    said = _GENAI | {"gen_ai.tool.call.arguments": asked, "gen_ai.tool.call.result": "no results"}
    with tracer.start_as_current_span("invoke_agent looper"):
        for _ in range(15):
            with tracer.start_as_current_span("execute_tool search", attributes=said):
                pass
        assert control.current().action is not Action.ALLOW
