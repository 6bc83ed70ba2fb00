"""What is written on spans is parsed within bounds, and while nobody holds the guard's lock."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import orjson
import pytest

from otel_loopguard import LoopGuard, Settings
from otel_loopguard._util import bounded_json
from otel_loopguard.core import Action
from otel_loopguard.spans.views import RecordedSpan
from tests.calls import EPOCH, SECOND

TOOL = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search"}
PAGE = json.dumps({"rows": [{"id": number, "name": "x" * 20} for number in range(200)]})
MESSAGES = json.dumps(
    [
        {"role": "assistant", "parts": [
            {"type": "tool_call", "id": "c1", "name": "search", "arguments": {"q": "a"}}]},
        {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "response": PAGE}]},
    ]
)  # fmt: skip
SPANS: dict[str, dict[str, Any]] = {
    "a tool": TOOL | {"gen_ai.tool.call.arguments": PAGE, "gen_ai.tool.call.result": PAGE},
    "a model": {
        "gen_ai.operation.name": "chat",
        "gen_ai.input.messages": MESSAGES,
        "gen_ai.output.messages": MESSAGES,
    },
    "an agent": {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.input.messages": MESSAGES,
        "gen_ai.output.messages": MESSAGES,
    },
    "a node": {
        "gen_ai.operation.name": "execute_task",
        "gen_ai.task.name": "plan",
        "gen_ai.task.input": PAGE,
        "gen_ai.task.output": PAGE,
    },
    "OpenInference": {
        "openinference.span.kind": "TOOL", "tool.name": "t", "input.value": PAGE,
        "output.value": json.dumps(
            {"type": "tool", "data": {"content": PAGE, "tool_call_id": "c"}}
        ),
    },
    "OpenInference's model": {
        "openinference.span.kind": "LLM",
        "llm.output_messages.0.message.role": "assistant",
        "llm.output_messages.0.message.tool_calls.0.tool_call.function.name": "search",
        "llm.output_messages.0.message.tool_calls.0.tool_call.function.arguments": PAGE,
        "llm.input_messages.0.message.role": "tool",
        "llm.input_messages.0.message.content": PAGE,
    },
    "OpenLLMetry": {
        "traceloop.span.kind": "tool", "traceloop.entity.name": "t",
        "traceloop.entity.input": PAGE, "traceloop.entity.output": PAGE,
    },
    "a plan": {
        "gen_ai.operation.name": "invoke_agent",
        "crew_tasks": json.dumps([{"id": "a", "description": "x", "context": PAGE}]),
        "task_id": "a",
    },
}  # fmt: skip


class Parser:
    """orjson, with a note of what it was given, and of whether somebody held the lock."""

    def __init__(self, guard: LoopGuard) -> None:
        self._guard = guard
        self.given: list[int] = []
        self.held: list[str] = []

    def loads(self, text: str) -> object:
        """Parses a text."""
        self.given.append(len(text))
        if self._guard._lock._is_owned():  # type: ignore[attr-defined]
            self.held.append(text[:60])
        return orjson.loads(text)


def span_of(number: int, attributes: dict[str, Any]) -> RecordedSpan:
    """A span of half a second."""
    start = EPOCH + number * SECOND
    return RecordedSpan(
        "x", "my.agent", "INTERNAL", 1, number + 1, None, start, start + SECOND // 2, attributes
    )


@pytest.fixture
def guard() -> LoopGuard:
    """A guard in a replay."""
    return LoopGuard(Settings(), clock="replay")


@pytest.fixture
def parser(guard: LoopGuard, monkeypatch: pytest.MonkeyPatch) -> Parser:
    """What parses in the place of orjson."""
    found = Parser(guard)
    monkeypatch.setattr(bounded_json, "orjson", SimpleNamespace(loads=found.loads))
    # The text that another test had parsed last is not parsed again.
    monkeypatch.setattr(bounded_json, "_parsed", ("", None))
    return found


@pytest.mark.parametrize("kind", SPANS)
def test_nothing_is_parsed_while_the_lock_is_held(
    guard: LoopGuard, parser: Parser, kind: str
) -> None:
    """Arguments, outcomes, messages, states and plans; at the start of a span and at its end."""
    for number in range(6):
        span = span_of(number, SPANS[kind])
        guard.on_start(span)
        guard.on_end(span)
    assert parser.given
    assert parser.held == []


@pytest.mark.parametrize("key", ["gen_ai.tool.call.arguments", "gen_ai.tool.call.result"])
def test_a_text_of_many_values_is_not_parsed(guard: LoopGuard, parser: Parser, key: str) -> None:
    """`[1.0,[],[],…]`: of ten megabytes it took 6.8 s in 0.3.0, for which all others waited."""
    text = "[1.0," + "[]," * 3_000_000 + "1]"
    for number in range(3):
        guard.on_end(span_of(number, TOOL | {key: text}))
    assert max(parser.given, default=0) < 10_000


def test_the_same_huge_text_again_is_the_same() -> None:
    """It is compared as text, and a call that gets it again and again is stopped."""
    decided = decisions(lambda _: "[1.0," + "[]," * 400_000 + "1]")
    assert Action.DENY in decided


def test_a_huge_text_that_differs_in_its_middle_is_another() -> None:
    """Beyond `value_chars` too: a healthy run whose results begin and end alike goes on."""
    filler = "[]," * 400_000
    assert decisions(lambda number: f"[1.0,{filler}{number},{filler}1]") == []


def decisions(result: Any) -> list[Action]:
    """What is decided about twelve calls with the same arguments."""
    found: list[Action] = []
    guard = LoopGuard(
        Settings(), clock="replay", on_decision=lambda _, decision: found.append(decision.action)
    )
    for number in range(12):
        said = {"gen_ai.tool.call.arguments": '{"q": "a"}'}
        said["gen_ai.tool.call.result"] = result(number)
        guard.on_end(span_of(number, TOOL | said))
    return found


@pytest.mark.parametrize(
    "tokens",
    [10**400, -(10**400), 2**64, 1e300, float("inf"), float("nan"), True, "1e400", "9" * 40],
)
def test_a_count_that_no_model_can_have_is_none(guard: LoopGuard, tokens: Any) -> None:
    """It is no fault, and no budget is used up by it."""
    attributes = {"gen_ai.operation.name": "chat", "gen_ai.usage.input_tokens": tokens}
    guard.on_end(span_of(0, attributes))
    assert guard.faults.counts == {}
    step = guard.reader.read(span_of(1, attributes))
    assert step is not None
    assert step.tokens_in is None
