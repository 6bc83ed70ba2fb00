"""Records loops of one's own: a plain client, its instrumentation, a model that follows a script.

The captures beside this file were written by it, in an environment of their own with Python 3.11:

    pip install openai==3.54.0 anthropic==2.12.0 logfire==5.2.0 httpx \
        opentelemetry-instrumentation-openai-v2==2.4b0 opentelemetry-util-genai==1.1b0 \
        openinference-instrumentation-openai==0.1.66 \
        openinference-instrumentation-anthropic==3.1.0 \
        opentelemetry-instrumentation-openai==0.62.4 \
        opentelemetry-instrumentation-anthropic==0.62.4
    for way in chat responses messages stream; do
        for by in v2 v2-default openinference openllmetry logfire; do
            python record.py $way $by
        done
    done

    pip install openai==3.57.0 opentelemetry-instrumentation-genai-openai==1.3b0
    python record.py background genai

`v2` knows neither `responses` nor `messages`; `background` asks for an answer and fetches it until
it is there (`fetch_response`). No call leaves the machine: the server is in the
program. What tells of the machine (host, port, paths), the schemas of the tools, and the copies of
all messages in `input.value` and `output.value` are left out of what is written.
"""


# pyright: basic, reportCallIssue=false, reportMissingImports=false, reportArgumentType=false
# pyright: reportPossiblyUnboundVariable=false, reportAttributeAccessIssue=false

from __future__ import annotations

import json
import os
import sys
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

PARIS = ("search", {"query": "weather in Paris"})
ROUNDS = [
    [PARIS],
    [PARIS],
    [PARIS],
    [("search", {"query": "alpha"}), ("fetch", {"url": "http://example.test/beta"})],
    [("broken", {"x": 1})],
]
FETCHED = Counter()
UNFINISHED = 2
"""How often an answer is fetched before it is there."""
TOOLS = {"search": "query", "fetch": "url", "broken": "x"}


def answer(tool: str, args: dict) -> tuple[str, bool]:
    if tool == "broken":
        return "Error: broken backend for x=1", True
    return (
        f"no results for {args['query']}" if tool == "search" else f"404 at {args['url']}"
    ), False


class Model(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def send(self, body: bytes, kind: str = "application/json"):
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.path.endswith("/chat/completions"):
            turn = sum(m["role"] == "assistant" for m in asked["messages"])
            self.say_chat(turn, asked.get("stream"))
        elif self.path.endswith("/responses"):
            calls = [m for m in asked["input"] if m.get("type") == "function_call"]
            background = asked.get("background")
            self.say_response(_turn_after(len(calls)), "queued" if background else "completed")
        else:
            self.say_message(sum(m["role"] == "assistant" for m in asked["messages"]))

    def do_GET(self):
        turn = self.path.rpartition("_")[2]
        FETCHED[turn] += 1
        there = FETCHED[turn] > UNFINISHED
        self.say_response(int(turn), "completed" if there else "in_progress")

    def say_chat(self, turn, stream):
        calls = [
            {"id": f"call_{turn}_{n}", "type": "function",
             "function": {"name": name, "arguments": json.dumps(args)}}
            for n, (name, args) in enumerate(ROUNDS[turn] if turn < len(ROUNDS) else [])
        ]  # fmt: skip
        message = {"role": "assistant", "content": None if calls else "It is done."}
        if calls:
            message["tool_calls"] = calls
        usage = {"prompt_tokens": 100, "completion_tokens": 12, "total_tokens": 112}
        why = "tool_calls" if calls else "stop"
        head = {"id": f"chatcmpl-{turn}", "created": 1, "model": "fake"}
        if stream:
            delta = dict(message)
            if calls:
                delta["tool_calls"] = [dict(call, index=n) for n, call in enumerate(calls)]
            chunks = [
                {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
                {"choices": [{"index": 0, "delta": {}, "finish_reason": why}]},
                {"choices": [], "usage": usage},
            ]
            lines = [json.dumps({**head, "object": "chat.completion.chunk", **c}) for c in chunks]
            body = "".join(f"data: {line}\n\n" for line in [*lines, "[DONE]"])
            self.send(body.encode(), "text/event-stream")
            return
        choices = [{"index": 0, "message": message, "finish_reason": why}]
        whole = {**head, "object": "chat.completion", "usage": usage, "choices": choices}
        self.send(json.dumps(whole).encode())

    def say_response(self, turn, status):
        done = status == "completed"
        output = [
            {"type": "function_call", "id": f"fc_{turn}_{n}", "call_id": f"call_{turn}_{n}",
             "name": name, "arguments": json.dumps(args), "status": "completed"}
            for n, (name, args) in enumerate(ROUNDS[turn] if turn < len(ROUNDS) else [])
        ] or [
            {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
             "content": [{"type": "output_text", "text": "It is done.", "annotations": []}]}
        ]  # fmt: skip
        usage = {
            "input_tokens": 100, "output_tokens": 12, "total_tokens": 112,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens_details": {"reasoning_tokens": 0},
        }  # fmt: skip
        self.send(json.dumps({
            "id": f"resp_{turn}", "object": "response", "created_at": 1, "status": status,
            "model": "fake", "output": output if done else [],
            "parallel_tool_calls": True, "tool_choice": "auto",
            "tools": [], "temperature": 1.0, "top_p": 1.0, "error": None,
            "incomplete_details": None, "instructions": None, "metadata": {},
            "usage": usage if done else None,
        }).encode())  # fmt: skip

    def say_message(self, turn):
        content = [
            {"type": "tool_use", "id": f"toolu_{turn}_{n}", "name": name, "input": args}
            for n, (name, args) in enumerate(ROUNDS[turn] if turn < len(ROUNDS) else [])
        ]
        why = "tool_use" if content else "end_turn"
        content = content or [{"type": "text", "text": "It is done."}]
        self.send(json.dumps({
            "id": f"msg_{turn}", "type": "message", "role": "assistant", "model": "fake",
            "content": content, "stop_reason": why, "stop_sequence": None,
            "usage": {"input_tokens": 100, "output_tokens": 12},
        }).encode())  # fmt: skip


def _turn_after(calls: int) -> int:
    made = 0
    for turn, asked in enumerate(ROUNDS):
        if made == calls:
            return turn
        made += len(asked)
    return len(ROUNDS)


def run_chat(url, *, stream=False):
    import openai

    client = openai.OpenAI(base_url=url, api_key="none", max_retries=0)
    tools = [
        {"type": "function", "function": {"name": name, "parameters": {
            "type": "object", "properties": {arg: {}}}}}
        for name, arg in TOOLS.items()
    ]  # fmt: skip
    messages = [
        {"role": "system", "content": "You look things up."},
        {"role": "user", "content": "What is the weather in Paris?"},
    ]
    while True:
        options = {"stream": True, "stream_options": {"include_usage": True}} if stream else {}
        got = client.chat.completions.create(
            model="fake", messages=messages, tools=tools, **options
        )
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
        messages.append(
            {"role": "assistant", "content": text, **({"tool_calls": calls} if calls else {})}
        )
        if not calls:
            return
        for call in calls:
            said, _ = answer(call["function"]["name"], json.loads(call["function"]["arguments"]))
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": said})


def run_responses(url, *, background=False):
    import openai

    client = openai.OpenAI(base_url=url, api_key="none", max_retries=0)
    tools = [
        {"type": "function", "name": name, "strict": False, "parameters": {
            "type": "object", "properties": {arg: {}}}}
        for name, arg in TOOLS.items()
    ]  # fmt: skip
    items = [{"role": "user", "content": "What is the weather in Paris?"}]
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
    tools = [
        {"name": name, "input_schema": {"type": "object", "properties": {arg: {}}}}
        for name, arg in TOOLS.items()
    ]
    messages = [{"role": "user", "content": "What is the weather in Paris?"}]
    while True:
        got = client.messages.create(
            model="fake", max_tokens=100, system="You look things up.", messages=messages,
            tools=tools,
        )  # fmt: skip
        messages.append(
            {"role": "assistant", "content": [b.model_dump(exclude_none=True) for b in got.content]}
        )
        calls = [block for block in got.content if block.type == "tool_use"]
        if not calls:
            return
        results = []
        for call in calls:
            said, bad = answer(call.name, call.input)
            result = {"type": "tool_result", "tool_use_id": call.id, "content": said}
            results.append(result | ({"is_error": True} if bad else {}))
        messages.append({"role": "user", "content": results})


def instrument(way, by, provider):
    os.environ["TRACELOOP_TRACE_CONTENT"] = "true"
    anthropic = way == "messages"
    if by == "v2":
        os.environ["OTEL_SEMCONV_STABILITY_OPT_IN"] = "gen_ai_latest_experimental"
        os.environ["OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"] = "span_only"
        from opentelemetry.instrumentation.openai_v2 import OpenAIInstrumentor as One
    elif by == "genai":
        os.environ["OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"] = "span_only"
        from opentelemetry.instrumentation.genai.openai import OpenAIInstrumentor as One
    elif by == "v2-default":
        from opentelemetry.instrumentation.openai_v2 import OpenAIInstrumentor as One
    elif by == "openinference":
        if anthropic:
            from openinference.instrumentation.anthropic import AnthropicInstrumentor as One
        else:
            from openinference.instrumentation.openai import OpenAIInstrumentor as One
    elif by == "openllmetry":
        if anthropic:
            from opentelemetry.instrumentation.anthropic import AnthropicInstrumentor as One
        else:
            from opentelemetry.instrumentation.openai import OpenAIInstrumentor as One
    else:
        sys.exit(f"unknown: {by}")
    One().instrument(tracer_provider=provider)


def main(way, by):
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    server = ThreadingHTTPServer(("127.0.0.1", 0), Model)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    memory = InMemorySpanExporter()
    if by == "logfire":
        import logfire

        logfire.configure(
            send_to_logfire=False, console=False, inspect_arguments=False,
            additional_span_processors=[SimpleSpanProcessor(memory)],
        )  # fmt: skip
        (logfire.instrument_anthropic if way == "messages" else logfire.instrument_openai)()
    else:
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(memory))
        trace.set_tracer_provider(provider)
        instrument(way, by, provider)
    url = f"http://127.0.0.1:{server.server_port}/v1"
    with trace.get_tracer("my.app").start_as_current_span("answer"):
        {"chat": run_chat, "responses": run_responses, "messages": run_messages,
         "background": lambda url: run_responses(url, background=True),
         "stream": lambda url: run_chat(url, stream=True)}[way](url)  # fmt: skip
    spans = [written(span) for span in memory.get_finished_spans()]
    place = Path(__file__).parent / f"{way}__{by}.json"
    lines = ",\n".join(json.dumps(span) for span in spans)
    place.write_text(f"[\n{lines}\n]\n")
    print(place.name, len(spans), place.stat().st_size)


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
