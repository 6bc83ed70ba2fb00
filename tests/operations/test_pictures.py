"""Pictures: of real things, fresh where that can be told, small, and shown with words."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Iterator
from html import unescape
from pathlib import Path

import pytest

from otel_loopguard.telemetry.metrics import METRICS
from tests.operations import boards, pictures
from tests.operations.expressions import unknown
from tests.operations.hour import STEP_S, Shop
from tests.operations.programs import OPERATIONS, ROOT, need
from tests.operations.servers import Prometheus
from tests.stores.servers import need_redis

DRAWN = sorted(pictures.FOLDER.glob("*.svg"))
TAKEN = sorted(pictures.FOLDER.glob("*.png"))
QUIET = {"Faults", "The machine"}
"""Panels that have nothing to show in a good hour where the machine is not measured."""


@pytest.fixture(scope="module")
def hour(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Prometheus, float]]:
    """What was scraped in an hour of the shop, a Prometheus that knows it, and when it ended."""
    need("promtool")
    need_redis()
    folder, now = tmp_path_factory.mktemp("hour"), time.time()
    scraped = Shop(folder / "redis", now).play()
    server = Prometheus(folder / "prometheus", scraped).start()
    yield scraped, server, now - STEP_S
    server.stop()


def test_jaeger_had_the_whole_decision() -> None:
    """The trace in the picture: three red spans, warnings on four, and every step of the ladder."""
    (trace,) = json.loads(pictures.DECISION.read_text(encoding="utf-8"))["data"]
    tags = [{tag["key"]: tag["value"] for tag in span["tags"]} for span in trace["spans"]]
    assert sum(found.get("error") is True for found in tags) == 3
    assert sum(bool(span["warnings"]) for span in trace["spans"]) == 4
    actions = Counter(found.get("loopguard.decision.action") for found in tags)
    assert actions == {None: 7, "hint": 1, "deny": 1, "abort": 2}


@pytest.mark.parametrize("path", DRAWN, ids=lambda path: path.stem)
def test_a_drawing_says_what_it_is(path: Path) -> None:
    """Nobody takes it for Grafana."""
    text = path.read_text(encoding="utf-8")
    assert "Drawn by tests/operations/pictures.py" in text
    assert re.search(r"<title>.{20,}</title>", text)


@pytest.mark.parametrize("path", [*DRAWN, *TAKEN], ids=lambda path: path.stem)
def test_a_picture_is_small_and_shown(path: Path) -> None:
    """A page has it, with words for those who cannot see it."""
    assert path.stat().st_size < 300_000
    pages = [ROOT / "README.md", ROOT / "docs/opentelemetry.md", OPERATIONS]
    text = "".join(page.read_text(encoding="utf-8") for page in pages)
    found = re.findall(rf"!\[([^\]]+)\]\((?:docs/)?pictures/{path.name}\)", text)
    assert found
    assert all(len(words) > 40 for words in found)


@pytest.mark.parametrize("name", boards.NAMES)
def test_the_picture_of_a_dashboard_has_all_its_panels(name: str) -> None:
    """A panel that was added or renamed is in the picture; the Collector's are left out."""
    text = unescape((pictures.FOLDER / f"{name}.svg").read_text(encoding="utf-8"))
    row = ""
    for panel in boards.board(name)["panels"]:
        row = panel["title"] if panel["type"] == "row" else row
        if row != "Collector":
            assert f">{panel['title']}" in text, f"{panel['title']}: run `make pictures`"


def test_what_a_guard_sends_is_what_rules_and_dashboards_ask_for(
    hour: tuple[str, Prometheus, float],
) -> None:
    """Of a real guard's metrics no name and no label is unknown, and most of them are there."""
    scraped, *_ = hour
    series = {line.rpartition("}")[0] + "}" for line in scraped.splitlines() if "{" in line}
    shapes = {re.sub(r'"[^"]*"', '""', each) for each in series}
    assert {found for shape in shapes for found in unknown(shape)} == set()
    names = {shape.partition("{")[0] for shape in shapes}
    sent = {
        metric.name for metric in METRICS if any(n.startswith(metric.prometheus) for n in names)
    }
    assert {metric.name for metric in METRICS} - sent <= {
        "loopguard.faults",  # there were none
        "loopguard.resource.utilization",  # is not measured here
        "loopguard.verdicts",  # no backend is set
    }


@pytest.mark.parametrize("name", boards.NAMES)
def test_a_dashboard_shows_a_real_hour(hour: tuple[str, Prometheus, float], name: str) -> None:
    """Drawn from the metrics of a real guard, hardly a panel is empty."""
    _, server, end = hour
    text = pictures.shown(server, end)[name]
    cards = text.split('<rect class="card"')[1:]
    empty = {
        re.findall(r'class="title"[^>]*>([^<]+)<', card)[0] for card in cards if "No data" in card
    }
    assert empty <= QUIET
    assert len(cards) > 15


def test_the_story_of_the_hour_is_seen(hour: tuple[str, Prometheus, float]) -> None:
    """Aborts, a stall, an open breaker, a store that hung, who waits: all of it is in metrics."""
    _, server, end = hour
    aborts = 'increase(loopguard_decisions_total{loopguard_decision_action="abort"}[5m])'
    for expr in (
        f"max_over_time(sum({aborts})[1h:1m])",
        "max_over_time(sum(loopguard_session_stalled)[1h:30s])",
        "max_over_time(sum(loopguard_breaker_open)[1h:30s])",
        'max_over_time(sum(loopguard_store_status{loopguard_store_state!="available"})[1h:30s])',
        "max_over_time(sum(loopguard_escalation_waiting)[1h:30s])",
        "max_over_time(sum(loopguard_session_paused)[1h:30s])",
        "sum(increase(loopguard_tool_recoveries_total[1h]))",
        "sum(loopguard_saved_tokens_total)",
    ):
        (found,) = server.query(expr, end)["data"]["result"]
        assert float(found["value"][1]) > 0, expr
