"""Draws docs/project/evaluation.svg: what is found against what is wrongly noticed or stopped.

`python bench/curve.py build/curve.jsonl docs/project/evaluation.svg` reads what
`python -m lab.evaluate --curve build/curve.jsonl` wrote; `make eval` runs both.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple
from xml.sax.saxutils import escape

_WIDTH = 440
_HEIGHT = 330
_LEFT = 56
_RIGHT = 16
_TOP = 40
_BOTTOM = 48
_ROW = 20
_TICKS = (0, 20, 40, 60, 80, 100)
_STEPS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20)
_MOST = 6
_COLOURS = 6
_STYLE = """
  .ground { fill: #ffffff } .text { fill: #24292f; font: 12px system-ui, 'DejaVu Sans', sans-serif }
  .title { font-weight: 600; font-size: 14px } .quiet { fill: #57606a }
  .grid { stroke: #d0d7de; stroke-width: 1 } .axis { stroke: #57606a; stroke-width: 1 }
  .line { fill: none; stroke-linejoin: round }
  .ring { fill: #ffffff; stroke-width: 2 }
  .c0 { stroke: #0969da } .c1 { stroke: #bc4c00 } .c2 { stroke: #1a7f37 }
  .c3 { stroke: #8250df } .c4 { stroke: #bf3989 } .c5 { stroke: #7d6608 }
  .f0 { fill: #0969da } .f1 { fill: #bc4c00 } .f2 { fill: #1a7f37 }
  .f3 { fill: #8250df } .f4 { fill: #bf3989 } .f5 { fill: #7d6608 }
  @media (prefers-color-scheme: dark) {
    .ground, .ring { fill: #0d1117 } .text { fill: #e6edf3 } .quiet { fill: #9da7b3 }
    .grid { stroke: #30363d } .axis { stroke: #9da7b3 }
    .c0 { stroke: #58a6ff } .c1 { stroke: #f0883e } .c2 { stroke: #3fb950 }
    .c3 { stroke: #bc8cff } .c4 { stroke: #f778ba } .c5 { stroke: #d4b30a }
    .f0 { fill: #58a6ff } .f1 { fill: #f0883e } .f2 { fill: #3fb950 }
    .f3 { fill: #bc8cff } .f4 { fill: #f778ba } .f5 { fill: #d4b30a }
  }
"""


class Point(NamedTuple):
    """A point; `y` is 0 to 100, `says` is shown when the pointer is on it."""

    x: float
    y: float
    says: str
    ringed: bool = False


class Line(NamedTuple):
    """A line; lines of one name and place are drawn alike in all panels."""

    name: str
    points: Sequence[Point]


class Panel(NamedTuple):
    """A system of axes; the vertical one goes from 0 to 100."""

    title: str
    across: str
    up: str
    lines: Sequence[Line]


def picture(rows: Sequence[dict[str, Any]]) -> str:
    """The curve as an SVG document: a panel for notices and one for stops, a line per tier."""
    sensitivities = sorted({row["sensitivity"] for row in rows})
    known = {(row["tier"], row["sensitivity"]): row for row in rows if row["loops"]}
    healthy = {row["sensitivity"]: row for row in rows if row["tier"] == "all"}
    counts = {row["tier"]: row["n"] for row in known.values()}
    total = next((row["n"] for row in healthy.values()), 0)

    def percent(row: dict[str, Any], level: str) -> float:
        return 100 * row[level] / row["n"] if row["n"] else 0.0

    panels = [
        Panel(
            level.capitalize(),
            f"healthy runs {level}, % of {total}",
            f"stuck runs {level}, %",
            [
                Line(
                    f"{tier} ({counts[tier]})",
                    [
                        Point(
                            percent(healthy[one], level),
                            percent(known[tier, one], level),
                            f"sensitivity {one:g}",
                            ringed=one == 1,
                        )
                        for one in sensitivities
                    ],
                )
                for tier in sorted(counts)
            ],
        )
        for level in ("noticed", "stopped")
    ]
    note = f"one point per sensitivity: {', '.join(f'{one:g}' for one in sensitivities)}"
    return drawn(panels, f"{note}; ring: 1, the default")


def drawn(panels: Sequence[Panel], note: str) -> str:
    """The panels side by side, with one legend below, as an SVG document."""
    names = [line.name for line in panels[0].lines] if panels else []
    rows = -(-len(names) // 4)
    width, height = _WIDTH * len(panels), _HEIGHT + _ROW * (rows + 1) + 12
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">',
        f"<style>{_STYLE}</style>",
        f'<rect class="ground" width="{width}" height="{height}"/>',
    ]
    for place, panel in enumerate(panels):
        parts += [f'<g transform="translate({place * _WIDTH} 0)">', *_panel(panel), "</g>"]
    parts += _legend(names, width)
    parts += [_text(_LEFT, height - 12, note, "quiet"), "</svg>", ""]
    return "\n".join(parts)


def _panel(panel: Panel) -> Iterator[str]:
    most = max((point.x for line in panel.lines for point in line.points), default=0)
    step = next((each for each in _STEPS if most <= each * _MOST), _STEPS[-1])
    right = max(step, -(-most // step) * step)
    yield _text(_LEFT, 22, panel.title, "title")
    yield from _axes(panel, step, right)
    for place, line in enumerate(panel.lines):
        yield from _line(line, place, len(panel.lines) - 1 - place, right)


def _axes(panel: Panel, step: float, right: float) -> Iterator[str]:
    left, low = _across(0, right), _up(0)
    for tick in _TICKS:
        y = _up(tick)
        kind = "axis" if tick == 0 else "grid"
        yield f'<path class="{kind}" d="M{left:g} {y:g}H{_across(right, right):g}"/>'
        yield _text(left - 8, y + 4, f"{tick}", "quiet", anchor="end")
    for count in range(round(right / step) + 1):
        x = _across(count * step, right)
        yield f'<path class="axis" d="M{x:g} {low:g}v4"/>'
        yield _text(x, low + 18, f"{count * step:g}", "quiet", anchor="middle")
    yield f'<path class="axis" d="M{left:g} {_up(100):g}V{low:g}"/>'
    yield _text(_across(right / 2, right), _HEIGHT - 8, panel.across, anchor="middle")
    yield f'<g transform="translate(16 {_up(50):g}) rotate(-90)">'
    yield _text(0, 0, panel.up, anchor="middle")
    yield "</g>"


def _line(line: Line, place: int, above: int, right: float) -> Iterator[str]:
    """One line; the more lines are drawn above it, the wider, so that equal ones can be told."""
    colour = place % _COLOURS
    places = [(_across(point.x, right), _up(point.y)) for point in line.points]
    if any(one != other for one, other in pairwise(places)):
        path = "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
        yield f'<path class="line c{colour}" stroke-width="{2 + above:g}" d="M{path}"/>'
    # The ring last: equal points lie on each other.
    drawn_last = sorted(zip(line.points, places, strict=True), key=lambda pair: pair[0].ringed)
    for point, (x, y) in drawn_last:
        says = escape(f"{line.name}, {point.says}: {point.y:.0f} % at {point.x:.2g} %")
        kind, size = (f"ring c{colour}", 5) if point.ringed else (f"f{colour}", 3)
        yield (
            f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="{size + above:g}">'
            f"<title>{says}</title></circle>"
        )


def _legend(names: Sequence[str], width: int) -> Iterator[str]:
    column = (width - _LEFT) / 4
    for place, name in enumerate(names):
        x, y = _LEFT + place % 4 * column, _HEIGHT + 12 + place // 4 * _ROW
        yield f'<path class="line c{place % _COLOURS}" stroke-width="3" d="M{x:g} {y:g}h18"/>'
        yield _text(x + 24, y + 4, name)


def _text(x: float, y: float, says: str, kind: str = "", anchor: str = "start") -> str:
    names = f"text {kind}".rstrip()
    place = f'x="{x:g}" y="{y:g}" text-anchor="{anchor}"'
    return f'<text class="{names}" {place}>{escape(says)}</text>'


def _across(x: float, right: float) -> float:
    return _LEFT + x / right * (_WIDTH - _LEFT - _RIGHT)


def _up(y: float) -> float:
    return _HEIGHT - _BOTTOM - y / 100 * (_HEIGHT - _TOP - _BOTTOM)


def main() -> None:
    """Reads the points and writes the picture."""
    points, svg = map(Path, sys.argv[1:])
    rows = [json.loads(line) for line in points.read_text(encoding="utf-8").splitlines()]
    svg.write_text(picture(rows), encoding="utf-8")


if __name__ == "__main__":
    main()
