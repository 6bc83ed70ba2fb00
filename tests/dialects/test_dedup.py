"""One call is one step, whoever reports it; two calls stay two."""

import json
import re
from typing import Any, NamedTuple

import pytest

from otel_loopguard import LoopGuard
from otel_loopguard.core import Kind, Step
from otel_loopguard.dialects import Reader, RecordedSpan
from otel_loopguard.sessions.active import ActiveSpan, ActiveSpans
from otel_loopguard.spans.dedup import SpanDeduplicator, absorb, contradict
from tests.dialects.told import sections
from tests.tables import rows

MS = 1_000_000
PARIS = '{"query": "paris"}'
SAYS: dict[str, dict[str, Any]] = {
    name: json.loads(has) for name, has in (row.values for row in rows(__file__, "says"))
}
CASES = sections("dedup.txt")


class Told(NamedTuple):
    """A span, in milliseconds; one without an end stays open."""

    start: float
    end: float | None
    says: dict[str, Any]
    view: RecordedSpan


def span(line: str, place: int = 0) -> Told:
    scope, times, says, *more = re.split(r" {2,}", line)
    given = dict(one.split(" ", 1) for one in more)
    start, _, end = times.partition("..")
    has: dict[str, Any] = {}
    for one in says.split(" + "):
        has |= SAYS[one] if one in SAYS else json.loads(one)
    name, kind = given.get("name", "execute_tool search"), given.get("kind", "INTERNAL")
    view = RecordedSpan(name, scope, kind, int(given.get("trace", 1)), place + 1)
    view.parent_id = int(given["below"]) + 1 if "below" in given else None
    view.start = int(float(start) * MS)
    return Told(float(start), float(end) if end else None, has, view)


class Traces:
    def __init__(self) -> None:
        self.joined: set[int] = set()
        self.active = ActiveSpans(10_000)
        self.dedup = SpanDeduplicator(
            self.active.by_id, joined=lambda one, other: self.joined.update((one, other))
        )
        self.reader = Reader()
        self.counted: list[Step] = []
        self.ends: list[int] = []
        """The place of the span at whose end each step was counted."""

    def start(self, told: Told) -> None:
        gone = self.active.add(ActiveSpan(told.view, None, None))
        if gone is not None:
            self.dedup.lost(gone.view.span_id)

    def end(self, told: Told) -> None:
        view = told.view
        view.end, view.attributes = int((told.end or 0) * MS), told.says
        self.active.pop(view.span_id)
        for step in self.dedup.closed(view, self.reader.read(view)):
            self.counted.append(step)
            self.ends.append((view.span_id or 0) - 1)

    def run(self, lines: list[str]) -> None:
        spans = [span(line, place) for place, line in enumerate(lines)]
        events = [(told.start, False, place) for place, told in enumerate(spans)]
        events += [(told.end, True, place) for place, told in enumerate(spans) if told.end]
        for _, ends, place in sorted(events):
            (self.end if ends else self.start)(spans[place])


@pytest.fixture(name="traces")
def _traces() -> Traces:
    return Traces()


@pytest.mark.parametrize("case", CASES)
def test_each_call_counts_once(case: str, traces: Traces) -> None:
    """Each step is counted at the end of the span that has it, and no other is."""
    place = next(n for n, line in enumerate(CASES[case]) if line.startswith("= "))
    traces.run(CASES[case][:place])
    told = dict(line.split(" ", 1) for line in CASES[case][place:])
    assert traces.ends == [int(one) for one in told["="].split()]
    assert traces.joined == {int(one) for one in told.get("joined", "").split()}
    known = json.loads(told.get("first", "{}"))
    assert {name: getattr(traces.counted[0], name) for name in known} == known
    assert not any(step.error for step in traces.counted[1:])


def test_a_held_step_counts_after_a_second(traces: Traces) -> None:
    """What it waits for may never end; when it does at last, it completes what was counted."""
    outer = span("oi  0..2000  openinference  name looper.search")
    inner = span("native  2..3  bare  below 0", 1)
    traces.start(outer)
    traces.start(inner)
    traces.end(inner)
    assert traces.counted == []
    assert traces.dedup.overdue(900 * MS) == ()
    (step,) = traces.dedup.overdue(1004 * MS)
    assert step.name == "search"
    assert traces.dedup.overdue(9000 * MS) == ()
    traces.end(outer)
    assert traces.counted == []
    assert step.args == PARIS


def test_a_twin_fills_in_what_a_call_cost() -> None:
    """Of two spans about one call one may say it."""
    known, other = Step(Kind.MODEL, "m", cost=0.5, cache_read=5, cache_write=2), Step(Kind.MODEL)
    absorb(other, known)
    assert (other.cost, other.cache_read, other.cache_write) == (0.5, 5, 2)


def test_spans_that_never_end_are_forgotten(traces: Traces) -> None:
    """Open spans, held steps and remembered ones are bounded."""
    for number in range(10_500):
        at = number / 1000
        inner = span(f"native  {at}..{at}  bare  below {2 * number}", 2 * number + 1)
        traces.start(span(f"oi  {at}..  nothing  name looper.search", 2 * number))
        traces.start(inner)
        traces.end(inner)
    dedup = traces.dedup
    assert len(dedup._open) <= 10_000
    assert len(dedup._inner) <= 10_000
    assert len(dedup.held) <= 128
    assert len(dedup._recent) <= 256
    assert len(dedup._sides) <= 512


def test_nothing_is_lost(traces: Traces) -> None:
    """Of a thousand calls of one scope each counts exactly once, degraded or not."""
    says = "bare", "whole"
    traces.run([f"a  {at}..{at + 1}  {says[at // 2 % 2]}" for at in range(0, 2000, 2)])
    assert traces.ends == [*range(1000)]


CYCLE: dict[str, object] = {}
CYCLE["self"] = CYCLE


@pytest.mark.parametrize(
    ("one", "other"), [(None, PARIS), ("a" * 30_000, PARIS), (CYCLE, {"self": CYCLE})],
    ids=["unknown", "too long to tell", "cyclic"],
)  # fmt: skip
def test_what_cannot_be_compared_contradicts_nothing(one: object, other: object) -> None:
    assert not contradict(one, other)
    assert not contradict(other, one)


@pytest.mark.parametrize("before", [0, 1])
@pytest.mark.parametrize("named", [True, False])
def test_sessions_that_call_at_one_moment_share_nothing(named: bool, before: int) -> None:
    """One call was lost, or counted in the other session, whose span it had waited for."""
    counted: list[tuple[str, int]] = []

    def on_step(session: Any, _: int, step: Step) -> None:
        if step.kind is Kind.TOOL:
            counted.append((session.key, step.trace_id))

    guard = LoopGuard(clock="replay", on_step=on_step)
    names = {1: "ann", 2: "bob"} if named else {1: f"{1:032x}", 2: f"{2:032x}"}

    def view(trace: int, at: int, says: str, place: int) -> RecordedSpan:
        told = span(f"fw.{trace}  {at}..  {says}  trace {trace}", place)
        told.view.attributes, told.view.end = told.says, told.view.start + MS
        return told.view

    for trace, key in names.items():
        guard.on_start(
            view(trace, 0, "agent  name invoke_agent looper", trace), key if named else None
        )
    both = [view(n, 100, f"bare  below {n}", n + 99) for n in names]
    calls = [[view(1, 5, "bare  below 1", 50)]] * before + [both]
    for together in calls:
        for one in together:
            guard.on_start(one)
        for one in together:
            guard.on_end(one)
    guard.shutdown()
    apart = named or before > 0
    assert len({key for key, _ in counted}) == 1 + apart
    if apart:
        assert all(names[trace] == key for key, trace in counted)
        assert len(counted) == 2 + before
