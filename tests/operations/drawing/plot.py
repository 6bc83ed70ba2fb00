"""Lines and stacked bars over time, in a box."""

from __future__ import annotations

import math
import time as clock
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tests.operations.drawing.svg import WIDTH_OF_A_LETTER, box, cut, path, text

_LEFT: Final = 46
_LEGEND: Final = 16
_COLOURS: Final = 8
_ORDER: Final = (1, 2, 2.5, 5, 10)


@dataclass(frozen=True)
class Line:
    """One series.

    Attributes:
        name: What its legend says.
        points: Value by time, seconds since the epoch.
        colour: A colour of its own; empty for the next one.
    """

    name: str
    points: Mapping[float, float]
    colour: str = ""


@dataclass(frozen=True)
class Frame:
    """Where and when.

    Attributes:
        x: Left side, pixels.
        y: Top.
        width: Pixels.
        height: Pixels.
        start: First second shown.
        end: Last second shown.
        unit: Of the values, as Grafana names units.
        step: Seconds between two points.
    """

    x: float
    y: float
    width: float
    height: float
    start: float
    end: float
    unit: str
    step: float

    def across(self, time: float) -> float:
        """Where a time is."""
        share = (time - self.start) / (self.end - self.start)
        return self.x + _LEFT + share * (self.width - _LEFT)

    def up(self, value: float, most: float) -> float:
        """Where a value is."""
        room = self.height - _LEGEND * 2
        return self.y + room - min(1.0, value / most) * room


def plot(frame: Frame, lines: Sequence[Line], *, stacked: bool, limit: float | None) -> list[str]:
    """The lines with axes and a legend; `limit` is drawn dashed if it is in sight."""
    most, step = _scale(_highest(lines, stacked=stacked))
    parts = [*_axes(frame, most, step)]
    if limit is not None and limit <= most:
        y = frame.up(limit, most)
        wide = f'd="M{frame.x + _LEFT:.0f} {y:.1f}H{frame.x + frame.width:.0f}"'
        parts.append(f'<path class="s6" stroke-dasharray="5 4" {wide}/>')
    parts += _bars(frame, lines, most) if stacked else _paths(frame, lines, most)
    return [*parts, *_legend(frame, lines)]


def said(value: float, unit: str) -> str:
    """A value in its unit, short."""
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


def _highest(lines: Sequence[Line], *, stacked: bool) -> float:
    if not stacked:
        return max((value for line in lines for value in line.points.values()), default=0)
    times = {time for line in lines for time in line.points}
    return max((sum(line.points.get(time, 0) for line in lines) for time in times), default=0)


def _scale(highest: float) -> tuple[float, float]:
    """The end of the axis, and the step of its grid."""
    if not highest > 0:
        return 1, 0.5
    power = 10 ** math.floor(math.log10(highest / 3))
    step = next(each * power for each in _ORDER if each * power * 4 >= highest)
    return math.ceil(highest / step) * step, step


def _axes(frame: Frame, most: float, step: float) -> Iterator[str]:
    right = frame.x + frame.width
    for count in range(round(most / step) + 1):
        y = frame.up(count * step, most)
        kind = "axis" if count == 0 else "grid"
        yield path(f"M{frame.x + _LEFT:.0f} {y:.1f}H{right:.0f}", kind)
        shown = said(count * step, frame.unit)
        yield text(frame.x + _LEFT - 5, y + 3.5, shown, "small quiet end")
    low = frame.up(0, most)
    every = 900
    first = math.ceil(frame.start / every) * every
    for time in range(int(first), int(frame.end) + 1, every):
        x = frame.across(time)
        shown = clock.strftime("%H:%M", clock.gmtime(time))
        yield path(f"M{x:.1f} {low:.1f}v4", "axis")
        yield text(x, low + 14, shown, "small quiet middle")


def _paths(frame: Frame, lines: Sequence[Line], most: float) -> Iterator[str]:
    for place, line in enumerate(lines):
        drawn, before = [], -math.inf
        for time, value in sorted(line.points.items()):
            pen = "L" if time - before <= frame.step * 1.5 else "M"
            drawn.append(f"{pen}{frame.across(time):.0f} {frame.up(value, most):.1f}")
            before = time
        if drawn:
            # A single point is a line of no length, which a round end shows.
            round_ = ' stroke-linecap="round"'
            yield f'<path class="line s{place % _COLOURS}"{round_} d="{"".join(drawn)}h0"/>'


def _bars(frame: Frame, lines: Sequence[Line], most: float) -> Iterator[str]:
    wide = max(1.5, (frame.width - _LEFT) / ((frame.end - frame.start) / frame.step) - 1)
    below: dict[float, float] = {}
    for place, line in enumerate(lines):
        drawn: list[str] = []
        for time, value in sorted(line.points.items()):
            if value > 0:
                low = frame.up(below.get(time, 0), most)
                high = frame.up(below.get(time, 0) + value, most)
                x = max(frame.across(time) - wide, frame.across(frame.start))
                right = max(frame.across(time), x + 1)
                drawn.append(f"M{x:.0f} {low:.1f}V{high:.1f}H{right:.0f}V{low:.1f}z")
                below[time] = below.get(time, 0) + value
        if drawn:
            yield path("".join(drawn), _fill(line, place))


def _fill(line: Line, place: int) -> str:
    return f"fill-{line.colour}" if line.colour else f"f{place % _COLOURS}"


def _legend(frame: Frame, lines: Sequence[Line]) -> Iterator[str]:
    x, y = frame.x + 4, frame.y + frame.height - 4
    for place, line in enumerate(lines):
        name = cut(line.name, 150)
        wide = 16 + len(name) * WIDTH_OF_A_LETTER * 0.92 + 10
        if x + wide > frame.x + frame.width:
            yield text(x, y, f"+{len(lines) - place}", "small quiet")
            return
        yield box(x, y - 8, 10, 8, _fill(line, place), round_=2)
        yield text(x + 14, y, name, "small")
        x += wide
