"""What runs inside of the guard's own code: finalizers, signal handlers, an interrupt anywhere."""

from __future__ import annotations

import gc
import itertools
import linecache
import logging
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.trace import Span

import otel_loopguard
from otel_loopguard import LoopGuard, Settings
from otel_loopguard._control.flag import OBSERVERS, STOPPING, Flag
from otel_loopguard._util import backlog, locks
from otel_loopguard._util.backlog import Backlog
from otel_loopguard._util.bounded import WeakList
from otel_loopguard.core import Action, Kind, Step
from otel_loopguard.sessions import Session
from tests.agents import agent, tool_call
from tests.control.messages import action_of, flag
from tests.hostile.rig import TOOL, Finalized, Rig
from tests.programs import ran
from tests.stores.servers import wait_for


class Watched(logging.Handler):
    """Knows of every record whether a lock of the guard's was held when it was told."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[str] = []
        self.under_lock: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        (self.under_lock if locks.held() else self.told).append(record.getMessage())


@pytest.fixture
def handler(listens: Callable[[logging.Handler], None]) -> Watched:
    watched = Watched()
    listens(watched)
    return watched


def within(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Has something done once, in the midst of a step that is judged: the guard's lock is held."""
    observe, left = Session.observe, [act]

    def observed(self: Session, step: Step) -> object:
        if left:
            assert locks.held()
            left.pop()()
        return observe(self, step)

    monkeypatch.setattr(Session, "observe", observed)


def equal_call(rig: Rig) -> Span:
    key = "gen_ai.tool.call."
    values = {f"{key}arguments": '{"q": "x"}', f"{key}result": "nothing"}
    return rig.tracer.start_span("execute_tool search", attributes={**TOOL, **values})


def loop(rig: Rig, times: int) -> None:
    for _ in range(times):
        tool_call(rig.tracer)


def test_what_a_collected_span_decides_is_said_without_a_lock(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, handler: Watched
) -> None:
    """The collector ends the span that makes the loop whole while a step is judged."""
    with agent(rig.tracer):
        loop(rig, 2)
        Finalized(equal_call(rig))
        listened: list[bool] = []
        heard = ("on_decision", lambda _: listened.append(locks.held()))
        rig.guard.subscribers.decisions.append(heard)
        within(monkeypatch, gc.collect)
        loop(rig, 6)
    # What the collector ended while a step was judged is judged by whoever settles next.
    wait_for(lambda: len([one for one in rig.steps if one.name == "search"]) == 9)
    wait_for(lambda: bool(handler.told))
    assert handler.under_lock == []
    assert {*listened} == {False}


def test_nobody_waits_for_each_other(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its log handler's lock is held by a thread that waits for the guard: both go on."""
    entered = threading.Event()

    class Emits(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.name == "somebody":
                entered.set()
                tool_call(rig.tracer, "log")

    handler, logs = Emits(), [logging.getLogger(one) for one in ("somebody", "otel_loopguard")]
    for log in logs:
        log.addHandler(handler)
    other = threading.Thread(target=logs[0].warning, args=("said",), daemon=True)

    def collected() -> None:
        other.start()
        assert entered.wait(60)
        gc.collect()

    def work() -> None:
        with agent(rig.tracer):
            # The collected span is the fourth equal call: it is denied, and that is logged.
            loop(rig, 3)
            Finalized(equal_call(rig))
            within(monkeypatch, collected)
            tool_call(rig.tracer, "other")
            rig.guard.settle()

    own = threading.Thread(target=work, daemon=True)
    try:
        own.start()
        own.join(60)
        other.join(60)
        assert not own.is_alive()
        assert not other.is_alive()
    finally:
        for log in logs:
            log.removeHandler(handler)


@pytest.mark.usefixtures("no_raise")
def test_a_fault_under_the_lock_is_logged_after_it(
    monkeypatch: pytest.MonkeyPatch, handler: Watched
) -> None:
    """What was swallowed is counted at once and told when no lock is held."""

    def act() -> None:
        raise RuntimeError

    rig = Rig()
    within(monkeypatch, act)
    tool_call(rig.tracer)
    assert rig.faults == {"judge:RuntimeError": 1}
    (told,) = handler.told
    assert told.startswith("otel-loopguard: judge:RuntimeError failed and was skipped: ")
    assert handler.under_lock == []


def test_a_span_that_starts_and_ends_inside_is_counted_once(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In its own session, below its own agent, with all that it carries."""

    def nested() -> None:
        fresh = trace.use_span(trace.INVALID_SPAN)
        with fresh, agent(rig.tracer, gen_ai__conversation__id="inner"):
            tool_call(rig.tracer, "inner")

    within(monkeypatch, nested)
    with agent(rig.tracer, gen_ai__conversation__id="outer"):
        tool_call(rig.tracer, "first")
        tool_call(rig.tracer, "second")
    rig.guard.settle()
    # The inner one came while the others were judged.
    names = [step.name for step in rig.steps if step.kind is Kind.TOOL]
    assert sorted(names) == ["first", "inner", "second"]
    assert rig.guard.flag_of("inner") is not None
    report = rig.guard.report("inner")
    assert report is not None
    assert report.steps == 2
    assert len(rig.guard.active) == 0


def test_what_waits_is_done_without_another_span(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """A span that ends while the application asks for a report is judged by the timer's thread."""
    judged = threading.Event()
    span = rig.tracer.start_span("execute_tool last", attributes=TOOL)
    rig.guard.subscribers.steps.append(("on_step", lambda _: judged.set()))
    with agent(rig.tracer, gen_ai__conversation__id="asked"):
        tool_call(rig.tracer)
    rig.guard.settle()
    judged.clear()
    report = Session.report

    def reported(self: Session) -> object:
        span.end()
        assert not judged.is_set()
        return report(self)

    monkeypatch.setattr(Session, "report", reported)
    assert rig.guard.report("asked") is not None
    assert judged.wait(60)


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs signal.setitimer")
@pytest.mark.parametrize("seconds", [1.0, pytest.param(20.0, marks=pytest.mark.rare)])
def test_spans_in_a_signal_handler(seconds: float) -> None:
    """Run by a timer signal anywhere in the guard's code: all count, and nothing fails."""
    done = ran(sys.executable, "-c", _SIGNALS, str(seconds))
    outer, inner, counted, faults = done.stdout.split(maxsplit=3)
    assert int(inner) > 10
    assert int(counted) == int(outer) + int(inner)
    assert faults.strip() == "{}"


_SIGNALS = """
import signal, sys, time
from otel_loopguard import LoopGuard, LoopGuardSpanProcessor, Settings
from tests.agents import agent, provider_with, tool_call

steps = []
guard = LoopGuard(
    Settings(max_sessions=5, tuning={"stalls": {"open_steps": 50}}),
    on_step=lambda _, __, step: steps.append(step),
)
# Alone: the locks of the SDK's own exporters cannot be entered again.
provider = provider_with(LoopGuardSpanProcessor(guard))
tracer = provider.get_tracer("my.agent")
counted = {"outer": 0, "inner": 0}

def handle(*_):
    counted["inner"] += 1
    with agent(tracer, gen_ai__conversation__id=f"inner-{counted['inner'] % 7}"):
        tool_call(tracer, "inner", args=f'{{"n": {counted["inner"]}}}')

signal.signal(signal.SIGALRM, handle)
signal.setitimer(signal.ITIMER_REAL, 0.002, 0.0031)
until = time.monotonic() + float(sys.argv[1])
while time.monotonic() < until:
    counted["outer"] += 1
    with agent(tracer, gen_ai__conversation__id=f"outer-{counted['outer'] % 7}"):
        tool_call(tracer, "outer", args=f'{{"n": {counted["outer"]}}}')
signal.setitimer(signal.ITIMER_REAL, 0)
provider.shutdown()
tools = [step for step in steps if step.name in ("outer", "inner")]
print(counted["outer"], counted["inner"], len(tools), dict(guard.faults.counts))
"""


OURS = str(Path(otel_loopguard.__file__).parent)


def again(guard: LoopGuard, session: str, times: int = 1) -> None:
    for _ in range(times):
        guard.observe(Step(Kind.TOOL, "search", args={"q": 1}, outcome="none found"), session)


def calls_to_abort(guard: LoopGuard) -> int:
    for number in range(100):
        again(guard, "undisturbed")
        if action_of(guard, "undisturbed") is Action.ABORT:
            return number
    pytest.fail("no abort")


class InterruptAt:
    """Raises a KeyboardInterrupt at the n-th line of ours."""

    def __init__(self, number: int) -> None:
        self.left = number
        self.where = ""

    def __call__(self, frame: FrameType, event: str, _given: object) -> InterruptAt | None:
        code = frame.f_code
        if not code.co_filename.startswith(OURS):
            return None
        if event == "line":
            self.left -= 1
            if self.left > 0 or self.where:
                return self
            # Python looks at no signal between the end of a block and what its `with` calls then,
            # nor at a `try:`, which does nothing and may be outside of all handlers.
            line = linecache.getline(code.co_filename, frame.f_lineno).lstrip()
            if not line.startswith(("with ", "try:")):
                self.where = f"{code.co_filename}:{frame.f_lineno}"
                raise KeyboardInterrupt
        return self


def interrupted(guard: LoopGuard, session: str, number: int) -> str:
    """One more call, interrupted; where that was, or nothing if it was over before."""
    interrupt, before = InterruptAt(number), sys.gettrace()
    sys.settrace(interrupt)
    with suppress(KeyboardInterrupt):
        again(guard, session)
    sys.settrace(before)
    return interrupt.where


@pytest.mark.parametrize("every", [17, pytest.param(1, marks=pytest.mark.rare)])
def test_an_interrupted_abort_is_made_good(every: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The session is stopped at the latest when a new one would be, and no lock stays held."""
    # Lines that run for guards of other tests would be interrupted, too.
    monkeypatch.setattr(OBSERVERS, "_references", {})
    monkeypatch.setattr(backlog, "_open", WeakList[Backlog]())
    guard = LoopGuard(Settings(telemetry_events=False))
    before = calls_to_abort(guard)
    for number in itertools.count(1, every):
        session = f"interrupted-{number}"
        again(guard, session, before)
        where = interrupted(guard, session, number)
        if not where:
            break
        assert not locks.held(), where
        again(guard, session, before + 2)
        assert action_of(guard, session) is Action.ABORT, where
        assert flag(guard, session).stops, where
        assert STOPPING, where
    assert number > 100


class InterruptedLock:
    """A lock that an interrupt comes right behind, once."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._left = 1
        lock: Any = self._lock
        self.release, self._is_owned = lock.release, lock._is_owned

    def acquire(self, *given: float, **named: float) -> bool:
        taken = self._lock.acquire(*given, **named)  # type: ignore[arg-type]
        while self._left:
            self._left -= 1
            raise KeyboardInterrupt
        return taken


def test_an_interrupt_right_behind_a_lock_leaves_nobody_deaf(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Listeners heard nothing any more, and what was deferred waited, for good."""
    heard: list[object] = []
    guard = LoopGuard(on_decision=lambda _session, decision: heard.append(decision))
    monkeypatch.setattr(guard.subscribers, "_publishing", InterruptedLock())
    with pytest.raises(KeyboardInterrupt):
        calls_to_abort(guard)
    again(guard, "s", 20)
    assert heard
    monkeypatch.setattr(locks._state, "settling", InterruptedLock())
    deferred = threading.Event()
    locks.later(deferred.set)
    with pytest.raises(KeyboardInterrupt):
        locks.settle()
    locks.settle()
    assert deferred.is_set()


@pytest.mark.usefixtures("no_raise")
@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
@pytest.mark.parametrize("users_turn", [False, True])
def test_an_abort_without_its_flag_is_made_good_by_the_same_call(
    error: type[BaseException], users_turn: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An interrupt or a fault came after the ladder; in the user's next turn it stops nothing."""

    def fails(*_given: object, **_named: object) -> bool:
        raise error

    guard = LoopGuard()
    again(guard, "s", calls_to_abort(guard))
    with monkeypatch.context() as patched, suppress(KeyboardInterrupt):
        patched.setattr(Flag, "set", fails)
        again(guard, "s")
    assert action_of(guard, "s") is Action.DENY
    if users_turn:
        guard.observe(Step(Kind.OTHER, "user"), "s")
        guard.observe(Step(Kind.TOOL, "other", args={}, outcome="news"), "s")
    else:
        again(guard, "s")
    assert action_of(guard, "s").stops is flag(guard, "s").stops is not users_turn
    assert guard.faults.counts == ({} if error is KeyboardInterrupt else {"judge:RuntimeError": 1})
