"""bench/curve.py: the picture of the curve is plain SVG that reads in light and dark."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest

from bench.curve import Line, Panel, Point, drawn

SVG = "{http://www.w3.org/2000/svg}"


def panel(*points: tuple[float, float], name: str = "tier") -> Panel:
    line = Line(name, [Point(x, y, "s", ringed=not x) for x, y in points])
    return Panel("Noticed", "wrong, %", "found, %", [line])


def parsed(*panels: Panel) -> ET.Element:
    return ET.fromstring(drawn(list(panels), "a note"))


@pytest.mark.parametrize("most", [0, 0.04, 0.3, 1, 5.4, 33, 100])
def test_points_lie_within_the_axes(most: float) -> None:
    """Whatever the largest value is, all points lie in the panel, and ticks are few."""
    root = parsed(panel((0, 0), (most, 100)))
    places = [
        (float(each.get("cx", "")), float(each.get("cy", ""))) for each in root.iter(f"{SVG}circle")
    ]
    assert all(56 <= x <= 424.1 and 40 <= y <= 282 for x, y in places)
    ticks = [each for each in root.iter(f"{SVG}text") if each.get("text-anchor") == "middle"]
    assert 3 <= len(ticks) <= 10


def test_names_are_escaped() -> None:
    """A tier may be called anything, and nothing is fetched from anywhere."""
    assert drawn([panel((0, 1))], "").count("http") == 1
    assert ET.fromstring(drawn([panel((0, 1), name='<a & "b">')], "<note>")) is not None
