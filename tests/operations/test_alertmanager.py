"""Alertmanager: what is told to whom, and what is left unsaid."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.operations.programs import CONFIG, need, run
from tests.operations.servers import Alertmanager
from tests.stores.servers import wait_for

FILE = CONFIG / "alertmanager/alertmanager.yaml"


@pytest.fixture
def alertmanager(tmp_path: Path) -> Iterator[Alertmanager]:
    """One of its own for each case: a silent pipeline would hold back alerts of the Collector."""
    server = Alertmanager(tmp_path)
    yield server.start()
    server.stop()


def test_alertmanager_takes_the_configuration() -> None:
    """amtool finds nothing wrong with it."""
    said = run(need("amtool"), "check-config", FILE)
    assert "SUCCESS" in said
    assert "1 receivers" in said


CASES = """
PipelineSilent, MetricsMissing, AgentAborted job=one
StoreUnavailable job=shop, StoreBacklog job=shop, StoreBacklog job=other
StoreUnavailable job=a, ServerNotReady job=a check=store, ServerNotReady job=a check=queue
CollectorLosingData on=jaeger, CollectorQueueNearlyFull on=jaeger, CollectorQueueNearlyFull on=file
EscalationWaiting job=shop, SessionsPaused job=shop, SessionsPaused job=other
"""


@pytest.mark.parametrize("case", CASES.strip().splitlines())
def test_a_consequence_is_not_told_beside_its_cause(alertmanager: Alertmanager, case: str) -> None:
    """What follows from something that is told already is held back; what does not is told."""
    alerts: list[dict[str, str]] = []
    case = case.replace("on=", "job=c exporter=").replace("check=", "loopguard_server_check=")
    for said in case.split(", "):
        name, *labels = said.split()
        alerts.append(dict(one.split("=") for one in (f"alertname=LoopGuard{name}", *labels)))
    alertmanager.post("/api/v2/alerts", [{"labels": labels} for labels in alerts])
    found: list[dict[str, object]] = []

    def there() -> bool:
        found[:] = alertmanager.get("/api/v2/alerts")
        return len(found) == 3 and any(alert["status"]["inhibitedBy"] for alert in found)

    wait_for(there)
    held = [alert["labels"] for alert in found if alert["status"]["inhibitedBy"]]
    assert held == [alerts[1]]
