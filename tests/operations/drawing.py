"""A dashboard as a picture: each panel of its JSON with what a real Prometheus answers, as SVG.

It is not Grafana that draws here; the places, titles, queries, units and colours are those of the
dashboard. The picture reads in light and dark.
"""

import math
import re
import time as clock
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple
from xml.sax.saxutils import escape

from tests.operations.boards import filled

_WIDTH: Final = 864
"""Pixels: a page shows it in 690, where its letters can still be read."""
_LETTER: Final = 6.1
"""Pixels that a letter of the 12-pixel face takes, on average; rather too many than too few."""
_COLUMN: Final = _WIDTH / 24
_UNIT: Final = 24
_HEAD: Final = 56
_GAP: Final = 8
_LEFT: Final = 46
_LEGEND: Final = 16
_COLOURS: Final = 8
_TICK_S: Final = 900
_STYLE: Final = Path(__file__).with_suffix(".css").read_text(encoding="utf-8")


class Source(NamedTuple):
    """What Prometheus answers: about the last second shown, and about all, in steps of seconds."""

    instant: Callable[[str], Sequence[Mapping[str, Any]]]
    over: Callable[[str], Sequence[Mapping[str, Any]]]
    start: float
    end: float
    step: float


class Area(NamedTuple):
    """A rectangle, in pixels."""

    x: float
    y: float
    width: float
    height: float


class Line(NamedTuple):
    """A series: its legend, value by time, and a colour of its own or none."""

    name: str
    points: Mapping[float, float]
    colour: str


def drawn(
    board: Mapping[str, Any], source: Source, note: str, without: Collection[str] = ()
) -> str:
    """The picture of a dashboard, with a sentence below its title, without the rows of titles."""
    parts = [_text(16, 26, board["title"], "head"), _text(16, 45, note, "small quiet")]
    height, left_out = 0.0, False
    for panel in board["panels"]:
        if panel["type"] == "row":
            left_out = panel["title"] in without
        if not left_out:
            at = panel["gridPos"]
            height = max(height, _HEAD + (at["y"] + at["h"]) * _UNIT)
            parts += _panel(panel, source)
    height += 12
    size = f'viewBox="0 0 {_WIDTH:g} {height:g}" width="{_WIDTH:g}" height="{height:g}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">'
    title = f"<title>{escape('Dashboard: ' + board['title'])}</title>\n<style>\n{_STYLE}</style>"
    return "\n".join([head, title, _box(0, 0, _WIDTH, height, "ground"), *parts, "</svg>\n"])


def _panel(panel: Mapping[str, Any], source: Source) -> Iterator[str]:
    at = panel["gridPos"]
    x, y = at["x"] * _COLUMN + _GAP / 2, _HEAD + at["y"] * _UNIT
    area = Area(x, y, at["w"] * _COLUMN - _GAP, at["h"] * _UNIT - _GAP)
    if panel["type"] == "row":
        folded = " (folded)" if panel["collapsed"] else ""
        yield _text(x + 6, y + 16, f"{panel['title']}{folded}", "title quiet")
        return
    yield _box(*area, "card", round_=4)
    yield _text(x + 10, y + 18, cut(panel["title"], area.width - 16, 6.6), "title")
    draw = {"stat": _stat, "timeseries": _series, "table": _table}[panel["type"]]
    yield from draw(panel, source, area)


def _stat(panel: Mapping[str, Any], source: Source, area: Area) -> Iterator[str]:
    (target,) = panel["targets"]
    result = source.instant(filled(target["expr"]))
    defaults = panel["fieldConfig"]["defaults"]
    shown, colour = defaults["noValue"], "text"
    if result:
        value = float(result[0]["value"][1])
        for step in defaults["thresholds"]["steps"]:
            if step["value"] is None or value >= step["value"]:
                colour = step["color"]
        shown = _said(
            float(round(value)) if defaults["unit"] == "short" else value, defaults["unit"]
        )
        for mapping in defaults.get("mappings") or ():
            if word := mapping["options"].get(f"{value:g}"):
                shown, colour = word["text"], word["color"]
    kind = f"{'huge' if len(shown) < 10 else 'head'} middle fill-{colour}"
    yield _text(area.x + area.width / 2, area.y + area.height / 2 + 20, shown, kind)


def _table(panel: Mapping[str, Any], source: Source, area: Area) -> Iterator[str]:
    x, y, width, height = area
    (target,) = panel["targets"]
    options = panel["transformations"][0]["options"]
    heads, order = options["renameByName"], options["indexByName"]
    labels = sorted((label for label in heads if label != "Value"), key=order.__getitem__)
    result = source.instant(filled(target["expr"]))
    found = sorted(
        ((float(one["value"][1]), one["metric"]) for one in result), key=lambda row: -row[0]
    )
    column = (width - 90) / len(labels)
    for place, label in enumerate(labels):
        yield _text(x + 10 + place * column, y + 42, heads[label], "small quiet")
    yield _text(x + width - 12, y + 42, heads["Value"], "small quiet end")
    for row, (value, metric) in enumerate(found[: int((height - 52) / 19)]):
        line = y + 62 + row * 19
        for place, label in enumerate(labels):
            yield _text(x + 10 + place * column, line, cut(metric.get(label, ""), column - 6))
        yield _text(x + width - 12, line, f"{value:.0f}", "end")
    if not found:
        yield _nothing(area)


def _series(panel: Mapping[str, Any], source: Source, area: Area) -> Iterator[str]:
    """Lines or stacked bars with axes and a legend; a limit is drawn dashed if it is in sight."""
    config = panel["fieldConfig"]
    colours = {
        each["matcher"]["options"]: each["properties"][0]["value"]["fixedColor"]
        for each in config["overrides"]
    }
    lines: list[Line] = []
    for target in panel["targets"]:
        legend = target.get("legendFormat", "")
        for found in source.over(filled(target["expr"])):
            labels = found["metric"]
            name = re.sub(r"\{\{(\w+)\}\}", lambda one, of=labels: of.get(one[1], ""), legend)
            points = {float(time): float(value) for time, value in found["values"]}
            known = {time: value for time, value in points.items() if not math.isnan(value)}
            lines.append(Line(name, known, colours.get(name, "")))
    if not lines:
        yield _nothing(area)
        return
    defaults = config["defaults"]
    inner = Area(area.x + 8, area.y + 32, area.width - 20, area.height - 36)
    stacked = defaults["custom"].get("drawStyle") == "bars"
    steps = (defaults.get("thresholds") or {}).get("steps") or [{"value": None}]
    plot = Plot(inner, source, defaults["unit"], lines, stacked=stacked)
    yield from plot.axes()
    limit = steps[-1]["value"]
    if limit is not None and limit <= plot.most:
        right = inner.x + inner.width
        wide = f'd="M{inner.x + _LEFT:.0f} {plot.up(limit):.1f}H{right:.0f}"'
        yield f'<path class="s6" stroke-dasharray="5 4" {wide}/>'
    yield from plot.bars() if stacked else plot.paths()
    yield from plot.legend()


class Plot:
    """Lines over time in an area, whose axis ends at a round number."""

    def __init__(
        self, area: Area, source: Source, unit: str, lines: Sequence[Line], *, stacked: bool
    ) -> None:
        self.area, self.unit, self.lines = area, unit, lines
        self.start, self.end, self.step = source.start, source.end, source.step
        times = {time for line in lines for time in line.points}
        add = sum if stacked else max
        highest = max([0, *(add([line.points.get(time, 0) for line in lines]) for time in times)])
        self.most, self.grid = 1.0, 0.5
        if highest > 0:
            power = 10 ** math.floor(math.log10(highest / 3))
            self.grid = next(by * power for by in (1, 2, 2.5, 5, 10) if by * power * 4 >= highest)
            self.most = math.ceil(highest / self.grid) * self.grid

    def across(self, time: float) -> float:
        """Where a time is."""
        share = (time - self.start) / (self.end - self.start)
        return self.area.x + _LEFT + share * (self.area.width - _LEFT)

    def up(self, value: float) -> float:
        """Where a value is."""
        room = self.area.height - _LEGEND * 2
        return self.area.y + room - min(1.0, value / self.most) * room

    def axes(self) -> Iterator[str]:
        left, right, low = self.area.x + _LEFT, self.area.x + self.area.width, self.up(0)
        for count in range(round(self.most / self.grid) + 1):
            y = self.up(count * self.grid)
            yield _path(f"M{left:.0f} {y:.1f}H{right:.0f}", "axis" if count == 0 else "grid")
            yield _text(left - 5, y + 3.5, _said(count * self.grid, self.unit), "small quiet end")
        first = math.ceil(self.start / _TICK_S) * _TICK_S
        for time in range(int(first), int(self.end) + 1, _TICK_S):
            x = self.across(time)
            yield _path(f"M{x:.1f} {low:.1f}v4", "axis")
            at = clock.strftime("%H:%M", clock.gmtime(time))
            yield _text(x, low + 14, at, "small quiet middle")

    def paths(self) -> Iterator[str]:
        for place, line in enumerate(self.lines):
            drawn, before = [], -math.inf
            for time, value in sorted(line.points.items()):
                pen = "L" if time - before <= self.step * 1.5 else "M"
                drawn.append(f"{pen}{self.across(time):.0f} {self.up(value):.1f}")
                before = time
            if drawn:
                # A single point is a line of no length, which a round end shows.
                kind = f'class="line s{place % _COLOURS}" stroke-linecap="round"'
                yield f'<path {kind} d="{"".join(drawn)}h0"/>'

    def bars(self) -> Iterator[str]:
        count = (self.end - self.start) / self.step
        wide = max(1.5, (self.area.width - _LEFT) / count - 1)
        below: dict[float, float] = {}
        for place, line in enumerate(self.lines):
            drawn: list[str] = []
            for time, value in sorted(line.points.items()):
                if value > 0:
                    low = self.up(below.get(time, 0))
                    high = self.up(below.get(time, 0) + value)
                    x = max(self.across(time) - wide, self.across(self.start))
                    right = max(self.across(time), x + 1)
                    drawn.append(f"M{x:.0f} {low:.1f}V{high:.1f}H{right:.0f}V{low:.1f}z")
                    below[time] = below.get(time, 0) + value
            if drawn:
                yield _path("".join(drawn), _fill(line, place))

    def legend(self) -> Iterator[str]:
        x, y = self.area.x + 4, self.area.y + self.area.height - 4
        for place, line in enumerate(self.lines):
            name = cut(line.name, 150)
            wide = 16 + len(name) * _LETTER * 0.92 + 10
            if x + wide > self.area.x + self.area.width:
                yield _text(x, y, f"+{len(self.lines) - place}", "small quiet")
                return
            yield _box(x, y - 8, 10, 8, _fill(line, place), round_=2)
            yield _text(x + 14, y, name, "small")
            x += wide


def _fill(line: Line, place: int) -> str:
    return f"fill-{line.colour}" if line.colour else f"f{place % _COLOURS}"


def _said(value: float, unit: str) -> str:
    """A value in its unit, as Grafana names units, short."""
    if unit == "s":
        small = ((1, 1, "s"), (1e-3, 1e3, "ms"), (0, 1e6, "µs"))
        factor, name = next((by, name) for least, by, name in small if value >= least)
        return f"{value * factor:.3g} {name}" if value else "0"
    if unit in ("percent", "percentunit"):
        return f"{_short(100 * value if unit == 'percentunit' else value)} %"
    return _short(value)


def _short(value: float) -> str:
    if value >= 10_000:
        return f"{value / 1000:.3g} K"
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def _nothing(area: Area) -> str:
    return _text(area.x + area.width / 2, area.y + area.height / 2 + 8, "No data", "quiet middle")


def _box(x: float, y: float, width: float, height: float, kind: str, *, round_: float = 0) -> str:
    corner = f' rx="{round_:g}"' if round_ else ""
    size = f'width="{width:.1f}" height="{height:.1f}"'
    return f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" {size}{corner}/>'


def _text(x: float, y: float, said: str, kind: str = "") -> str:
    """A line of text; `y` is its base line."""
    classes = f' class="{kind}"' if kind else ""
    return f'<text{classes} x="{x:.1f}" y="{y:.1f}">{escape(said)}</text>'


def _path(drawn: str, kind: str) -> str:
    return f'<path class="{kind}" d="{drawn}"/>'


def cut(said: str, width: float, letter: float = _LETTER) -> str:
    """Text that fits into a width in pixels; what is too long ends in an ellipsis."""
    fits = int(width / letter)
    return said if len(said) <= fits else f"{said[: max(0, fits - 1)].rstrip()}…"
