"""What real frameworks emitted goes the same way, and what is no agent's is sampled."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.trace import Status, StatusCode, Tracer
from stack.demo import agent_env
from stack.programs import wait_for
from stack.stack import Stack
from stack.views import trace, traces

from tests.agents import tool_call
from tests.dialects.captures import spans_in
from tests.docs.markdown import ROOT

ABORT = {"loopguard.decision.action": "abort"}
# The captured agents ended before their calls were enough for an abort by default.
SOON = {"LOOPGUARD_ABORT_AFTER": "2"}
LOOPING = {
    "langgraph__openinference": "grpc",
    "openai-agents__openllmetry": "http",
    "openai-agents__genai": "grpc",
    "pydantic-ai__logfire": "http",
    "vercel-ai-sdk__native": "grpc",
}


@pytest.fixture(scope="module", params=LOOPING, ids=str)
def service(request: pytest.FixtureRequest, stack: Stack, shared: Path) -> str:
    """A captured run, whose agent did not listen, goes through processor, exporter and OTLP."""
    name, protocol = request.param, LOOPING[request.param]
    port = getattr(stack.ports, f"gateway_{protocol}")
    file = str(shared / "spans" / f"{name}.otlp.jsonl")
    words = ["tests.e2e.replaying", file, "--service", name, "--protocol", protocol]
    command = [sys.executable, "-m", *words]
    subprocess.run(command, cwd=ROOT, env=agent_env(port) | SOON, check=True, capture_output=True)
    return str(name)


def test_jaeger_finds_it_by_the_decision(service: str, stack: Stack, shared: Path) -> None:
    """The trace is found by the tag, with all of its spans, something red and a warning."""
    made: dict[int, list[str]] = {}
    for span in spans_in(shared / "spans" / f"{service}.otlp.jsonl"):
        made.setdefault(span.trace_id, []).append(span.name)
    whole = [sorted(names) for names in made.values()]
    where = (stack.ports.jaeger_query, service, ABORT)

    def arrived() -> bool:
        return [sorted(span.name for span in one) in whole for one in traces(*where)] == [True]

    wait_for(arrived, "the trace is in Jaeger, whole")
    (found,) = traces(*where)
    stopped = [s for s in found if s.tags.get("loopguard.decision.action") == "abort"]
    assert any(span.red for span in stopped)
    assert all(span.warnings[0].startswith("loopguard abort") for span in stopped)


def test_sampling_drops_no_span_of_any_agent(stack: Stack, shared: Path) -> None:
    """Every capture, sent raw and with nothing else kept, arrives with all of its spans."""
    sent: dict[str, set[str]] = {}
    url = f"http://127.0.0.1:{stack.ports.gateway_http}/v1/traces"
    for path in sorted((shared / "spans").glob("*.otlp.jsonl")):
        spans = spans_in(path)
        shift = time.time_ns() - max(span.end or 0 for span in spans)
        for line in path.read_text(encoding="utf-8").splitlines():
            request = _shifted(json.loads(line), shift)
            httpx.post(url, json=request, timeout=60).raise_for_status()
        for span in spans:
            sent.setdefault(f"{span.trace_id:032x}", set()).add(f"{span.span_id:016x}")
    assert len(sent) > 59

    def arrived(trace_id: str) -> set[str]:
        return {span.id for span in trace(stack.ports.jaeger_query, trace_id)}

    for trace_id, spans_sent in sent.items():
        wait_for(lambda t=trace_id, s=spans_sent: s <= arrived(t), f"trace {trace_id} is whole")


@pytest.fixture(scope="module")
def tracer(stack: Stack) -> Iterator[Tracer]:
    provider = TracerProvider(resource=Resource.create({"service.name": "shop"}))
    exporter = OTLPSpanExporter(f"http://127.0.0.1:{stack.ports.gateway_http}/v1/traces")
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    yield provider.get_tracer("opentelemetry.instrumentation.wsgi")
    provider.shutdown()


def test_what_is_no_agents_is_sampled(tracer: Tracer, stack: Stack) -> None:
    """Of three traces, the plain one goes; the failed one and the agent's stay, whole."""
    tracer.start_span("GET /plain").end()
    with tracer.start_as_current_span("GET /failed") as span:
        span.set_status(Status(StatusCode.ERROR))
    with tracer.start_as_current_span("GET /agent"):
        tracer.start_span("SELECT before").end()
        tool_call(tracer)

    def found() -> list[list[str]]:
        whole = traces(stack.ports.jaeger_query, "shop")
        return sorted(sorted(span.name for span in each) for each in whole)

    kept = [["GET /agent", "SELECT before", "execute_tool search"], ["GET /failed"]]
    wait_for(lambda: found() == kept, "two traces are in Jaeger, whole")


def _shifted(value: Any, by: int) -> Any:
    """The same request, its times later: Jaeger forgets what is two days old."""
    if isinstance(value, list):
        return [_shifted(each, by) for each in value]
    if not isinstance(value, dict):
        return value
    return {
        name: str(int(each) + by) if name.endswith("UnixNano") and int(each) else _shifted(each, by)
        for name, each in value.items()
    }
