"""A trace as a waterfall: a row for each span, and beside it what the guard wrote on it.

It is drawn from what Jaeger's query API answers (`GET /api/traces/{id}`), so it shows what a
backend has, not what a process thinks it sent. It is not Jaeger's own user interface.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tests.operations.drawing.svg import box, cut, document, path, pill, text

Trace = Mapping[str, Any]

_WIDTH: Final = 1000
_LEFT: Final = 20
_NAMES: Final = 230
_BARS: Final = 400
_ROW: Final = 24
_TOP: Final = 78
_SHOWN: Final = (
    "loopguard.decision.action",
    "loopguard.decision.reason",
    "loopguard.decision.message",
    "loopguard.detector.name",
    "loopguard.detection.severity",
    "loopguard.detection.score",
    "loopguard.detection.repeat_count",
    "loopguard.loop.id",
    "loopguard.ruleset",
    "error.type",
)


@dataclass(frozen=True)
class _Row:
    """One span, in its place.

    Attributes:
        name: Its name.
        depth: How many spans are above it.
        start: Microseconds after the trace began.
        length: Microseconds.
        tags: Its attributes.
        warnings: What Jaeger warns of.
        marks: Microseconds after the trace began and action, of each event of the guard.
    """

    name: str
    depth: int
    start: int
    length: int
    tags: Mapping[str, Any]
    warnings: Sequence[str]
    marks: Sequence[tuple[int, str]]

    @property
    def failed(self) -> bool:
        return bool(self.tags.get("error")) or self.tags.get("otel.status_code") == "ERROR"

    @property
    def kind(self) -> str:
        if self.failed:
            return "error"
        operation = self.tags.get("gen_ai.operation.name")
        return {"execute_tool": "tool", "chat": "model"}.get(str(operation), "agent")


def waterfall(answer: Mapping[str, Any], note: str) -> str:
    """The picture of the first trace of an answer.

    Args:
        answer: What Jaeger's query API said.
        note: A sentence at the foot: where it comes from.
    """
    trace: Trace = answer["data"][0]
    rows = list(_rows(trace))
    whole = max(row.start + row.length for row in rows)
    told = next((row for row in reversed(rows) if _stops(row)), rows[0])
    shown = [(name, str(told.tags[name])) for name in _SHOWN if name in told.tags]
    card = _TOP + _ROW * len(rows) + 20
    height = card + 34 + 17 * (len(shown) + len(told.warnings)) + 40
    parts = [
        text(_LEFT, 28, f"Trace of {_service(trace)}: {rows[0].name}", "head"),
        text(_LEFT, 48, _summary(rows, whole), "quiet"),
        *_scale(whole, _TOP + _ROW * len(rows)),
    ]
    for place, row in enumerate(rows):
        parts += _span(row, _TOP + place * _ROW, whole, striped=place % 2 == 0)
    parts += _details(told, shown, card)
    parts.append(text(_LEFT, height - 14, note, "small quiet"))
    return document(_WIDTH, height, f"Waterfall of a trace: {_summary(rows, whole)}", parts)


def _rows(trace: Trace) -> Iterator[_Row]:
    """The spans from the top down, children in order of time."""
    spans = sorted(trace["spans"], key=lambda span: (span["startTime"], span["spanID"]))
    below: dict[str | None, list[Mapping[str, Any]]] = {}
    ids = {span["spanID"] for span in spans}
    for span in spans:
        above = [each["spanID"] for each in span["references"] if each["refType"] == "CHILD_OF"]
        parent = above[0] if above and above[0] in ids else None
        below.setdefault(parent, []).append(span)
    begun = spans[0]["startTime"]

    def walk(parent: str | None, depth: int) -> Iterator[_Row]:
        for span in below.get(parent, ()):
            yield _row(span, depth, begun)
            yield from walk(span["spanID"], depth + 1)

    yield from walk(None, 0)


def _row(span: Mapping[str, Any], depth: int, begun: int) -> _Row:
    marks: list[tuple[int, str]] = []
    for log in span["logs"]:
        fields = {field["key"]: field["value"] for field in log["fields"]}
        if fields.get("event") == "loopguard.decision":
            marks.append((log["timestamp"] - begun, fields["loopguard.decision.action"]))
    return _Row(
        name=span["operationName"],
        depth=depth,
        start=span["startTime"] - begun,
        length=span["duration"],
        tags={tag["key"]: tag["value"] for tag in span["tags"]},
        warnings=span.get("warnings") or (),
        marks=marks,
    )


def _stops(row: _Row) -> bool:
    return row.depth > 0 and row.tags.get("loopguard.decision.action") == "abort"


def _service(trace: Trace) -> str:
    names = {process["serviceName"] for process in trace["processes"].values()}
    return ", ".join(sorted(names))


def _summary(rows: Sequence[_Row], whole: int) -> str:
    failed = sum(row.failed for row in rows)
    decided = sum("loopguard.decision.action" in row.tags for row in rows)
    return f"{len(rows)} spans in {_time(whole)}, {failed} red, {decided} with a decision"


def _time(length: float) -> str:
    if length < 1000:
        return f"{length:.0f} µs"
    return f"{length / 1000:.0f} ms" if length < 1_000_000 else f"{length / 1_000_000:.2f} s"


def _across(time: float, whole: int) -> float:
    return _LEFT + _NAMES + _BARS * time / whole


def _scale(whole: int, low: float) -> Iterator[str]:
    for quarter in range(5):
        time = whole * quarter / 4
        x = _across(time, whole)
        yield path(f"M{x:.1f} {_TOP - 8}V{low:g}", "grid")
        side = ("", "middle", "middle", "middle", "end")[quarter]
        yield text(x, _TOP - 13, _time(time), f"small quiet {side}".rstrip())


def _span(row: _Row, top: float, whole: int, *, striped: bool) -> Iterator[str]:
    middle = top + _ROW / 2
    if striped:
        yield box(0, top, _WIDTH, _ROW, "stripe")
        for quarter in range(5):
            x = _across(whole * quarter / 4, whole)
            yield path(f"M{x:.1f} {top:g}v{_ROW}", "grid")
    indent = _LEFT + row.depth * 14
    if row.failed:
        yield f'<circle class="error" cx="{indent + 4}" cy="{middle:g}" r="4"/>'
    yield text(indent + 14, middle + 4, cut(row.name, _NAMES - row.depth * 14 - 20))
    x, end = _across(row.start, whole), _across(row.start + row.length, whole)
    yield box(x, middle - 6, max(2, end - x), 12, row.kind, round_=2)
    for time, action in row.marks:
        at = _across(time, whole)
        yield path(f"M{at:.1f} {middle - 10:g}l4 -5h-8z", action)
        yield path(f"M{at:.1f} {middle - 9:g}v18", "axis")
    yield from _decision(row, middle)


def _decision(row: _Row, middle: float) -> Iterator[str]:
    x = _LEFT + _NAMES + _BARS + 16
    action = row.tags.get("loopguard.decision.action")
    if action is None:
        yield text(x, middle + 4, _time(row.length), "small quiet")
        return
    width, drawn = pill(x, middle, str(action), str(action))
    yield drawn
    said = f"{row.tags.get('loopguard.detector.name')}"
    count = row.tags.get("loopguard.detection.repeat_count")
    said += f", {count:g} times" if count is not None else ""
    room = _WIDTH - x - width - 20
    yield text(x + width + 8, middle + 4, cut(said, room), "mono")


def _details(row: _Row, shown: Sequence[tuple[str, str]], top: float) -> Iterator[str]:
    lines = len(shown) + len(row.warnings)
    yield box(_LEFT, top, _WIDTH - 2 * _LEFT, 34 + 17 * lines, "card", round_=6)
    yield text(_LEFT + 12, top + 20, f"{row.name}: tags of the red span", "title")
    y = top + 40.0
    for said in row.warnings:
        yield text(_LEFT + 12, y, cut(f"⚠ {said}", _WIDTH - 2 * _LEFT - 24, 7), "mono bad")
        y += 17
    for name, value in shown:
        yield text(_LEFT + 12, y, name, "mono quiet")
        yield text(_LEFT + 240, y, cut(value, _WIDTH - 2 * _LEFT - 252, 6.7), "mono")
        y += 17
