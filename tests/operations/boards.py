"""The committed dashboards, what their queries mean without a Grafana, and what the guard sends."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from otel_loopguard.server.metrics import METRICS as OF_SERVERS
from otel_loopguard.telemetry.metrics import METRICS, Metric
from tests.operations.programs import DASHBOARDS

Panel = Mapping[str, Any]

NAMES: Final = ("operators", "health")
_SUFFIXES: Final = {"s": "_seconds", "%": "_percent", "By": "_bytes"}
_VALUES: Final = {"$__rate_interval": "2m", "$__range": "1h", "$job": ".+", "$agent": ".*"}
_EVERYWHERE: Final = frozenset({"job", "instance", "le"})
_COLLECTOR: Final = frozenset({"exporter", "receiver", "service_name", "__name__"})
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
    assert "$" not in expr, expr
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


def unknown(expr: str) -> set[str]:
    """Metrics and labels that an expression asks for, and nobody sends."""
    sent = {"loopguard_span_decisions_total": _SPANS}  # the Collector's own count of spans
    for metric in (*METRICS, *OF_SERVERS):
        for suffix in ("", "_bucket", "_count", "_sum"):
            sent[in_prometheus(metric) + suffix] = metric.attributes
    asked = metrics(expr)
    there = {label.replace(".", "_") for name in asked & set(sent) for label in sent[name]}
    there |= _EVERYWHERE | (_COLLECTOR if "otelcol_" in expr or not asked else set())
    return (asked - set(sent)) | (labels(expr) - there)
