"""One call is one step, whoever reports it; two calls stay two."""

from __future__ import annotations

import pytest

from otel_loopguard.core import Kind, Step
from otel_loopguard.sessions.active import ActiveSpan, ActiveSpans
from otel_loopguard.spans.dedup import SpanDeduplicator, contradict
from otel_loopguard.spans.reader import Reader
from otel_loopguard.spans.views import RecordedSpan

MS = 1_000_000
PARIS = '{"query": "paris"}'
ROME = '{"query": "rome"}'


class Traces:
    """Spans that start and end, in milliseconds, through one reader and one counter."""

    def __init__(self) -> None:
        self.joined: list[tuple[int, int]] = []
        self.active = ActiveSpans(10_000)
        self.dedup = SpanDeduplicator(
            self.active.by_id, joined=lambda one, other: self.joined.append((one, other))
        )
        self.reader = Reader()
        self.counted: list[Step] = []
        self._next = 0

    def start(
        self,
        name: str,
        scope: str,
        at: float,
        *,
        trace: int = 1,
        parent: RecordedSpan | None = None,
        kind: str = "INTERNAL",
    ) -> RecordedSpan:
        """A span starts, with nothing but its name."""
        self._next += 1
        span = RecordedSpan(
            name=name,
            scope=scope,
            kind=kind,
            trace_id=trace,
            span_id=self._next,
            parent_id=parent.span_id if parent else None,
            start=int(at * MS),
        )
        gone = self.active.add(ActiveSpan(span, None, None))
        if gone is not None:
            self.dedup.lost(gone.view.span_id)
        return span

    def end(self, span: RecordedSpan, at: float, **attributes: object) -> list[Step]:
        """The span ends with these attributes (`__` for dots); answers what was counted by it."""
        span.end = int(at * MS)
        span.attributes = {key.replace("__", "."): value for key, value in attributes.items()}
        self.active.pop(span.span_id)
        found = list(self.dedup.closed(span, self.reader.read(span)))
        self.counted += found
        return found

    def genai(self, span: RecordedSpan, at: float, **more: object) -> list[Step]:
        """Ends a tool span of the GenAI conventions."""
        name = span.name.rpartition(" ")[2]
        return self.end(
            span, at, gen_ai__operation__name="execute_tool", gen_ai__tool__name=name, **more
        )

    def whole(self, span: RecordedSpan, at: float, args: str = PARIS, **more: object) -> list[Step]:
        """Ends a tool span of the GenAI conventions with arguments and result."""
        content = {"gen_ai__tool__call__arguments": args, "gen_ai__tool__call__result": "nothing"}
        return self.genai(span, at, **content, **more)

    def oi(self, span: RecordedSpan, at: float, args: str = PARIS, **more: object) -> list[Step]:
        """Ends a tool span of OpenInference."""
        return self.end(
            span,
            at,
            openinference__span__kind="TOOL",
            tool__name="search",
            input__value=args,
            output__value="nothing",
            **more,
        )


@pytest.fixture(name="traces")
def _traces() -> Traces:
    return Traces()


def test_a_complete_call_counts_at_once(traces: Traces) -> None:
    """A call with arguments and result does not wait for what is open around it."""
    outer = traces.start("looper.search", "oi", 0)
    inner = traces.start("execute_tool search", "native", 1, parent=outer)
    assert len(traces.whole(inner, 2)) == 1
    assert traces.oi(outer, 3) == []


def test_a_degraded_inner_span_waits_for_the_outer_one(traces: Traces) -> None:
    """AutoGen: the inner span failed and knows nothing else, the outer one says OK."""
    outer = traces.start("looper.search", "oi", 0)
    inner = traces.start("execute_tool search", "native", 2, parent=outer)
    held = traces.genai(inner, 3, error__type="ValueError", gen_ai__tool__call__id="call_0")
    assert held == []
    (step,) = traces.oi(outer, 4)
    assert (step.args, step.outcome) == (PARIS, "nothing")
    assert step.error
    assert step.error_type == "ValueError"
    assert step.call_id == "call_0"


def test_a_held_step_counts_when_what_it_waited_for_was_another(traces: Traces) -> None:
    """The outer span turns out to be no call: the held step counts before what follows."""
    outer = traces.start("node search", "oi", 0)
    inner = traces.start("execute_tool search", "native", 2, parent=outer)
    assert traces.genai(inner, 3) == []
    counted = traces.end(outer, 4, openinference__span__kind="CHAIN")
    assert [step.kind for step in counted] == [Kind.TOOL, Kind.WORKFLOW]


def test_a_held_step_counts_after_a_second(traces: Traces) -> None:
    """What it waits for may never end."""
    outer = traces.start("looper.search", "oi", 0)
    inner = traces.start("execute_tool search", "native", 2, parent=outer)
    assert traces.genai(inner, 3) == []
    assert traces.dedup.overdue(900 * MS) == ()
    (step,) = traces.dedup.overdue(1004 * MS)
    assert step.name == "search"
    assert traces.dedup.overdue(9000 * MS) == ()
    # The outer span, when it ends at last, completes the step that was counted.
    assert traces.oi(outer, 2000) == []
    assert step.args == PARIS


def test_agents_are_not_waited_for(traces: Traces) -> None:
    """An agent that is named like a tool is no better span of it."""
    agent = traces.start("invoke_agent search", "native", 0)
    call = traces.start("execute_tool search", "native", 1, parent=agent)
    assert len(traces.genai(call, 2)) == 1


def test_three_instrumentations_of_one_trace(traces: Traces) -> None:
    """Siblings of three scopes that start together are one call, though the ends differ."""
    spans = [
        traces.start("search", "openinference.instrumentation.x", 0.0),
        traces.start("execute_tool search", "llmetry", 0.4),
        traces.start("execute_tool search", "genai", 0.9),
    ]
    assert len(traces.oi(spans[0], 2)) == 1
    assert traces.whole(spans[1], 15) == []
    assert traces.whole(spans[2], 15.3, gen_ai__tool__call__id="call_0") == []
    (step,) = traces.counted
    assert step.call_id == "call_0"


def test_a_busy_machine_between_two_instrumentations(traces: Traces) -> None:
    """More than the tolerance between two starts is bridged by equal arguments."""
    first = traces.start("search", "a", 0)
    second = traces.start("execute_tool search", "b", 12)
    assert len(traces.oi(first, 14)) == 1
    assert traces.whole(second, 30) == []


def test_parallel_equal_calls_seen_twice_are_two(traces: Traces) -> None:
    """Each instrumentation reports each call once; the closest start decides which."""
    pairs = [
        (traces.start("search", "a", at), traces.start("execute_tool search", "b", at + 0.2))
        for at in (0, 2)
    ]
    for at, (first, second) in zip((50, 52), reversed(pairs), strict=True):
        traces.oi(first, at)
        traces.whole(second, at + 0.2)
    assert len(traces.counted) == 2


def test_parallel_calls_of_one_scope_are_two(traces: Traces) -> None:
    """Two spans of one scope are two calls, however equal they are."""
    spans = [traces.start("execute_tool search", "a", 0) for _ in range(2)]
    for span in spans:
        traces.whole(span, 5)
    assert len(traces.counted) == 2


def test_successive_calls_with_equal_ids_are_two(traces: Traces) -> None:
    """Fakes and replays count their call ids from nought in every run."""
    for at in (0, 20):
        for scope in ("a", "b"):
            span = traces.start("execute_tool search", scope, at)
            traces.whole(span, at + 1, gen_ai__tool__call__id="call_0")
    assert len(traces.counted) == 2


def test_different_call_ids_are_different_calls(traces: Traces) -> None:
    """Two scopes that name different ids tell of two calls."""
    for scope in ("a", "b"):
        span = traces.start("execute_tool search", scope, 0)
        traces.whole(span, 5, gen_ai__tool__call__id=f"call_{scope}")
    assert len(traces.counted) == 2


def test_different_arguments_are_different_calls(traces: Traces) -> None:
    """Arguments that contradict each other are of two calls, whatever the times are."""
    first = traces.start("search", "a", 0)
    second = traces.start("execute_tool search", "b", 0.1)
    traces.oi(first, 5)
    traces.whole(second, 5, ROME)
    assert len(traces.counted) == 2


def test_traces_of_one_run_are_joined(traces: Traces) -> None:
    """One call reported in three traces at the same time makes them one run."""
    for at in (0, 100):
        spans = [
            traces.start("search", "a", at, trace=1),
            traces.start("execute_tool search", "b", at + 0.2, trace=2),
            traces.start("execute_tool search", "c", at + 0.4, trace=3),
        ]
        traces.oi(spans[0], at + 5)
        traces.whole(spans[1], at + 5.1)
        traces.genai(spans[2], at + 5.2)
    assert len(traces.counted) == 2
    assert len(traces.joined) == 2
    assert {trace for pair in traces.joined for trace in pair} == {1, 2, 3}


def test_joined_traces_are_one_run_for_later_calls(traces: Traces) -> None:
    """Once joined, a call whose ends lie apart in the two traces is still one."""
    for at, late in ((0, 0.2), (100, 40)):
        first = traces.start("search", "a", at, trace=1)
        second = traces.start("execute_tool search", "b", at + 0.2, trace=2)
        traces.oi(first, at + 5)
        traces.whole(second, at + 5 + late)
    assert len(traces.counted) == 2


def test_concurrent_sessions_are_not_joined(traces: Traces) -> None:
    """Sessions that call one tool at the same time in one scope stay apart."""
    for trace in (1, 2):
        span = traces.start("execute_tool search", "a", 0, trace=trace)
        traces.whole(span, 5)
    assert len(traces.counted) == 2
    assert traces.joined == []


def test_concurrent_sessions_seen_twice_are_counted_once_each(traces: Traces) -> None:
    """Where calls of two sessions look alike, each counts once, and nothing is joined."""
    spans = [
        (scope, trace, traces.start("execute_tool search", scope, at, trace=trace))
        for at, scope, trace in ((0, "a", 1), (0.1, "a", 2), (0.2, "b", 3), (0.3, "b", 4))
    ]
    for _, _, span in spans:
        traces.whole(span, 5)
    assert len(traces.counted) == 2
    assert len(traces.joined) <= 1


@pytest.mark.parametrize("key", ["session.id", "gen_ai.conversation.id"])
def test_known_sessions_that_differ_are_not_joined(traces: Traces, key: str) -> None:
    """Two traces that carry two session ids are two runs."""
    for trace, scope in ((1, "a"), (2, "b")):
        span = traces.start("execute_tool search", scope, 0, trace=trace)
        traces.whole(span, 5, **{key: f"session {trace}"})
    assert len(traces.counted) == 2
    assert traces.joined == []


def test_other_traces_need_both_ends_to_agree(traces: Traces) -> None:
    """A call of another trace that ends later is another call."""
    first = traces.start("search", "a", 0, trace=1)
    second = traces.start("execute_tool search", "b", 0.2, trace=2)
    traces.oi(first, 5)
    traces.whole(second, 25)
    assert len(traces.counted) == 2


def test_quick_runs_one_after_the_other_are_not_joined(traces: Traces) -> None:
    """The last call of one run and the first of the next are two, though both ends are near."""
    for at, trace, scope in ((0, 1, "a"), (1.5, 2, "b")):
        traces.whole(traces.start("execute_tool search", scope, at, trace=trace), at + 1)
    assert len(traces.counted) == 2
    assert traces.joined == []


def test_client_server_and_agent_of_a_protocol_call(traces: Traces) -> None:
    """The agent's tool span, the client's and the server's are one call with its arguments."""
    agent = traces.start("execute_tool search", "pydantic-ai", 0)
    client = traces.start("MCP send tools/call search", "mcp", 1, parent=agent, kind="CLIENT")
    server = traces.start("tools/call search", "mcp", 2, parent=client, kind="SERVER")
    assert traces.genai(server, 3, mcp__method__name="tools/call", error__type="tool_error") == []
    assert traces.end(client, 4, mcp__method__name="tools/call") == []
    (step,) = traces.whole(agent, 5)
    assert step.args == PARIS
    assert step.error


def test_quick_calls_of_one_run_are_told_apart(traces: Traces) -> None:
    """Equal calls in a row that two scopes tell of in turn are as many as were made."""
    for at, scope in ((0, "a"), (1, "b"), (2, "a")):
        traces.whole(traces.start("execute_tool search", scope, at), at + 0.5)
    assert len(traces.counted) == 3


def test_quick_calls_of_a_protocol_are_told_apart(traces: Traces) -> None:
    """Each side reports a call once, however soon the next call follows."""
    for at in (0, 2, 4):
        client = traces.start("MCP send tools/call search", "mcp", at, kind="CLIENT")
        http = traces.start("POST", "http", at + 0.1, parent=client)
        server = traces.start("tools/call search", "mcp", at + 0.5, parent=http, kind="SERVER")
        failed = {"error__type": "tool_error"} if at == 2 else {}
        traces.genai(server, at + 1, mcp__method__name="tools/call", **failed)
        traces.end(http, at + 1.2)
        traces.whole(client, at + 1.5, mcp__method__name="tools/call")
    assert [step.error for step in traces.counted] == [False, True, False]


def test_client_and_server_alone(traces: Traces) -> None:
    """Without a span of the agent, client and server are still one call."""
    client = traces.start("MCP send tools/call search", "mcp", 1, kind="CLIENT")
    http = traces.start("POST", "http", 1.1, parent=client)
    server = traces.start("tools/call search", "mcp", 2, parent=http, kind="SERVER")
    traces.genai(server, 3, mcp__method__name="tools/call")
    traces.end(http, 3.5)
    traces.end(client, 4, mcp__method__name="tools/call")
    assert len(traces.counted) == 1


def test_a_protocol_tool_under_its_servers_name(traces: Traces) -> None:
    """Agents put the name of the server before that of the tool."""
    agent = traces.start("execute_tool web_search", "pydantic-ai", 0)
    client = traces.start("MCP send tools/call search", "mcp", 1, parent=agent, kind="CLIENT")
    assert traces.end(client, 4, mcp__method__name="tools/call") == []
    (step,) = traces.whole(agent, 5)
    assert step.name == "web_search"


def test_parent_and_child_of_one_scope(traces: Traces) -> None:
    """OpenLLMetry writes some spans twice, one inside the other."""
    outer = traces.start("execute_tool search", "a", 0)
    inner = traces.start("running search", "a", 1, parent=outer)
    traces.whole(inner, 2)
    traces.whole(outer, 3)
    assert len(traces.counted) == 1


def test_a_tool_that_calls_itself_is_two_calls(traces: Traces) -> None:
    """A direct child of the same name with other arguments is another call."""
    outer = traces.start("execute_tool search", "a", 0)
    inner = traces.start("execute_tool search", "a", 1, parent=outer)
    traces.whole(inner, 2, ROME)
    traces.whole(outer, 3)
    assert len(traces.counted) == 2


@pytest.mark.parametrize(
    ("outer", "inner", "attributes"),
    [
        (
            "invoke_agent looper",
            "looper.workflow",
            {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "looper"},
        ),
        (
            "execute_task onerr.before_model",
            "execute_task onerr.abefore_model",
            {"gen_ai.operation.name": "execute_task", "gen_ai.task.name": "onerr.before_model"},
        ),
    ],
    ids=["root", "node"],
)
def test_twins_that_are_no_calls(
    traces: Traces, outer: str, inner: str, attributes: dict[str, object]
) -> None:
    """Root and node twins of OpenLLMetry are one agent run and one visit."""
    around = traces.start(outer, "llmetry", 0)
    within = traces.start(inner, "llmetry", 1, parent=around)
    traces.end(within, 2, **attributes)
    traces.end(around, 3, **attributes)
    assert len(traces.counted) == 1


def test_model_calls_of_framework_and_client_are_one(traces: Traces) -> None:
    """The span of the provider's client inside that of the framework repeats its tokens."""
    chat = {"gen_ai.operation.name": "chat", "gen_ai.usage.input_tokens": 10}
    framework = traces.start("chat", "langchain", 0)
    client = traces.start("chat gpt-4o", "openai", 30, parent=framework)
    traces.end(client, 90, **chat, **{"gen_ai.response.model": "gpt-4o-2024-08-06"})
    traces.end(framework, 100, **chat, **{"gen_ai.request.model": "gpt-4o"})
    assert len(traces.counted) == 1


def test_spans_that_never_end_are_forgotten(traces: Traces) -> None:
    """Open spans, held steps and remembered ones are bounded."""
    for number in range(25_000):
        span = traces.start("looper.search", "oi", number / 1000)
        inner = traces.start("execute_tool search", "native", number / 1000, parent=span)
        traces.genai(inner, number / 1000)
    dedup = traces.dedup
    assert len(dedup._open) <= 10_000
    assert len(dedup._inner) <= 10_000
    assert len(dedup.held) <= 128
    assert len(dedup._recent) <= 256
    assert len(dedup._sides) <= 512


def test_nothing_is_lost(traces: Traces) -> None:
    """Of a thousand calls of one scope each counts exactly once, degraded or not."""
    for number in range(1000):
        span = traces.start("execute_tool search", "a", number * 2)
        if number % 2:
            traces.whole(span, number * 2 + 1)
        else:
            traces.genai(span, number * 2 + 1)
    assert len(traces.counted) == 1000
    assert len({step.span_id for step in traces.counted}) == 1000


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
    ids=[
        "unknown",
        "text and map",
        "plain text",
        "another plain text",
        "another value",
        "defaults filled in",
        "number as text",
        "other names",
        "empty",
        "positions",
        "cut",
        "too long to tell",
        "cyclic",
    ],
)
def test_arguments_are_compared_loosely(one: object, other: object, expected: bool) -> None:
    """Forms of the same arguments agree; only what surely differs contradicts."""
    assert contradict(one, other) is expected
    assert contradict(other, one) is expected
