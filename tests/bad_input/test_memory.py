"""Nothing grows with the length of a run, or with the number of runs seen."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable, Sized
from typing import Any

import pytest

from otel_loopguard import LoopGuard, LoopGuardSpanProcessor, Settings
from otel_loopguard.core import Kind, Step
from otel_loopguard.dialects import RecordedSpan
from tests.bad_input.rig import TOOL, ended
from tests.calls import EPOCH, SECOND


def step(number: int, tool: str = "search", **fields: Any) -> Step:
    """A call that is like no other, half a second long."""
    start = EPOCH + number * SECOND
    given: dict[str, Any] = {
        "args": {"n": number}, "outcome": f"answer {number}", "start": start,
        "end": start + SECOND // 2, **fields,
    }  # fmt: skip
    return Step(Kind.TOOL, tool, **given)


def sizes(thing: object, depth: int = 6) -> int:
    """Entries of all tables below an object of the package."""
    seen: set[int] = set()

    def count(value: object, left: int) -> int:
        if id(value) in seen or left < 0 or isinstance(value, (str, bytes, type, int, float)):
            return 0
        seen.add(id(value))
        total = 0
        if isinstance(value, Sized) and hasattr(value, "__iter__"):
            total += len(value)
        if isinstance(value, dict):
            inner = [*value.values()]
        elif isinstance(value, (list, tuple)):
            inner = list(value)
        elif type(value).__module__.startswith("otel_loopguard"):
            names = [*getattr(value, "__dict__", {})]
            for kind in type(value).__mro__:
                names += list(getattr(kind, "__slots__", ()))
            inner = [getattr(value, name, None) for name in names if isinstance(name, str)]
        else:
            inner = []
        return total + sum(count(one, left - 1) for one in inner)

    return count(thing, depth)


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


@pytest.mark.parametrize("make", MANY.values(), ids=MANY.keys())
def test_tables_do_not_grow_with_steps(make: Callable[[int], tuple[Step, str]]) -> None:
    """After 50,000 steps the tables have as many entries as after 15,000."""
    # Without the advice on checkpoints: nobody takes these notes here, so that they wait.
    settings = Settings(max_sessions=200, budget_checkpoint_every=0)
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


@pytest.mark.parametrize("make", SPANS.values(), ids=SPANS.keys())
def test_tables_do_not_grow_with_spans(make: Callable[[int], RecordedSpan]) -> None:
    """After 40,000 spans the tables have as many entries as after 15,000."""
    # Without the advice on checkpoints: nobody takes these notes here, so that they wait.
    settings = Settings(max_sessions=200, budget_checkpoint_every=0)
    guard = LoopGuard(settings, clock="replay")
    early = 0
    for number in range(40_000):
        span = make(number)
        guard.opened(span)
        guard.closed(span)
        if number == 15_000:
            early = sizes(guard)
    assert sizes(guard) <= early * 1.05 + 4200


def test_100_000_traces_through_the_processor() -> None:
    """Sessions and traces stay within `max_sessions` and its multiple."""
    processor = LoopGuardSpanProcessor(max_sessions=100)
    for number in range(100_000):
        processor.on_end(ended(TOOL, span_id=number + 1, trace_id=number + 1))
    assert len(processor.guard._sessions) == 100
    assert len(processor.guard._sessions._by_trace) <= 400
    assert processor.faults.counts == {}


def test_scopes_of_no_interest_are_bounded() -> None:
    """20,000 random names of scopes are not all kept."""
    processor = LoopGuardSpanProcessor()
    for number in range(20_000):
        name = f"@opentelemetry/instrumentation-{number}"
        processor.on_start(ended({}, scope=name))  # type: ignore[arg-type]
    assert sizes(processor) < 10_000


def test_long_names_are_not_kept() -> None:
    """Span names and tools of 100 kB, all different, leave no megabytes behind."""
    guard = LoopGuard(Settings(), clock="replay")
    gc.collect()
    tracemalloc.start()
    try:
        for number in range(600):
            name = f"{number} " + "x" * 100_000
            attributes = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": name}
            span = span_of(number, name=f"execute_tool {name}", attributes=attributes, trace_id=1)
            guard.opened(span)
            guard.closed(span)
        gc.collect()
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # `Once` remembers the newest 256 steps with their names; each tool has a profile of 4 kB.
    assert kept < 256 * 110_000 + 600 * 4_000
