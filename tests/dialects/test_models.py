"""Model calls: model, tokens, text (notes, §5)."""

from __future__ import annotations

import pytest

from otel_loopguard.core import Kind
from otel_loopguard.spans.views import RecordedSpan
from tests.dialects.spans import TOOL, ended, ended_oi, read

MODELS = {
    "genai": ended("chat m", "x", {"gen_ai.operation.name": "chat", "gen_ai.response.model": "m",
        "gen_ai.usage.input_tokens": 100, "gen_ai.usage.output_tokens": 12,
        "gen_ai.output.messages": '[{"role": "assistant", "parts": [{"type": "text", '
        '"content": "I think"}, {"type": "tool_call", "name": "search", '
        '"arguments": {"text": "no"}}]}]'}),
    "v1.36 names and events": ended("chat m", "x", {"gen_ai.operation.name": "chat",
        "gen_ai.system": "openai", "gen_ai.request.model": "m", "gen_ai.usage.prompt_tokens": 100,
        "gen_ai.usage.completion_tokens": 12}, events=(("gen_ai.choice",
        {"message": '[{"text": "I think"}, {"toolUse": {"name": "x"}}]'}),)),
    "openinference, counts as text": ended_oi("LiteLLMModel.__call__", "smolagents", {TOOL: "LLM",
        "llm.model_name": "m", "llm.token_count.prompt": "100", "llm.token_count.completion": "12",
        "llm.output_messages.0.message.role": "assistant",
        "llm.output_messages.0.message.content": "I think"}),
    "langsmith": ended("Fake", "langsmith", {"langsmith.span.kind": "llm",
        "gen_ai.operation.name": "chat", "langsmith.metadata.ls_model_name": "m",
        "gen_ai.usage.input_tokens": 100, "gen_ai.usage.output_tokens": 12,
        "gen_ai.completion": '{"generations":[[{"text":"I think","message":{"kwargs":{}}}]]}'}),
    "langfuse": ended("Fake", "langfuse-sdk", {"langfuse.observation.type": "generation",
        "langfuse.observation.model.name": "m",
        "langfuse.observation.usage_details": '{"input": 100, "output": 12, "total": 112}',
        "langfuse.observation.output": '{"role": "assistant", "content": "I think"}'}),
    "logfire": ended("Responses API with {gen_ai.request.model!r}", "logfire.openai_agents",
        {"gen_ai.system": "openai", "gen_ai.operation.name": "chat", "gen_ai.response.model": "m",
        "gen_ai.usage.input_tokens": 100, "gen_ai.usage.output_tokens": 12,
        "events": '[{"role": "user", "content": "q"}, '
        '{"role": "assistant", "content": "I think"}]'}),
    "vercel": ended("ai.generateText.doGenerate", "ai",
        {"ai.operationId": "ai.generateText.doGenerate", "ai.response.model": "m",
        "ai.usage.inputTokens": 100, "ai.usage.outputTokens": 12, "ai.response.text": "I think"}),
    "older openllmetry": ended("openai.chat", "opentelemetry.instrumentation.openai",
        {"llm.request.type": "chat", "gen_ai.response.model": "m",
        "gen_ai.usage.prompt_tokens": 100, "gen_ai.usage.completion_tokens": 12,
        "gen_ai.completion.0.content": "I think"}),
}  # fmt: skip


@pytest.mark.parametrize("case", MODELS)
def test_model_calls_have_model_tokens_and_text(case: str) -> None:
    """A model call is read alike in all dialects."""
    step = read(MODELS[case])
    assert step.kind is Kind.MODEL
    assert step.model == step.name == "m"
    assert (step.tokens_in, step.tokens_out, step.tokens) == (100, 12, 112)
    assert step.text == "I think"


def test_a_model_that_only_calls_tools_wrote_nothing() -> None:
    """Captured and empty is not the same as not captured."""
    calls = '[{"role": "assistant", "parts": [{"type": "tool_call", "name": "search"}]}]'
    attributes: dict[str, object] = {"gen_ai.operation.name": "chat"}
    assert read(ended("chat", "x", {**attributes})).text is None
    assert read(ended("chat", "x", {**attributes, "gen_ai.output.messages": calls})).text == ""


def test_an_open_model_call_is_one_before_it_has_tokens() -> None:
    """Only an ended span without tokens and messages is no model call."""
    span = RecordedSpan(name="Fake", attributes={TOOL: "LLM"})
    assert read(span).kind is Kind.MODEL
    span.end = 5
    assert read(span).kind is Kind.OTHER
