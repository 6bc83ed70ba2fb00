"""Dashboards: made by their generator, and every query of theirs answered; pictures of them.

No Grafana can be had here, so nothing shows that it draws them. What can be shown: the JSON is what
the foundation SDK writes for Grafana 11.6, and a real Prometheus that knows an hour of a real
guard's metrics answers every query with data.
"""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from prometheus_client import CollectorRegistry

from otel_loopguard import LoopGuard, LoopGuardSpanProcessor
from otel_loopguard.telemetry import METRICS
from tests.agents import agent, provider_with, tool_call
from tests.operations import boards, pictures
from tests.operations.boards import in_prometheus, unknown
from tests.operations.hour import STEP_S, Exposition, Shop
from tests.operations.programs import CONFIG, DASHBOARDS, OPERATIONS, need
from tests.operations.servers import Prometheus
from tests.stores.servers import need_redis

GRAFANA = CONFIG / "grafana"
QUERIES = {
    f"{name}: {panel['title']} {target['refId']}": (panel, target["expr"])
    for name in boards.NAMES
    for panel, target in boards.queries(boards.board(name))
}
RUNBOOK = [
    query
    for section in OPERATIONS.read_text(encoding="utf-8").split("\n### LoopGuard")[1:]
    for block in re.findall(r"^```text\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    for query in re.split(r"\n\s*\n", block.strip())
    if not query.startswith("/search?")
]
QUIET = re.compile(
    'loopguard_resource_utilization|loopguard_verdicts|loopguard_server_|shadow="true"'
)
"""What has nothing to show in an hour that enforces, unmeasured, without backend or server."""


class Hour(NamedTuple):
    """An hour of a shop's agents: what was scraped, a Prometheus that knows it, and its end."""

    scraped: str
    server: Prometheus
    end: float

    def answers(self, query: str, window_s: float = 3480) -> list[Any]:
        """What the server knows of a query, over the hour as a rule."""
        said = self.server.range(query, self.end - window_s, self.end, 60)
        assert said["status"] == "success", said
        return said["data"]["result"]


@pytest.fixture(scope="module")
def hour(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hour]:
    need("promtool")
    need_redis()
    folder, now = tmp_path_factory.mktemp("hour"), time.time()
    scraped = Shop(folder / "redis", now).play()
    server = Prometheus(folder / "prometheus", scraped)
    server.start()
    yield Hour(scraped, server, now - STEP_S)
    server.kill()


def test_dashboards_are_fresh(tmp_path: Path) -> None:
    """The committed files are what the generator writes; run it again after a change."""
    if sys.version_info < (3, 11):
        pytest.skip("grafana-foundation-sdk needs Python 3.11")
    done = subprocess.run(
        [sys.executable, "-W", "error", str(GRAFANA / "generate.py"), str(tmp_path)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    if "No module named 'grafana_foundation_sdk'" in done.stderr and not os.environ.get("CI"):
        pytest.skip("grafana-foundation-sdk is missing")
    assert done.returncode == 0, done.stderr
    assert {path.name for path in tmp_path.iterdir()} == {f"{name}.json" for name in boards.NAMES}
    for path in sorted(tmp_path.iterdir()):
        committed = (DASHBOARDS / path.name).read_text(encoding="utf-8")
        assert path.read_text(encoding="utf-8") == committed, f"run {GRAFANA / 'generate.py'}"


@pytest.mark.parametrize("name", boards.NAMES)
def test_a_dashboard_asks_only_sources_that_can_be_chosen(name: str) -> None:
    """Data sources are variables, and each stands at first for a provisioned one."""
    board = boards.board(name)
    variables, panels = board["templating"]["list"], [*boards.panels(board)]
    chosen = {
        variable["name"]: (variable["query"], variable["current"]["value"])
        for variable in variables
        if variable["type"] == "datasource"
    }
    said = yaml.safe_load((GRAFANA / "provisioning/datasources/loopguard.yaml").read_text())
    provisioned = {(source["type"], source["uid"]) for source in said["datasources"]}
    assert set(chosen.values()) <= provisioned
    asked = [panel.get("datasource") for panel in panels if panel["type"] != "row"]
    asked += [target["datasource"] for panel in panels for target in panel.get("targets") or ()]
    asked += [variable["datasource"] for variable in variables if variable["type"] == "query"]
    for source in asked:
        found = re.fullmatch(r"\$\{(\w+)\}", source["uid"])
        assert found, source
        assert chosen[found[1]][0] == source["type"]


FIRST = {
    "operators": {
        "Denied": 2, "Aborted": 0, "Stopped agents": 2, "Decisions by action": 4,
        "Decisions by detector": 4, "Wait for people": 1,
    },
    "health": {"Faults swallowed": 2, "Faults": 2, "Lost": 0},
}  # fmt: skip
"""What panels show of a hint, a deny and a fault of each of two processes, one of which waits."""


def two_processes(now: float) -> str:
    """What a process said for ten minutes, and one that ended seven minutes ago: once."""
    registry, long, short = CollectorRegistry(), Exposition(), Exposition("retail/shop", "short")
    reader = PrometheusMetricReader(True, scope_info_enabled=False, registry=registry)
    meters = MeterProvider([reader], shutdown_on_exit=False)
    guard = LoopGuard(meter_provider=meters)
    tracer = provider_with(LoopGuardSpanProcessor(guard)).get_tracer("shop")
    for turn in range(20):
        with agent(tracer):
            for _ in range({6: 4}.get(turn, turn == 0)):
                tool_call(tracer)
        if turn == 6:
            guard.faults.note("judge", KeyError())
        for sample in (one for family in registry.collect() for one in family.samples):
            long.add(sample.name, sample.labels, sample.value, now - 600 + 30 * turn)
            if turn == 6:
                short.add(sample.name, sample.labels, sample.value, now - 420)
    meters.shutdown()
    for name in ("escalation_waiting", "session_paused"):  # who waits is paused as well
        short.add(f"loopguard_{name}", {}, 1, now - 1)
    return short.text.removesuffix("# EOF\n") + long.text


@pytest.mark.parametrize("name", FIRST)
def test_what_happens_once_counts(tmp_path: Path, name: str) -> None:
    """The first deny that there ever was is seen, and what was said only once."""
    need("promtool")
    now, shown = time.time(), dict.fromkeys(FIRST[name], 0.0)
    server = Prometheus(tmp_path, two_processes(now))
    server.start()
    for panel, target in boards.queries(boards.board(name)):
        if panel["title"] in shown:
            expr = boards.filled(target["expr"].replace("$__rate_interval", "$__range"))
            found = server.query(expr, now)["data"]["result"]
            shown[panel["title"]] += sum(float(each["value"][1]) for each in found)
            # The name that Jaeger knows, for links.
            assert {each["metric"].get("job", "shop") for each in found} <= {"shop"}
    server.kill()
    assert {title: round(value) for title, value in shown.items()} == FIRST[name]


def test_dashboards_lead_to_each_other_and_to_traces() -> None:
    """Links take time and variables along; Jaeger is searched; exemplars open their trace."""
    uids = {name: boards.board(name)["uid"] for name in boards.NAMES}
    for name in boards.NAMES:
        (link,) = boards.board(name)["links"]
        assert link["url"].removeprefix("/d/") in set(uids.values()) - {uids[name]}
        assert (link["keepTime"], link["includeVars"]) == (True, True)
    text = (DASHBOARDS / "operators.json").read_text(encoding="utf-8")
    assert text.count("/explore?schemaVersion=1") == 2
    health = boards.board("health")
    assert sum(bool(target.get("exemplar")) for _, target in boards.queries(health)) == 1
    said = yaml.safe_load((GRAFANA / "provisioning/datasources/loopguard.yaml").read_text())
    sources = {source["uid"]: source for source in said["datasources"]}
    (leads,) = sources["loopguard-prom"]["jsonData"]["exemplarTraceIdDestinations"]
    assert leads["datasourceUid"] in sources


@pytest.mark.parametrize("said", QUERIES)
def test_a_query_asks_for_what_there_is(said: str) -> None:
    """Metrics and labels are those that are sent; no rate has a window of its own."""
    _, expr = QUERIES[said]
    assert unknown(expr) == set()
    buckets = re.findall(r"sum by \(([^)]*)\) \(rate\(\w+_bucket", expr)
    assert len(buckets) == expr.count("_bucket")
    assert all("le" in group.split(", ") for group in buckets)
    assert set(re.findall(r"\[([^\]]+)\]", expr)) <= {"$__rate_interval", "$__range"}


@pytest.mark.parametrize("said", [said for said in QUERIES if not QUIET.search(QUERIES[said][1])])
def test_a_query_is_answered_with_data(hour: Hour, said: str) -> None:
    """A real Prometheus that knows the hour has an answer; a table has a head for each label."""
    panel, expr = QUERIES[said]
    found = hour.answers(boards.filled(expr), 3480 if panel["type"] == "timeseries" else 0)
    assert found
    if panel["type"] == "table":
        heads = {*panel["transformations"][0]["options"]["renameByName"]} - {"Value"}
        assert {label for line in found for label in line["metric"]} <= heads


@pytest.mark.parametrize("name", boards.NAMES)
def test_variables_have_values(hour: Hour, name: str) -> None:
    """What can be chosen from is there: services and agents."""
    for variable in boards.board(name)["templating"]["list"]:
        if variable["type"] == "query":
            found = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["query"])
            assert found, variable["query"]
            lines = hour.answers(f"count by ({found[2]}) ({boards.filled(found[1])})")
            assert [line["metric"][found[2]] for line in lines]


@pytest.mark.parametrize("query", RUNBOOK)
def test_a_query_of_the_runbook_is_answered(hour: Hour, query: str) -> None:
    """What docs/operations.md says to look at can be looked at."""
    assert unknown(query) == set()
    assert QUIET.search(query) or hour.answers(query), query


def test_what_a_guard_sends_is_what_rules_and_dashboards_ask_for(hour: Hour) -> None:
    """Of a real guard's metrics no name and no label is unknown, and most of them are there."""
    series = {line.rpartition("}")[0] + "}" for line in hour.scraped.splitlines() if "{" in line}
    shapes = {re.sub(r'"[^"]*"', '""', each) for each in series if "loopguard_" in each}
    assert {found for shape in shapes for found in unknown(shape)} == set()
    names = {shape.partition("{")[0] for shape in shapes}
    silent = [one for one in METRICS if not any(n.startswith(in_prometheus(one)) for n in names)]
    assert [one.name for one in silent if not QUIET.match(in_prometheus(one))] == []


def test_the_story_of_the_hour_is_seen(hour: Hour) -> None:
    """Aborts, a stall, an open breaker, a store that hung, who waits: all of it is in metrics."""
    gauges = "session_stalled breaker_open escalation_waiting session_paused saved_tokens_total"
    for expr in (
        'increase(loopguard_decisions_total{loopguard_decision_action="abort"}[5m])',
        'loopguard_store_status{loopguard_store_state!="available"}',
        "increase(loopguard_tool_recoveries_total[1h])",
        *(f"loopguard_{name}" for name in gauges.split()),
    ):
        assert hour.answers(f"sum({expr}) > 0"), expr


def test_the_hour_can_be_drawn(hour: Hour) -> None:
    """`make pictures` does it; a panel that was added or renamed is in the committed picture."""
    for name, drawn in pictures.shown(hour.server, hour.end).items():
        committed = (pictures.FOLDER / f"{name}.svg").read_text(encoding="utf-8")
        titles = [re.findall(r'class="title[^>]*>([^<]+)<', text) for text in (drawn, committed)]
        assert titles[0] == titles[1], f"{name}: run `make pictures`"
        assert "Decisions by action" in map(unescape, titles[0]) or name != "operators"
