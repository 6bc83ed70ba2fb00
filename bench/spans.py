"""The spans that are measured: each set runs so many of its spans on a provider.

Every call has other arguments and another result, so that no loop is found: what is measured is the
cost of a healthy agent.
"""

from __future__ import annotations

import gzip
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from otel_loopguard import LoopGuardSpanProcessor

SHARED = Path(__file__).resolve().parents[2] / "shared"
RECORDED = SHARED / "traces" / "miniswe.jsonl.gz"
CAPTURE = SHARED / "spans" / "langgraph__openinference.json"

WORDS = "the weather in Paris is mild with some rain later and a light wind from the west".split()
RESULT = " ".join(itertools.islice(itertools.cycle(WORDS), 60))
SYLLABLES = "ka lo mi ne pu ra so ti va zu be do fa gi ho".split()
VOCABULARY = ["".join(each) for each in itertools.product(SYLLABLES, repeat=3)]
HTTP = {"http.request.method": "GET", "url.full": "http://x.test/", "server.port": 80}

Run = Callable[[int], int]
"""Makes at least so many spans, and says how many they were."""
Wrap = Callable[[Callable[..., str]], Callable[..., str]]
"""What a detector without spans puts around a tool."""


class Discard(SpanExporter):
    def export(self, spans: object) -> SpanExportResult:
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        pass


def bare() -> TracerProvider:
    return TracerProvider()


def batched() -> TracerProvider:
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(Discard()))
    return provider


def guarded() -> TracerProvider:
    provider = TracerProvider()
    provider.add_span_processor(LoopGuardSpanProcessor())
    return provider


def both() -> TracerProvider:
    provider = batched()
    provider.add_span_processor(LoopGuardSpanProcessor())
    return provider


def unwrapped(tool: Callable[..., str]) -> Callable[..., str]:
    return tool


def search(query: str, n: int) -> str:
    return f"{RESULT} {query} {n}"


def prose(number: int, words: int) -> str:
    """Words that the last 50 numbers did not have."""
    start = number * words % (len(VOCABULARY) - words)
    return " ".join(VOCABULARY[start : start + words])


def find(city: str, page: int) -> str:
    """A page of results as JSON, about 2 kB."""
    found = [
        {"id": page * 20 + each, "city": city, "text": prose(page * 17 + each, 9)}
        for each in range(17)
    ]
    return json.dumps({"page": page, "results": found})


def tool_spans(provider: TracerProvider, wrap: Wrap = unwrapped) -> Run:
    """GenAI tool spans with a call id, arguments of 30 characters and a result of 300."""
    tracer = provider.get_tracer("bench.agent")
    tool, numbers = wrap(search), itertools.count()
    agent = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "bench"}

    def run(count: int) -> int:
        with tracer.start_as_current_span("invoke_agent bench", attributes=agent):
            for number in itertools.islice(numbers, count):
                attributes = {
                    "gen_ai.operation.name": "execute_tool",
                    "gen_ai.tool.name": "search",
                    "gen_ai.tool.call.id": f"call_{number}",
                    "gen_ai.agent.name": "bench",
                    "gen_ai.conversation.id": "bench-1",
                    "gen_ai.tool.call.arguments": f'{{"query": "city {number}", "n": 5}}',
                }
                with tracer.start_as_current_span(
                    "execute_tool search", attributes=attributes
                ) as span:
                    result = tool(f"city {number}", n=5)
                    span.set_attribute("gen_ai.tool.call.result", result)
        return count

    return run


def json_tool_spans(provider: TracerProvider, wrap: Wrap = unwrapped) -> Run:
    """OpenInference tool spans, results of 2 kB of JSON; a session has 40 of them."""
    tracer = provider.get_tracer("openinference.instrumentation.langchain")
    tool, numbers = wrap(find), itertools.count()

    def run(count: int) -> int:
        for number in itertools.islice(numbers, count):
            with tracer.start_as_current_span("find") as span:
                result = tool(f"city {number}", page=number)
                span.set_attributes(
                    {
                        "openinference.span.kind": "TOOL",
                        "session.id": f"bench-{number // 40}",
                        "tool.name": "find",
                        "input.value": f'{{"city": "city {number}", "page": {number}}}',
                        "input.mime_type": "application/json",
                        "output.value": result,
                        "output.mime_type": "application/json",
                    }
                )
        return count

    return run


def model_spans(provider: TracerProvider) -> Run:
    """GenAI model spans with usage, what was asked, and an answer of 300 characters."""
    tracer, numbers = provider.get_tracer("bench.agent"), itertools.count()
    asked = '[{"role": "user", "parts": [{"type": "text", "content": "How is the weather?"}]}]'

    def run(count: int) -> int:
        for number in itertools.islice(numbers, count):
            said = {"type": "text", "content": prose(number, 40)}
            answer = [{"role": "assistant", "parts": [said], "finish_reason": "stop"}]
            attributes = {
                "gen_ai.operation.name": "chat",
                "gen_ai.provider.name": "openai",
                "gen_ai.request.model": "gpt-5",
                "gen_ai.conversation.id": "bench-1",
                "gen_ai.input.messages": asked,
            }
            with tracer.start_as_current_span("chat gpt-5", attributes=attributes) as span:
                span.set_attributes(
                    {
                        "gen_ai.response.model": "gpt-5",
                        "gen_ai.usage.input_tokens": 900 + number % 90,
                        "gen_ai.usage.output_tokens": 70,
                        "gen_ai.output.messages": json.dumps(answer),
                    }
                )
        return count

    return run


def http_spans(scope: str, *, beside_tools: bool = False) -> Callable[[TracerProvider], Run]:
    """Spans of an HTTP client; in the scope of an agent, if it has made tool spans, too."""

    def make(provider: TracerProvider) -> Run:
        tracer = provider.get_tracer(scope)
        if beside_tools:
            tool_spans(provider)(20)

        def run(count: int) -> int:
            for _ in range(count):
                with tracer.start_as_current_span("GET", attributes=HTTP) as span:
                    span.set_attribute("http.response.status_code", 200)
            return count

        return run

    return make


def captured_spans(provider: TracerProvider) -> Run:
    """A captured LangGraph run: chains, model and tool spans, and a request under each model span.

    Each time it is a session of its own. The capture is of a scripted agent that repeats itself;
    here the words of each span are its own.
    """
    spans: list[dict[str, Any]] = json.loads(CAPTURE.read_text(encoding="utf-8"))["spans"]
    tracers = {one["scope"][0]: provider.get_tracer(one["scope"][0]) for one in spans}
    client = provider.get_tracer("opentelemetry.instrumentation.httpx")
    events = sorted(
        (one[at]["time"], at == "end", place)
        for place, one in enumerate(spans)
        for at in ("start", "end")
    )
    attributes = [_own_words(one["end"]["attributes"], place) for place, one in enumerate(spans)]
    places = {one["span_id"]: place for place, one in enumerate(spans)}
    sessions = itertools.count()

    def play() -> int:
        made, opened, key = 0, dict[int, trace.Span](), f"bench-{next(sessions)}"
        for _, ends, place in events:
            one = spans[place]
            if ends:
                opened[place].set_attributes({**attributes[place], "session.id": key})
                opened[place].end()
                continue
            parent = opened.get(places.get(one["parent_id"], -1))
            context = trace.set_span_in_context(parent, Context()) if parent else Context()
            tracer = tracers[one["scope"][0]]
            span = opened[place] = tracer.start_span(one["start"]["name"], context)
            made += 1
            if attributes[place].get("openinference.span.kind") == "LLM":
                under = trace.set_span_in_context(span, Context())
                client.start_span("POST", under, attributes=HTTP).end()
                made += 1
        return made

    def run(count: int) -> int:
        made = 0
        while made < count:
            made += play()
        return made

    return run


def _own_words(attributes: dict[str, Any], place: int) -> dict[str, Any]:
    text = json.dumps(attributes)
    for word in ("Paris", "alpha", "beta"):
        text = text.replace(word, VOCABULARY[place])
    for answer in ("no results for", "404 at"):
        text = text.replace(answer, prose(place, 20))
    return json.loads(text)


def recorded_spans(provider: TracerProvider) -> Run:
    """GenAI tool spans with the commands and answers of recorded coding agents that were done."""
    tracer = provider.get_tracer("bench.agent")
    with gzip.open(RECORDED, "rt", encoding="utf-8") as lines:
        runs = [json.loads(line) for line in itertools.islice(lines, 60)]
    calls = (
        (f"{turn} {run['id']}", step["tool"], json.dumps(step["args"]), step["output"])
        for turn in itertools.count()
        for run in runs
        if run["label"]["tier"] == "neg_success"
        for step in run["steps"]
        if step["kind"] == "tool"
    )

    def run(count: int) -> int:
        for key, tool, args, answer in itertools.islice(calls, count):
            attributes = {
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.name": tool,
                "gen_ai.conversation.id": key,
                "gen_ai.tool.call.arguments": args,
            }
            with tracer.start_as_current_span(f"execute_tool {tool}", attributes=attributes) as now:
                now.set_attribute("gen_ai.tool.call.result", answer)
        return count

    return run


TOOL = "tool span with arguments and result"
JSON_TOOL = "OpenInference tool span with 2 kB of JSON"
SETS: dict[str, Callable[[TracerProvider], Run]] = {
    TOOL: tool_spans,
    JSON_TOOL: json_tool_spans,
    "model span": model_spans,
    "span of no interest, known scope": http_spans("opentelemetry.instrumentation.requests"),
    "span of no interest, unknown scope": http_spans("my.application"),
    "span of no interest, scope with tool spans": http_spans("bench.agent", beside_tools=True),
}
if CAPTURE.exists():
    SETS["captured agent: chains, model, tool, HTTP"] = captured_spans
if RECORDED.exists():
    SETS["recorded coding agent: commands and answers"] = recorded_spans
