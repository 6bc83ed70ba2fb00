"""Pieces of a picture: boxes, texts and lines as SVG that reads in light and dark."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from xml.sax.saxutils import escape

WIDTH_OF_A_LETTER: Final = 6.1
"""Pixels that a letter of the 12-pixel face takes, on average; rather too many than too few."""

_STYLE: Final = """
  text { fill: #24292f; font: 12px system-ui, 'DejaVu Sans', sans-serif }
  .head { font-size: 15px; font-weight: 600 } .title { font-weight: 600 }
  .small { font-size: 10.5px } .quiet { fill: #57606a }
  .huge { font-size: 30px; font-weight: 600 }
  .end { text-anchor: end } .middle { text-anchor: middle }
  .ground { fill: #ffffff } .card { fill: #f6f8fa; stroke: #d0d7de }
  .grid { stroke: #d8dee4 } .axis { stroke: #8c959f }
  .line { fill: none; stroke-width: 1.8; stroke-linejoin: round }
  .fill-green { fill: #1a7f37 } .fill-yellow { fill: #9a6700 } .fill-orange { fill: #bc4c00 }
  .fill-red { fill: #cf222e } .fill-blue { fill: #0969da } .fill-text { fill: #24292f }
  .fill-light-yellow { fill: #e3b341 } .fill-dark-yellow { fill: #845306 }
  .fill-purple { fill: #8250df }
  .s0 { stroke: #0969da } .s1 { stroke: #bc4c00 } .s2 { stroke: #1a7f37 } .s3 { stroke: #8250df }
  .s4 { stroke: #bf3989 } .s5 { stroke: #7d6608 } .s6 { stroke: #cf222e } .s7 { stroke: #57606a }
  .f0 { fill: #0969da } .f1 { fill: #bc4c00 } .f2 { fill: #1a7f37 } .f3 { fill: #8250df }
  .f4 { fill: #bf3989 } .f5 { fill: #7d6608 } .f6 { fill: #cf222e } .f7 { fill: #57606a }
  @media (prefers-color-scheme: dark) {
    text, .fill-text { fill: #e6edf3 } .quiet { fill: #9da7b3 }
    .ground { fill: #0d1117 } .card { fill: #161b22; stroke: #30363d }
    .grid { stroke: #30363d } .axis { stroke: #6e7681 }
    .fill-green { fill: #3fb950 } .fill-yellow { fill: #d29922 } .fill-orange { fill: #f0883e }
    .fill-red { fill: #ff7b72 } .fill-blue { fill: #58a6ff }
    .fill-light-yellow { fill: #f2cc60 } .fill-dark-yellow { fill: #bb8009 }
    .fill-purple { fill: #bc8cff }
    .s0 { stroke: #58a6ff } .s1 { stroke: #f0883e } .s2 { stroke: #3fb950 } .s3 { stroke: #bc8cff }
    .s4 { stroke: #f778ba } .s5 { stroke: #d4b30a } .s6 { stroke: #ff7b72 } .s7 { stroke: #9da7b3 }
    .f0 { fill: #58a6ff } .f1 { fill: #f0883e } .f2 { fill: #3fb950 } .f3 { fill: #bc8cff }
    .f4 { fill: #f778ba } .f5 { fill: #d4b30a } .f6 { fill: #ff7b72 } .f7 { fill: #9da7b3 }
  }
"""


def document(width: float, height: float, title: str, parts: Iterable[str]) -> str:
    """A whole picture.

    Args:
        width: Pixels.
        height: Pixels.
        title: What it shows, for those who cannot see it.
        parts: Its pieces, the lowest first.
    """
    size = f'viewBox="0 0 {width:g} {height:g}" width="{width:g}" height="{height:g}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">',
        f"<title>{escape(title)}</title>",
        f"<style>{_STYLE}</style>",
        box(0, 0, width, height, "ground"),
        *parts,
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def box(x: float, y: float, width: float, height: float, kind: str, *, round_: float = 0) -> str:
    """A filled rectangle."""
    corner = f' rx="{round_:g}"' if round_ else ""
    size = f'width="{width:.1f}" height="{height:.1f}"'
    return f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" {size}{corner}/>'


def text(x: float, y: float, said: str, kind: str = "") -> str:
    """A line of text; `y` is its base line."""
    classes = f' class="{kind}"' if kind else ""
    return f'<text{classes} x="{x:.1f}" y="{y:.1f}">{escape(said)}</text>'


def path(drawn: str, kind: str) -> str:
    """Lines, as SVG writes them."""
    return f'<path class="{kind}" d="{drawn}"/>'


def cut(said: str, width: float, letter: float = WIDTH_OF_A_LETTER) -> str:
    """Text that fits into a width in pixels; what is too long ends in an ellipsis."""
    fits = int(width / letter)
    return said if len(said) <= fits else f"{said[: max(0, fits - 1)].rstrip()}…"
