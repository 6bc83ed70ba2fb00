"""Requests of OTLP: over HTTP and gRPC, protobuf and JSON, plain and gzip."""

import gzip
import json
import zlib
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.json_format import MessageToDict
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from otel_loopguard import Settings
from otel_loopguard.server import Tenants, tenant_guard
from otel_loopguard.server.forward import SIGNALS
from tests.server.serving import (
    BEGIN,
    CLIENT,
    PROTOBUF,
    SECOND,
    Hop,
    asking,
    attributes,
    bearer,
    call,
    connected,
    control,
    exporter,
    post,
    request,
    send,
    serving,
    sessions,
)
from tests.stores.servers import wait_for

TOKEN = "a token of sixteen signs or more"
BEGUN = (
    "POST /v1/traces HTTP/1.1\nhost: 127.0.0.1\ncontent-length: 9\n"
    "content-type: application/x-protobuf\n"
)


def as_json(made: ExportTraceServiceRequest) -> bytes:
    """OTLP's own JSON: ids in hex."""
    document = MessageToDict(made)
    for resource, original in zip(document["resourceSpans"], made.resource_spans, strict=True):
        spans = zip(resource["scopeSpans"][0]["spans"], original.scope_spans[0].spans, strict=True)
        for span, known in spans:
            span["traceId"], span["spanId"] = known.trace_id.hex(), known.span_id.hex()
    return json.dumps(document).encode()


@pytest.mark.parametrize("packed", ["", "gzip", "deflate"])
@pytest.mark.parametrize("form", ["protobuf", "json"])
def test_a_loop_is_stopped_whatever_the_encoding(form: str, packed: str) -> None:
    with serving() as server:
        for number in range(5):
            made = request(call(number))
            body = made.SerializeToString() if form == "protobuf" else as_json(made)
            # A media type has no case.
            headers = {"content-type": "Application/JSON"} if form == "json" else dict(PROTOBUF)
            if packed:
                pack = {"gzip": gzip.compress, "deflate": zlib.compress}[packed]
                body, headers["content-encoding"] = pack(body), packed
            answer = post(server, body=body, **headers)
            assert answer.status_code == 200
            assert answer.headers["content-type"] == headers["content-type"].lower()
            assert answer.content == (b"{}" if form == "json" else b"")
        assert control(server)["action"] == "abort"


def test_json_of_cut_text_is_read() -> None:
    """JavaScript writes half a sign where it cuts text; one such span cost its whole request."""
    with serving() as server:
        for number in range(5):
            body = as_json(request(call(number))).replace(b"nothing was", b"\\ud83d nothing was")
            post(server, body=body, **{"content-type": "application/json"}).raise_for_status()
        assert control(server)["action"] == "abort"
        asked = b'{"tool": "search", "arguments": {"q": "\\ud83d"}}'
        url = f"{server.url}/v1/sessions/chat-1/control"
        answer = CLIENT.post(url, content=asked, headers={"content-type": "application/json"})
        assert answer.is_success


def test_grpc_takes_the_same_requests() -> None:
    with serving(grpc="127.0.0.1:0") as server, exporter(server) as export:
        for number in range(5):
            answer = export(request(call(number)).SerializeToString(), timeout=60)
            assert not ExportTraceServiceResponse.FromString(answer).partial_success.rejected_spans
        assert control(server)["action"] == "abort"


@pytest.mark.parametrize("ends", [True, False], ids=["", "without an end"])
def test_a_batch_out_of_order_and_sent_twice_counts_once(ends: bool) -> None:
    """Nothing else will come of spans without an end; they were taken for calls that hang."""
    more: dict[str, Any] = {} if ends else {"end_time_unix_nano": 0}
    with serving() as server:
        for _ in range(2):
            assert post(server, *(call(number, **more) for number in (3, 2, 1, 0))).is_success
        (row,) = sessions(server)
        assert (row["session"], row["steps"], row["action"]) == ("chat-1", 4, "deny")


def test_a_request_that_comes_alone_waits_for_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its sender may send nothing more before it is answered, as one that exports each span."""
    monkeypatch.setattr(tenant_guard, "_LATENESS_S", 3600)
    with serving(Tenants({TOKEN: "one", TOKEN.upper(): "two"}), grpc="127.0.0.1:0") as server:
        own = server.engines["one"]
        other = f"{BEGUN}authorization: Bearer {TOKEN.upper()}\n\n"
        with connected(server, other):  # of another tenant
            wait_for(lambda: server.engines["two"].requests)
            for number in range(3):
                assert send(server, number, **bearer(TOKEN)).is_success
        with exporter(server) as export:
            known = tuple(bearer(TOKEN).items())
            export(request(call(3)).SerializeToString(), metadata=known, timeout=60)
        assert own.requests == 0
        assert own.guard.flag_of("chat-1") is not None


def test_requests_that_come_at_once_are_put_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also the next ones of their senders, of which the first finds itself alone."""
    monkeypatch.setattr(tenant_guard, "_LATENESS_S", 2)
    monkeypatch.setattr(tenant_guard, "_PACKED_S", 60)
    seen: list[int | None] = []
    with serving() as server, ThreadPoolExecutor() as senders:
        engine = server.engines["default"]
        engine.guard.subscribe("test", on_step=lambda one: seen.append(one.step.start))

        def send_both(number: int) -> None:
            later = senders.submit(send, server, number + 1)
            wait_for(lambda: engine.waiting)
            assert send(server, number).is_success
            assert later.result().is_success

        with connected(server, f"{BEGUN}\n"):
            wait_for(lambda: engine.requests)
            send_both(0)
        wait_for(lambda: not engine.requests)
        send_both(2)
    assert seen == [BEGIN + number * SECOND for number in range(4)]


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
            assert post(server, *spans).is_success
        assert {control(server, one)["action"] for one in ("here", "there", "ahead")} == {"abort"}


def test_spans_without_ids_are_rejected_and_the_others_are_judged() -> None:
    with serving() as server:
        nameless = {**call(1), "trace_id": b""}, {**call(2), "span_id": b"\0" * 8}
        answer = post(server, call(0), *nameless)
        partial = ExportTraceServiceResponse.FromString(answer.content).partial_success
        assert (answer.status_code, partial.rejected_spans) == (200, 2)
        assert "without a valid trace id" in partial.error_message
        assert CLIENT.get(f"{server.url}/v1/sessions/chat-1").json()["session"]["steps"] == 1


def test_spans_go_on_annotated_with_their_resource_and_scope(hop: Hop) -> None:
    with serving(forward=hop.url) as server:
        for number in range(5):
            assert send(server, number).is_success
    assert hop.decided() == [None, None, "hint", "deny", "abort"]
    assert [span.status.code for span in hop.spans()] == [0, 0, 0, 2, 2]
    (resource,) = hop.traces[0].resource_spans
    assert attributes(resource.resource) == {"service.name": "agents"}
    assert resource.scope_spans[0].scope.name == "test.agent"
    assert hop.told() == ["hint", "deny", "abort"]
    assert hop.records()[0].trace_id == hop.spans()[2].trace_id


def test_untouched_spans_go_on_as_they_are(hop: Hop) -> None:
    sent = [request(call(number)) for number in range(4)]
    with serving(forward=hop.url, mode="untouched") as server:
        for made in sent:
            assert post(server, body=made.SerializeToString()).is_success
    assert hop.traces == sent
    assert hop.told() == ["hint", "deny"]


def test_what_the_next_hop_did_not_take_is_not_acknowledged_and_not_lost(hop: Hop) -> None:
    with serving(forward=hop.url) as server:
        for number in range(5):
            hop.answers = [503]
            first = send(server, number)
            assert (first.status_code, first.headers["retry-after"]) == (503, "1")
            assert send(server, number).status_code == 200
        (row,) = sessions(server)
        assert (row["steps"], row["action"]) == (5, "abort")
        hop.answers = [400]  # for good, and the sender hears it
        answer = send(server, 9)
        assert (answer.status_code, b"the next hop answered 400" in answer.content) == (400, True)
        for path in ("logs", "metrics"):  # as they are
            assert post(server, body=b"", path=path).is_success
    assert hop.decided() == [None, None, "hint", "deny", "abort"]
    assert hop.told() == ["hint", "deny", "abort"]


@pytest.mark.parametrize(("later", "status"), [(True, 503), (False, 400)])
def test_only_what_a_full_next_hop_takes_later_is_sent_again(*, later: bool, status: int) -> None:
    """With the same code gRPC itself refuses what is too large, and would do so for ever."""

    def full(_: bytes, context: grpc.ServicerContext) -> bytes:
        if later:
            details = AnyMessage()
            details.Pack(RetryInfo())
            told = Status(code=8, details=[details]).SerializeToString()
            context.set_trailing_metadata((("grpc-status-details-bin", told),))
        context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "full")

    handler: Any = grpc.unary_unary_rpc_method_handler(full)
    service, method = SIGNALS["traces"].method.strip("/").split("/")
    with ThreadPoolExecutor() as workers:
        hop = grpc.server(workers)
        hop.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(service, {method: handler}),)
        )
        port = hop.add_insecure_port("127.0.0.1:0")
        hop.start()
        try:
            with serving(forward=f"grpc://127.0.0.1:{port}") as server:
                assert send(server, 0).status_code == status
        finally:
            hop.stop(None).wait()


def test_a_stall_is_told_without_another_request(hop: Hop) -> None:
    """Of a call that was asked for and never ends: who asks hears of it, and the next hop."""
    with serving(guard=Settings(step_timeout_s=1), forward=hop.url) as server:
        assert post(server, asking("deploy")).is_success
        row = control(server, wait="20")
        assert (row["action"], row["decision"]["detector"]) == ("hint", "stall")
        assert row["decision"]["tool"] == "deploy"
        wait_for(hop.told)


def test_what_people_do_goes_on_as_log_events(hop: Hop) -> None:
    """As from a guard in the process: an auditor need not read the log of each server."""
    with serving(forward=hop.url, guard=Settings(max_action="pause")) as server:
        assert send(server, *range(4)).is_success
        asked = f"{server.url}/v1/sessions/chat-1"
        for what, told in {
            "answer": {"answer": "continue", "guidance": "look elsewhere", "by": "anna"},
            "pause": {"reason": "let me look", "by": "ben"},
            "resume": {"guidance": "use the cache", "by": "ben"},
            "allow": {"scope": "session", "by": "dave"},
        }.items():
            assert CLIENT.post(f"{asked}/{what}", json=told).is_success
        wait_for(lambda: len(hop.events("loopguard.control")) >= 4)
    names = ("session.id", "control.by", "escalation.answer")
    opened, closed = (
        tuple(attributes(each).get(f"loopguard.{name}") for name in names)
        for each in hop.events("loopguard.escalation")
    )
    assert opened == ("chat-1", None, None)
    assert closed == ("chat-1", "anna", "continue")
    done = [attributes(each) for each in hop.events("loopguard.control")]
    assert [each["loopguard.control.by"] for each in done] == ["anna", "ben", "ben", "dave"]
    actions = ["hint", "pause", "hint", "allow"]
    assert [each["loopguard.decision.action"] for each in done] == actions
    said = [each["loopguard.decision.message"] for each in done]
    assert said[1:3] == ["let me look", "resumed: use the cache"]


def test_a_tenant_sees_its_own_sessions_only(caplog: pytest.LogCaptureFixture) -> None:
    """And lines of the log name it."""
    caplog.set_level("INFO", "otel_loopguard")
    other = TOKEN.upper()
    tenants = Tenants({TOKEN: "100 % one", other: "two"})
    with serving(tenants) as server:
        for number in range(5):
            assert send(server, number, **bearer(TOKEN)).is_success
        for token, known, found in ((TOKEN, 1, "abort"), (other, 0, "allow")):
            headers = bearer(token)
            assert len(sessions(server, **headers)) == known
            url = f"{server.url}/v1/sessions/chat-1"
            assert CLIENT.get(f"{url}/control", headers=headers).json()["action"] == found
            resumed = CLIENT.post(f"{url}/resume", json={}, headers=headers)
            assert resumed.status_code == (200 if known else 404)
    assert [line for line in caplog.messages if "100 % one" in line and "chat-1" in line]
