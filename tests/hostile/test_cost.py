"""No input makes a step cost much more than its size, and nothing is parsed under the lock."""

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import orjson
import pytest

from otel_loopguard import LoopGuard, Settings
from otel_loopguard._util import bounded, locks
from otel_loopguard.core import Kind, Step
from otel_loopguard.dialects import RecordedSpan, registered
from tests.calls import EPOCH, SECOND, Run, call
from tests.dialects.test_readings import CASES, TABLE, span_of
from tests.hostile.rig import MARK, TOOL, texts
from tests.programs import printed


@pytest.mark.parametrize("size", [20_000, pytest.param(1_000_000, marks=pytest.mark.rare)])
@pytest.mark.parametrize("name", texts(100))
def test_any_text_is_judged(name: str, size: int) -> None:
    """As arguments, command, result and error at once, and as what a model says.

    What takes exponential time would never end, nor a megabyte of what takes quadratic time.
    """
    text = texts(size)[name]
    for tool in ("bash", "python", "run_sql", "search"):
        guard = LoopGuard(Settings(), clock="replay")
        for error in (None, text):
            failed = {"error": error is not None, "error_text": error}
            guard.observe(Step(Kind.TOOL, tool, args=text, outcome=text, **failed), "s")
            guard.observe(Step(Kind.TOOL, tool, args={"command": text}, outcome=text), "s")
    run = Run()
    run.calls(*[Step(Kind.MODEL, "m", agent="writer", text=text)] * 6)
    assert {*run.actions} <= {"hint", "steer"}


@pytest.mark.parametrize("size", [20_000, pytest.param(300_000, marks=pytest.mark.rare)])
@pytest.mark.parametrize("name", texts(100))
def test_any_text_is_taken_out_of_any_wrapping(name: str, size: int) -> None:
    """In the place of every text of a span of each dialect, after which nothing is a fault."""
    guard, text = LoopGuard(Settings(), clock="replay"), texts(size)[name]
    for number, case in enumerate(CASES):
        given = span_of(TABLE[case][:-1]).attributes
        changed = {key: text if isinstance(value, str) else value for key, value in given.items()}
        kept = {key: value for key, value in given.items() if key in MARKS}
        guard.on_end(recorded(number, {**changed, **kept}))
    assert guard.faults.counts == {}


ROUND = """
from otel_loopguard import LoopGuard
from otel_loopguard.core import Kind, Step
from otel_loopguard.spans.messages import assistant_text
twice, often = [], []
twice.extend([twice, twice])
often.extend([often] * 10_000)
LoopGuard(clock="replay").observe(Step(Kind.TOOL, "t", args={"v": twice}), "s")
assistant_text(often)
"""


def test_what_contains_itself_more_than_once_ends() -> None:
    """What goes round is cut or given up, not followed into every branch; in memory too."""
    printed(ROUND)


PAGE = json.dumps({"rows": [{"id": number, "name": "x" * 20} for number in range(200)]})
MESSAGES = json.dumps(
    [
        {"role": "assistant", "parts": [
            {"type": "tool_call", "id": "c1", "name": "search", "arguments": {"q": "a"}}]},
        {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "response": PAGE}]},
    ]
)  # fmt: skip
MARKS = {mark for dialect in registered() for mark in dialect.marks}
SPANS: dict[str, dict[str, Any]] = {
    case: {
        key: value if key in MARKS or not isinstance(value, str) or value[:1] not in "{["
        else MESSAGES if "messages" in key else PAGE
        for key, value in span_of(TABLE[case][:-1]).attributes.items()
    }
    for case in CASES
} | {
    "an agent's messages": {
        MARK: "invoke_agent", "gen_ai.input.messages": MESSAGES, "gen_ai.output.messages": MESSAGES,
    },
    "a node's state": {
        MARK: "execute_task", "gen_ai.task.name": "plan", "gen_ai.task.input": PAGE,
        "gen_ai.task.output": PAGE,
    },
    "a plan": {
        MARK: "invoke_agent", "task_id": "a",
        "crew_tasks": json.dumps([{"id": "a", "description": "x", "context": PAGE}]),
    },
}  # fmt: skip
"""Spans of every dialect with a page of JSON wherever there is JSON."""


class Parser:
    """orjson, with a note of what it was given, and of whether somebody held the lock."""

    def __init__(self) -> None:
        self.given: list[int] = []
        self.held: list[str] = []

    def loads(self, text: str) -> object:
        self.given.append(len(text))
        if locks.held():
            self.held.append(text[:60])
        return orjson.loads(text)


def recorded(number: int, attributes: dict[str, Any]) -> RecordedSpan:
    start = EPOCH + number * SECOND
    return RecordedSpan(
        "x", "my.agent", "INTERNAL", 1, number + 1, None, start, start + SECOND // 2, attributes
    )


@pytest.fixture
def guard() -> LoopGuard:
    return LoopGuard(Settings(), clock="replay")


@pytest.fixture
def parser(monkeypatch: pytest.MonkeyPatch) -> Parser:
    found = Parser()
    monkeypatch.setattr(bounded, "orjson", SimpleNamespace(loads=found.loads))
    # The text that another test had parsed last is not parsed again.
    monkeypatch.setattr(bounded, "_parsed", ("", None))
    return found


def test_nothing_is_parsed_while_the_lock_is_held(guard: LoopGuard, parser: Parser) -> None:
    """Arguments, outcomes, messages, states and plans; at the start of a span and at its end."""
    kinds = [attributes for attributes in SPANS.values() for _ in range(3)]
    for number, attributes in enumerate(kinds):
        # The text that was parsed last is not parsed again.
        fresh = {
            key: str(one).replace("x" * 20, f"{number:020}") for key, one in attributes.items()
        }
        span = recorded(number, fresh)
        guard.on_start(span)
        guard.on_end(span)
    assert len(parser.given) > len(SPANS)
    assert parser.held == []


@pytest.mark.parametrize("key", ["gen_ai.tool.call.arguments", "gen_ai.tool.call.result"])
def test_a_text_of_many_values_is_not_parsed(guard: LoopGuard, parser: Parser, key: str) -> None:
    """`[1.0,[],[],…]`: of ten megabytes it took 6.8 s in 0.3.0, for which all others waited."""
    text = "[1.0," + "[]," * 3_000_000 + "1]"
    for number in range(3):
        guard.on_end(recorded(number, TOOL | {key: text}))
    assert max(parser.given, default=0) < 10_000


ODD = [10**400, -(10**400), 2**64, 1e300, float("inf"), float("nan"), True, "1e400", "9" * 40]


@pytest.mark.parametrize("tokens", ODD)
def test_a_count_that_no_model_can_have_is_none(guard: LoopGuard, tokens: Any) -> None:
    """It is no fault, and no budget is used up by it."""
    attributes = {"gen_ai.operation.name": "chat", "gen_ai.usage.input_tokens": tokens}
    guard.on_end(recorded(0, attributes))
    assert guard.faults.counts == {}
    step = guard.reader.read(recorded(1, attributes))
    assert step is not None
    assert step.tokens_in is None


SIZE = 10_000_000
HUGE = {
    "one letter": "x" * SIZE,
    "words": "lorem ipsum dolor " * (SIZE // 18),
    "lines": "a line of a log, like any other\n" * (SIZE // 32),
    "numbers": "1234567890 " * (SIZE // 11),
    "ids": "550e8400-e29b-41d4-a716-446655440000 " * (SIZE // 37),
    "errors": "Error: it failed\n" * (SIZE // 17),
}
MANY = "[]," * 400_000
ANSWERS: dict[str, tuple[Callable[[int], str], list[str]]] = {
    "equal lists": (lambda _: f"[1.0,{MANY}1]", ["hint"]),
    "lists that differ in their middle": (lambda number: f"[1.0,{MANY}{number},{MANY}1]", []),
    **{f"equal {name}": (lambda _, text=text: text, ["hint"]) for name, text in HUGE.items()},
    **{
        f"texts that differ at {place}": (
            lambda number, place=place: "x" * place + "abcdefgh"[number] + "x" * (SIZE - place - 1),
            [],
        )
        for place in (0, SIZE // 2, SIZE - 1)
    },
    "a log that grows": (lambda number: "x" * (SIZE + number), []),
}


@pytest.mark.parametrize(
    ("answer", "actions"),
    [
        pytest.param(*case, marks=() if "lists" in name else pytest.mark.rare, id=name)
        for name, case in ANSWERS.items()
    ],
)
def test_huge_answers_are_compared_whole(answer: Callable[[int], str], actions: list[str]) -> None:
    """Equal ones are a loop; what differs anywhere is another: the ends, and a key of the rest."""
    calls = (call("dump", {"of": "db"}, answer(number)) for number in range(3 if actions else 8))
    assert Run().calls(*calls) == actions
