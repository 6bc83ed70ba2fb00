"""Rules, their tests, the runbook and what is told to whom hold together, by the real programs."""

import json
import re
import time
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.docs.markdown import anchors
from tests.operations.boards import unknown
from tests.operations.hour import START_S, STEP_S, Shop
from tests.operations.programs import CONFIG, OPERATIONS, RULE_TESTS, RULES, need, run
from tests.operations.servers import Alertmanager, Prometheus
from tests.server.process import total
from tests.server.serving import listening
from tests.stores.servers import need_redis, wait_for


def rules() -> Iterator[dict[str, Any]]:
    """Every rule: alerts, and what is recorded."""
    for path in RULES:
        for group in yaml.safe_load(path.read_text(encoding="utf-8"))["groups"]:
            yield from group["rules"]


def cases() -> Iterator[tuple[str, bool, bool]]:
    """Of every test: alert, whether it is expected to fire, whether it fired before in the test."""
    for path in RULE_TESTS:
        for test in yaml.safe_load(path.read_text(encoding="utf-8"))["tests"]:
            fired: set[str] = set()
            for case in test["alert_rule_test"]:
                name, fires = case["alertname"], bool(case.get("exp_alerts"))
                yield name, fires, name in fired
                if fires:
                    fired.add(name)


ALERTS = [rule for rule in rules() if "alert" in rule]
NAMES = [alert["alert"] for alert in ALERTS]


CHECKS: list[tuple[str, Path, str]] = [
    ("check config", CONFIG / "prometheus/prometheus.yaml", f": {len(RULES)} rule files found"),
    *(("check rules --lint-fatal", path, "") for path in RULES),
    *(("test rules", path, "") for path in RULE_TESTS),
]


@pytest.mark.parametrize(("words", "path", "more"), CHECKS, ids=lambda part: Path(part).stem)
def test_promtool_finds_nothing_wrong(words: str, path: Path, more: str) -> None:
    """With the configuration and its rules; and the unit tests of the rules pass."""
    assert f"SUCCESS{more}" in run(need("promtool"), *words.split(), path)


@pytest.mark.parametrize("name", NAMES)
def test_an_alert_has_tests(name: str) -> None:
    """A test in which it fires, one in which it does not, and one in which it resolves."""
    found = {(fires, before) for alert, fires, before in cases() if alert == name}
    assert (True, False) in found, "no test in which it fires"
    assert (False, False) in found, "no test in which it does not fire"
    assert (False, True) in found, "no test in which it resolves"


@pytest.mark.parametrize("alert", ALERTS, ids=NAMES)
def test_an_alert_leads_to_its_section(alert: dict[str, Any]) -> None:
    """Its runbook is the section of docs/operations.md with its name, which says what to do."""
    name, notes = alert["alert"], alert["annotations"]
    page = "{{ $externalLabels.loopguard_docs }}/operations/"  # where the site has it
    assert notes["runbook_url"] == f"{page}#{name.lower()}"
    assert name.lower() in anchors(OPERATIONS)
    text = OPERATIONS.read_text(encoding="utf-8")
    section = text.split(f"### {name}\n", 1)[1].split("\n### ")[0].split("\n## ")[0]
    assert [word for word in ("**Means**", "**Look at**", "**Do**") if word not in section] == []
    assert re.search(r"^```text$", section, re.MULTILINE), "no query to look at"
    by_service = re.search(r"\bby \(job\b|on \(job\)|\bjob:", alert["expr"])
    assert notes["summary"].startswith("{{ $labels.job }}: ") == bool(by_service)
    assert notes["description"]
    assert alert["labels"]["severity"] in ("warning", "critical")


@pytest.mark.parametrize(
    "rule", list(rules()), ids=lambda rule: rule.get("alert") or rule["record"]
)
def test_a_rule_asks_for_what_there_is(rule: dict[str, Any]) -> None:
    """Metrics and labels are sent by somebody, or recorded by a rule."""
    assert unknown(rule["expr"]) == set()
    recorded = {one["record"] for one in rules() if "record" in one}
    assert set(re.findall(r"\b\w+:\w+:\w+", rule["expr"])) <= recorded


MACHINE = {"LoopGuardOverheadHigh", "LoopGuardEstimateErrorHigh"}
"""Alerts about how long something takes, which in a test is the machine's."""


def test_a_good_hour_raises_no_alert(tmp_path: Path) -> None:
    """What a guard says of honest work, with a page that fails now and then, alarms nobody."""
    need("promtool")
    need_redis()
    end = time.time()
    server = Prometheus(tmp_path / "prometheus", Shop(tmp_path / "redis", end, well=True).play())
    server.start()
    fired: dict[str, Any] = {}
    for alert in ALERTS:
        expr, least = alert["expr"], float(alert.get("for", "0m").removesuffix("m")) * 60
        for rule in (one for one in rules() if "record" in one):
            expr = expr.replace(f"{rule['record']}[1d]", f"({rule['expr']})[1d:1m]")
            expr = expr.replace(rule["record"], f"({rule['expr']})")
        said = server.range(expr, end - START_S, end - STEP_S, STEP_S)
        for series in said["data"]["result"]:
            if len(series["values"]) * STEP_S > least and alert["alert"] not in MACHINE:
                fired[alert["alert"]] = series
    server.kill()
    assert fired == {}


def test_every_section_of_the_runbook_is_an_alert() -> None:
    """An alert that was taken away takes its section along; no name is there twice."""
    text = OPERATIONS.read_text(encoding="utf-8")
    assert sorted(re.findall(r"^### (LoopGuard\w+)$", text, re.MULTILINE)) == sorted(NAMES)


ALERTMANAGER = CONFIG / "alertmanager/alertmanager.yaml"


@pytest.fixture
def alertmanager(tmp_path: Path) -> Iterator[Alertmanager]:
    """One of its own for each case: a silent pipeline would hold back alerts of the Collector."""
    server = Alertmanager(tmp_path)
    server.start()
    yield server
    server.kill()


def test_alertmanager_takes_the_configuration() -> None:
    """amtool finds nothing wrong with it."""
    said = run(need("amtool"), "check-config", ALERTMANAGER)
    assert "SUCCESS" in said
    assert "1 receivers" in said


HELD = """
PipelineSilent, MetricsMissing, AgentAborted job=one
StoreUnavailable job=shop, StoreBacklog job=shop, StoreBacklog job=other
StoreUnavailable job=a, ServerNotReady job=a check=store, ServerNotReady job=a check=queue
CollectorLosingData on=jaeger, CollectorQueueNearlyFull on=jaeger, CollectorQueueNearlyFull on=file
EscalationWaiting job=shop, SessionsPaused job=shop, SessionsPaused job=other
"""


@pytest.mark.parametrize("case", HELD.strip().splitlines())
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


def test_a_store_that_is_gone_pages_once(tmp_path: Path) -> None:
    """A server is not ready in the same second, and Prometheus may say that first."""
    told: list[str] = []

    def take(to: BaseHTTPRequestHandler, body: bytes) -> None:
        told.extend(alert["labels"]["alertname"] for alert in json.loads(body)["alerts"])
        to.wfile.write(b"HTTP/1.0 200 OK\r\n\r\n")

    def posted(name: str, **labels: str) -> None:
        found = {"alertname": name, "severity": "critical", "job": "a", **labels}
        server.post("/api/v2/alerts", [{"labels": found}])

    with listening(take) as url:
        server = Alertmanager(tmp_path, url)
        server.start()
        try:
            posted("LoopGuardServerNotReady", loopguard_server_check="store")
            posted("LoopGuardServerNotReady", loopguard_server_check="queue")
            wait_for(lambda: told == ["LoopGuardServerNotReady"])
            posted("LoopGuardStoreUnavailable")
            wait_for(lambda: "LoopGuardStoreUnavailable" in told)
            text = partial(server.text, "/metrics")
            wait_for(lambda: total(text(), "alertmanager_alerts", state="suppressed") == 1)
        finally:
            server.kill()
    assert told == ["LoopGuardServerNotReady", "LoopGuardStoreUnavailable"]
