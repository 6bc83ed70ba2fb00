"""What rules and dashboards ask the Collector for, the Collector that is built here says."""

from __future__ import annotations

import json
import re
import urllib.request
from pathlib import Path

import yaml
from stack.builds import COLLECTOR
from stack.ports import Ports
from stack.stack import Stack

from tests.e2e.running import need
from tests.operations import boards
from tests.operations.programs import RULES
from tests.stores.servers import wait_for

LATER = re.compile(r"otelcol_exporter_(sent|send_failed|enqueue_failed)_")
"""Counters that are not there before something was sent or lost."""


def asked() -> set[str]:
    """Metrics of the Collector in rules and dashboards, without what may be at their end."""
    exprs = [
        target["expr"] for name in boards.NAMES for _, target in boards.queries(boards.board(name))
    ]
    for path in RULES:
        groups = yaml.safe_load(path.read_text(encoding="utf-8"))["groups"]
        exprs += [rule["expr"] for group in groups for rule in group["rules"]]
    return {name for expr in exprs for name in re.findall(r"\botelcol_[a-z_]+", expr)}


def test_the_collector_says_what_is_asked_for(tmp_path: Path) -> None:
    """Its own metrics have the names and labels, with the spelling that they have in this build."""
    need(COLLECTOR)
    names = asked()
    assert len(names) > 10
    with Stack(tmp_path, Ports.free()) as stack:
        stack.gateway()
        for what in ("traces", "metrics", "logs"):
            _send(f"http://127.0.0.1:{stack.ports.gateway_http}/v1/{what}", _payload(what))
        url = f"http://127.0.0.1:{stack.ports.gateway_self}/metrics"
        wanted = {name for name in names if not LATER.match(name)}
        wait_for(lambda: wanted <= _names(url))
        text = _read(url)
    for line in text.splitlines():
        if line.startswith("otelcol_exporter_queue_"):
            assert 'exporter="' in line
        if line.startswith("otelcol_receiver_accepted_"):
            assert 'receiver="otlp"' in line


def _names(url: str) -> set[str]:
    found = re.findall(r"^(otelcol_\w+)", _read(url), re.MULTILINE)
    return {name.removesuffix("_total") for name in found}


def _read(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return str(answer.read().decode())


def _send(url: str, payload: object) -> None:
    body = json.dumps(payload).encode()
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=10) as answer:
        assert answer.status == 200


def _payload(what: str) -> object:
    """One span, one metric point or one log record, as OTLP writes them in JSON."""
    if what == "traces":
        ids = {"traceId": "1" * 32, "spanId": "1" * 16}
        times = {"startTimeUnixNano": "1", "endTimeUnixNano": "2"}
        spans = [{"name": "invoke_agent a", "kind": 1, **ids, **times}]
        return {"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}
    if what == "metrics":
        points = [{"asInt": "1", "timeUnixNano": "1"}]
        metrics = [{"name": "loopguard.session.known", "gauge": {"dataPoints": points}}]
        return {"resourceMetrics": [{"scopeMetrics": [{"metrics": metrics}]}]}
    records = [{"timeUnixNano": "1", "eventName": "loopguard.decision", "severityNumber": 9}]
    return {"resourceLogs": [{"scopeLogs": [{"logRecords": records}]}]}
