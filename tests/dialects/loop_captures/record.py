"""Records loops of one's own: a plain client, its instrumentation, a model that follows a script.

The captures beside this file were written by it (with a model of its own, which called itself
`fake`), in an environment of their own with Python 3.11:

    pip install -e '.[server]' openai==3.54.0 anthropic==2.12.0 logfire==5.2.0 httpx \
        opentelemetry-instrumentation-openai-v2==2.4b0 opentelemetry-util-genai==1.1b0 \
        openinference-instrumentation-openai==0.1.66 \
        openinference-instrumentation-anthropic==3.1.0 \
        opentelemetry-instrumentation-openai==0.62.4 \
        opentelemetry-instrumentation-anthropic==0.62.4
    for way in chat responses messages stream; do
        for by in v2 v2-default openinference openllmetry logfire; do
                python -m tests.dialects.loop_captures.record $way $by
        done
    done

    pip install openai==3.57.0 opentelemetry-instrumentation-genai-openai==1.3b0
    python -m tests.dialects.loop_captures.record background genai

    pip install anthropic==2.14.0
    for by in native openinference; do
        python -m tests.dialects.loop_captures.record runner $by
    done

`v2` knows neither `responses` nor `messages`; `background` asks for an answer and fetches it until
it is there. `runner` is the tool runner of Anthropic's SDK, which writes spans of its own: with
content as `native`, without it beside an instrumentation. No call leaves the machine. What tells of
it (host, port, paths), the schemas of the tools, and the copies of all messages in `input.value`
and `output.value` are left out of what is written.
"""


# pyright: basic, reportCallIssue=false, reportMissingImports=false, reportArgumentType=false
# pyright: reportPossiblyUnboundVariable=false, reportAttributeAccessIssue=false

from __future__ import annotations

import importlib
import json
import os
import sys
from pathlib import Path

from tests.dialects.recording import PARIS, recording

BETA = ("fetch", {"url": "http://example.test/beta"})
SCRIPT = [PARIS, PARIS, PARIS, [("search", {"query": "alpha"}), BETA], ("broken", {"x": 1})]
ASKED = {"role": "user", "content": "What is the weather in Paris?"}
TOOLS = {"search": "query", "fetch": "url", "broken": "x"}
SCHEMAS = {name: {"type": "object", "properties": {arg: {}}} for name, arg in TOOLS.items()}


def answer(tool: str, args: dict) -> tuple[str, bool]:
    if tool == "broken":
        return "Error: broken backend for x=1", True
    said = f"no results for {args['query']}" if tool == "search" else f"404 at {args['url']}"
    return said, False


def run_chat(url, *, stream=False):
    import openai

    client = openai.OpenAI(base_url=url, api_key="none", max_retries=0)
    tools = [
        {"type": "function", "function": {"name": name, "parameters": schema}}
        for name, schema in SCHEMAS.items()
    ]
    messages = [{"role": "system", "content": "You look things up."}, ASKED]
    while True:
        options = {"stream": True, "stream_options": {"include_usage": True}} if stream else {}
        given = {"model": "fake", "messages": messages, "tools": tools}
        got = client.chat.completions.create(**given, **options)
        if stream:
            calls, text = [], ""
            for chunk in got:
                for choice in chunk.choices:
                    text += choice.delta.content or ""
                    calls += [
                        {"id": c.id, "type": "function", "function": {
                            "name": c.function.name, "arguments": c.function.arguments}}
                        for c in choice.delta.tool_calls or ()
                    ]  # fmt: skip
        else:
            message = got.choices[0].message
            calls = [call.model_dump() for call in message.tool_calls or ()]
            text = message.content
        asked = {"tool_calls": calls} if calls else {}
        messages.append({"role": "assistant", "content": text, **asked})
        if not calls:
            return
        for call in calls:
            said, _ = answer(call["function"]["name"], json.loads(call["function"]["arguments"]))
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": said})


def run_responses(url, *, background=False):
    import openai

    client = openai.OpenAI(base_url=url, api_key="none", max_retries=0)
    tools = [
        {"type": "function", "name": name, "strict": False, "parameters": schema}
        for name, schema in SCHEMAS.items()
    ]
    items = [ASKED]
    while True:
        options = {"background": True} if background else {}
        got = client.responses.create(model="fake", input=items, tools=tools, **options)
        while got.status in ("queued", "in_progress"):
            got = client.responses.retrieve(got.id)
        calls = [item for item in got.output if item.type == "function_call"]
        if not calls:
            return
        items += [call.model_dump(exclude_none=True) for call in calls]
        for call in calls:
            said, _ = answer(call.name, json.loads(call.arguments))
            items.append({"type": "function_call_output", "call_id": call.call_id, "output": said})


def run_messages(url):
    import anthropic

    client = anthropic.Anthropic(base_url=url.removesuffix("/v1"), api_key="none", max_retries=0)
    tools = [{"name": name, "input_schema": schema} for name, schema in SCHEMAS.items()]
    messages = [ASKED]
    while True:
        got = client.messages.create(
            model="fake", max_tokens=100, system="You look things up.", messages=messages,
            tools=tools,
        )  # fmt: skip
        said = [block.model_dump(exclude_none=True) for block in got.content]
        messages.append({"role": "assistant", "content": said})
        calls = [block for block in got.content if block.type == "tool_use"]
        if not calls:
            return
        results = []
        for call in calls:
            said, bad = answer(call.name, call.input)
            result = {"type": "tool_result", "tool_use_id": call.id, "content": said}
            results.append(result | ({"is_error": True} if bad else {}))
        messages.append({"role": "user", "content": results})


def run_runner(url):
    import anthropic
    from anthropic.lib.tools import ToolError

    client = anthropic.Anthropic(base_url=url.removesuffix("/v1"), api_key="none", max_retries=0)

    def tool(name):
        def run(**args):
            said, bad = answer(name, args)
            if bad:
                raise ToolError(said)
            return said

        return anthropic.beta_tool(run, name=name, description=name, input_schema=SCHEMAS[name])

    client.beta.messages.tool_runner(
        model="fake", max_tokens=100, system="You look things up.", messages=[ASKED],
        tools=[tool(name) for name in TOOLS], thread=False,
    ).until_done()  # fmt: skip


CONTENT = {
    "OTEL_SEMCONV_STABILITY_OPT_IN": "gen_ai_latest_experimental",
    "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "span_only",
}
MODULES = {
    "v2": "opentelemetry.instrumentation.openai_v2",
    "v2-default": "opentelemetry.instrumentation.openai_v2",
    "genai": "opentelemetry.instrumentation.genai.openai",
    "openinference": "openinference.instrumentation.{}",
    "openllmetry": "opentelemetry.instrumentation.{}",
}


def instrument(way, by, provider):
    os.environ["TRACELOOP_TRACE_CONTENT"] = "true"
    if by in ("v2", "genai"):
        os.environ.update(CONTENT)
    if by == "native":
        os.environ["ANTHROPIC_OPEN_TELEMETRY_TRACES_CONTENT_MODE"] = "content"
        return
    client = "anthropic" if way in ("messages", "runner") else "openai"
    kind = {"openai": "OpenAIInstrumentor", "anthropic": "AnthropicInstrumentor"}[client]
    module = importlib.import_module(MODULES[by].format(client))
    getattr(module, kind)().instrument(tracer_provider=provider)


def main(way, by):
    from opentelemetry import trace

    if by == "logfire":
        import logfire
        from opentelemetry.sdk.trace.export import SimpleSpanProcessor
        from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

        memory = InMemorySpanExporter()
        logfire.configure(
            send_to_logfire=False, console=False, inspect_arguments=False,
            additional_span_processors=[SimpleSpanProcessor(memory)],
        )  # fmt: skip
        (logfire.instrument_anthropic if way == "messages" else logfire.instrument_openai)()
    else:
        memory = exporting()
        instrument(way, by, trace.get_tracer_provider())
    run = {
        "chat": run_chat, "responses": run_responses, "messages": run_messages,
        "runner": run_runner,
        "background": lambda url: run_responses(url, background=True),
        "stream": lambda url: run_chat(url, stream=True),
    }[way]  # fmt: skip
    answer = trace.get_tracer("my.app").start_as_current_span("answer")
    with recording(SCRIPT) as recorder, answer:
        run(f"{recorder.url}/openai/v1")
    save(Path(__file__).parent / f"{way}__{by}.json", map(written, memory.get_finished_spans()))


def exporting():
    """The spans that end from now on, by way of the global provider."""
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    memory = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(memory))
    trace.set_tracer_provider(provider)
    return memory


def save(place, spans):
    lines = ",\n".join(map(json.dumps, spans))
    place.write_text(f"[\n{lines}\n]\n", encoding="utf-8")
    print(place.name, place.stat().st_size)


_LEFT_OUT = (
    "code.", "server.", "thread.", "process.", "url.", "http.", "logfire.json_schema",
    "gen_ai.openai.api_base", "llm.tools.", "gen_ai.tool.definitions", "input.value",
    "output.value",
)  # fmt: skip


def written(span):
    context = span.get_span_context()
    return {
        "name": span.name,
        "scope": span.instrumentation_scope.name,
        "kind": span.kind.name,
        "trace_id": f"{context.trace_id:032x}",
        "span_id": f"{context.span_id:016x}",
        "parent_id": f"{span.parent.span_id:016x}" if span.parent else None,
        "start": span.start_time,
        "end": span.end_time,
        "status": span.status.status_code.name.lower(),
        "attributes": {
            key: list(value) if isinstance(value, tuple) else value
            for key, value in span.attributes.items()
            if not key.startswith(_LEFT_OUT)
        },
        "events": [[event.name, dict(event.attributes or {})] for event in span.events],
    }


if __name__ == "__main__":
    main(*sys.argv[1:])
