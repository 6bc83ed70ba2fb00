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


def test_what_is_on_it() -> None:
    """Every panel has its title and axis labels; there is one legend, and a tooltip per point."""
    root = parsed(panel((0, 40), (1.5, 60)), panel((0, 0), (0.2, 100)))
    texts = [each.text for each in root.iter(f"{SVG}text")]
    for wanted, times in (("Noticed", 2), ("wrong, %", 2), ("found, %", 2), ("tier", 1)):
        assert texts.count(wanted) == times
    assert "a note" in texts
    assert len(list(root.iter(f"{SVG}circle"))) == 4
    assert "tier, s: 60 % at 1.5 %" in [each.text for each in root.iter(f"{SVG}title")]


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


def test_dark_and_light() -> None:
    """Colours are set for both, and nothing is fetched from anywhere."""
    text = drawn([panel((0, 1))], "")
    assert "prefers-color-scheme: dark" in text
    assert text.count("http") == 1
    assert "<script" not in text


def test_names_are_escaped() -> None:
    """A tier may be called anything."""
    assert ET.fromstring(drawn([panel((0, 1), name='<a & "b">')], "<note>")) is not None


def test_nothing_to_draw() -> None:
    """Without stuck runs there are axes and no lines."""
    root = ET.fromstring(drawn([Panel("Noticed", "x", "y", [])], ""))
    assert list(root.iter(f"{SVG}circle")) == []
