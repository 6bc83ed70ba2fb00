"""What the hooks do besides the scenarios: one JSON object, a case by name.

python cases.py [--instrumented]
"""

import json
import sys

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from strands import Agent, tool
from strands.models import Model
from strands.multiagent import GraphBuilder, Swarm

from otel_loopguard import LoopGuardAbort, LoopGuardSpanProcessor
from otel_loopguard.integrations.strands import LoopGuardHooks

exporter = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(LoopGuardSpanProcessor())
provider.add_span_processor(SimpleSpanProcessor(exporter))
if "--instrumented" in sys.argv:
    trace.set_tracer_provider(provider)

ran = []
hooks = LoopGuardHooks(tracer_provider=provider)


class Stuck(Model):
    """Asks for the same search, `at_once` times in one message; answers if `word` was told."""

    update_config = structured_output = None
    get_config = dict

    def __init__(self, word="\0", at_once=1):
        self.word = word
        self.at_once = at_once
        self.requests = []

    async def stream(self, messages, *_request, **_options):
        self.requests.append(messages)
        yield {"messageStart": {"role": "assistant"}}
        done = self.word in str(messages[-1])
        if done:
            yield {"contentBlockStart": {"start": {}}}
            yield {"contentBlockDelta": {"delta": {"text": "Done."}}}
            yield {"contentBlockStop": {}}
        for number in range(0 if done else self.at_once):
            use = {"name": "search", "toolUseId": f"call_{len(messages)}_{number}"}
            yield {"contentBlockStart": {"start": {"toolUse": use}}}
            yield {"contentBlockDelta": {"delta": {"toolUse": {"input": '{"query": "x"}'}}}}
            yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "end_turn" if done else "tool_use"}}


@tool
def search(query: str) -> str:
    """Searches."""
    ran.append(query)
    return "No results."


@tool(name="search")
def broken(query: str) -> str:
    """Searches."""
    ran.append(query)
    raise OSError(query)


def _agent(model=None, **options):
    options = {"tools": [search], "hooks": [hooks], **options}
    return Agent(model or Stuck(), name="looper", callback_handler=None, **options)


def _stop(agent):
    ran.clear()
    exporter.clear()
    try:
        agent("Find it.")
    except LoopGuardAbort as stop:
        return stop
    return None


def _whole(agent):
    """Whether every call in the history has a result."""
    blocks = [block for message in agent.messages for block in message["content"]]
    calls = [block["toolUse"]["toolUseId"] for block in blocks if "toolUse" in block]
    told = [block["toolResult"]["toolUseId"] for block in blocks if "toolResult" in block]
    return sorted(calls) == sorted(told)


def history():
    agent = _agent()
    stop = _stop(agent)
    return {"ran": len(ran), "parts": len(stop.parts), "whole": _whole(agent)}


def two_runs():
    agent = _agent()
    found = [(_stop(agent).session, len(ran)) for _ in range(2)]
    return {"ran": [made for _, made in found], "same": found[0][0] == found[1][0]}


def next_turn():
    agent = _agent(trace_attributes={"session.id": "talk-7"})
    found = [(_stop(agent).session, len(ran) > 0) for _ in range(3)]
    return {"ran": [made for _, made in found], "sessions": sorted({key for key, _ in found})}


def hint():
    model = Stuck(word="was called")
    agent = _agent(model)
    stop = _stop(agent)
    (block,) = model.requests[-1][-1]["content"]
    told = [text["text"] for text in block["toolResult"]["content"]]
    return {"first": told[0], "hint": told[1][:8], "stopped": stop is not None}


def at_once():
    """Two equal calls in each message."""
    model = Stuck(at_once=2)
    agent = _agent(model)
    stop = _stop(agent)
    parts = len(stop.parts) == len(ran)
    model.word = "Find it."
    return {"parts": parts, "again": _stop(agent) is None, "whole": _whole(agent)}


def failing():
    stop = _stop(_agent(tools=[broken]))
    kinds = [span.attributes.get("error.type") for span in exporter.get_finished_spans()]
    return {
        "parts": len(stop.parts),
        "own": kinds.count("OSError") == len(ran),
        "open": len(hooks._adapter._calls),
    }


def graph():
    builder = GraphBuilder()
    builder.add_node(_agent(), "looper")
    return {"stopped": _stop(builder.build()) is not None, "ran": len(ran)}


def swarm():
    ran.clear()
    result = Swarm([_agent()])("Find it.")
    stop = result.results["looper"].result
    return {
        "status": result.status.value,
        "stop": isinstance(stop, LoopGuardAbort),
        "ran": len(ran),
    }


CASES = (history, two_runs, next_turn, hint, at_once, graph, swarm, failing)
print(json.dumps({case.__name__: case() for case in CASES}))
