"""Spans and values on them, as `readings.txt` and `spans.txt` have them."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from otel_loopguard import LoopGuard
from otel_loopguard.core import Kind
from otel_loopguard.dialects import Reader, RecordedSpan
from otel_loopguard.evidence.effects import command_of
from otel_loopguard.spans import values
from otel_loopguard.spans.coding_tools import arguments, gemini_result, prompt_step, tool_step
from otel_loopguard.spans.dedup import contradict
from otel_loopguard.spans.values import hidden, texts
from tests.dialects.told import sections, told
from tests.evidence.test_readings import rows, value


def outcome(unwrapped: Callable[[object], values.Outcome]) -> Callable[[str], list[object]]:
    """What a result says, as far as it says anything."""

    def read(said: str) -> list[object]:
        found = list(unwrapped(said))
        while len(found) > 1 and found[-1] in (None, False):
            found.pop()
        return found

    return read


def contradicting(one: str, other: str) -> bool:
    """In either order, as text or as a map."""
    (found,) = {contradict(*pair) for pair in ((one, other), (other, one), (value(one), other))}
    return found


def called(agent: str, said: str, how: str = "") -> list[object]:
    error = "" if how == "failed" else None
    step = tool_step(agent, "any", {}, said, error=error, stopped=how == "stopped" or None)
    assert step.error is (step.error_text is not None)
    return [step.outcome, *[step.error_text] * step.error]


READERS: Final[Mapping[str, Callable[..., Any]]] = {
    "the arguments of a call": values.call_inputs,
    "the inputs of a run of LangChain, and the id of its call": lambda said: list(
        values.run_inputs(said)
    ),
    "the content of a message of a tool": outcome(values.tool_message),
    "a result of ADK": outcome(values.agent_result),
    "a result of agno": outcome(values.execution_result),
    "a result of MCP": outcome(values.protocol_result),
    "a result of LlamaIndex": outcome(values.tool_output),
    "the text of blocks": texts,
    "a literal of Python": values.literal,
    "what stands in place of a value": hidden,
    "arguments that contradict each other": contradicting,
    "the scope of a span": lambda scope: Reader().interest(scope).name.lower(),
    "the line of a command": lambda said: command_of(arguments({"command": json.loads(said)})),
    "a call of a coding agent": called,
    "an answer as the model is shown it": lambda said: (
        tool_step("claude-code", "any", {}, json.loads(said)).outcome
    ),
    "an answer and the error of gemini-cli": lambda said: list(gemini_result(json.loads(said))),
}
ROWS = rows(Path(__file__).with_name("readings.txt"))


@pytest.mark.parametrize(("name", "expected", "cells"), ROWS)
def test_it_is_read(name: str, expected: str, cells: list[str]) -> None:
    given = [json.loads(cell) if cell[:1] == '"' else cell for cell in cells]
    same = (given[0], [given[0]], [given[0], None])
    found = READERS[name](*given)
    assert found in same if expected == "=" else found == value(expected)


@pytest.mark.parametrize(
    "given", ["[" * 3000, "x" * 200_000, 5, None], ids=lambda one: f"{one!r:.9}"
)
def test_what_is_no_text_or_too_long_stays_as_it_is(given: object) -> None:
    assert values.literal(given) is values.call_inputs(given) is given
    assert not hidden(given)


def test_a_mask_is_looked_for_in_a_short_text_or_a_flat_one() -> None:
    mask = "[Scrubbed due to 'password']"
    assert hidden("[" + "[]," * 20_000 + f'"{mask}"]')
    assert not hidden("x" * 5_000 + mask)


def test_calls_belong_to_their_sub_agent_and_a_prompt_to_nobody() -> None:
    """Their arguments are a map, however they are written."""
    call = tool_step("claude-code", "Read", '{"path": "a"}')
    assert (call.agent, call.args) == ("main", {"path": "a"})
    assert tool_step("claude-code", "Read", {}, sub_agent="a1").agent == "a1"
    prompt = prompt_step("gemini")
    assert (prompt.kind, prompt.name, prompt.dialect) == (Kind.OTHER, "user", "gemini_cli")


TABLE = sections("spans.txt")
CASES = [title for title, lines in TABLE.items() if lines[-1].startswith("= ")]


@pytest.mark.parametrize("case", CASES)
def test_a_span_is_the_step_that_the_table_tells(case: str) -> None:
    """Kind, name, content, failure, whose it is, and no more: a trace id is no session."""
    *lines, expected = TABLE[case]
    step = LoopGuard(clock="replay").reader.read(span_of(lines))
    assert step is not None
    assert f"= {told(step)}" == expected


def span_of(lines: list[str]) -> RecordedSpan:
    name, scope, *more = lines[0].split("  ")
    said = dict(one.split(" ") for one in more if " " in one)
    span = RecordedSpan(name, scope[2:].removesuffix("-"), said.get("kind", "INTERNAL"), 7, start=1)
    span.end, span.status = None if "open" in more else 9, said.get("status", "unset")
    for line in lines[1:]:
        if line.startswith("+ "):
            span.attributes |= span_of(["x  @ -", *TABLE[line[2:]]]).attributes
        elif line.startswith("event "):
            event, _, attributes = line[6:].partition(": ")
            span.events = [*span.events, (event, json.loads(attributes))]
        elif line.startswith("at its start := "):
            span.start_attributes = json.loads(line[16:])
        elif " := " in line:
            key, _, value = line.partition(" := ")
            span.attributes[key] = json.loads(value)
        elif line.startswith("description: "):
            span.description = json.loads(line[13:])
        else:
            key, _, value = line.partition(": ")
            span.attributes[key] = value
    return span
