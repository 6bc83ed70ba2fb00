"""Guards switched off, or made deterministic, in somebody's own tests."""

import asyncio
import gc
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from otel_loopguard import (
    Action,
    LoopGuard,
    LoopGuardAbort,
    LoopGuardPaused,
    LoopGuardSpanExporter,
    LoopGuardSpanProcessor,
    Settings,
    control,
    resilience,
    semconv,
    session,
    set_testing,
)
from otel_loopguard._util import clock as rehearsal
from tests.agents import agent, provider_with, tool_call
from tests.stores.servers import wait_for

CALL = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search"}


@pytest.fixture(autouse=True)
def _no_guard_of_another_test_answers() -> None:
    # One that waits for the collector would still know its sessions.
    gc.collect()


def looping(provider: TracerProvider, calls: int = 6) -> None:
    """A run with equal calls."""
    tracer = provider.get_tracer("agent")
    with agent(tracer):
        for _ in range(calls):
            tool_call(tracer)


def guarded(**settings: Any) -> tuple[LoopGuard, TracerProvider, list[str]]:
    """A guard, the provider that feeds it, and the actions it decides."""
    found: list[str] = []
    guard = LoopGuard(
        Settings(**{"abort_after": 2, **settings}),
        on_decision=lambda _, decision: found.append(decision.action.value),
    )
    return guard, provider_with(LoopGuardSpanProcessor(guard)), found


KEY = "a run of this file"


@pytest.fixture
def known() -> Iterator[LoopGuard]:
    """A guard that knows the session of the test."""
    guard, _, _ = guarded(pause_limit_s=300, telemetry_events=False)
    guard.bind(1, KEY)
    with session(KEY):
        yield guard


def test_off_takes_no_decision() -> None:
    """A loop passes unseen, by processor and exporter, and is seen again when the block ends."""
    guard, provider, found = guarded()
    with set_testing("off"):
        looping(provider)
        assert found == []
    looping(provider)
    guard.settle()
    assert found[-1] == "abort"
    memory = InMemorySpanExporter()
    guard = LoopGuard()
    provider = provider_with(SimpleSpanProcessor(LoopGuardSpanExporter(memory, guard)))
    with set_testing("off"):
        looping(provider)
    spans = memory.get_finished_spans()
    assert len(spans) == 7
    assert not any(semconv.DECISION_ACTION in (span.attributes or {}) for span in spans)


@pytest.mark.parametrize("stop", [control.abort, control.pause])
def test_off_neither_raises_nor_waits(known: LoopGuard, stop: Callable[[str], bool]) -> None:
    """An aborted and a paused session go on, and every control is `allow`."""
    assert stop(KEY)
    with set_testing("off"):
        control.check()
        assert control.gate(60).control.action is control.current().action is Action.ALLOW
        assert control.hint() is None
        assert not control.pause(KEY)
    with pytest.raises((LoopGuardAbort, LoopGuardPaused)):
        control.gate(0)


def test_spans_are_told_by_the_moved_clock() -> None:
    """Equal answers a minute apart are waiting; without a pause they are a loop."""
    _, provider, found = guarded()
    tracer = provider.get_tracer("agent")
    with set_testing(True) as clock, agent(tracer):
        for _ in range(6):
            tool_call(tracer, tool="job_status", result="still running, no answer as yet")
            clock.advance(20)
        assert "deny" not in found
        for _ in range(8):
            tool_call(tracer, tool="look_up", result="there is no row of this name")
    assert "abort" in found


def test_a_moment_before_a_move_stays_where_it_was() -> None:
    """A span that is open while the clock is moved took as long as the clock was moved."""
    start = time.time_ns()
    was = rehearsal.to_guard_time(start)
    with set_testing(True) as clock:
        clock.advance(7)
    assert rehearsal.to_guard_time(start) == was
    assert rehearsal.to_guard_time(time.time_ns()) - was >= 7_000_000_000
    assert rehearsal.now() - was >= 7_000_000_000


def test_a_pause_ends_by_itself_when_the_clock_is_moved(known: LoopGuard) -> None:
    """A time limit of a person's pause is one of the guard's clock."""
    with set_testing(True) as clock:
        control.pause(KEY, limit_s=30)
        with pytest.raises(LoopGuardPaused):
            control.gate(60)
        clock.advance(31)
        control.gate(60)


def test_nobody_answers_in_no_time(known: LoopGuard) -> None:
    """A pause that people are asked about falls back when the test moves the clock."""
    with set_testing(True) as clock:
        assert control.escalate("needs a person") is not None
        clock.advance(200)
        assert control.current().action is Action.PAUSE
        clock.advance(101)
        assert control.current().action is Action.HINT
        assert "Nobody answered in time" in str(control.hint())


def test_gates_wait_no_longer_than_given(known: LoopGuard) -> None:
    """A gate of an hour gives up at once; with a limit it is woken by `resume` as ever."""

    async def wait() -> None:
        await control.gate(3600)

    control.pause(KEY)
    with set_testing(True):
        with pytest.raises(LoopGuardPaused):
            control.gate(3600)
        with pytest.raises(LoopGuardPaused):
            asyncio.run(wait())
    with set_testing(True, gate_limit_s=60):
        threading.Timer(0.05, control.resume, [KEY]).start()
        assert control.gate(300).control.action is Action.ALLOW


def test_retries_do_not_wait() -> None:
    """Three further tries with delays of an hour take no time."""
    tries = 0
    with set_testing(True), pytest.raises(ConnectionError):
        for attempt in resilience.retrying(limit=3, delay_s=3600, max_delay_s=3600):
            with attempt:
                tries += 1
                raise ConnectionError
    assert tries == 4


def test_a_thread_that_runs_already_rests() -> None:
    """A guard that was there before says nothing of late calls until testing ends."""
    _, provider, found = guarded(step_timeout_s=0.5, tuning={"stalls": {"warning": 1}})
    tracer = provider.get_tracer("agent")
    tool_call(tracer)  # starts the thread
    with set_testing(True):
        span = tracer.start_span("execute_tool search", attributes=CALL)
        time.sleep(0.7)
        assert found == []
    tool_call(tracer, args='{"q": "y"}', result="other")  # a span wakes it
    wait_for(lambda: bool(found))
    span.end()


def test_blocks_may_be_nested_and_set_back() -> None:
    """The end of a block sets back what was before it, an error or not; a call is for good."""
    with set_testing("off"):
        with pytest.raises(KeyError), set_testing(True):
            assert (rehearsal.deterministic(), rehearsal.off()) == (True, False)
            raise KeyError
        assert rehearsal.off()
    assert not rehearsal.off()
    for off in (True, False):
        set_testing("off" if off else False)
        assert rehearsal.off() is off


def test_a_value_that_cannot_be_used_is_named() -> None:
    """The message has it, and nothing is set; in production nothing moves the clock."""
    given: list[dict[str, Any]] = [{"testing": "on"}, {"testing": None}, {"gate_limit_s": -1}]
    for each in given:
        with pytest.raises(ValueError, match=f"{next(iter(each.values()))}"):
            set_testing(**each)
    assert not rehearsal.deterministic()
    with set_testing(True) as clock:
        for seconds in (-1, float("inf")):
            with pytest.raises(ValueError, match=str(seconds)):
                clock.advance(seconds)
    with pytest.raises(RuntimeError, match=r"5 s"):
        clock.advance(5)
