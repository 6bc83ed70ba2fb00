"""A dashboard as a picture: each panel of its JSON with what a real Prometheus answers.

It is not Grafana that draws here; the places, titles, queries, units and colours are those of the
dashboard.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tests.operations.boards import filled
from tests.operations.drawing.plot import Frame, Line, plot, said
from tests.operations.drawing.svg import box, cut, document, text

Ask = Callable[[str], Sequence[Mapping[str, Any]]]
"""What Prometheus answers to an expression: its `result`."""

_WIDTH: Final = 864
"""Pixels: a page shows it in 690, where its letters can still be read."""

_COLUMN: Final = _WIDTH / 24
_UNIT: Final = 24
_HEAD: Final = 56
_GAP: Final = 8


@dataclass(frozen=True)
class Prometheus:
    """Where answers come from.

    Attributes:
        instant: Asks for the end of the time shown.
        over: Asks for all of it.
        start: Its first second.
        end: Its last.
        step: Seconds between two points.
    """

    instant: Ask
    over: Ask
    start: float
    end: float
    step: float


def drawn(board: Mapping[str, Any], source: Prometheus, note: str, without: str = "") -> str:
    """The picture of a dashboard.

    Args:
        board: Its JSON.
        source: Who answers its queries.
        note: A sentence below the title: what this is.
        without: Title of a row that is left out, with its panels.
    """
    parts = [text(16, 26, board["title"], "head"), text(16, 45, note, "small quiet")]
    height, left_out = 0.0, False
    for panel in board["panels"]:
        if panel["type"] == "row":
            left_out = panel["title"] == without
        if not left_out:
            at = panel["gridPos"]
            height = max(height, _HEAD + (at["y"] + at["h"]) * _UNIT)
            parts += _panel(panel, source)
    return document(_WIDTH, height + 12, f"Dashboard: {board['title']}", parts)


def _panel(panel: Mapping[str, Any], source: Prometheus) -> Iterator[str]:
    at = panel["gridPos"]
    x, y = at["x"] * _COLUMN + _GAP / 2, _HEAD + at["y"] * _UNIT
    width, height = at["w"] * _COLUMN - _GAP, at["h"] * _UNIT - _GAP
    if panel["type"] == "row":
        folded = " (folded)" if panel["collapsed"] else ""
        yield text(x + 6, y + 16, f"{panel['title']}{folded}", "title quiet")
        return
    yield box(x, y, width, height, "card", round_=4)
    yield text(x + 10, y + 18, cut(panel["title"], width - 16, 6.6), "title")
    draw = {"stat": _stat, "timeseries": _series, "table": _table}[panel["type"]]
    yield from draw(panel, source, (x, y, width, height))


def _stat(
    panel: Mapping[str, Any], source: Prometheus, at: tuple[float, float, float, float]
) -> Iterator[str]:
    x, y, width, height = at
    (target,) = panel["targets"]
    result = source.instant(filled(target["expr"]))
    defaults = panel["fieldConfig"]["defaults"]
    value = float(result[0]["value"][1]) if result else None
    shown = (
        defaults["noValue"] if value is None else said(_rounded(value, defaults), defaults["unit"])
    )
    colour = "text" if value is None else _colour(value, defaults["thresholds"]["steps"])
    for mapping in defaults.get("mappings") or ():
        word = mapping["options"].get(f"{value:g}") if value is not None else None
        if word:
            shown, colour = word["text"], word["color"]
    kind = f"{'huge' if len(shown) < 10 else 'head'} middle fill-{colour}"
    yield text(x + width / 2, y + height / 2 + 20, shown, kind)


def _rounded(value: float, defaults: Mapping[str, Any]) -> float:
    return float(round(value)) if defaults["unit"] == "short" else value


def _colour(value: float, steps: Sequence[Mapping[str, Any]]) -> str:
    passed = [step["color"] for step in steps if step["value"] is None or value >= step["value"]]
    return str(passed[-1])


def _series(
    panel: Mapping[str, Any], source: Prometheus, at: tuple[float, float, float, float]
) -> Iterator[str]:
    x, y, width, height = at
    config = panel["fieldConfig"]
    colours = {
        each["matcher"]["options"]: each["properties"][0]["value"]["fixedColor"]
        for each in config["overrides"]
    }
    lines: list[Line] = []
    for target in panel["targets"]:
        for found in source.over(filled(target["expr"])):
            name = _named(target.get("legendFormat", ""), found["metric"])
            points = {float(time): float(value) for time, value in found["values"]}
            known = {time: value for time, value in points.items() if not math.isnan(value)}
            lines.append(Line(name, known, colours.get(name, "")))
    if not lines:
        yield text(x + width / 2, y + height / 2 + 8, "No data", "quiet middle")
        return
    defaults = config["defaults"]
    frame = Frame(
        x + 8, y + 32, width - 20, height - 36, source.start, source.end, defaults["unit"],
        source.step,
    )  # fmt: skip
    stacked = defaults["custom"].get("drawStyle") == "bars"
    steps = (defaults.get("thresholds") or {}).get("steps") or [{"value": None}]
    yield from plot(frame, lines, stacked=stacked, limit=steps[-1]["value"])


def _named(legend: str, labels: Mapping[str, str]) -> str:
    return re.sub(r"\{\{(\w+)\}\}", lambda found: labels.get(found[1], ""), legend)


def _table(
    panel: Mapping[str, Any], source: Prometheus, at: tuple[float, float, float, float]
) -> Iterator[str]:
    x, y, width, height = at
    (target,) = panel["targets"]
    heads = panel["transformations"][0]["options"]["renameByName"]
    order = panel["transformations"][0]["options"]["indexByName"]
    labels = sorted((label for label in heads if label != "Value"), key=order.__getitem__)
    found = sorted(
        (
            (float(each["value"][1]), each["metric"])
            for each in source.instant(filled(target["expr"]))
        ),
        key=lambda row: -row[0],
    )
    column = (width - 90) / len(labels)
    for place, label in enumerate(labels):
        yield text(x + 10 + place * column, y + 42, heads[label], "small quiet")
    yield text(x + width - 12, y + 42, heads["Value"], "small quiet end")
    for row, (value, metric) in enumerate(found[: int((height - 52) / 19)]):
        line = y + 62 + row * 19
        for place, label in enumerate(labels):
            cell = cut(metric.get(label, ""), column - 6)
            yield text(x + 10 + place * column, line, cell)
        yield text(x + width - 12, line, f"{value:.0f}", "end")
    if not found:
        yield text(x + width / 2, y + height / 2 + 8, "No data", "quiet middle")
