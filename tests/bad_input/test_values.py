"""Attribute values of any type and size: nothing is thrown, and the span arrives as it was."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping

import pytest
from opentelemetry.trace import Status, StatusCode

from tests.bad_input.rig import KEYS, LOOP, MARK, TOOL, VALUES, Rig, Throwing, cyclic, ended


def same(first: Mapping[str, object], second: Mapping[str, object]) -> bool:
    """Whether two sets of attributes hold the very same objects, NaN being itself."""
    return [*first] == [*second] and all(first[key] is second[key] for key in first)


@pytest.mark.parametrize("wrapped", [False, True], ids=["alone", "with the exporter"])
@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES.keys())
def test_any_value_of_arguments_and_result(value: object, wrapped: bool) -> None:
    """Every call counts as a step, nothing is thrown, and the exporter gets what was set."""
    rig = Rig(wrapped=wrapped)
    for _ in range(2):
        span = rig.tracer.start_span("execute_tool search", attributes=TOOL)
        span.set_attribute("gen_ai.tool.call.arguments", value)  # type: ignore[arg-type]
        span.set_attribute("gen_ai.tool.call.result", value)  # type: ignore[arg-type]
        before = dict(span.attributes)  # type: ignore[attr-defined]
        span.end()
        assert same(before, dict(rig.exported[-1].attributes or {}))
    assert [step.name for step in rig.steps] == ["search", "search"]
    assert rig.faults == {}


@pytest.mark.parametrize("operation", ["execute_tool", "chat", "invoke_agent"])
@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES.keys())
def test_any_value_under_every_key_at_once(value: object, operation: str) -> None:
    """Names, ids, sessions and tokens of wrong types and sizes lose no step either."""
    rig = Rig()
    span = rig.tracer.start_span("span", attributes={MARK: operation})
    for key in KEYS:
        span.set_attribute(key, value)  # type: ignore[arg-type]
    span.end()
    assert len(rig.exported) == len(rig.steps) == 1
    assert rig.faults == {}


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES.keys())
def test_any_value_of_an_event(value: object) -> None:
    """An exception event with odd attributes is read past; the step counts as failed."""
    rig = Rig()
    span = rig.tracer.start_span("execute_tool search", attributes=TOOL)
    event = {"exception.type": value, "exception.message": value, "message": value}
    for name in ("exception", "gen_ai.choice", "", "gen_ai.client.inference.operation.details"):
        span.add_event(name, {**event, "gen_ai.input.messages": value})  # type: ignore[dict-item]
    span.set_status(Status(StatusCode.ERROR, "\ud800" if value is None else "x" * 100_000))
    span.end()
    assert [step.error for step in rig.steps] == [True]
    assert len(rig.exported[0].events) == 4
    assert rig.faults == {}


def test_a_value_that_contains_itself_is_a_step() -> None:
    """Past the SDK's own check (it cannot clean a cycle) nothing runs forever."""
    rig = Rig()
    for number in range(3):
        rig.processor.on_end(
            ended(
                {**TOOL, "gen_ai.tool.call.arguments": cyclic(), "input.value": cyclic()},
                span_id=number,
            )
        )
    assert len(rig.steps) == 3
    assert rig.faults == {}


def test_attributes_that_throw_are_one_counted_fault(
    no_raise: None, caplog: pytest.LogCaptureFixture
) -> None:
    """The fault is counted for every span, logged once, and stops at the hook."""
    rig = Rig()
    with caplog.at_level(logging.WARNING, "otel_loopguard"):
        for number in range(5):
            rig.processor.on_end(ended(Throwing(), span_id=number))
        rig.guard.settle()
        # A log line waits until its thread holds no lock, or another thread writes it.
        deadline = time.monotonic() + 60
        while not caplog.records and time.monotonic() < deadline:
            time.sleep(0.01)
    assert sum(rig.faults.values()) == 5
    assert len(rig.faults) == 1
    assert len(caplog.records) == 1
    assert rig.steps == []


@pytest.mark.parametrize(
    "name",
    ["", "x" * 1_000_000, "\ud800", "\0", "execute_tool "],
    ids=["empty", "1 MB", "surrogate", "NUL", "prefix only"],
)
def test_any_text_as_a_name(name: str) -> None:
    """An empty name or one of 1 MB is a name; the tool takes it where it has none of its own."""
    rig = Rig()
    for _ in range(4):
        with rig.tracer.start_as_current_span(name, attributes={MARK: "execute_tool"}) as span:
            span.set_attribute("gen_ai.tool.call.arguments", "{}")
            span.set_attribute("gen_ai.tool.call.result", "nothing here")
    assert [span.name for span in rig.exported] == [name] * 4
    assert len(rig.steps) == 4
    assert rig.faults == {}


@pytest.mark.parametrize("name", [None, 5, b"x", ("x",), ["x"], {}], ids=repr)
def test_a_name_that_is_no_text(name: object) -> None:
    """The SDK lets any object be a name; its call, and the calls below it, are steps."""
    rig = Rig()
    outer = {**TOOL, "gen_ai.tool.name": "delegate"}
    with rig.tracer.start_as_current_span(name, attributes=outer):  # type: ignore[arg-type]
        with rig.tracer.start_as_current_span("execute_tool search", attributes=TOOL):
            pass
        with rig.tracer.start_as_current_span(name, attributes={MARK: "execute_tool"}):  # type: ignore[arg-type]
            pass
    assert len(rig.steps) == 3
    assert rig.faults == {}


@pytest.mark.parametrize(
    "scope",
    [None, "", "x" * 1_000_000, "\ud800", 5, b"x"],
    ids=["None", "empty", "1 MB", "surrogate", "number", "bytes"],
)
def test_any_scope(scope: object) -> None:
    """A scope of None, of no text or of 1 MB hides no step."""
    rig = Rig()
    for number in range(3):
        rig.processor.on_end(ended(TOOL, scope=scope, span_id=number))
    assert len(rig.steps) == 3
    assert rig.faults == {}


def test_a_tool_of_a_megabyte_is_shortened_in_what_we_say() -> None:
    """A name that a model made up at length does not fill attributes, hints and logs."""
    rig = Rig()
    for number in range(LOOP):
        attributes = {**TOOL, "gen_ai.tool.name": "y" * 1_000_000}
        attributes |= {
            "gen_ai.tool.call.arguments": "{}",
            "gen_ai.tool.call.result": "No results found.",
        }
        rig.processor.on_end(ended(attributes, span_id=number, at=number))
    assert [decision.action.value for decision in rig.decisions] == ["hint", "deny", "abort"]
    assert all(len(decision.message) < 500 for decision in rig.decisions)


def test_json_text_and_the_equal_map_are_one_call_whatever_the_size() -> None:
    """Canonical forms hold for large values too."""
    rig = Rig()
    value = {f"k{number}": [number, str(number)] for number in range(20_000)}
    for number in range(5):
        given = json.dumps(value) if number % 2 else value
        attributes = {**TOOL, "gen_ai.tool.call.arguments": given}
        attributes["gen_ai.tool.call.result"] = "No results found."
        rig.processor.on_end(ended(attributes, span_id=number, at=number))
    assert [decision.action.value for decision in rig.decisions] == ["hint", "deny"]
