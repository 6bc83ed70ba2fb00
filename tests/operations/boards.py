"""The committed dashboards, what their queries mean without a Grafana, and what the guard sends."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from otel_loopguard.server.metrics import METRICS as OF_SERVERS
from otel_loopguard.telemetry.metrics import METRICS, Metric
from tests.operations.programs import DASHBOARDS

Panel = Mapping[str, Any]

NAMES: Final = ("operators", "health")
_SUFFIXES: Final = {"s": "_seconds", "%": "_percent", "By": "_bytes"}
_VALUES: Final = {"$__rate_interval": "2m", "$__range": "1h", "$job": ".+", "$agent": ".*"}
_EVERYWHERE: Final = frozenset({"job", "instance", "le", "__name__"})
_COLLECTOR: Final = frozenset({"exporter", "receiver", "service_name"})
_SPANS: Final = ("loopguard.decision.action", "loopguard.detector.name", "gen_ai.agent.name")


def in_prometheus(metric: Metric) -> str:
    """Its name in Prometheus, by OpenTelemetry's usual translation."""
    name = metric.name.replace(".", "_") + _SUFFIXES.get(metric.unit, "")
    return f"{name}_total" if metric.type == "counter" else name


def board(name: str) -> dict[str, Any]:
    """A dashboard as it is committed."""
    found: dict[str, Any] = json.loads((DASHBOARDS / f"{name}.json").read_text(encoding="utf-8"))
    return found


def panels(of: Mapping[str, Any]) -> Iterator[Panel]:
    """All panels of a dashboard, rows and what is folded in them too."""
    for panel in of["panels"]:
        yield panel
        yield from panel.get("panels") or ()


def filled(expr: str) -> str:
    """A query with values in the place of Grafana's variables."""
    for name, value in _VALUES.items():
        expr = expr.replace(name, value)
    assert not re.search(r"\$[a-z_{]", expr), expr
    return expr


def queries(of: Mapping[str, Any]) -> Iterator[tuple[Panel, dict[str, Any]]]:
    """Every Prometheus query of a dashboard, with its panel."""
    for panel in panels(of):
        for target in panel.get("targets") or ():
            if target["datasource"]["type"] == "prometheus":
                yield panel, target


def metrics(expr: str) -> set[str]:
    """Metrics of ours in an expression."""
    without = re.sub(r"\b\w+:\w+:\w+", "", expr)  # what rules record
    return set(re.findall(r"\bloopguard_\w+", without)) - labels(expr)


def labels(expr: str) -> set[str]:
    """Labels that an expression asks for, or adds up by."""
    asked = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)\s*\"", expr))
    for group in re.findall(r"\b(?:by|without|on)\s*\(([^)]*)\)", expr):
        asked |= {label.strip() for label in group.split(",") if label.strip()}
    return asked


def _sent() -> Iterator[tuple[str, frozenset[str]]]:
    """Every metric of ours as Prometheus has it, with its labels."""
    yield "loopguard_span_decisions_total", _as_labels(_SPANS)  # the Collector's count of spans
    for metric in (*METRICS, *OF_SERVERS):
        for suffix in ("_bucket", "_count", "_sum") if metric.type == "histogram" else ("",):
            yield in_prometheus(metric) + suffix, _as_labels(metric.attributes)


def _as_labels(attributes: Iterable[str]) -> frozenset[str]:
    return _EVERYWHERE.union(name.replace(".", "_") for name in attributes)


_SENT: Final = dict(_sent())


def unknown(expr: str) -> set[str]:
    """Metrics that an expression asks for and nobody sends, and labels that they do not have."""
    asked = metrics(expr)
    there = _EVERYWHERE.union(*(_SENT.get(name, ()) for name in asked))
    there |= _COLLECTOR if "otelcol_" in expr or not asked else frozenset()
    found = (asked - set(_SENT)) | (labels(expr) - there)
    for name, chosen in re.findall(r"\b(loopguard_\w+){([^}]*)}", expr):
        found |= {f"{name}{{{label}}}" for label in labels(chosen) - _SENT.get(name, set())}
    return found
