"""Requests of OTLP: over HTTP and gRPC, protobuf and JSON, plain and gzip."""

from __future__ import annotations

import gzip
import json
import time

import grpc
import httpx
import pytest
from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from otel_loopguard import Settings
from otel_loopguard.server import Tenants
from tests.server.serving import BEGIN, PROTOBUF, SECOND, Hop, attributes, call, request, serving

EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
TOKEN = "a token of sixteen signs or more"


def as_json(made: ExportTraceServiceRequest) -> bytes:
    """OTLP's own JSON: ids in hex."""
    document = MessageToDict(made)
    for resource, original in zip(document["resourceSpans"], made.resource_spans, strict=True):
        spans = zip(resource["scopeSpans"][0]["spans"], original.scope_spans[0].spans, strict=True)
        for span, known in spans:
            span["traceId"], span["spanId"] = known.trace_id.hex(), known.span_id.hex()
    return json.dumps(document).encode()


def action(url: str, session: str = "chat-1") -> str:
    return httpx.get(f"{url}/v1/sessions/{session}/control").json()["action"]


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("form", ["protobuf", "json"])
def test_a_loop_is_stopped_whatever_the_encoding(form: str, packed: bool) -> None:
    with serving() as server:
        for number in range(5):
            made = request(call(number))
            body = made.SerializeToString() if form == "protobuf" else as_json(made)
            headers = {"content-type": "application/json"} if form == "json" else dict(PROTOBUF)
            if packed:
                body, headers["content-encoding"] = gzip.compress(body), "gzip"
            answer = httpx.post(f"{server.url}/v1/traces", content=body, headers=headers)
            assert answer.status_code == 200
            assert answer.headers["content-type"] == headers["content-type"]
            assert answer.content == (b"{}" if form == "json" else b"")
        assert action(server.url) == "abort"


def test_grpc_takes_the_same_requests() -> None:
    with serving(grpc="127.0.0.1:0") as server:
        with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
            export = channel.unary_unary(
                EXPORT,
                request_serializer=ExportTraceServiceRequest.SerializeToString,
                response_deserializer=ExportTraceServiceResponse.FromString,
            )
            for number in range(5):
                assert not export(request(call(number))).partial_success.rejected_spans
        assert action(server.url) == "abort"


def test_spans_without_an_end_are_judged() -> None:
    """Nothing else will come of them; they were taken for calls that hang."""
    starts = [BEGIN + number * SECOND // 10 for number in range(5)]
    spans = [
        call(number, start_time_unix_nano=start, end_time_unix_nano=0)
        for number, start in enumerate(starts)
    ]
    with serving() as server:
        made = request(*spans).SerializeToString()
        assert httpx.post(f"{server.url}/v1/traces", content=made, headers=PROTOBUF).is_success
        assert action(server.url) == "abort"


def test_a_batch_out_of_order_and_sent_twice_counts_once() -> None:
    spans = [call(number) for number in range(4)]
    with serving() as server:
        made = request(*reversed(spans)).SerializeToString()
        for _ in range(2):
            assert httpx.post(f"{server.url}/v1/traces", content=made, headers=PROTOBUF).is_success
        (row,) = httpx.get(f"{server.url}/v1/sessions").json()["sessions"]
        assert (row["session"], row["steps"], row["action"]) == ("chat-1", 4, "deny")


def test_children_may_come_before_their_parents() -> None:
    parent = {
        "trace_id": b"t" * 16, "span_id": b"p" * 8, "name": "invoke_agent writer",
        "start_time_unix_nano": call(0)["start_time_unix_nano"] - 1,
        "end_time_unix_nano": call(9)["end_time_unix_nano"],
        "attributes": {
            "gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "writer",
            "gen_ai.conversation.id": "chat-1",
        },
    }  # fmt: skip
    children = [call(number, trace_id=b"t" * 16, parent_span_id=b"p" * 8) for number in range(5)]
    with serving() as server:
        for spans in (*([child] for child in children), [parent]):
            made = request(*spans).SerializeToString()
            assert httpx.post(f"{server.url}/v1/traces", content=made, headers=PROTOBUF).is_success
        (row,) = httpx.get(f"{server.url}/v1/sessions").json()["sessions"]
        assert (row["steps"], row["action"]) == (6, "abort")


def test_hosts_may_disagree_about_the_time_by_a_day() -> None:
    day = 86_400 * 1_000_000_000
    with serving() as server:
        for number in range(5):
            spans = []
            for session, skew in (("here", 0), ("there", -day), ("ahead", day)):
                one = call(number, session)
                one["trace_id"] = session.encode().rjust(16, b"-")
                one["span_id"] = f"{session[:4]}{number}".encode().rjust(8, b"-")
                one["start_time_unix_nano"] += skew
                one["end_time_unix_nano"] += skew
                spans.append(one)
            made = request(*spans).SerializeToString()
            assert httpx.post(f"{server.url}/v1/traces", content=made, headers=PROTOBUF).is_success
        assert {action(server.url, one) for one in ("here", "there", "ahead")} == {"abort"}


def test_spans_without_ids_are_rejected_and_the_others_are_judged() -> None:
    with serving() as server:
        made = request(call(0), {**call(1), "trace_id": b""}, {**call(2), "span_id": b"\0" * 8})
        answer = httpx.post(
            f"{server.url}/v1/traces", content=made.SerializeToString(), headers=PROTOBUF
        )
        partial = ExportTraceServiceResponse.FromString(answer.content).partial_success
        assert (answer.status_code, partial.rejected_spans) == (200, 2)
        assert "without a valid trace id" in partial.error_message
        assert httpx.get(f"{server.url}/v1/sessions/chat-1").json()["session"]["steps"] == 1


def test_spans_go_on_annotated_with_their_resource_and_scope(hop: tuple[Hop, str]) -> None:
    taken, url = hop
    with serving(forward=url) as server:
        for number in range(5):
            made = request(call(number)).SerializeToString()
            assert httpx.post(f"{server.url}/v1/traces", content=made, headers=PROTOBUF).is_success
    written = [attributes(span).get("loopguard.decision.action") for span in taken.spans()]
    assert written == [None, None, "hint", "deny", "abort"]
    assert [span.status.code for span in taken.spans()] == [0, 0, 0, 2, 2]
    (resource,) = taken.traces[0].resource_spans
    assert attributes(resource.resource) == {"service.name": "agents"}
    assert resource.scope_spans[0].scope.name == "test.agent"
    events = [attributes(record)["loopguard.decision.action"] for record in taken.records()]
    assert events == ["hint", "deny", "abort"]
    assert taken.records()[0].trace_id == taken.spans()[2].trace_id


def test_untouched_spans_go_on_as_they_are(hop: tuple[Hop, str]) -> None:
    taken, url = hop
    sent = [request(call(number)) for number in range(4)]
    with serving(forward=url, mode="untouched") as server:
        for made in sent:
            body = made.SerializeToString()
            assert httpx.post(f"{server.url}/v1/traces", content=body, headers=PROTOBUF).is_success
    assert taken.traces == sent
    events = [attributes(record)["loopguard.decision.action"] for record in taken.records()]
    assert events == ["hint", "deny"]


def test_what_the_next_hop_did_not_take_is_not_acknowledged_and_not_lost(
    hop: tuple[Hop, str],
) -> None:
    taken, url = hop
    with serving(forward=url) as server:
        for number in range(5):
            made = request(call(number)).SerializeToString()
            taken.answers = [503]
            first = httpx.post(f"{server.url}/v1/traces", content=made, headers=PROTOBUF)
            assert (first.status_code, first.headers["retry-after"]) == (503, "1")
            again = httpx.post(f"{server.url}/v1/traces", content=made, headers=PROTOBUF)
            assert again.status_code == 200
        (row,) = httpx.get(f"{server.url}/v1/sessions").json()["sessions"]
        assert (row["steps"], row["action"]) == (5, "abort")
    written = [attributes(span).get("loopguard.decision.action") for span in taken.spans()]
    assert written == [None, None, "hint", "deny", "abort"]
    assert len(taken.records()) == 3


def test_a_stall_is_told_without_another_request(hop: tuple[Hop, str]) -> None:
    taken, url = hop
    asked = '[{"role":"assistant","parts":[{"type":"tool_call","name":"deploy","arguments":{}}]}]'
    model = call(0, name="chat m", attributes={
        "gen_ai.operation.name": "chat", "gen_ai.request.model": "m",
        "gen_ai.conversation.id": "chat-1", "gen_ai.output.messages": asked,
    })  # fmt: skip
    guard = Settings(step_timeout_s=1)
    with serving(guard=guard, forward=url) as server:
        made = request(model).SerializeToString()
        assert httpx.post(f"{server.url}/v1/traces", content=made, headers=PROTOBUF).is_success
        until = time.monotonic() + 60
        while not taken.records() and time.monotonic() < until:
            time.sleep(0.05)
    assert attributes(taken.records()[0])["loopguard.detector.name"] == "stall"


def test_a_next_hop_that_refuses_for_good_says_so_to_the_sender(hop: tuple[Hop, str]) -> None:
    taken, url = hop
    with serving(forward=url) as server:
        taken.answers = [400]
        made = request(call(0)).SerializeToString()
        answer = httpx.post(f"{server.url}/v1/traces", content=made, headers=PROTOBUF)
        assert answer.status_code == 400
        assert b"the next hop answered 400" in answer.content


def test_logs_and_metrics_go_on_as_they_are(hop: tuple[Hop, str]) -> None:
    _, url = hop
    with serving(forward=url) as server:
        for path in ("/v1/logs", "/v1/metrics"):
            assert httpx.post(server.url + path, content=b"", headers=PROTOBUF).is_success


def test_a_tenant_sees_its_own_sessions_only() -> None:
    other = TOKEN.upper()
    tenants = Tenants({TOKEN: "one", other: "two"})
    with serving(tenants) as server:
        for number in range(5):
            made = request(call(number)).SerializeToString()
            headers = {**PROTOBUF, "authorization": f"Bearer {TOKEN}"}
            assert httpx.post(f"{server.url}/v1/traces", content=made, headers=headers).is_success
        for token, known, found in ((TOKEN, 1, "abort"), (other, 0, "allow")):
            headers = {"authorization": f"Bearer {token}"}
            rows = httpx.get(f"{server.url}/v1/sessions", headers=headers).json()["sessions"]
            assert len(rows) == known
            control = httpx.get(f"{server.url}/v1/sessions/chat-1/control", headers=headers)
            assert control.json()["action"] == found
            resumed = httpx.post(
                f"{server.url}/v1/sessions/chat-1/resume", json={}, headers=headers
            )
            assert resumed.status_code == (200 if known else 404)
