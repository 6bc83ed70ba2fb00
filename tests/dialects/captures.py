"""Real captures of frameworks and instrumentations, as the guard would see them."""

import json
from collections import Counter
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from otel_loopguard.core import Kind, Step
from otel_loopguard.dialects import Reader, RecordedSpan
from otel_loopguard.replay.formats import otlp_spans
from otel_loopguard.sessions.active import ActiveSpan
from otel_loopguard.spans.dedup import SpanDeduplicator
from tests.tables import rows
from tests.zero_code.interpreter import lacking

SPANS = Path(__file__).resolve().parents[2].parent / "shared" / "spans"

_PARIS = ("search", {"query": "weather in Paris"})
_ALPHA = ("search", {"query": "alpha"})
_BETA = ("fetch", {"url": "http://example.test/beta"})
_BROKEN = ("broken", {"x": 1})
SCRIPT: list[tuple[str, dict[str, Any]]] = [*[_PARIS] * 6, *[_ALPHA, _BETA] * 3, _BROKEN]
"""What every single-agent capture replays (`capture/script.py`)."""

UNREADABLE: dict[str, str] = dict(row.values for row in rows(__file__, "unreadable"))
"""Captures of runs that called tools, without a span for the calls, and why."""

PARTLY: dict[str, tuple[int, str]] = {
    name: (int(count), why) for name, count, why in (row.values for row in rows(__file__, "partly"))
}
"""Captures in which fewer calls have a span than the script has; how many, and why."""

OTHER_PROCESS = {"mcp1-stdio__openllmetry": 13, "mcp-stdio__native": 13}
"""Captures whose tools ran in another process, which counted nothing; how many calls were made."""


def need_shared() -> None:
    """Skips without the shared folder; fails under CI, which has to have it."""
    if not SPANS.is_dir():
        lacking(f"no captures in {SPANS}")


def names() -> list[str]:
    return sorted(path.name[: -len(".json")] for path in SPANS.glob("*.json"))


@cache
def load(name: str) -> dict[str, Any]:
    return json.loads((SPANS / f"{name}.json").read_text())


@dataclass
class Run:
    """What came out of one capture."""

    steps: list[Step] = field(default_factory=list)
    # At the ends of spans, before any was found to be a twin; then at their starts.
    read: list[Step] = field(default_factory=list)
    opened: dict[int, Step] = field(default_factory=dict)
    joined: list[tuple[int, int]] = field(default_factory=list)
    spans: int = 0
    waited: int = 0  # steps that were only counted because nothing better came

    def of(self, kind: Kind) -> list[Step]:
        return sorted((step for step in self.steps if step.kind is kind), key=lambda s: s.start)


def drive(events: list[tuple[int, bool, RecordedSpan]], reader: Reader | None = None) -> Run:
    """Reads and counts spans as they start and end, in the order of the given times."""
    run = Run()
    reader = reader or Reader()
    open_spans: dict[int | None, ActiveSpan] = {}
    once = SpanDeduplicator(open_spans, joined=lambda one, other: run.joined.append((one, other)))
    for _, ends, span in sorted(events, key=lambda event: (event[0], event[1])):
        if not ends:
            run.spans += 1
            opened = reader.read(span)
            if opened is not None:
                run.opened[span.span_id] = opened
            open_spans[span.span_id] = ActiveSpan(span, None, None)
            continue
        open_spans.pop(span.span_id, None)
        step = reader.read(span)
        if step is not None:
            run.read.append(step)
        run.steps.extend(once.closed(span, step))
    late = once.overdue(1 << 63)
    run.waited = len(late)
    run.steps.extend(late)
    return run


@cache
def live(name: str) -> Run:
    """A capture as it happened: each span as it was when it started, then as it ended."""
    events: list[tuple[int, bool, RecordedSpan]] = []
    for span in load(name)["spans"]:
        start, end = span["start"], span.get("end")
        opened = _view(span, start["name"], start["attributes"])
        events.append((start["wall"], False, opened))
        if end is None:
            continue
        closed = _view(span, end["name"], end["attributes"])
        closed.end = end["time"]
        closed.status = end["status"]["code"].lower()
        closed.description = end["status"]["description"]
        closed.events = [(event["name"], event["attributes"]) for event in end["events"]]
        events.append((end["wall"], True, closed))
    return drive(events)


def _view(span: dict[str, Any], name: str, attributes: dict[str, Any]) -> RecordedSpan:
    (scope, *_), start = span["scope"] or [""], span["start"]
    ids = [
        int(span[key], 16) if span[key] else None for key in ("trace_id", "span_id", "parent_id")
    ]
    return RecordedSpan(name, scope, start["kind"], *ids, start["time"], attributes=attributes)  # type: ignore[arg-type]


@cache
def recorded(name: str) -> Run:
    """A capture out of its OTLP file: only ended spans, on their own clock."""
    found = views(name)
    starts = [(view.start, False, view) for view in found]
    return drive([*starts, *((view.end or 0, True, view) for view in found)])


def views(name: str) -> list[RecordedSpan]:
    return spans_in(SPANS / f"{name}.otlp.jsonl")


def spans_in(path: Path) -> list[RecordedSpan]:
    report: list[str] = []
    lines = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    found = [span for line in lines for span in otlp_spans(line, report.append)]
    assert report == []
    return [span for span in found if span.end]


def executed(name: str) -> int:
    bodies = Counter(body["kind"] for body in load(name)["bodies"])
    return bodies["tool"] or OTHER_PROCESS.get(name, 0)


def scripted(name: str) -> bool:
    """Whether the capture is of one agent that replays the script, with spans for all its calls."""
    return executed(name) == len(SCRIPT) and name not in UNREADABLE and name not in PARTLY


def loaded(value: object) -> object:
    try:
        return json.loads(value) if isinstance(value, str) else value
    except ValueError:
        return value


def same_args(step: Step, expected: dict[str, Any]) -> bool:
    """Whether captured arguments are the expected ones; LangChain strips a single text."""
    found = loaded(step.args)
    return found in (expected, next(iter(expected.values())))


def expected_outcome(tool: str, args: dict[str, Any]) -> str:
    return f"no results for {args['query']}" if tool == "search" else f"404 at {args['url']}"
