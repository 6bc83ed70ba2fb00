"""The trace tree as plain text, for the message of an assertion that failed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Final

from otel_loopguard.excerpts import excerpt
from otel_loopguard.live import EndedSpan

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

    from otel_loopguard.core import Decision, Step
    from otel_loopguard.dialects import SpanView

_FIRST: Final = 30
_DEPTH: Final = 40
_NAME: Final = 60
_TEXT: Final = 90
_SENTENCE: Final = 300


@dataclass(slots=True)
class _Place:
    """A span in the tree.

    Attributes:
        view: The span.
        begin: What its line begins with.
        under: What the lines below it begin with.
        above: What it hangs below.
        depth: How many hang above it.
        kept: Whether it is shown however long the tree is.
    """

    view: EndedSpan
    begin: str
    under: str
    above: _Place | None
    depth: int
    kept: bool = False


def tree(
    spans: Iterable[ReadableSpan],
    decisions: Sequence[Decision],
    read: Callable[[SpanView], Step | None],
    *,
    arguments: bool = True,
) -> str:
    """The spans of all traces as they hung together, those with decisions marked by `◆`.

    Of a long tree are shown the first 30 spans, those with a decision, and what is above these.

    Args:
        spans: Spans that ended, and spans that are open.
        decisions: What was decided.
        read: Reads a span as a step.
        arguments: Whether the beginnings of arguments and errors are shown.

    Returns:
        Lines without an end of line at the last one; empty if there are no spans.
    """
    marks: defaultdict[int, list[str]] = defaultdict(list)
    for decision in decisions:
        marks[decision.span_id].append(_sentence(decision))
    views = sorted((EndedSpan(span) for span in spans), key=lambda view: view.start)
    places = _grown(views)
    _keep(places, marks)
    lines: list[str] = []
    for place, hidden in _with_gaps(places):
        if hidden:
            lines.append(f"{place.begin}… {hidden} more spans")
            continue
        said = marks.get(place.view.span_id, ())
        label = _label(place.view, read(place.view), arguments=arguments)
        lines.append(f"{place.begin}{'◆ ' if said else ''}{label}")
        lines += [f"{place.under}    {sentence}" for sentence in said]
    return "\n".join(lines)


def _grown(views: Sequence[EndedSpan]) -> list[_Place]:
    """Hangs spans below their parents, in order of start; without a known parent at the top."""
    known = {view.span_id for view in views}
    children: defaultdict[int | None, list[EndedSpan]] = defaultdict(list)
    for view in views:
        children[view.parent_id if view.parent_id in known else None].append(view)
    places: list[_Place] = []
    waiting = [_Place(view, "", "", None, 0) for view in reversed(children[None])]
    while waiting:
        place = waiting.pop()
        places.append(place)
        begin = place.under if place.depth < _DEPTH else place.begin
        for number, child in enumerate(reversed(children[place.view.span_id])):
            joint, gap = ("├─ ", "│  ") if number else ("└─ ", "   ")
            under = begin + gap if place.depth < _DEPTH else place.under
            start = begin + joint if place.depth < _DEPTH else begin
            waiting.append(_Place(child, start, under, place, place.depth + 1))
    return places


def _keep(places: Sequence[_Place], marks: Collection[int]) -> None:
    for place in places[:_FIRST]:
        place.kept = True
    for place in places:
        above = place if place.view.span_id in marks else None
        while above is not None and not above.kept:
            above.kept = True
            above = above.above


def _with_gaps(places: Sequence[_Place]) -> Iterator[tuple[_Place, int]]:
    """What is shown; in place of what is not, the first of it with how many there are."""
    for kept, group in groupby(places, key=lambda place: place.kept):
        found = list(group)
        yield from ((place, 0) for place in found) if kept else [(found[0], len(found))]


def _label(view: EndedSpan, step: Step | None, *, arguments: bool) -> str:
    parts = [excerpt(view.name, _NAME)]
    if arguments and step is not None and step.args is not None:
        parts.append(excerpt(step.args, _TEXT))
    if view.status == "error":
        said = excerpt(view.description, _TEXT) if arguments else ""
        parts.append(f"✗ {said}".rstrip())
    if view.end is None:
        parts.append("(still open)")
    return "  ".join(parts)


def _sentence(decision: Decision) -> str:
    shadow = ", shadow" if decision.shadow else ""
    told = f"{decision.action} ({decision.severity}{shadow}) by {decision.detector}: "
    return told + excerpt(decision.message, _SENTENCE)
