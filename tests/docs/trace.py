"""The trace of a stuck agent as it is exported, drawn as text."""

import re
import textwrap
from pathlib import Path
from tempfile import TemporaryDirectory

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from otel_loopguard import (
    LoopGuard,
    LoopGuardAbort,
    LoopGuardSpanExporter,
    LoopGuardSpanProcessor,
    control,
    semconv,
)
from tests.agents import agent, provider_with, tool_call
from tests.docs.programs import command_line, plain
from tests.operations.drawing import cut

_SHOWN = ("DECISION_ACTION", "DETECTOR_NAME", "DETECTION_REPEAT_COUNT", "ERROR_TYPE")


def exported() -> tuple[ReadableSpan, ...]:
    """Spans of an agent that makes one call until it is stopped, as the exporter got them."""
    guard, memory = LoopGuard(), InMemorySpanExporter()
    out = SimpleSpanProcessor(LoopGuardSpanExporter(memory, guard))
    tracer = provider_with(LoopGuardSpanProcessor(guard), out).get_tracer("my.agent")
    with agent(tracer, gen_ai__conversation__id="run-42"):
        for _ in range(50):
            try:
                control.check()
            except LoopGuardAbort:
                break
            tool_call(tracer)
    return memory.get_finished_spans()


def tree() -> str:
    """The trace: a line per span, below it what the guard added."""
    *calls, root = exported()
    lines = _lines(root, "", "│  ")
    for place, span in enumerate(calls):
        last = place == len(calls) - 1
        lines += _lines(span, "└─ " if last else "├─ ", "   " if last else "│  ")
    return "".join(f"{line}\n" for line in lines)


def replayed() -> str:
    """The run of README.md as `replay --tree` draws it, with the sentences cut."""
    memory = InMemorySpanExporter()
    tracer = provider_with(SimpleSpanProcessor(memory)).get_tracer("my.agent")
    with agent(tracer, gen_ai__conversation__id="chat-1"):
        for _ in range(7):
            tool_call(tracer, args='{"query": "weather in Paris"}', result="No results.")
    with TemporaryDirectory() as folder:
        path = Path(folder) / "spans.jsonl"
        spans = [span.to_json(indent=None) for span in memory.get_finished_spans()]
        path.write_text("\n".join(spans), encoding="utf-8")
        said = plain(command_line("replay", "--tree", str(path)))
    drawn = [line for line in said.splitlines() if re.match(r"session chat-1$|[├└│ ] ?", line)]
    return "".join(f"{cut(line, 80, 1)}\n" for line in drawn)


def _lines(span: ReadableSpan, branch: str, below: str) -> list[str]:
    status = "ERROR" if span.status.status_code is StatusCode.ERROR else ""
    found, names = span.attributes or {}, [getattr(semconv, name) for name in _SHOWN]
    added = [f"{name} = {found[name]}" for name in names if name in found]
    if status:
        said = textwrap.shorten(span.status.description or "", 64, placeholder=" …")
        added.append(f"status: {said}")
    told = ((event.name, event.attributes or {}) for event in span.events)
    added += [f"event {name}: {said[semconv.DECISION_ACTION]}" for name, said in told]
    return [f"{branch}{span.name}  {status}".rstrip(), *(f"{below}  {line}" for line in added)]
