"""check, gate, pause, resume, abort."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

import otel_loopguard
from otel_loopguard import LoopGuardAbort, LoopGuardPaused, LoopGuardSpanProcessor, control
from tests.agents import provider_with, tool_call

if TYPE_CHECKING:
    from otel_loopguard._util.clock import TestMode


@pytest.fixture
def run() -> str:
    """A session that a guard knows."""
    processor = LoopGuardSpanProcessor(pause_limit_s=5)
    tracer = provider_with(processor).get_tracer("my.agent")
    with otel_loopguard.session("gated"):
        tool_call(tracer)
    _alive.append(processor)
    return "gated"


_alive: list[object] = []


def test_without_a_guard_nothing_happens() -> None:
    """An agent may ask where nobody guards."""
    control.check()
    assert control.gate().control.action == "allow"
    assert asyncio.run(_awaited()).action == "allow"


async def _awaited(limit_s: float | None = None) -> control.Control:
    return await control.gate(limit_s)


def test_a_gate_waits_while_the_session_is_paused(run: str) -> None:
    """It ends at once when somebody resumes the session."""
    assert control.pause(run, "looking into it")
    threading.Timer(0.2, control.resume, [run]).start()
    with otel_loopguard.session(run):
        control.check()
        began = time.monotonic()
        assert control.gate().control.action == "allow"
        assert time.monotonic() - began > 0.1


def test_a_gate_never_outlives_its_limit(run: str) -> None:
    """At the limit it raises, and says which session and why."""
    control.pause(run, "looking into it")
    with otel_loopguard.session(run):
        began = time.monotonic()
        with pytest.raises(LoopGuardPaused, match=r"^looking into it .*'gated'"):
            control.gate(limit_s=0.2)
        assert time.monotonic() - began < 30  # by default it waits for minutes
    control.resume(run)


def test_an_abort_ends_a_waiting_gate(run: str) -> None:
    """Waiters are woken."""
    control.pause(run)
    threading.Timer(0.1, control.abort, [run, "enough"]).start()
    with otel_loopguard.session(run), pytest.raises(LoopGuardAbort, match="enough"):
        control.gate()
    with otel_loopguard.session(run), pytest.raises(LoopGuardAbort):
        control.check()
    assert control.resume(run)


def test_in_asyncio_it_waits_without_blocking_the_loop(run: str) -> None:
    """A thousand gates need no threads, go on together, and the loop runs meanwhile."""

    async def go() -> tuple[int, int]:
        with otel_loopguard.session(run):
            before = set(threading.enumerate())
            gates = [asyncio.ensure_future(_awaited()) for _ in range(1000)]
            await asyncio.sleep(0.1)
            waiting = sum(not gate.done() for gate in gates)
            # Other tests may have left what begins a thread meanwhile.
            assert len(set(threading.enumerate()) - before) < 10
            control.resume(run)
            await asyncio.wait_for(asyncio.gather(*gates), 60)
            return waiting, sum(gate.result().action == "allow" for gate in gates)

    control.pause(run)
    assert asyncio.run(go()) == (1000, 1000)


def test_unknown_sessions_are_told_apart() -> None:
    """Setting a flag that nobody keeps warns."""
    assert not control.pause("nobody")
    assert not control.resume("nobody")
    assert not control.abort("nobody")


@pytest.mark.parametrize("key", ["", None, 3])
def test_a_session_needs_a_key(key: object) -> None:
    """The error has the value."""
    with pytest.raises(ValueError, match=repr(key)), otel_loopguard.session(key):  # type: ignore[arg-type]
        pass


@pytest.mark.parametrize("limit_s", [float("nan"), float("inf"), 1e300, "5", b"5"])
def test_the_limit_of_a_pause_is_a_finite_number(run: str, limit_s: Any) -> None:
    """The error has name and value, and nothing was paused."""
    with pytest.raises(ValueError, match=rf"limit_s must be .*{re.escape(repr(limit_s))}"):
        control.pause(run, limit_s=limit_s)
    with otel_loopguard.session(run):
        assert control.current().action == "allow"


@pytest.mark.parametrize("wrong", [5, b"ann", {"a": 1}])
def test_what_people_say_is_text(run: str, wrong: Any) -> None:
    """Else a model would be given what is none as its hint."""
    got = rf"must be a text, got {re.escape(repr(wrong))}"
    for name in ("by", "reason"):
        with pytest.raises(ValueError, match=f"{name} {got}"):
            control.pause(run, **{name: wrong})
        with pytest.raises(ValueError, match=f"{name} {got}"):
            control.abort(run, **{name: wrong})
    with pytest.raises(ValueError, match=f"guidance {got}"):
        control.resume(run, guidance=wrong)
    with otel_loopguard.session(run):
        assert control.current().action == "allow"


def test_a_limit_that_is_no_number_is_the_default_one() -> None:
    """A gate waited for ever."""
    processor = LoopGuardSpanProcessor(pause_limit_s=0.1)
    tracer = provider_with(processor).get_tracer("my.agent")
    with otel_loopguard.session("impatient"):
        tool_call(tracer)
        control.pause("impatient")
        with pytest.raises(LoopGuardPaused):
            control.gate(limit_s=float("nan"))
        for limit_s in (0.1, float("nan")):
            with pytest.raises(LoopGuardPaused):
                asyncio.run(_awaited(limit_s))


def test_a_pause_ends_by_the_clock_of_the_guard(run: str) -> None:
    """Who waits goes on when the machine has slept, or the clock was set, past the pause's end."""
    with otel_loopguard.set_testing(True, gate_limit_s=600) as testing:
        assert control.pause(run, limit_s=300)
        passed = threading.Thread(target=_gate_at, args=(run,), daemon=True)
        passed.start()
        waiting = asyncio.run(_gate_and_advance(run, testing))
        passed.join(60)
        assert not passed.is_alive()
    assert waiting.action == "allow"


def test_a_clock_that_is_set_back_prolongs_no_pause(
    run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its end is on a clock that nobody sets, too."""
    real = time.time_ns
    assert control.pause(run, limit_s=0.5)
    monkeypatch.setattr(time, "time_ns", lambda: real() - 3600 * 10**9)
    with otel_loopguard.session(run):
        control.gate(limit_s=60)
        assert control.current().action == "allow"


def _gate_at(run: str) -> None:
    with otel_loopguard.session(run):
        control.gate(limit_s=600)


async def _gate_and_advance(run: str, testing: TestMode) -> control.Control:
    with otel_loopguard.session(run):
        gate = asyncio.ensure_future(_awaited(600))
        await asyncio.sleep(0.1)
        testing.advance(301)
        return await asyncio.wait_for(gate, 60)


def test_a_session_that_is_known_by_its_flag_only_is_as_old_as_its_clock(run: str) -> None:
    """A clock that a test moved makes nothing too old that was named since."""
    del run
    with otel_loopguard.set_testing(True) as testing:
        guard = otel_loopguard.LoopGuard(otel_loopguard.Settings(session_ttl_s=60))
        processor = LoopGuardSpanProcessor(guard)
        testing.advance(3600)
        flag = guard.flag_named("told")
        testing.advance(1)
        assert guard.flag_of("told") is flag
        processor.shutdown()
