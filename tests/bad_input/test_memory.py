"""Nothing grows with the length of a run, or with the number of runs seen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from otel_loopguard import LoopGuard, LoopGuardSpanProcessor, Settings
from otel_loopguard.core import Kind, Step
from otel_loopguard.spans.views import RecordedSpan
from tests.bad_input.rig import TOOL, ended
from tests.bad_input.sizes import sizes
from tests.calls import EPOCH, SECOND


def step(number: int, tool: str = "search", **fields: Any) -> Step:
    """A call that is like no other, half a second long."""
    start = EPOCH + number * SECOND
    given: dict[str, Any] = {
        "args": {"n": number}, "outcome": f"answer {number}", "start": start,
        "end": start + SECOND // 2, **fields,
    }  # fmt: skip
    return Step(Kind.TOOL, tool, **given)


MANY: dict[str, Callable[[int], tuple[Step, str]]] = {
    "50,000 different steps": lambda number: (step(number), "s"),
    "50,000 different tools": lambda number: (step(number, f"tool{number}"), "s"),
    "50,000 different errors": lambda number: (
        step(number, error=True, outcome=None, error_text=f"failed for {chr(97 + number % 26) * 3}"
             f"{number:x}".translate(str.maketrans("0123456789", "ghijklmnop"))), "s",
    ),
    "50,000 different error tools": lambda number: (
        step(number, f"tool{number}", error=True, error_text="not found"), "s",
    ),
    "50,000 different writes": lambda number: (step(number, "write_file"), "s"),
    "50,000 nonces": lambda number: (
        step(number, args={"id": f"x{number}y", "q": "a"}, outcome="same old answer"), "s",
    ),
    "10,000 different loops": lambda number: (
        step(number, args={"n": number // 5}, outcome="the same old answer"), "s",
    ),
    "50,000 sessions": lambda number: (step(number), f"s{number}"),
}  # fmt: skip


@pytest.mark.rare
@pytest.mark.parametrize("make", MANY.values(), ids=MANY.keys())
def test_tables_do_not_grow_with_steps(make: Callable[[int], tuple[Step, str]]) -> None:
    """After 50,000 steps the tables have as many entries as after 15,000."""
    # Without the advice on checkpoints: nobody takes these notes here, so that they wait.
    settings = Settings(max_sessions=200, tuning={"budget": {"checkpoint_every": 0}})
    guard = LoopGuard(settings, clock="replay")
    early = 0
    for number in range(50_000):
        guard.observe(*make(number))
        if number == 15_000:
            early = sizes(guard)
    assert sizes(guard) <= early * 1.05 + 4200


def span_of(number: int, **fields: Any) -> RecordedSpan:
    """A tool span in a trace of its own."""
    start = EPOCH + number * SECOND
    given: dict[str, Any] = {
        "name": "execute_tool search", "scope": "my.agent", "trace_id": number + 1,
        "span_id": number + 1, "start": start, "end": start + SECOND // 2,
        "attributes": {**TOOL, "gen_ai.tool.call.result": "x"}, **fields,
    }  # fmt: skip
    return RecordedSpan(**given)


SPANS: dict[str, Callable[[int], RecordedSpan]] = {
    "traces": span_of,
    "conversations": lambda number: span_of(
        number, attributes={**TOOL, "gen_ai.conversation.id": f"c{number}"}
    ),
    "span names": lambda number: span_of(number, name=f"run {number}", trace_id=1),
    "scopes": lambda number: span_of(number, scope=f"scope {number}", trace_id=1),
    "parents that nobody saw": lambda number: span_of(number, parent_id=10**9 + number, trace_id=1),
    "two scopes by turns": lambda number: span_of(
        number, scope=f"openinference.instrumentation.{number % 2}", trace_id=1
    ),
    "keys": lambda number: span_of(
        number, attributes={**TOOL, f"key {number}": 1, "session.id": f"{number % 9}"}
    ),
}


@pytest.mark.rare
@pytest.mark.parametrize("make", SPANS.values(), ids=SPANS.keys())
def test_tables_do_not_grow_with_spans(make: Callable[[int], RecordedSpan]) -> None:
    """After 40,000 spans the tables have as many entries as after 15,000."""
    # Without the advice on checkpoints: nobody takes these notes here, so that they wait.
    settings = Settings(max_sessions=200, tuning={"budget": {"checkpoint_every": 0}})
    guard = LoopGuard(settings, clock="replay")
    early = 0
    for number in range(40_000):
        span = make(number)
        guard.on_start(span)
        guard.on_end(span)
        if number == 15_000:
            early = sizes(guard)
    assert sizes(guard) <= early * 1.05 + 4200


def test_many_traces_through_the_processor() -> None:
    """Sessions and traces stay within `max_sessions` and its multiple."""
    processor = LoopGuardSpanProcessor(max_sessions=100)
    for number in range(5_000):
        processor.on_end(ended(TOOL, span_id=number + 1, trace_id=number + 1))
    assert len(processor.guard._sessions) == 100
    assert len(processor.guard._sessions._by_trace) <= 400
    assert processor.faults.counts == {}


def test_scopes_of_no_interest_are_bounded() -> None:
    """20,000 random names of scopes are not all kept."""
    processor = LoopGuardSpanProcessor()
    before = sizes(processor)  # with what all guards of the process share
    for number in range(20_000):
        name = f"@opentelemetry/instrumentation-{number}"
        processor.on_start(ended({}, scope=name))  # type: ignore[arg-type]
    assert sizes(processor) - before < 10_000
