"""The committed dashboards, and what their queries mean without a Grafana."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from tests.operations.programs import DASHBOARDS

Panel = Mapping[str, Any]

NAMES: Final = ("operators", "health")
_VALUES: Final = {
    "$__rate_interval": "2m",
    "$__range": "1h",
    "$job": ".+",
    "$agent": ".*",
}


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
