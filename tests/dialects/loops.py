"""Loops of one's own with a plain client: captures of real instrumentations, without tool spans."""

import json
from functools import cache
from pathlib import Path
from typing import Any

from otel_loopguard.dialects import RecordedSpan

FOLDER = Path(__file__).parent / "loop_captures"

_PARIS = ("search", {"query": "weather in Paris"}, "no results for weather in Paris")
CALLS: list[tuple[str, dict[str, Any], str]] = [
    *[_PARIS] * 3,
    ("search", {"query": "alpha"}, "no results for alpha"),
    ("fetch", {"url": "http://example.test/beta"}, "404 at http://example.test/beta"),
    ("broken", {"x": 1}, "Error: broken backend for x=1"),
]
"""What every capture ran; the fourth and the fifth call stand in one message."""

BARE = ("chat__v2-default", "stream__v2-default")
"""Captures whose model spans carry no content."""


@cache
def names() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.json"))


def spans(name: str, folder: Path = FOLDER) -> list[RecordedSpan]:
    return [_view(one) for one in json.loads((folder / f"{name}.json").read_text())]


def _view(span: dict[str, Any]) -> RecordedSpan:
    ids = {
        name: int(span[name], 16) if span[name] else None
        for name in ("trace_id", "span_id", "parent_id")
    }
    return RecordedSpan(**span | ids | {"events": [tuple(event) for event in span["events"]]})
