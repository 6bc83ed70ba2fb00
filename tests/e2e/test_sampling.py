"""The gateway keeps what agents do, with all around it, and drops a share of the rest."""

from collections.abc import Iterator

import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.trace import Status, StatusCode, Tracer
from stack.programs import wait_for
from stack.stack import Stack
from stack.views import traces

TOOL = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search"}


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
        tracer.start_span("execute_tool search", attributes=TOOL).end()

    def found() -> list[list[str]]:
        whole = traces(stack.ports.jaeger_query, "shop")
        return sorted(sorted(span.name for span in each) for each in whole)

    kept = [["GET /agent", "SELECT before", "execute_tool search"], ["GET /failed"]]
    wait_for(lambda: found() == kept, "two traces are in Jaeger, whole")
