"""One call is one step, whoever reports it; two calls stay two."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest

from otel_loopguard.core import Kind, Step
from otel_loopguard.dialects import Reader, RecordedSpan
from otel_loopguard.sessions.active import ActiveSpan, ActiveSpans
from otel_loopguard.spans.dedup import SpanDeduplicator, absorb, contradict

MS = 1_000_000
PARIS = '{"query": "paris"}'
ROME = '{"query": "rome"}'
RESULT = "gen_ai.tool.call.result"


class Told(NamedTuple):
    """A span, in milliseconds; one without an end stays open.

    Attributes:
        below: The place of its parent in the case.
        says: What it has when it ends.
    """

    scope: str
    start: float
    end: float | None = None
    says: dict[str, Any] = {}  # noqa: RUF012
    name: str = "execute_tool search"
    below: int | None = None
    trace: int = 1
    kind: str = "INTERNAL"


def bare(name: str = "search", **more: Any) -> dict[str, Any]:
    """A tool span of the GenAI conventions without content."""
    more = {key.replace("__", "."): value for key, value in more.items()}
    return {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": name, **more}


def whole(args: str = PARIS, name: str = "search", **more: Any) -> dict[str, Any]:
    """One with arguments and result."""
    return {**bare(name, **more), "gen_ai.tool.call.arguments": args, RESULT: "nothing"}


MCP = {"mcp.method.name": "tools/call"}
OI = {
    "openinference.span.kind": "TOOL", "tool.name": "search", "input.value": PARIS,
    "output.value": "nothing",
}  # fmt: skip
ID = {"gen_ai__tool__call__id": "call_0"}
AGENT = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "looper"}
NODE = {"gen_ai.operation.name": "execute_task", "gen_ai.task.name": "onerr.before_model"}
CHAT = {"gen_ai.operation.name": "chat", "gen_ai.usage.input_tokens": 10}
CLIENT, FAILED = "MCP send tools/call search", {"error__type": "tool_error"}


class Traces:
    """Spans that start and end through one reader and one counter."""

    def __init__(self) -> None:
        self.joined: list[tuple[int, int]] = []
        self.active = ActiveSpans(10_000)
        self.dedup = SpanDeduplicator(
            self.active.by_id, joined=lambda one, other: self.joined.append((one, other))
        )
        self.reader = Reader()
        self.counted: list[Step] = []
        self.ends: list[int] = []
        """The place of the span at whose end each step was counted."""

    def start(self, told: Told, place: int) -> RecordedSpan:
        """A span starts, with nothing but its name."""
        span = RecordedSpan(
            name=told.name,
            scope=told.scope,
            kind=told.kind,
            trace_id=told.trace,
            span_id=place + 1,
            parent_id=None if told.below is None else told.below + 1,
            start=int(told.start * MS),
        )
        gone = self.active.add(ActiveSpan(span, None, None))
        if gone is not None:
            self.dedup.lost(gone.view.span_id)
        return span

    def end(self, span: RecordedSpan, told: Told) -> None:
        """The span ends."""
        span.end, span.attributes = int((told.end or 0) * MS), told.says
        self.active.pop(span.span_id)
        for step in self.dedup.closed(span, self.reader.read(span)):
            self.counted.append(step)
            self.ends.append((span.span_id or 0) - 1)

    def run(self, case: Sequence[Told]) -> None:
        """Starts and ends, each at its time."""
        events = [(told.start, False, place) for place, told in enumerate(case)]
        events += [(told.end, True, place) for place, told in enumerate(case) if told.end]
        spans: dict[int, RecordedSpan] = {}
        for _, ends, place in sorted(events):
            if ends:
                self.end(spans[place], case[place])
            else:
                spans[place] = self.start(case[place], place)


LOOPER = "looper.search"
DEGRADED = bare(error__type="ValueError", **ID)
CASES: dict[str, tuple[Sequence[Told], list[int], set[int], dict[str, Any]]] = {
    "a complete call does not wait for what is open around it": (
        [Told("oi", 0, 3, OI, LOOPER), Told("native", 1, 2, whole(), below=0)], [1], set(), {}),
    # AutoGen: the inner span failed and knows nothing else, the outer one says OK.
    "a degraded inner span waits for the outer one": (
        [Told("oi", 0, 4, OI, LOOPER), Told("native", 2, 3, DEGRADED, below=0)], [0], set(),
        {"args": PARIS, "outcome": "nothing", "error_type": "ValueError", "call_id": "call_0"}),
    "the outer span turns out to be no call: the held step counts before what follows": (
        [Told("oi", 0, 4, {"openinference.span.kind": "CHAIN"}, "node search"),
         Told("native", 2, 3, bare(), below=0)], [0, 0], set(), {"kind": Kind.TOOL}),
    "an agent that is named like a tool is not waited for": (
        [Told("native", 0, name="invoke_agent search"), Told("native", 1, 2, bare(), below=0)],
        [1], set(), {}),
    "siblings of three scopes that start together are one call, though the ends differ": (
        [Told("openinference.instrumentation.x", 0, 2, OI, "search"),
         Told("llmetry", 0.4, 15, whole()), Told("genai", 0.9, 15.3, whole(**ID))], [0], set(),
        {"call_id": "call_0"}),
    "more than the tolerance between two starts is bridged by equal arguments": (
        [Told("a", 0, 14, OI, "search"), Told("b", 12, 30, whole())], [0], set(), {}),
    "parallel equal calls seen twice are two: the closest start decides which": (
        [Told("a", 0, 52, OI, "search"), Told("b", 0.2, 52.2, whole()),
         Told("a", 2, 50, OI, "search"), Told("b", 2.2, 50.2, whole())], [2, 0], set(), {}),
    "two spans of one scope are two calls, however equal they are": (
        [Told("a", 0, 5, whole()), Told("a", 0, 5, whole())], [0, 1], set(), {}),
    # Fakes and replays count their call ids from nought in every run.
    "successive calls with equal ids are two": (
        [Told(scope, at, at + 1, whole(**ID)) for at in (0, 20) for scope in "ab"],
        [0, 2], set(), {}),
    "different ids are different calls": (
        [Told(one, 0, 5, whole(gen_ai__tool__call__id=one)) for one in "ab"], [0, 1], set(), {}),
    "different arguments are different calls, whatever the times are": (
        [Told("a", 0, 5, OI, "search"), Told("b", 0.1, 5, whole(ROME))], [0, 1], set(), {}),
    "one call reported in three traces at the same time makes them one run": (
        [one for at in (0, 100) for one in (
            Told("a", at, at + 5, OI, "search"), Told("b", at + 0.2, at + 5.1, whole(), trace=2),
            Told("c", at + 0.4, at + 5.2, bare(), trace=3))], [0, 3], {1, 2, 3}, {}),
    "once joined, a call whose ends lie apart in the two traces is one": (
        [one for at, late in ((0, 0.2), (100, 40)) for one in (
            Told("a", at, at + 5, OI, "search"),
            Told("b", at + 0.2, at + 5 + late, whole(), trace=2))], [0, 2], {1, 2}, {}),
    "sessions that call one tool at the same time in one scope stay apart": (
        [Told("a", 0, 5, whole(), trace=trace) for trace in (1, 2)], [0, 1], set(), {}),
    # Which trace is whose nobody can know: one pair at most is joined.
    "concurrent sessions seen twice are counted once each": (
        [Told("a", 0, 5, whole()), Told("a", 0.1, 5, whole(), trace=2),
         Told("b", 0.2, 5, whole(), trace=3), Told("b", 0.3, 5, whole(), trace=4)],
        [0, 1], {1, 4}, {}),
    **{f"two traces that carry two ids are two runs: {key}": (
        [Told(one, 0, 5, whole() | {key: one}, trace=trace) for trace, one in enumerate("ab")],
        [0, 1], set[int](), {}) for key in ("session.id", "gen_ai.conversation.id")},
    "a call of another trace that ends later is another call": (
        [Told("a", 0, 5, OI, "search"), Told("b", 0.2, 25, whole(), trace=2)], [0, 1], set(), {}),
    "the last call of one run and the first of the next are two, though both ends are near": (
        [Told("a", 0, 1, whole()), Told("b", 1.5, 2.5, whole(), trace=2)], [0, 1], set(), {}),
    "an agent's tool span, the client's and the server's are one call with its arguments": (
        [Told("pydantic-ai", 0, 5, whole()), Told("mcp", 1, 4, MCP, CLIENT, 0, kind="CLIENT"),
         Told("mcp", 2, 3, MCP | bare(**FAILED), "tools/call search", 1, kind="SERVER")],
        [0], set(), {"args": PARIS, "error": True}),
    "equal calls in a row that two scopes tell of in turn are as many as were made": (
        [Told(scope, at, at + 0.5, whole()) for at, scope in enumerate("aba")],
        [0, 1, 2], set(), {}),
    "each side of a protocol reports a call once, however soon the next call follows": (
        [one for number in range(3) for one in (
            Told("mcp", 2 * number, 2 * number + 1.5, MCP | whole(), CLIENT, kind="CLIENT"),
            Told("http", 2 * number + 0.1, 2 * number + 1.2, {}, "POST", 3 * number),
            Told("mcp", 2 * number + 0.5, 2 * number + 1, MCP | bare(**{} if number else FAILED),
                 "tools/call search", 3 * number + 1, kind="SERVER"))],
        [0, 3, 6], set(), {"error": True}),
    "without a span of the agent, client and server are one call": (
        [Told("mcp", 1, 4, MCP, CLIENT, kind="CLIENT"), Told("http", 1.1, 3.5, {}, "POST", 0),
         Told("mcp", 2, 3, MCP | bare(), "tools/call search", 1, kind="SERVER")], [0], set(), {}),
    "agents put the name of the server before that of the tool": (
        [Told("pydantic-ai", 0, 5, whole(name="web_search"), "execute_tool web_search"),
         Told("mcp", 1, 4, MCP, CLIENT, 0, kind="CLIENT")], [0], set(), {"name": "web_search"}),
    "OpenLLMetry writes some spans twice, one inside the other": (
        [Told("a", 0, 3, whole()), Told("a", 1, 2, whole(), "running search", 0)], [1], set(), {}),
    "a direct child of the same name with other arguments is another call": (
        [Told("a", 0, 3, whole()), Told("a", 1, 2, whole(ROME), below=0)], [1, 0], set(), {}),
    "twins of a root are one run": (
        [Told("llmetry", 0, 3, AGENT, "invoke_agent looper"),
         Told("llmetry", 1, 2, AGENT, "looper.workflow", 0)], [1], set(), {}),
    "twins of a node are one visit": (
        [Told("llmetry", 0, 3, NODE, "execute_task onerr.before_model"),
         Told("llmetry", 1, 2, NODE, "execute_task onerr.abefore_model", 0)], [1], set(), {}),
    "the span of the provider's client inside that of the framework repeats its tokens": (
        [Told("langchain", 0, 100, CHAT | {"gen_ai.request.model": "gpt-4o"}, "chat"),
         Told("openai", 30, 90, CHAT | {"gen_ai.response.model": "gpt-4o-2024-08-06"},
              "chat gpt-4o", 0)], [1], set(), {}),
}  # fmt: skip
"""Spans; at whose ends a step was counted; traces that were joined; what the first step knows."""


@pytest.fixture(name="traces")
def _traces() -> Traces:
    return Traces()


@pytest.mark.parametrize("case", CASES)
def test_each_call_counts_once(case: str, traces: Traces) -> None:
    """Each step is counted at the end of the span that has it, and no other is."""
    spans, ends, joined, known = CASES[case]
    traces.run(spans)
    assert traces.ends == ends
    assert {trace for pair in traces.joined for trace in pair} == joined
    assert {name: getattr(traces.counted[0], name) for name in known} == known
    assert not any(step.error for step in traces.counted[1:])


def test_a_held_step_counts_after_a_second(traces: Traces) -> None:
    """What it waits for may never end; when it does at last, it completes what was counted."""
    outer, inner = Told("oi", 0, 2000, OI, LOOPER), Told("native", 2, 3, bare(), below=0)
    span = traces.start(outer, 0)
    traces.end(traces.start(inner, 1), inner)
    assert traces.counted == []
    assert traces.dedup.overdue(900 * MS) == ()
    (step,) = traces.dedup.overdue(1004 * MS)
    assert step.name == "search"
    assert traces.dedup.overdue(9000 * MS) == ()
    traces.end(span, outer)
    assert traces.counted == []
    assert step.args == PARIS


def test_a_twin_fills_in_what_a_call_cost() -> None:
    """Of two spans about one call one may say it."""
    known, other = Step(Kind.MODEL, "m", cost=0.5, cache_read=5, cache_write=2), Step(Kind.MODEL)
    absorb(other, known)
    assert (other.cost, other.cache_read, other.cache_write) == (0.5, 5, 2)


def test_spans_that_never_end_are_forgotten(traces: Traces) -> None:
    """Open spans, held steps and remembered ones are bounded."""
    for number in range(25_000):
        at = number / 1000
        inner = Told("native", at, at, bare(), below=2 * number)
        traces.start(Told("oi", at, name=LOOPER), 2 * number)
        traces.end(traces.start(inner, 2 * number + 1), inner)
    dedup = traces.dedup
    assert len(dedup._open) <= 10_000
    assert len(dedup._inner) <= 10_000
    assert len(dedup.held) <= 128
    assert len(dedup._recent) <= 256
    assert len(dedup._sides) <= 512


def test_nothing_is_lost(traces: Traces) -> None:
    """Of a thousand calls of one scope each counts exactly once, degraded or not."""
    says = bare(), whole()
    traces.run([Told("a", at, at + 1, says[at // 2 % 2]) for at in range(0, 2000, 2)])
    assert traces.ends == [*range(1000)]


CYCLE: dict[str, object] = {}
CYCLE["self"] = CYCLE
OTHER_CYCLE: dict[str, object] = {}
OTHER_CYCLE["self"] = OTHER_CYCLE


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (None, PARIS, False),
        (PARIS, {"query": "paris"}, False),
        ("paris", PARIS, False),
        ("rome", PARIS, True),
        (PARIS, ROME, True),
        (PARIS, '{"query": "paris", "limit": 5}', False),
        ({"x": 1}, '{"x": "1"}', False),
        ({"x": 1}, {"y": 1}, True),
        ({}, {"y": 1}, False),
        (["paris"], PARIS, False),
        ('{"query": "par', PARIS, False),
        ("a" * 30_000, PARIS, False),
        (CYCLE, OTHER_CYCLE, False),
    ],
    ids=(
        "unknown, text and map, plain text, another plain text, another value, defaults filled in, "
        "number as text, other names, empty, positions, cut, too long to tell, cyclic"
    ).split(", "),
)
def test_arguments_are_compared_loosely(one: object, other: object, expected: bool) -> None:
    """Forms of the same arguments agree; only what surely differs contradicts."""
    assert contradict(one, other) is expected
    assert contradict(other, one) is expected
