"""Tool calls that no span tells of are read from the messages of models, each once."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from otel_loopguard import LoopGuard, Settings, semconv
from otel_loopguard._control.flag import note_refusal
from otel_loopguard.core import Decision, Kind, Step
from otel_loopguard.replay import SpanReplay
from otel_loopguard.spans.reader import Reader
from otel_loopguard.spans.views import RecordedSpan
from tests.dialects import captures, loops
from tests.tables import rows

SECOND = 1_000_000_000
NOTHING = "no results for weather in Paris"


@dataclass
class Seen:
    """A guard, with what it counted and decided."""

    live: bool = False
    settings: dict[str, Any] = field(default_factory=dict[str, Any])

    def __post_init__(self) -> None:
        self.steps: list[Step] = []
        self.sessions: list[str] = []
        self.wrote: list[str | None] = []
        self.decisions: list[Decision] = []
        self.guard = LoopGuard(
            Settings(**self.settings),
            clock="live" if self.live else "replay",
            on_step=lambda session, _, step: self._step(session.key, step),
            on_decision=lambda _, decision: self.decisions.append(decision),
        )

    def _step(self, session: str, step: Step) -> None:
        self.steps.append(step)
        self.sessions.append(session)
        if step.kind is Kind.MODEL:
            self.wrote.append(step.text)

    def replay(self, spans: list[RecordedSpan]) -> Seen:
        replay = SpanReplay(self.guard, self.guard.reader.read)
        for span in spans:
            replay.add(span)
        replay.finish()
        self.guard.shutdown()
        assert not self.guard.faults.counts
        return self

    def end(self, *spans: RecordedSpan) -> None:
        """Spans as they happen, each before the next."""
        for span in spans:
            self.guard.on_start(span)
            self.guard.on_end(span)

    @property
    def calls(self) -> list[Step]:
        return [step for step in self.steps if step.kind in (Kind.TOOL, Kind.HANDOFF)]


class Loop:
    """The model spans of a loop of one's own, by the GenAI conventions."""

    def __init__(self, question: str = "q", trace: int = 7, **more: Any) -> None:
        self.messages: list[dict[str, Any]] = [_said("user", question)]
        self.time = SECOND
        self.trace = trace
        self.more = more
        self.made = 0

    def model(self, *calls: dict[str, Any], **more: object) -> RecordedSpan:
        """A model call that asks for these calls; its answer goes into the history."""
        answer = {"role": "assistant", "parts": list(calls) or [{"type": "text", "content": "ok"}]}
        known = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"}
        said = {"gen_ai.input.messages": self.messages, "gen_ai.output.messages": [answer]}
        texts = {name: json.dumps(one) for name, one in said.items()}
        span = self.span({**known, **texts, **self.more, **more})
        self.messages.append(answer)
        return span

    def span(self, attributes: dict[str, object], name: str = "chat m") -> RecordedSpan:
        self.made += 1
        start, self.time = self.time, self.time + 2 * SECOND
        return RecordedSpan(
            name, "my.client", trace_id=self.trace, span_id=self.trace * 1000 + self.made,
            parent_id=self.trace * 1000, start=start, end=start + SECOND, attributes=attributes,
        )  # fmt: skip

    def result(self, value: object, call_id: str | None = None) -> None:
        part = {"type": "tool_call_response", "response": value}
        part |= {} if call_id is None else {"id": call_id}
        self.messages.append({"role": "tool", "parts": [part]})

    def tool(self, name: str = "search", **attributes: object) -> RecordedSpan:
        """The span of a tool."""
        known = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": name}
        return self.span({**known, **attributes}, f"execute_tool {name}")


def _said(role: str, content: str) -> dict[str, Any]:
    return {"role": role, "parts": [{"type": "text", "content": content}]}


def call(call_id: str | None = None, name: str = "search", **args: object) -> dict[str, Any]:
    part = {"type": "tool_call", "name": name, "arguments": args or {"query": "weather in Paris"}}
    return part | ({} if call_id is None else {"id": call_id})


def hint_of(seen: Seen, *, quotes: bool) -> str | None:
    """The hint of a session, as this process gives it or as another one does."""
    flag = seen.guard.flag_of(seen.sessions[0])
    if flag is None:
        return None
    return flag.quoting_hint if quotes else flag.control.hint


# The client's own span is the first that tells of a model call here, and has no content.
TWICE = ("messages__openinference", "messages__openllmetry", "runner__openinference")
# Its tools have spans with content.
TRACED = ("runner__native",)
CONTENT = [name for name in loops.names() if name not in loops.BARE]


@pytest.mark.parametrize("live", [False, True], ids=["replayed", "live"])
@pytest.mark.parametrize("name", CONTENT)
def test_loops_with_a_plain_client_tell_their_calls(
    name: str, live: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Names, order, arguments, results and the failure are those that ran; nothing is warned of."""
    seen = Seen(live=live)
    if live:
        seen.end(*loops.spans(name))
    else:
        seen.replay(loops.spans(name))
    found = [(step.name, captures.loaded(step.args), step.outcome) for step in seen.calls]
    assert found == loops.CALLS
    assert [step.error for step in seen.calls] == [False] * 5 + [True]
    assert len(set(seen.sessions)) == 1
    assert _warnings(caplog) == []


@pytest.mark.parametrize("name", [name for name in loops.names() if name.startswith("stream__")])
def test_a_streamed_answer_is_one_model_call(name: str) -> None:
    """Logfire has a span for the start of a stream and one for its end."""
    streamed, whole = (
        [step for step in Seen().replay(loops.spans(one)).steps if step.kind is Kind.MODEL]
        for one in (name, name.replace("stream", "chat"))
    )
    assert [step.tokens for step in streamed] == [step.tokens for step in whole]
    assert [step.text for step in streamed] == [step.text for step in whole]


def test_a_span_without_content_that_no_message_tells_counts_by_itself() -> None:
    """It waits for the messages until another span shows that spans have content."""
    loop, seen = Loop(), Seen(live=True)
    known = {"gen_ai.tool.call.arguments": "{}", "gen_ai.tool.call.result": "a page"}
    asked = loop.model(call("c1"), call("c2", "fetch"))
    seen.end(asked, loop.tool(**{"gen_ai.tool.call.id": "c1"}))
    assert seen.calls == []
    seen.end(loop.tool("fetch", **{"gen_ai.tool.call.id": "c2", **known}))
    found = [(step.name, step.args, step.call_id) for step in seen.calls]
    assert found == [("search", None, "c1"), ("fetch", "{}", "c2")]


def test_client_and_server_of_a_call_without_content_are_one_that_messages_tell() -> None:
    """MCP's client and server each write a span; the server's may end first."""
    loop, seen = Loop(), Seen(live=True)
    asked = loop.model(call("c1"))
    client = loop.tool()
    server = replace(client, span_id=99, parent_id=client.span_id, scope="server")
    loop.result(NOTHING, "c1")
    seen.end(asked)
    seen.guard.on_start(client)
    seen.end(server)
    seen.guard.on_end(client)
    seen.end(loop.model())
    found = [(step.name, captures.loaded(step.args), step.outcome) for step in seen.calls]
    assert found == [("search", {"query": "weather in Paris"}, NOTHING)]


@pytest.mark.parametrize("name", [name for name in CONTENT if name not in TWICE + TRACED])
def test_a_told_call_lies_between_the_models_that_asked_and_that_heard(name: str) -> None:
    """It comes after the step of the model that asked, and before that of the next one."""
    seen = Seen().replay(loops.spans(name))
    kinds = "".join(step.kind.value[0] for step in seen.steps if step.kind is not Kind.OTHER)
    assert kinds.replace("mm", "m") == "mtmtmtmttmtm"
    for before, after in zip(seen.calls, seen.calls[1:], strict=False):
        assert before.start < (before.end or 0)
        together = before.name == "search" and captures.loaded(before.args) == {"query": "alpha"}
        assert (after.start == before.start) is together


CUT_RESULTS, WHOLE, BLIND = (
    [row.values[0] for row in rows(__file__, section)] for section in ("cut", "whole", "blind")
)


@pytest.mark.parametrize("name", [*WHOLE, *CUT_RESULTS])
def test_without_their_tool_spans_captures_tell_the_same_calls(name: str) -> None:
    """What the spans of tools told of real frameworks is told by the messages of their models."""
    captures.need_shared()
    reader = Reader()
    spans = captures.views(name)
    bare = [span for span in spans if not _is_call(reader.read(span))]
    assert len(bare) < len(spans)
    told = Seen().replay(bare).calls
    # The last call of pydantic-ai ends the run: no request shows what came of it.
    script = captures.SCRIPT[: 12 if name.startswith("pydantic-ai__") else 13]
    assert [(step.name, captures.loaded(step.args)) for step in told] == script
    outcomes = [step.outcome for step in told]
    if name in WHOLE:
        assert outcomes[:12] == [captures.expected_outcome(*one) for one in script[:12]]
        assert told[12].outcome is not None
    else:
        assert set(outcomes) <= {None, NOTHING}


def _is_call(step: Step | None) -> bool:
    return step is not None and step.kind in (Kind.TOOL, Kind.HANDOFF)


def test_a_tool_span_counts_and_its_message_does_not() -> None:
    """From the first span of a tool on the messages of its session are not read."""
    seen, loop = Seen(), Loop()
    for turn in range(4):
        seen.end(loop.model(call(f"c{turn}", query=str(turn))))
        seen.end(loop.tool(**{"gen_ai.tool.call.id": f"c{turn}"}))
        loop.result(turn, f"c{turn}")
    seen.end(loop.model())
    assert [step.dialect for step in seen.calls] == ["genai"] * 4


@pytest.mark.parametrize("by_id", [True, False], ids=["by id", "by arguments"])
def test_a_tool_span_that_comes_late_is_not_counted_again(by_id: bool) -> None:
    """A span that is exported after the next model call tells of a call that was counted."""
    seen, loop = Seen(), Loop()
    first = loop.model(call("c0" if by_id else None))
    late = loop.tool(**{
        "gen_ai.tool.call.id": "c0" if by_id else "",
        "gen_ai.tool.call.arguments": '{"query": "weather in Paris"}',
    })  # fmt: skip
    late.start, late.end = first.end or 0, (first.end or 0) + SECOND // 2
    loop.result(NOTHING, "c0" if by_id else None)
    seen.end(first, loop.model(), late)
    assert len(seen.calls) == 1
    seen.end(loop.model(call("c1")), loop.tool(**{"gen_ai.tool.call.id": "c1"}), loop.model())
    assert [step.dialect for step in seen.calls] == ["messages", "genai"]


@pytest.mark.parametrize(("_", "turns", "told", "tool"), rows(__file__, "turns"))
def test_calls_and_results_are_found_in_the_history(
    _: str, turns: str, told: str, tool: str
) -> None:
    """By the ids of the calls, or by their place; what was there before is not counted."""
    seen, loop = Seen(), Loop()
    loop.model(call("before"))
    loop.result(NOTHING, "before")
    for turn in turns.split("; "):
        asked, _, shown = turn.partition(" ->")
        calls = [one.split(":") for one in asked.split()]
        seen.end(loop.model(*(call(key or None, tool or "search", q=it) for key, it in calls)))
        for key, value in (one.split("=") for one in shown.split()):
            loop.result(value, key or None)
    seen.end(loop.model())
    assert " ".join(f"{step.name}={step.outcome}" for step in seen.calls) == told
    assert {step.kind for step in seen.calls} == {Kind.HANDOFF if tool else Kind.TOOL}


def test_results_are_sent_alone_where_the_provider_keeps_the_conversation() -> None:
    """OpenLLMetry gives calls of the Responses API other ids than their results have.

    A result goes with the only answer that waits; of two it could be that of either.
    """
    seen, loop = Seen(), Loop()
    for turn in range(2):
        seen.end(loop.model(call(f"fc_{turn}", query="one"), call(f"fd_{turn}", query="other")))
        loop.messages = []
        for value in "AB":
            loop.result(f"{value}{turn}", f"call_{value}{turn}")
    seen.end(loop.model())
    assert [step.outcome for step in seen.calls] == ["A0", "B0", "A1", "B1"]
    for agent in "xy":
        loop.messages = [_said("user", agent)]
        seen.end(loop.model(call(f"fc_{agent}", query=agent)))
    loop.messages = []
    loop.result("whose?", "call_z")
    seen.end(loop.model())
    assert len(seen.calls) == 4


def test_a_request_that_seems_to_start_before_the_answer_it_follows_has_its_results() -> None:
    """OpenTelemetry for JavaScript cuts starts to milliseconds, and not ends."""
    loop, spans = Loop(), list[RecordedSpan]()
    for page in range(3):
        spans.append(loop.model(call(f"c{page}", page=page)))
        loop.result(f"page {page}", f"c{page}")
        loop.time = (spans[-1].end or 0) - 900_000
    seen = Seen().replay([*spans, loop.model()])
    assert [step.outcome for step in seen.calls] == ["page 0", "page 1", "page 2"]


def test_two_conversations_of_a_session_keep_their_calls_apart() -> None:
    """Agents that take turns, with ids of their own that are the same, get their own results."""
    seen = Seen()
    one, two = Loop("one"), Loop("two")
    for turn in range(3):
        for loop in (one, two):
            loop.time = max(one.time, two.time)
            who = "a" if loop is one else "b"
            seen.end(loop.model(call("call_0", query=f"{who}{turn}")))
            loop.result(f"{who.upper()}{turn}", "call_0")
    seen.end(one.model(), two.model())
    found = [(str(captures.loaded(step.args)), str(step.outcome)) for step in seen.calls]
    assert sorted(found) == [
        (f"{{'query': '{name.lower()}'}}", name) for name in ("A0", "A1", "A2", "B0", "B1", "B2")
    ]


def test_of_two_spans_in_traces_of_their_own_the_one_with_messages_is_read() -> None:
    """A client's own span has no content; outside of any span it is another trace each time."""
    seen = Seen()
    loop = Loop(**{"gen_ai.conversation.id": "talk", "gen_ai.usage.input_tokens": 9})
    for turn in range(3):
        loop.result("nothing", f"call_{turn - 1}")
        span = replace(loop.model(call(f"call_{turn}")), trace_id=90 + turn, parent_id=None)
        bare = {name: one for name, one in span.attributes.items() if "messages" not in name}
        client = replace(
            span, scope="sdk", trace_id=80 + turn, span_id=80 + turn, attributes=bare,
            start=span.start + 1000, end=(span.end or 0) - 1000,
        )  # fmt: skip
        seen.guard.on_start(span)
        seen.end(client)
        seen.guard.on_end(span)
    assert [step.outcome for step in seen.calls] == ["nothing"] * 2


def test_messages_that_are_logged_later_than_their_spans_count_nothing_again() -> None:
    """As where a client writes its messages on its spans and as log records below them."""
    seen, loop = Seen(), Loop()
    spans: list[RecordedSpan] = []
    for turn in range(4):
        spans.append(loop.model(call(f"call_{turn}")))
        loop.result(f"result {turn}", f"call_{turn}")
    logged = [
        replace(
            span, scope="my.client.log", span_id=span.span_id + 500, parent_id=span.span_id,
            start=span.start + 1000, end=(span.end or 0) - 1000,
            attributes={**span.attributes, "gen_ai.operation.name": "fetch_response"},
        )
        for span in spans
    ]  # fmt: skip
    seen.end(*spans, *logged)
    assert [step.outcome for step in seen.calls] == ["result 0", "result 1", "result 2"]


@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize("seconds", [0, 3])
def test_what_a_model_wrote_is_read_where_the_sdk_has_a_span_inside(
    beside: bool, seconds: int
) -> None:
    """The SDK's own span ends first and has no content: it waits a second for the one around it."""
    seen, loop = Seen(), Loop()
    for turn in range(4):
        loop.result("nothing", f"call_{turn - 1}")
        text = {"type": "text", "content": f"I look once more: {turn}"}
        span = loop.model(text, call(f"call_{turn}"), **{"gen_ai.usage.input_tokens": 9})
        bare = {name: one for name, one in span.attributes.items() if "messages" not in name}
        client = replace(
            span, scope="sdk", span_id=(span.span_id or 0) + 500, attributes=bare,
            parent_id=span.parent_id if beside else span.span_id, start=span.start + 1000,
            end=(span.end or 0) - 1000,
        )  # fmt: skip
        span.end = (span.end or 0) + seconds * SECOND
        loop.time += seconds * SECOND
        seen.guard.on_start(span)
        seen.end(client)
        seen.guard.tick((span.end or 0) - 1)
        seen.guard.on_end(span)
    assert [step.outcome for step in seen.calls] == ["nothing"] * 3
    assert [step.tokens_in for step in seen.steps if step.kind is Kind.MODEL] == [9] * 4
    # At the first it is not known yet that models have spans of several scopes.
    wrote = [None, *(f"I look once more: {turn}" for turn in range(1, 4))]
    assert seen.wrote == (wrote if seconds == 0 else [None] * 4)


def test_a_compacted_history_counts_nothing_again() -> None:
    """What is cut away from a history, or told again in it, was counted when it was new."""
    seen, loop = Seen(), Loop()
    for turn in range(8):
        if turn == 4:
            del loop.messages[:-2]
            loop.messages.insert(0, _said("user", "what was before: …"))
        seen.end(loop.model(call(f"c{turn}", query=str(turn))))
        loop.result(turn, f"c{turn}")
    loop.messages = [_said("user", "again"), *loop.messages]
    seen.end(loop.model(), loop.model())
    assert [step.outcome for step in seen.calls] == list(range(8))


def test_of_a_long_history_only_the_end_is_read() -> None:
    """The newest result is found in a history of a megabyte, and in one whose result is long."""
    seen, loop = Seen(), Loop("x" * 1_000_000)
    seen.end(loop.model(call("c0", role='{"role": "user"}')))
    loop.result('[{"role": "tool", "content": "a"}]' * 1000, "c0")
    seen.end(loop.model(call("c1")))
    loop.result("short", "c1")
    seen.end(loop.model())
    assert [str(step.outcome)[:5] for step in seen.calls] == ['[{"ro', "short"]


def test_hidden_requests_leave_results_unknown() -> None:
    """Answers alone tell of the calls: they count, and are hinted at and no more."""
    seen, loop = Seen(), Loop()
    hidden: dict[str, Any] = {"gen_ai.input.messages": "__REDACTED__"}
    for turn in range(12):
        seen.end(loop.model(call(f"c{turn}"), **hidden))
    assert len(seen.calls) == 11
    assert {step.outcome for step in seen.calls} == {None}
    assert {decision.action.value for decision in seen.decisions} <= {"allow", "hint"}


def test_a_failed_request_without_messages_leaves_results_to_the_next() -> None:
    """OpenLLMetry for Bedrock, where the provider limits requests: the same one comes again."""
    seen, loop = Seen(), Loop()
    for turn in range(3):
        seen.end(loop.model(call(f"c{turn}")))
        loop.result(turn, f"c{turn}")
        failing = loop.span({"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"})
        seen.end(replace(failing, status="error"))
    seen.end(loop.model())
    assert [step.outcome for step in seen.calls] == [0, 1, 2]


def test_answers_in_the_form_of_a_call_are_no_calls() -> None:
    """Fifty records written through one function, each in a conversation of its own."""
    seen = Seen()
    for item in range(50):
        loop = Loop(f"classify {item}", 7, **{"session.id": "batch"})
        loop.time = SECOND * (1 + 3 * item)
        seen.end(loop.model(call(f"c{item}", "Label", label="good")))
    assert seen.calls == []
    assert {decision.action.value for decision in seen.decisions} <= {"allow"}


@pytest.mark.parametrize("quotes", [False, True])
def test_a_refusal_in_place_of_a_result_is_no_result(quotes: bool) -> None:
    """What the guard told the model to be told is not what the tool answered."""
    seen, loop = Seen(settings={"abort_after": 2}), Loop()
    for turn in range(4):
        seen.end(loop.model(call(f"c{turn}")))
        loop.result(NOTHING, f"c{turn}")
    seen.end(loop.model(call("c4")))
    hint = hint_of(seen, quotes=quotes)
    assert hint is not None
    loop.result(hint, "c4")
    seen.end(loop.model())
    assert (seen.calls[-1].error_type, seen.calls[-1].outcome) == (semconv.ERROR_DENY, None)
    assert seen.decisions[-1].action.value == "abort"


@pytest.mark.parametrize("around", ["{}", "Error: {}"])
def test_a_refusal_of_another_call_of_the_loop_is_no_result(around: str) -> None:
    """The words around its hint tell which loop the call is part of, and are no answer either."""
    seen, loop, turn = Seen(), Loop(), 0
    while not seen.decisions or seen.decisions[-1].action.value != "deny":
        name = ("search", "fetch")[turn % 2]
        seen.end(loop.model(call(f"c{turn}", name, query=name)))
        loop.result({"search": "No results.", "fetch": "empty page"}[name], f"c{turn}")
        turn += 1
        assert turn < 20
    flag, denied = seen.guard.flag_of(seen.sessions[0]), seen.decisions[-1]
    assert flag is not None
    other = "fetch" if denied.tool == "search" else "search"
    refusal = flag.denial_of(other, denied.id)
    note_refusal(flag, str(refusal))
    seen.end(loop.model(call(f"c{turn}", other, query=other)))
    loop.result(around.format(refusal), f"c{turn}")
    seen.end(loop.model())
    assert seen.calls[-1].refused


@pytest.mark.parametrize("quotes", [False, True])
def test_a_hint_behind_a_result_does_not_change_it(quotes: bool) -> None:
    """No loop is forgiven by that: it climbs as one with a span for its tool does."""
    seen, loop = Seen(), Loop()
    for turn in range(7):
        seen.end(loop.model(call(f"c{turn}")))
        hint = hint_of(seen, quotes=quotes)
        loop.result(f"{NOTHING}\n\n{hint}" if hint else NOTHING, f"c{turn}")
    seen.end(loop.model())
    assert {step.outcome for step in seen.calls} == {NOTHING}
    said = [one.action.value for one in seen.decisions if one.detector == "exact_repeat"]
    assert said == ["hint", "deny", "abort"]


@pytest.mark.parametrize(("_", "failed", "asks", "hears"), rows(__file__, "forms"))
def test_other_forms_of_messages_are_read(_: str, failed: str, asks: str, hears: str) -> None:
    """What asks, what was answered, and where it is said whether the call failed."""
    seen, loop = Seen(), Loop()
    for said in map(json.loads, (asks, hears)):
        texts = {key: one if isinstance(one, str) else json.dumps(one) for key, one in said.items()}
        seen.end(loop.span(texts))
    (step,) = seen.calls
    found = (step.name, captures.loaded(step.args), step.outcome, step.error)
    assert found == ("search", {"q": 1}, "no index", json.loads(failed))


def _warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    said = [one.getMessage() for one in caplog.records]
    return [one for one in said if "no tool span was seen" in one or "neither arguments" in one]


BARE = loops.spans("chat__v2-default")
# Anthropic's SDK says it under a key of its own, and nothing more.
ASKS = {"gen_ai.operation.name": "chat", "anthropic.message.stop_reason": "tool_use"}


@pytest.mark.parametrize("spans", [BARE * 2, [Loop().span(ASKS)] * 9], ids=["OpenAI", "Anthropic"])
def test_tools_that_are_asked_for_unseen_are_warned_of(
    spans: list[RecordedSpan], caplog: pytest.LogCaptureFixture
) -> None:
    """Five answers that ask for tools and say nothing more: one warning, with the remedy."""
    Seen(live=True).end(*spans)
    assert len(_warnings(caplog)) == 1
    assert "5 model calls asked for tools and no tool span was seen" in _warnings(caplog)[0]
    assert "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT" in _warnings(caplog)[0]


@pytest.mark.parametrize("text", [None, "It is sunny."], ids=["silent", "answering"])
def test_a_model_that_is_silent_about_results_is_warned_of(
    text: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    """Pipecat writes the request, and of the answer its text: what it asks for is nowhere."""
    seen, loop = Seen(live=True), Loop()
    for turn in range(6):
        loop.model(call(f"c{turn}"))
        loop.result(NOTHING, f"c{turn}")
        asked = {"gen_ai.operation.name": "chat", "input": json.dumps(loop.messages)}
        said = [{"role": "assistant", "parts": [{"type": "text", "content": text}]}]
        seen.end(loop.span(asked | ({"gen_ai.output.messages": json.dumps(said)} if text else {})))
    assert bool(_warnings(caplog)) is (text is None)


@pytest.mark.parametrize("told", [False, True], ids=["spans", "messages"])
def test_calls_without_content_are_warned_of(told: bool, caplog: pytest.LogCaptureFixture) -> None:
    """Five calls with neither arguments nor results: one warning, with the remedy."""
    seen, loop, warned = Seen(live=True), Loop(), list[int]()
    for turn in range(8):
        asked = {"type": "tool_call", "name": "search", "id": f"c{turn}"}
        seen.end(loop.model(asked) if told else loop.tool())
        loop.messages.append({"role": "tool", "parts": [{**asked, "type": "tool_call_response"}]})
        warned.append(len(_warnings(caplog)))
    assert warned == [0] * (4 + told) + [1] * (4 - told)
    assert "5 tool calls had neither arguments nor results" in _warnings(caplog)[0]


@pytest.mark.parametrize(
    ("heard", "parent", "session", "warned"),
    [
        (NOTHING, None, None, True),
        (None, None, None, False),
        (NOTHING, 1, None, False),
        (NOTHING, None, "mine", False),
    ],
    ids=["a loop", "turns of a user", "below a span", "in a session"],
)
def test_a_loop_of_models_without_a_span_above_is_warned_of(
    heard: str | None, parent: int | None, session: str | None, *, warned: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    """Each of its model calls is a trace: told a result that was asked for in another."""
    seen, loop = Seen(live=True), Loop(**{"gen_ai.conversation.id": session} if session else {})
    for turn in range(7):
        span = loop.model(call(f"c{turn}"))
        seen.end(replace(span, trace_id=100 + turn, parent_id=parent and 100 + turn))
        loop.result(NOTHING, f"c{turn}")
        if heard is None:
            loop.messages.append(_said("user", "and now?"))
    seen.guard.settle()
    assert ("a trace of its own" in caplog.text) is warned


def test_models_that_ask_for_tools_unseen_in_traces_of_their_own_are_warned_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As of a client whose messages are not captured, or are log records."""
    loop = Loop()
    spans = (replace(loop.span(ASKS), trace_id=turn, parent_id=None) for turn in range(1, 8))
    Seen(live=True).end(*spans)
    assert "5 tool calls, or calls of models that asked for them, came each" in caplog.text


@pytest.mark.parametrize("name", captures.names())
def test_a_capture_tells_nothing_twice(name: str, caplog: pytest.LogCaptureFixture) -> None:
    """Where spans tell of the calls, messages do not; only what has no content is warned of."""
    captures.need_shared()
    seen = Seen(live=True)
    spans = captures.views(name)
    starts = [(span.start, 1, span) for span in spans]
    ends = [(span.end or 0, 0, span) for span in spans]
    for _, starting, span in sorted([*starts, *ends], key=lambda one: one[:2]):
        (seen.guard.on_start if starting else seen.guard.on_end)(span)
    seen.guard.tick(2**62)
    assert len(seen.calls) == len([*filter(_is_call, captures.recorded(name).steps)])
    assert not [step for step in seen.calls if step.dialect == "messages"]
    assert bool(_warnings(caplog)) is (name in BLIND)
