"""Backends that run: what the API of MLflow and Phoenix gives back, and what Phoenix draws."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanContext
from playwright.sync_api import expect
from stack.builds import COLLECTOR, HERE, JAEGER
from stack.environments import MLFLOW, PHOENIX
from stack.ports import Ports, free_ports
from stack.programs import wait_for
from stack.stack import Pace, Stack
from stack.web import get

from otel_loopguard import LoopGuard, LoopGuardSpanExporter, LoopGuardSpanProcessor, Settings
from otel_loopguard.sessions.observation import DecisionRecord
from tests.agents import agent, provider_with, tool_call
from tests.browser import browser, needs_chromium
from tests.e2e.running import Agents, decisions_of, need

ABORT = "loopguard.decision.action:abort"
LABELS = ["hint", "deny", "abort"]
# They wait for their spans, Phoenix for ten seconds at a time.
LIMIT_S = 180


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    with Stack(tmp_path, Ports.free()) as made:
        yield made
        made.stop(1)


class Agent:
    def __init__(self, backend: str, endpoint: str, headers: dict[str, str] | None = None) -> None:
        self.guard = LoopGuard(Settings(verdicts=backend, tuning={"delivery": {"flush_s": 60}}))
        self.records: list[DecisionRecord] = []
        self.guard.subscribers.decisions.append(("test", self.records.append))
        exporter = OTLPSpanExporter(endpoint, headers=headers)
        batches = BatchSpanProcessor(LoopGuardSpanExporter(exporter, self.guard))
        self.provider = provider_with(LoopGuardSpanProcessor(self.guard), batches)
        self.tracer = self.provider.get_tracer("my.agent")

    def run(self, conversation: str, calls: int) -> list[SpanContext]:
        """One run of equal calls; the spans of the calls, and that of the run at the end."""
        named = {"gen_ai__conversation__id": conversation, "session__id": conversation}
        with agent(self.tracer, **named) as run:
            spans = [tool_call(self.tracer).get_span_context() for _ in range(calls)]
        return [*spans, run.get_span_context()]

    def runs(self) -> tuple[list[SpanContext], list[str], list[SpanContext]]:
        """A run that is stopped, the ids of its spans with a decision, and one that goes well."""
        spans, well = self.run("stuck", 7), self.run("well", 1)
        self.provider.force_flush()
        self.provider.shutdown()
        return spans, [f"{spans[at].span_id:016x}" for at in (2, 3, 6)], well


def test_mlflow_shows_verdicts_as_assessments(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the spans of the traces that it made of OTLP; once each, though sent again."""
    need(MLFLOW)
    (port,) = free_ports(1)
    stack.mlflow(port)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{port}")
    endpoint, experiment = f"http://127.0.0.1:{port}/v1/traces", {"x-mlflow-experiment-id": "0"}
    stuck = Agent("mlflow", endpoint, experiment)
    spans, judged, well = stuck.runs()

    def found(run: list[SpanContext]) -> list[dict[str, Any]]:
        said = get(port, f"/api/3.0/mlflow/traces/tr-{run[0].trace_id:032x}")
        assessments: list[dict[str, Any]] = said["trace"]["trace_info"].get("assessments", [])
        return assessments

    wait_for(lambda: len(found(spans)) == 3, "MLflow has three", LIMIT_S)
    wait_for(lambda: len(found(well)) == 1, "and the one of the other run", LIMIT_S)
    by_span = {one["span_id"]: one for one in found(spans)}
    assert [by_span[span]["feedback"]["value"] for span in judged] == LABELS
    last = by_span[judged[-1]]
    assert last["assessment_name"] == "agent_loop"
    assert last["source"] == {"source_type": "CODE", "source_id": "otel-loopguard"}
    assert last["rationale"].startswith("'search' was called 7 times")
    (ok,) = found(well)
    assert (ok["feedback"]["value"], ok["span_id"]) == ("ok", f"{well[-1].span_id:016x}")
    assert stuck.guard.telemetry.verdicts is not None
    for record in stuck.records:
        stuck.guard.telemetry.verdicts.on_decision(record)
    stuck.guard.telemetry.close()
    assert len(found(spans)) == 3


@pytest.fixture(scope="module")
def phoenix(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Stack, int]]:
    """A Phoenix, and a gateway that sends to it as well as to Jaeger; Phoenix's port."""
    need(COLLECTOR, JAEGER, PHOENIX)
    port, grpc_port = free_ports(2)
    with Stack(tmp_path_factory.mktemp("phoenix"), Ports.free(), Pace()) as stack:
        stack.phoenix(port, grpc_port)
        stack.jaeger()
        overlay = HERE / "backends" / "otlp.yaml"
        stack.gateway(overlay, ALSO_ENDPOINT=f"http://127.0.0.1:{port}")
        yield stack, port
        stack.stop(1)


def stopped(port: int, trace: str) -> list[dict[str, Any]]:
    """The spans of a trace that carry an abort, as Phoenix finds them by the attribute."""
    path = "/v1/projects/default/spans"
    found: list[dict[str, Any]] = get(port, path, attribute=ABORT, trace_id=trace)["data"]
    return found


@needs_chromium
def test_phoenix_draws_the_trace_of_a_stopped_agent(
    phoenix: tuple[Stack, int], agents: Agents
) -> None:
    """A query by the attribute gives agent and deciding call; opened in its page, they say why."""
    stack, port = phoenix
    decisions = decisions_of(agents(stack.ports.gateway_grpc, "loop"))
    trace = decisions[-1]["trace"]
    wait_for(lambda: len(stopped(port, trace)) == 2, "Phoenix has both spans")
    spans = {span["name"]: span for span in stopped(port, trace)}
    agent = spans["invoke_agent researcher"]
    assert {span["status_code"] for span in spans.values()} == {"ERROR"}
    assert agent["attributes"]["error.type"] == "loopguard_abort"
    told = [event["attributes"]["loopguard.decision.action"] for event in agent["events"]]
    assert told == [each["action"] for each in decisions]
    (message,) = {span["attributes"]["loopguard.decision.message"] for span in spans.values()}
    with browser() as opened:
        page = opened.new_page()
        page.goto(f"http://127.0.0.1:{port}/redirects/traces/{trace}")
        shown = page.get_by_role("dialog")
        calls = shown.get_by_text("execute_tool search")
        expect(calls).to_have_count(7)
        expect(shown.get_by_text(f"loopguard abort: {message}")).to_be_visible()
        calls.last.click()
        expect(shown.get_by_role("row").filter(has_text="decision.action")).to_contain_text("abort")
        expect(shown.get_by_text(message, exact=True)).to_be_visible()


def test_phoenix_shows_verdicts_on_spans_traces_and_sessions(
    phoenix: tuple[Stack, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its API has them by the ids of OpenTelemetry, also of what it was told of too early."""
    _, port = phoenix
    endpoint = f"http://127.0.0.1:{port}/v1/traces"
    monkeypatch.setenv("PHOENIX_COLLECTOR_ENDPOINT", endpoint)
    spans, judged, well = Agent("phoenix", endpoint).runs()

    def found(scope: str, key: str, *ids: str) -> list[dict[str, Any]]:
        path = f"/v1/projects/default/{scope}_annotations?" + "&".join(f"{key}={i}" for i in ids)
        data: list[dict[str, Any]] = get(port, path)["data"]
        return data

    wait_for(lambda: len(found("span", "span_ids", *judged)) == 3, "Phoenix has three", LIMIT_S)
    by_span = {one["span_id"]: one for one in found("span", "span_ids", *judged)}
    assert [by_span[span]["result"]["label"] for span in judged] == LABELS
    last = by_span[judged[-1]]
    assert (last["name"], last["annotator_kind"]) == ("agent_loop", "CODE")
    assert (last["result"].get("score"), last["metadata"]["score"]) == (None, 1.0)
    assert last["result"]["explanation"].startswith("'search' was called 7 times")
    assert last["metadata"]["loopguard.detector.name"] == "exact_repeat"
    for (name, label), run in zip((("stuck", "abort"), ("well", "ok")), (spans, well), strict=True):
        trace = f"{run[0].trace_id:032x}"
        wait_for(lambda at=trace: found("trace", "trace_ids", at), "and of the trace", LIMIT_S)
        wait_for(lambda at=name: found("session", "session_ids", at), "and of the session", LIMIT_S)
        (of_trace,) = found("trace", "trace_ids", trace)
        (of_session,) = found("session", "session_ids", name)
        assert of_trace["result"]["label"] == of_session["result"]["label"] == label
