"""Sessions are forgotten for want of room and by age: out of every table, and without traffic."""

import gc
import weakref
from collections.abc import Callable
from contextvars import Context as Variables
from typing import Any

import pytest
from opentelemetry.context import Context
from opentelemetry.trace import set_span_in_context

import otel_loopguard
from otel_loopguard import Action, LoopGuard, LoopGuardSpanProcessor, Settings, control, set_testing
from otel_loopguard._control.flag import STOPPING
from tests.agents import agent, provider_with, tool_call
from tests.calls import call, handle_of
from tests.hostile.rig import TOOL, ended
from tests.sessions.journals import until

SEARCH = call("search", {"q": "x"})


def work(processor: LoopGuardSpanProcessor, *numbers: int) -> None:
    """Tool calls, each a trace and a session of its own."""
    for number in numbers:
        processor.on_end(ended(TOOL, span_id=number, trace_id=number))
    processor.guard.settle()


def shown(count: int, **settings: Any) -> LoopGuardSpanProcessor:
    """A processor that was shown tool calls."""
    processor = LoopGuardSpanProcessor(**settings)
    work(processor, *range(1, count + 1))
    return processor


def known(guard: LoopGuard, *traces: int) -> list[int]:
    """Those of these traces whose session is known."""
    return [trace for trace in traces if guard.flag_of(trace) is not None]


def test_what_made_room_is_freed() -> None:
    """Of 40 traces with room for 10 the newest 10 have a session; no table holds another one."""
    processor = shown(1, max_sessions=10)
    (session,) = processor.guard._sessions.all
    parts = [weakref.ref(part) for part in (session, session.flag)]
    del session
    work(processor, *range(2, 41))
    assert known(processor.guard, *range(1, 41)) == [*range(31, 41)]
    gc.collect()
    assert [part() for part in parts] == [None, None]


def test_a_session_in_use_that_makes_room_is_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    """Of more agents than there is room for, nothing is ever found in any."""
    told = "more than max_sessions (LOOPGUARD_MAX_SESSIONS) = 10"
    with set_testing(True) as rehearsal:
        processor = shown(10, max_sessions=10)
        rehearsal.advance(61)
        work(processor, *range(11, 21))
        assert told not in caplog.text
        work(processor, 21, 22)
    # What was held back under a lock is logged by the thread that comes by first.
    until(lambda: told in caplog.text)
    assert caplog.text.count(told) == 1


def test_age_frees_without_traffic() -> None:
    """Sessions that nobody uses for `session_ttl_s` are gone, though no step comes any more."""
    processor = shown(50, session_ttl_s=1)
    until(lambda: not processor.guard.sees_steps)
    assert known(processor.guard, *range(1, 51)) == []


def test_many_of_an_age_go_in_small_parts() -> None:
    """A new session frees few of those that are too old: whoever ends a span waits for it."""
    with set_testing(True) as testing:
        processor = shown(200, session_ttl_s=60)
        processor._timer.stop()
        testing.advance(61)
        work(processor, 999)
        assert 190 < len(known(processor.guard, *range(1, 201))) < 200


def test_an_open_session_goes_after_those_that_are_not() -> None:
    """However long a call takes its session is known, and so is one around another; then by age.

    A call below it belongs to it, where nothing else names the session.
    """
    with set_testing(True) as testing:
        processor = LoopGuardSpanProcessor(max_sessions=3, session_ttl_s=60)
        guard = processor.guard
        tracer = provider_with(processor).get_tracer("my.agent")
        with otel_loopguard.session("outer"), agent(tracer) as run:
            with otel_loopguard.session("inner"):
                tool_call(tracer)
            Variables().run(work, processor, *range(1, 20))
            assert known(guard, *range(1, 20)) == [19]
            below = set_span_in_context(run, Context())
            tracer.start_span("execute_tool search", below, attributes=TOOL).end()
            assert handle_of(guard, "outer").report().steps == 1
            testing.advance(100)
            assert guard.flag_of("outer") is not None
        testing.advance(61)
        testing.advance(61)
        assert guard.flag_of("outer") is None


@pytest.mark.parametrize("stop", [control.pause, control.abort])
def test_what_a_person_stopped_goes_last_of_all(stop: Callable[..., bool]) -> None:
    """Neither other sessions nor age take it away; of those the one unused for longest goes."""
    with set_testing(True) as testing:
        guard = LoopGuard(Settings(max_sessions=5, session_ttl_s=60))
        for number in range(20):
            guard.observe(SEARCH, f"held{number}")
            assert stop(f"held{number}", by="ada")
        for number in range(30):
            guard.observe(SEARCH, f"s{number}")
        testing.advance(300)
        held = [number for number in range(20) if guard.flag_of(f"held{number}") is not None]
        assert held == [16, 17, 18, 19]
        assert guard.flag_named("held19").stops
        assert control.resume("held19")


def test_the_flag_of_a_forgotten_session_stays_usable() -> None:
    """Who holds it reads, sets and clears it; when it is gone, no loop of others asks for it."""
    gc.collect()
    before = bool(STOPPING)
    guard = LoopGuard(Settings(max_sessions=1))
    flag = guard.flag_named("old")
    guard.observe(SEARCH, "new")
    assert guard.flag_of("old") is None
    assert flag.set(Action.ABORT, reason="enough", by="ada")
    assert STOPPING
    flag.clear(by="ada")
    guard.observe(SEARCH, "old")
    assert guard.flag_of("old") is not flag
    control.abort("old", by="ada")
    guard.observe(SEARCH, "new")
    del flag
    gc.collect()
    assert bool(STOPPING) is before


def test_a_span_that_never_ends_keeps_no_session() -> None:
    """Where there are too many open spans, what is forgotten of them frees their sessions."""
    processor = LoopGuardSpanProcessor(max_sessions=5, tuning={"stalls": {"open_steps": 5}})
    tracer = provider_with(processor).get_tracer("my.agent")
    traces, left = [], []
    for _ in range(40):
        with agent(tracer) as span:
            # Never ended.
            left.append(tracer.start_span("execute_tool search", attributes=TOOL))
            tool_call(tracer)
            traces.append(span.get_span_context().trace_id)
    assert known(processor.guard, *traces) == traces[-5:]
    assert len(processor.guard._resolver._tops) <= 5


def test_a_guard_that_nobody_holds_is_freed_with_its_sessions() -> None:
    """After `shutdown` no thread, timer or list of the package keeps a guard."""
    processor = shown(5)
    guard, flag = weakref.ref(processor.guard), processor.guard.flag_of(1)
    assert flag is not None
    flag.set(Action.ABORT, reason="enough", by="ada")
    gone = weakref.ref(flag)
    processor.shutdown()
    del processor, flag

    def freed() -> bool:
        gc.collect()
        return guard() is None and gone() is None

    until(freed)
