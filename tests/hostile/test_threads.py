"""Many threads at once: every call counts, and what is decided is what one thread decides."""

from __future__ import annotations

import asyncio
import gc
import logging
import random
import threading
import time
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from opentelemetry import trace

import otel_loopguard
from otel_loopguard import (
    LoopGuard,
    LoopGuardAbort,
    LoopGuardPaused,
    LoopGuardSpanProcessor,
    Settings,
    control,
)
from otel_loopguard._control.flag import Flag
from otel_loopguard.core import Action, Kind, Step
from tests.agents import agent, provider_with, tool_call
from tests.hostile.rig import TOOL, Rig

if TYPE_CHECKING:
    from collections.abc import Iterable

    from opentelemetry.trace import Tracer

    from otel_loopguard.core import Decision
    from otel_loopguard.sessions import Session


SECONDS = 2.5


def one_turn(rig: Rig, dice: random.Random, shared: list[trace.Span]) -> int:
    """Does one random thing that an agent, its runtime or a person may do; returns calls made."""
    key = f"s{dice.randrange(20)}"
    match dice.randrange(8):
        case 0:
            with agent(rig.tracer, gen_ai__conversation__id=key):
                tool_call(rig.tracer, args=f'{{"n": {dice.randrange(5)}}}')
            return 1
        case 1:
            with otel_loopguard.session(key):
                tool_call(rig.tracer, args=f'{{"n": {dice.random()}}}', result=dice.random())
            return 1
        case 2:
            with trace.use_span(dice.choice(shared)):
                tool_call(rig.tracer)
            return 1
        case 3:
            control.pause(key)
            control.resume(key)
        case 4:
            control.abort(key)
            control.resume(key)
        case 5:
            with otel_loopguard.session(key):
                try:
                    control.check()
                    control.gate(0.001)
                except (LoopGuardAbort, LoopGuardPaused):
                    control.resume(key)
        case 6:
            span = rig.tracer.start_span("execute_tool never", attributes=TOOL)
            span.set_attribute("x", "y")
            dice.choice(shared).set_attribute("n", dice.random())
        case _:
            rig.guard.observe(Step(Kind.TOOL, "seen", args={}, outcome="the same again"), key)
            return 1
    return 0


def test_everything_at_once_for_some_seconds() -> None:
    """32 threads, random sessions, shared traces, pauses, aborts, resumes: every call counts."""
    rig = Rig(
        {"max_sessions": 15, "tuning": {"stalls": {"open_steps": 500}}, "step_timeout_s": 0.4}
    )
    shared = [rig.tracer.start_span("invoke_agent shared", attributes=TOOL) for _ in range(4)]
    until = time.monotonic() + SECONDS

    def run(number: int) -> int:
        dice = random.Random(number)
        calls = 0
        while time.monotonic() < until:
            calls += one_turn(rig, dice, shared)
        return calls

    with ThreadPoolExecutor(32) as pool:
        calls = sum(pool.map(run, range(32)))
    rig.guard.shutdown()
    assert calls
    assert Counter(step.name for step in rig.steps if step.name != "a").total() == calls
    # A session that is renamed after it was evicted comes back beside the others, until the next.
    assert len(rig.guard._sessions) <= 15 * 2
    assert rig.faults == {}


def test_a_shutdown_in_the_middle() -> None:
    """The processor goes while 16 threads work: all spans arrive, nothing is thrown."""
    rig = Rig()
    going = threading.Event()

    def run(number: int) -> int:
        calls = 0
        while not going.is_set() or calls < 50:
            tool_call(rig.tracer, args=f'{{"n": {number}}}')
            calls += 1
        return calls

    with ThreadPoolExecutor(16) as pool:
        running = [pool.submit(run, number) for number in range(16)]
        time.sleep(0.3)
        rig.processor.shutdown()
        rig.processor.shutdown()
        going.set()
        calls = sum(one.result() for one in running)
    assert len(rig.exported) == calls
    assert rig.faults == {}


def test_guards_made_at_once_are_all_asked() -> None:
    """None of 64 guards made by 16 threads is lost to `control`."""
    guards: list[LoopGuard] = []

    def make(number: int) -> None:
        guard = LoopGuard()
        guard.observe(Step(Kind.TOOL, "t", args={}, outcome="x"), f"made-{number}")
        guards.append(guard)

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(make, range(64)))
    assert all(control.pause(f"made-{number}") for number in range(64))
    assert all(control.resume(f"made-{number}") for number in range(64))


def test_an_abort_is_never_lost_to_a_lowering() -> None:
    """While one thread raises and lowers hints, a manual abort stays."""
    for _ in range(300):
        flag = Flag("s", 1)
        stop = threading.Event()

        def hints(flag: Flag = flag, stop: threading.Event = stop) -> None:
            while not stop.is_set():
                flag.set(Action.HINT)
                flag.lower()

        thread = threading.Thread(target=hints)
        thread.start()
        flag.set(Action.ABORT, reason="by hand")
        stop.set()
        thread.join()
        assert flag.control.action is Action.ABORT
        assert flag.stops
        flag.clear()


def test_many_gates_are_let_go() -> None:
    """50 threads and 50 tasks that wait at a gate go on with one resume."""
    rig = Rig()
    with otel_loopguard.session("held"):
        tool_call(rig.tracer)

    def wait() -> str:
        with otel_loopguard.session("held"):
            return control.gate(20).control.action.value

    async def wait_async() -> str:
        with otel_loopguard.session("held"):
            return (await control.gate(20)).action.value

    async def all_tasks() -> list[str]:
        tasks = [asyncio.ensure_future(wait_async()) for _ in range(50)]
        threading.Timer(0.3, control.resume, ("held",)).start()
        return list(await asyncio.gather(*tasks))

    assert control.pause("held")
    with ThreadPoolExecutor(50) as pool:
        threads = [pool.submit(wait) for _ in range(50)]
        tasks = asyncio.run(all_tasks())
        assert [one.result() for one in threads] == ["allow"] * 50
    assert tasks == ["allow"] * 50


class Traced(logging.Handler):
    """Instrumented logging: every record is a tool call of its own."""

    def __init__(self, rig: Rig) -> None:
        super().__init__()
        self.rig = rig
        self.inside = False

    def emit(self, record: logging.LogRecord) -> None:
        if not self.inside:
            self.inside = True
            tool_call(self.rig.tracer, "log", args=f'{{"m": {record.lineno}}}')
            self.inside = False


def test_a_log_handler_that_starts_and_ends_spans() -> None:
    """Decisions are logged where no lock is in the way."""
    rig = Rig()
    handler = Traced(rig)
    logging.getLogger("otel_loopguard").addHandler(handler)
    logging.getLogger("otel_loopguard").setLevel(logging.INFO)
    try:
        with agent(rig.tracer):
            for _ in range(7):
                tool_call(rig.tracer)
        rig.guard.settle()
    finally:
        logging.getLogger("otel_loopguard").removeHandler(handler)
        logging.getLogger("otel_loopguard").setLevel(logging.NOTSET)
    assert rig.faults == {}
    assert [step.name for step in rig.steps].count("log") >= 3


def test_a_listener_that_starts_and_ends_spans() -> None:
    """A callback may use the tracer, and ask for control."""
    rig = Rig()

    def listens(*_given: object) -> None:
        rig.guard.subscribers.decisions.remove(listening)
        tool_call(rig.tracer, "listener")
        control.current()

    listening = ("on_decision", listens)
    rig.guard.subscribers.decisions.append(listening)
    with agent(rig.tracer):
        for _ in range(7):
            tool_call(rig.tracer)
    assert rig.faults == {}
    assert "listener" in [step.name for step in rig.steps]


class Finalized:
    """Ends a span when the garbage collector takes it."""

    def __init__(self, rig: Rig) -> None:
        self.span = rig.tracer.start_span("execute_tool forgotten", attributes=TOOL)
        self.cycle = self

    def __del__(self) -> None:
        self.span.end()


@pytest.mark.parametrize("threads", [1, 8])
def test_a_finalizer_that_ends_a_span_inside(threads: int) -> None:
    """The collector may run anywhere in our code, and end spans there."""
    rig = Rig()
    before = gc.get_threshold()
    gc.set_threshold(7, 2, 2)
    try:

        def run(number: int) -> None:
            for _ in range(60):
                Finalized(rig)
                tool_call(rig.tracer, args=f'{{"n": {number}}}')

        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(run, range(threads)))
    finally:
        gc.set_threshold(*before)
    gc.collect()
    assert len(rig.exported) == threads * 120
    assert rig.faults == {}


THREADS = 32
Said = tuple[str, str, str, int, str]


class Runs:
    """What a guard decided about runs of one kind each, by session."""

    def __init__(self) -> None:
        self.said: defaultdict[str, list[Said]] = defaultdict(list)
        self.steps: defaultdict[str, int] = defaultdict(int)
        self.guard = LoopGuard(
            Settings(step_timeout_s=3600, telemetry_events=False),
            on_decision=self._decided,
            on_step=self._stepped,
        )
        self.processor = LoopGuardSpanProcessor(self.guard)
        self.tracer: Tracer = provider_with(self.processor).get_tracer("my.agent")

    def _decided(self, session: Session, decision: Decision) -> None:
        told = (
            decision.action.value, decision.detector, decision.reason, decision.step,
            decision.message,
        )  # fmt: skip
        self.said[session.key].append(told)

    def _stepped(self, session: Session, _index: int, _step: object) -> None:
        self.steps[session.key] += 1

    def run(self, keys: Iterable[str]) -> None:
        for key in keys:
            one_run(self.tracer, key)
        self.guard.settle()

    @property
    def flags(self) -> dict[str, str]:
        found = {key: self.guard.flag_of(key) for key in self.steps}
        return {key: "" if flag is None else flag.control.action for key, flag in found.items()}


def one_run(tracer: Tracer, key: str) -> None:
    """Stuck, in two minds, failing or at work: by its key, and always the same."""
    dice = random.Random(key)
    kind, calls = dice.randrange(4), dice.randrange(3, 14)
    with trace.use_span(trace.INVALID_SPAN), agent(tracer, gen_ai__conversation__id=key):
        for number in range(calls):
            match kind:
                case 0:
                    tool_call(tracer, "search", '{"q": "x"}', "nothing was found here")
                case 1:
                    name = ("look", "move")[number % 2]
                    tool_call(tracer, name, f'{{"at": "{name}"}}', f"you are at {name}")
                case 2:
                    tool_call(tracer, "sql", f'{{"n": {number}}}', "error: no such table: users")
                case _:
                    found = " ".join(dice.choices("abcdefghijklmnop", k=20))
                    tool_call(tracer, "read", f'{{"page": {number}}}', found)


@pytest.mark.parametrize("sessions", [2, pytest.param(40, marks=pytest.mark.rare)])
def test_threads_decide_as_one_thread_does(sessions: int) -> None:
    """Each of 32 threads has sessions of its own: decisions, steps and flags are the same."""
    keys = [[f"{number}-{one}" for one in range(sessions)] for number in range(THREADS)]
    alone, together = Runs(), Runs()
    for own in keys:
        alone.run(own)
    begin = threading.Barrier(THREADS)

    def work(own: list[str]) -> None:
        begin.wait()
        together.run(own)

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(work, keys))
    assert len(alone.steps) == THREADS * sessions
    assert {action for said in alone.said.values() for action, *_ in said} >= {"hint", "deny"}
    assert dict(together.steps) == dict(alone.steps)
    assert dict(together.said) == dict(alone.said)
    assert together.flags == alone.flags
    assert together.guard.faults.counts == alone.guard.faults.counts == {}
