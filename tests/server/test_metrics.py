"""What a server counts of itself, where Prometheus and exporters find it, and who may read it."""

from pathlib import Path

import grpc
import pytest
from prometheus_client.parser import text_string_to_metric_families

from otel_loopguard import LoopGuardSettingsError, Settings
from otel_loopguard.server import Server, Tenants
from otel_loopguard.server.metrics import METRICS, ServerTelemetry
from tests.operations.boards import in_prometheus
from tests.server.process import Serve, total
from tests.server.serving import (
    CLIENT,
    Hop,
    attributes,
    bearer,
    call,
    exporter,
    post,
    send,
    serving,
)
from tests.stores.servers import wait_for

ONE, TWO, SCRAPES = ("one token of all there are", "another one of the same", "what Prometheus has")


SERIES = Path(__file__).with_suffix(".txt").read_text(encoding="utf-8").splitlines()[1:]


def scraped(server: Server) -> str:
    """The metrics of a server."""
    return CLIENT.get(f"{server.url}/metrics").text


def test_requests_refusals_and_what_the_next_hop_took(hop: Hop) -> None:
    with serving(forward=hop.url, telemetry=ServerTelemetry(), grpc="127.0.0.1:0") as server:
        url = f"{server.url}/v1/traces"
        before = scraped(server)
        assert total(before, "loopguard_server_refusals_total") == 0  # so that one is an increase
        assert send(server, 0).is_success
        assert post(server, body=b"[").status_code == 400
        assert CLIENT.get(f"{server.url}/v1/sessions/chat/1/control").is_success
        nowhere = CLIENT.get(f"{server.url}/nowhere")
        assert (nowhere.status_code, nowhere.json()["status"]) == (404, 404)
        assert nowhere.headers["content-type"] == "application/problem+json"
        assert CLIENT.get(url, headers={"host": "elsewhere"}).status_code == 421
        with exporter(server, "logs") as export:
            export(b"", timeout=60)
            with pytest.raises(grpc.RpcError):
                export(b"[", timeout=60)
        wait_for(lambda: "INVALID_ARGUMENT" in scraped(server))  # counted once it is answered
        text = scraped(server)
    assert "nowhere" not in text  # no series for whatever a stranger asks for
    for line in SERIES:
        name, count, *labels = line.split()
        assert total(text, name, **dict(one.split("=") for one in labels)) == float(count), line


def test_all_metrics_and_labels_are_those_of_the_table(hop: Hop) -> None:
    with serving(forward=hop.url, telemetry=ServerTelemetry()) as server:
        send(server, 0)
        CLIENT.get(f"{server.url}/readyz")
        wait_for(lambda: "loopguard_server_forward" in scraped(server))
        families = list(text_string_to_metric_families(scraped(server)))
    found = {family.name: family for family in families if "_server_" in family.name}
    known = {in_prometheus(metric).removesuffix("_total"): metric for metric in METRICS}
    assert set(known) - set(found) == {"loopguard_server_leases"}  # there is no store
    assert set(found) <= set(known)
    for name, family in found.items():
        labels = {label for sample in family.samples for label in sample.labels} - {"le"}
        assert labels <= {one.replace(".", "_") for one in known[name].attributes}
        assert family.documentation == known[name].about


def test_spans_that_come_late_are_seen(hop: Hop) -> None:
    """A span from long ago; the other one is of a host whose clock is a day ahead."""
    with serving(telemetry=ServerTelemetry()) as server:
        late = call(0, start_time_unix_nano=1, end_time_unix_nano=2)
        assert post(server, late, call(1)).is_success
        text = scraped(server)
    delays = "loopguard_server_judging_delay_seconds_bucket"
    assert total(text, delays, le="0.1") == 1
    assert total(text, delays, le="3600.0") == 1
    assert total(text, delays, le="+Inf") == 2


def test_sessions_that_had_to_make_room_are_counted() -> None:
    with serving(guard=Settings(max_sessions=2), telemetry=ServerTelemetry()) as server:
        assert total(scraped(server), "loopguard_session_evictions_total") == 0
        assert post(server, *(call(one, f"chat-{one}") for one in range(5))).is_success
        # One that went may come back with its next span, and go again.
        assert total(scraped(server), "loopguard_session_evictions_total") >= 3


TENANT = {ONE: "one"}
ASKING: list[tuple[dict[str, str], str, str, int]] = [
    *(({}, "", "", 200), (TENANT, "", ONE, 200), (TENANT, "", "", 401)),
    *((TENANT | {TWO: "two"}, "", ONE, 401), (TENANT, SCRAPES, SCRAPES, 200)),
    (TENANT, SCRAPES, ONE, 401),
]


@pytest.mark.parametrize(("tenants", "prometheus", "token", "status"), ASKING)
def test_metrics_are_for_who_may_see_all_tenants(
    tenants: dict[str, str], prometheus: str, token: str, status: int
) -> None:
    """The token of Prometheus opens nothing else."""
    known = Tenants(tenants, prometheus)
    with serving(known, telemetry=ServerTelemetry()) as server:
        found = CLIENT.get(f"{server.url}/metrics", headers=bearer(token)).status_code
    assert found == status
    assert not prometheus or known.tenant(f"Bearer {prometheus}") is None


def test_they_are_exported_where_the_variables_say(hop: Hop, tmp_path: Path) -> None:
    """With the service's own name, by a real process; what it counted last goes out at its end."""
    environ = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": hop.url, "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment.name=test",
        "OTEL_METRIC_EXPORT_INTERVAL": "600000",
    }  # fmt: skip
    with Serve(tmp_path / "log", **environ) as server:
        assert server.send() == 200
        server.process.terminate()
        assert server.process.wait(60) == 0
    (exported,) = hop.metrics[-1].resource_metrics
    about = attributes(exported.resource)
    assert about["service.name"] == "otel-loopguard"
    assert about["deployment.environment.name"] == "test"
    names = {metric.name for scope in exported.scope_metrics for metric in scope.metrics}
    assert {"loopguard.server.request.duration", "loopguard.steps"} <= names


def test_an_exporter_that_is_not_there_is_named_at_the_start(
    hop: Hop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the variables name none, nothing is exported, whatever the endpoint."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", hop.url)
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", "none")
    ServerTelemetry().close()
    assert not hop.metrics
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", "carrier_pigeon")
    with pytest.raises(LoopGuardSettingsError, match="OTEL_METRICS_EXPORTER = 'carrier_pigeon'"):
        ServerTelemetry()
