"""check, gate, pause, resume, abort; callbacks; asking where only a framework knows the session."""

import asyncio
import contextvars
import gc
import json
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
import trio
from opentelemetry import context as otel_context
from opentelemetry import trace

from otel_loopguard import (
    Action,
    Decision,
    LoopGuard,
    LoopGuardAbort,
    LoopGuardPaused,
    LoopGuardSpanProcessor,
    Settings,
    control,
    session,
    sessions,
    set_testing,
    turn,
)
from otel_loopguard._util.clock import TestMode as Moved
from otel_loopguard._util.errors import raise_faults
from tests.control.messages import Run, call, control_of, new_name
from tests.programs import Interpreter
from tests.stores.servers import wait_for
from tests.tables import rows
from tests.zero_code.interpreter import ROOT, environment

NAN = float("nan")


async def _awaited(limit_s: float | None = None) -> control.Control:
    return await control.gate(limit_s)


def test_without_a_guard_nothing_happens() -> None:
    """An agent may ask where nobody guards, also below a span that nobody knows."""
    control.check()
    with trace.use_span(trace.NonRecordingSpan(trace.SpanContext(2**127, 5, is_remote=True))):
        control.check()
        assert control.current().action == "allow"
    assert control.gate().control.action == "allow"
    assert asyncio.run(_awaited()).action == "allow"
    told = control.pause, control.resume, control.abort, control.allow
    assert not any(say(key) for say in told for key in ("nobody", ""))


def test_a_gate_waits_while_the_session_is_paused(run: Run) -> None:
    """It ends at once when somebody resumes the session, and raises when somebody aborts it."""
    run.calls()
    assert control.pause(run.key, "looking into it")
    control.check()
    threading.Timer(0.1, control.resume, [run.key]).start()
    assert control.gate().control.action == "allow"
    control.pause(run.key)
    threading.Timer(0.1, control.abort, [run.key, "enough"]).start()
    with pytest.raises(LoopGuardAbort, match="enough"):
        control.gate()
    with pytest.raises(LoopGuardAbort):
        control.check()
    assert control.resume(run.key)
    control.check()


@pytest.mark.parametrize(("usual_s", "limit_s"), [(60, 0.1), (0.1, None), (0.1, NAN)])
def test_a_gate_never_outlives_its_limit(usual_s: float, limit_s: float | None) -> None:
    """There it raises, and says which session and why; what is no number is the default one."""
    with Run(pause_limit_s=usual_s) as run:
        run.calls()
        control.pause(run.key, "looking into it")
        with pytest.raises(LoopGuardPaused, match=rf"^looking into it .*'{run.key}'"):
            control.gate(limit_s)
        with pytest.raises(LoopGuardPaused):
            asyncio.run(_awaited(limit_s))


def test_a_gate_ends_though_a_test_has_stopped_the_clock(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As freezegun does: nothing that it measures moves on."""
    run.calls()
    control.pause(run.key)
    monkeypatch.setattr(time, "monotonic", lambda: 5.0)
    with pytest.raises(LoopGuardPaused):
        control.gate(limit_s=0.1)


def test_a_gate_that_nobody_awaits_is_told(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    """The session goes on though it is paused, as the gate does not wait."""

    async def go() -> None:
        control.gate()
        gc.collect()

    run.calls()
    control.pause(run.key)
    with pytest.raises(LoopGuardPaused):
        asyncio.run(_awaited(0))
    assert "await control.gate()" not in caplog.text
    asyncio.run(go())
    assert "await control.gate()" in caplog.text


def test_in_asyncio_it_waits_without_blocking_the_loop(run: Run) -> None:
    """A thousand gates need no threads, go on together, and the loop runs meanwhile."""

    async def go() -> tuple[int, int]:
        before = set(threading.enumerate())
        gates = [asyncio.ensure_future(_awaited()) for _ in range(1000)]
        await asyncio.sleep(0.1)
        waiting = sum(not gate.done() for gate in gates)
        # Other tests may have left what begins a thread meanwhile.
        assert len(set(threading.enumerate()) - before) < 10
        control.resume(run.key)
        await asyncio.wait_for(asyncio.gather(*gates), 60)
        return waiting, sum(gate.result().action == "allow" for gate in gates)

    run.calls()
    control.pause(run.key)
    assert asyncio.run(go()) == (1000, 1000)


@pytest.mark.parametrize("turns", range(4))
def test_in_asyncio_a_task_that_is_cancelled_ends(turns: int, run: Run) -> None:
    """Also in the same moment in which its session goes on."""

    async def go() -> bool:
        agent = asyncio.ensure_future(_awaited(600))
        await asyncio.sleep(0.05)
        control.resume(run.key)
        for _ in range(turns):
            await asyncio.sleep(0)
        cancelled = agent.cancel()
        await asyncio.wait([agent])
        return agent.cancelled() is cancelled

    run.calls()
    control.pause(run.key)
    assert asyncio.run(go())


def test_in_trio_it_waits_without_blocking_the_loop(run: Run) -> None:
    """The loop stood still for the whole limit, with the task that would have let it go on."""
    passed: list[str] = []

    async def waits() -> None:
        passed.append((await control.gate(600)).action)

    async def go() -> None:
        async with trio.open_nursery() as nursery:
            for _ in range(2):
                nursery.start_soon(waits)
            with trio.move_on_after(0.05) as cancelled:
                await control.gate(600)
            with pytest.raises(LoopGuardPaused):
                await control.gate(0.01)
            assert (cancelled.cancelled_caught, passed) == (True, [])
            control.resume(run.key)

    run.calls()
    control.pause(run.key)
    trio.run(go)
    assert passed == ["allow", "allow"]


@pytest.mark.parametrize(("say", "given", "told"), rows(__file__, "wrong"))
def test_what_cannot_be_is_refused(run: Run, say: str, given: str, told: str) -> None:
    """The error has name and value, and nothing was changed: a model would get it as its hint."""
    run.calls()
    with pytest.raises(ValueError) as error:  # noqa: PT011  # compared below
        getattr(control, say)(run.key, **eval(given))
    assert told in str(error.value)
    assert control.current().action == "allow"


def test_a_pause_ends_by_the_clock_of_the_guard(run: Run) -> None:
    """Who waits goes on when the machine has slept, or the clock was set, past the pause's end."""

    def gate() -> None:
        with session(run.key):
            control.gate(limit_s=600)

    async def gate_and_advance(testing: Moved) -> control.Control:
        waiting = asyncio.ensure_future(_awaited(600))
        await asyncio.sleep(0.1)
        testing.advance(301)
        return await asyncio.wait_for(waiting, 60)

    run.calls()
    with set_testing(True, gate_limit_s=600) as testing:
        assert control.pause(run.key, limit_s=300)
        passed = threading.Thread(target=gate, daemon=True)
        passed.start()
        assert asyncio.run(gate_and_advance(testing)).action == "allow"
        passed.join(60)
        assert not passed.is_alive()


def test_a_clock_that_is_set_back_prolongs_no_pause(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its end is on a clock that nobody sets, too."""
    real = time.time_ns
    run.calls()
    assert control.pause(run.key, limit_s=0.5)
    assert control.current().until is not None
    monkeypatch.setattr(time, "time_ns", lambda: real() - 3600 * 10**9)
    control.gate(limit_s=60)
    assert control.current().action == "allow"


def test_who_set_it_is_told(run: Run) -> None:
    """The policy, or a person by name; what a person says at the end is a hint."""
    run.calls(3)
    assert control.current().by == "policy"
    control.pause(run.key, by="ada")
    assert control.current().by == "ada"
    control.resume(run.key, by="bob", guidance="use the other index")
    now = control.current()
    assert (now.action, now.by, now.hint) == ("hint", "bob", "use the other index")
    assert control.hint() == "use the other index"
    control.resume(run.key)
    assert control.current().by == "by hand"


def test_a_session_that_is_known_by_its_flag_only_is_as_old_as_its_clock() -> None:
    """A clock that a test moved makes nothing too old that was named since."""
    with set_testing(True) as testing:
        processor = LoopGuardSpanProcessor(guard := LoopGuard(Settings(session_ttl_s=60)))
        testing.advance(3600)
        flag = guard.flag_named("told")
        testing.advance(1)
        assert guard.flag_of("told") is flag
        processor.shutdown()


RUNGS = ["hint", "deny", "abort"]


def test_every_decision_is_told_in_order(run: Run) -> None:
    """On a thread of its own, only those of the session that was asked for, until it is ended."""
    heard: list[tuple[str, str]] = []
    threads, late = set[str](), list[Decision]()

    def hear(decision: Decision) -> None:
        heard.append((decision.session, decision.action.value))
        threads.add(threading.current_thread().name)

    stop = control.on_decision(hear, session=run.key)
    control.on_decision(late.append)()
    with Run() as another:
        another.calls(8)
    run.calls(8)
    wait_for(lambda: len(heard) >= 3)
    stop()
    assert heard == [(run.key, rung) for rung in RUNGS]
    assert threads == {"loopguard-listener"}
    assert late == []


@pytest.mark.parametrize("fault", [OSError, SystemExit, KeyboardInterrupt, asyncio.CancelledError])
def test_what_a_callback_raises_is_counted(run: Run, fault: type[BaseException]) -> None:
    """It is told the rest, without a further decision, also where its thread would end."""
    raise_faults(False)
    heard: list[str] = []

    def hear(decision: Decision) -> None:
        heard.append(decision.action.value)
        raise fault

    stop = control.on_decision(hear, session=run.key)
    run.calls(8)
    wait_for(lambda: run.guard.faults.counts.total() >= 3)
    stop()
    assert heard == RUNGS
    assert run.guard.faults.counts == {f"on_decision:{fault.__name__}": 3}


def test_a_callback_that_hangs_holds_nobody_up(run: Run) -> None:
    """Neither the agent nor another callback."""
    heard: list[str] = []
    free, waited = threading.Event(), list[bool]()
    stops = [
        control.on_decision(lambda _: waited.append(free.wait(60)), session=run.key),
        control.on_decision(lambda decision: heard.append(decision.action.value), session=run.key),
    ]
    run.calls(8)
    wait_for(lambda: len(heard) >= 3)
    assert waited == []
    free.set()
    for stop in stops:
        stop()
    assert heard == RUNGS


_PROGRAM = Path(__file__).with_name("langgraph_asking.py")
_IMPORTED = "langgraph.graph", "openinference.instrumentation.langchain", "otel_loopguard.control"


@pytest.fixture(scope="module")
def langgraph() -> Iterator[Interpreter]:
    """It takes two seconds to import."""
    for module in _IMPORTED:
        pytest.importorskip(module)
    started = Interpreter([sys.executable], _IMPORTED, environment())
    yield started
    started.close()


def _run(langgraph: Interpreter, way: str) -> tuple[dict[str, Any], str]:
    langgraph.start(_PROGRAM.read_text("utf-8"), ROOT, way)
    done = langgraph.finish()
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


_NO_CONTEXT = pytest.mark.skipif(
    sys.version_info < (3, 11), reason="LangGraph hands no context on in asyncio of Python 3.10"
)


@pytest.mark.parametrize(
    "way", ["thread", "run", pytest.param("async", marks=_NO_CONTEXT), "adapter", "early"]
)
def test_a_node_of_langgraph_is_in_the_session_of_its_run(langgraph: Interpreter, way: str) -> None:
    """No span is the current one: `thread_id`, the run's own span or the adapter tell."""
    found, said = _run(langgraph, way)
    assert (found["told"], found["ran"]) == (2, 4)
    # The adapter refuses calls itself, where the node asks whether one is refused.
    assert set(found["refused"]) == (set() if way in ("adapter", "early") else {"deny"})
    assert "asks where no session is known" not in said


@pytest.mark.parametrize("way", ["unseen", "lost"])
def test_where_no_session_can_be_told_it_is_said(langgraph: Interpreter, way: str) -> None:
    """Once, with what to do; the run goes on."""
    found, said = _run(langgraph, way)
    assert found == {"told": 0, "ran": 12, "refused": [], "stop": None}
    assert said.count("asks where no session is known") == 1
    assert "otel_loopguard.session(key)" in said


def test_a_thread_that_lost_the_context_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """Only while some session is stopped, and never where one is named."""
    guard, key = LoopGuard(), new_name()
    guard.bind(1, key)
    with session(key):
        threading.Thread(target=control.check).start()
        control.abort(key)
        with session("not begun yet"):
            control.check()
            control.hint()
        threads = [threading.Thread(target=ask) for ask in (control.check, control.current)]
        for thread in threads:
            thread.start()
            thread.join()
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "asks where no session is known" in caplog.text
    control.resume(key)


def test_of_several_guards_the_one_with_the_strongest_action_answers() -> None:
    """One in shadow mode hides nothing; what people do goes to all of them."""
    guards = [LoopGuard(Settings(mode="shadow")), *(LoopGuard() for _ in range(3))]
    with session(new_name()) as key:
        for guard, times in zip(guards, (4, 1, 4, 2), strict=True):
            for _ in range(times):
                guard.observe(call(), key)
        assert control.current().action is Action.DENY
        assert control.refused("search", {"q": "x"}) is not None
        report = sessions.report()
        assert report is not None
        assert report.steps == 4
        assert control.pause(key, by="ada")
        assert {control_of(guard, key).by for guard in guards} == {"ada"}
        assert control.resume(key)
        assert control.current().action is Action.ALLOW


@pytest.mark.parametrize("block", [session, turn])
@pytest.mark.parametrize("elsewhere", [False, True])
def test_nobody_stays_in_a_session_that_a_generator_has_ended(
    block: Callable[[str], AbstractContextManager[object]], elsewhere: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    """In whatever order they end, nor by a log line, where one ends in another context."""

    def answer(key: str) -> Iterator[str]:
        with block(key):
            yield key

    def of_none() -> None:
        before = otel_context.get_current()
        answers = [answer(new_name()) for _ in range(3)]
        for one in answers:
            next(one)
        contextvars.copy_context().run(next, answers[1], None)
        for one in (answers[0], answers[2]):
            if elsewhere:
                contextvars.copy_context().run(next, one, None)
            else:
                next(one, None)
        with block(new_name()):
            pass
        assert otel_context.get_current() is before

    with caplog.at_level(logging.ERROR):
        contextvars.Context().run(of_none)
    assert not caplog.records
