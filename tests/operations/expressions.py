"""What PromQL expressions ask for, and what the guard sends."""

from __future__ import annotations

import re
from typing import Final

from otel_loopguard.telemetry.metrics import METRICS

_EVERYWHERE: Final = frozenset({"job", "instance", "le"})
_COLLECTOR: Final = frozenset({"exporter", "receiver", "service_name", "__name__"})
_SPANS: Final = ("loopguard.decision.action", "loopguard.detector.name", "gen_ai.agent.name")


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
    for metric in METRICS:
        for suffix in ("", "_bucket", "_count", "_sum"):
            sent[metric.prometheus + suffix] = metric.attributes
    asked = metrics(expr)
    there = {
        label.replace(".", "_") for name in asked & set(sent) for label in sent[name]
    } | _EVERYWHERE
    if "otelcol_" in expr or not asked:
        there |= _COLLECTOR
    return (asked - set(sent)) | (labels(expr) - there)
