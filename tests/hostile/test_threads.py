"""Many threads at once: every call counts, and what is decided is what one thread decides."""

import gc
import logging
import random
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.trace import Tracer

import otel_loopguard
from otel_loopguard import Action, LoopGuard, LoopGuardAbort, LoopGuardPaused, control
from otel_loopguard.core import Kind, Step
from tests.agents import agent, tool_call
from tests.hostile.rig import TOOL, Finalized, Rig
from tests.programs import ran
from tests.stores.servers import wait_for

Rigs = Callable[..., Rig]
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
        case 3 | 4 as either:
            (control.pause if either == 3 else control.abort)(key)
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


def in_threads(number: int, work: Callable[[int], Any]) -> list[Any]:
    """What as many threads as said return, which begin at the same time."""
    begin = threading.Barrier(number)

    def run(place: int) -> Any:
        begin.wait()
        return work(place)

    with ThreadPoolExecutor(number) as pool:
        return list(pool.map(run, range(number)))


def test_everything_at_once_for_some_seconds(rigs: Rigs) -> None:
    """32 threads, random sessions, shared traces, pauses, aborts, resumes: every call counts."""
    stalls = {"step_timeout_s": 0.4, "tuning": {"stalls": {"open_steps": 500}}}
    rig = rigs({"max_sessions": 15, **stalls})
    shared = [rig.tracer.start_span("invoke_agent shared", attributes=TOOL) for _ in range(4)]
    until = time.monotonic() + SECONDS

    def run(number: int) -> int:
        dice = random.Random(number)
        calls = 0
        while time.monotonic() < until:
            calls += one_turn(rig, dice, shared)
        return calls

    calls = sum(in_threads(32, run))
    rig.guard.shutdown()
    assert calls
    assert sum(step.name != "a" for step in rig.steps) == calls
    # A session that is renamed after it was evicted comes back beside the others, until the next.
    assert len(rig.guard._sessions) <= 15 * 2


def test_a_shutdown_in_the_middle(rig: Rig) -> None:
    """The processor goes, twice, while 16 threads work: all spans arrive, nothing is thrown."""
    going = threading.Event()

    def run(number: int) -> int:
        if not number:
            time.sleep(0.3)
            rig.processor.shutdown()
            rig.processor.shutdown()
            going.set()
        calls = 0
        while not going.is_set() or calls < 50:
            tool_call(rig.tracer, args=f'{{"n": {number}}}')
            calls += 1
        return calls

    assert sum(in_threads(17, run)) == len(rig.exported)


def test_guards_made_at_once_are_all_asked() -> None:
    """None of the guards that 16 threads make is lost to `control`."""

    def make(number: int) -> LoopGuard:
        guard = LoopGuard()
        guard.observe(Step(Kind.TOOL, "t", args={}, outcome="x"), f"made-{number}")
        return guard

    kept = in_threads(16, make)
    for ask in (control.pause, control.resume):
        assert all(ask(f"made-{number}") for number in range(len(kept)))


def test_an_abort_is_never_lost_to_a_lowering() -> None:
    """While one thread raises and lowers hints, a manual abort stays."""
    guard = LoopGuard()
    for number in range(300):
        guard.observe(Step(Kind.TOOL, "t", args={}, outcome="x"), f"lowered-{number}")
        flag, stop = guard.flag_of(f"lowered-{number}"), threading.Event()
        assert flag is not None

        def hints(flag: Any = flag, stop: threading.Event = stop) -> None:
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


def test_many_gates_are_let_go(rig: Rig) -> None:
    """50 threads that wait at a gate go on with one resume."""
    with otel_loopguard.session("held"):
        tool_call(rig.tracer)

    def wait() -> str:
        with otel_loopguard.session("held"):
            return control.gate(20).control.action.value

    assert control.pause("held")
    with ThreadPoolExecutor(50) as pool:
        threads = [pool.submit(wait) for _ in range(50)]
        threading.Timer(0.3, control.resume, ("held",)).start()
        assert [one.result() for one in threads] == ["allow"] * 50


class Calls(logging.Handler):
    """Makes a call whenever it hears of something; not of what it brings about by that."""

    def __init__(self, tracer: Tracer) -> None:
        super().__init__()
        self.tracer, self.inside = tracer, False

    def __call__(self, heard: object) -> None:
        if not self.inside:
            self.inside = True
            tool_call(self.tracer, "heard", args=f'{{"m": {id(heard)}}}')
            control.current()
            self.inside = False

    emit = __call__


@pytest.mark.parametrize("where", ["log", "listener"])
def test_who_hears_of_a_decision_may_start_and_end_spans(
    where: str, rig: Rig, listens: Callable[[logging.Handler], None]
) -> None:
    """Decisions are logged and told where no lock is in the way."""
    calls = Calls(rig.tracer)
    if where == "log":
        listens(calls)
    else:
        rig.guard.subscribers.decisions.append(("on_decision", calls))
    with agent(rig.tracer):
        for _ in range(7):
            tool_call(rig.tracer)
    rig.guard.settle()
    assert [step.name for step in rig.steps].count("heard") >= 3


@pytest.mark.parametrize("threads", [1, 8])
def test_a_finalizer_that_ends_a_span_inside(threads: int, rig: Rig) -> None:
    """The collector may run anywhere in our code, and end spans there."""

    def run(number: int) -> None:
        for _ in range(60):
            Finalized(rig.tracer.start_span("execute_tool forgotten", attributes=TOOL))
            tool_call(rig.tracer, args=f'{{"n": {number}}}')

    before = gc.get_threshold()
    gc.set_threshold(7, 2, 2)
    try:
        in_threads(threads, run)
    finally:
        gc.set_threshold(*before)
    # Another thread may be at it, and this one is turned away then.
    wait_for(lambda: gc.collect() >= 0 and len(rig.exported) == threads * 120)


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


def told(rig: Rig, keys: Sequence[str]) -> dict[str, list[object]]:
    """What was decided about each session, and the flag that it has in the end."""
    said: dict[str, list[object]] = defaultdict(list)
    for one in rig.decisions:
        found = (one.action.value, one.detector, one.reason, one.step, one.message)
        said[one.session or ""].append(found)
    for key in keys:
        flag = rig.guard.flag_of(key)
        said[key].append(flag and flag.control.action)
    return said


@pytest.mark.parametrize("sessions", [2, pytest.param(40, marks=pytest.mark.rare)])
def test_threads_decide_as_one_thread_does(
    sessions: int, rigs: Rigs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of 32 threads has sessions of its own: decisions, steps and flags are the same."""
    # Who waits for the processor does not rest: a microsecond is between two moments.
    monkeypatch.setattr("opentelemetry.sdk.trace.time_ns", count(time.time_ns(), 1_000).__next__)
    # A busy machine takes minutes for a run that took a moment.
    patient = {"step_timeout_s": 3600, "tuning": {"latency": {"limit_min_s": 3600}}}
    alone, together = (rigs({**patient, "telemetry_events": False}) for _ in range(2))
    keys = [[f"{thread}-{one}" for one in range(sessions)] for thread in range(32)]

    def run(rig: Rig, thread: int) -> None:
        for key in keys[thread]:
            one_run(rig.tracer, key)

    for thread in range(32):
        run(alone, thread)
    in_threads(32, lambda thread: run(together, thread))
    every = [key for own in keys for key in own]
    assert {*alone.actions} >= {"hint", "deny"}
    assert told(together, every) == told(alone, every)
    names = [Counter(step.name for step in rig.steps) for rig in (alone, together)]
    assert names[0] == names[1]
    assert names[0]["a"] == 32 * sessions


PATCHED_LATE = """
import queue, threading
from otel_loopguard import LoopGuard, control
threading._CRLock, queue.SimpleQueue = None, queue._PySimpleQueue
from tests.hostile.rig import LOOP, Rig
from tests.agents import agent, tool_call
rig = Rig()
with agent(rig.tracer, gen_ai__conversation__id="s"):
    for _ in range(LOOP):
        tool_call(rig.tracer)
assert not control.pause("nobody")
print(rig.actions, rig.faults)
"""


IN_PLACE = """
import queue, sys, threading
kind, queue.SimpleQueue = type(threading.RLock()), queue._PySimpleQueue
threading._CRLock, seen, made = None, set(), {}
def replace(place):
    if id(place) in seen:
        return
    seen.add(id(place))
    for put in [place, getattr(place, "__dict__", None)]:
        if not isinstance(put, (dict, list)):
            continue
        for name, value in [*(put.items() if isinstance(put, dict) else enumerate(put))]:
            if isinstance(value, kind):
                put[name] = made.setdefault(id(value), threading._PyRLock())
            else:
                replace(value)
sys.setrecursionlimit(50_000)
for name, module in [*sys.modules.items()]:
    if name.startswith("otel_loopguard"):
        replace(module)
assert made
"""


@pytest.mark.parametrize(
    "how", [PATCHED_LATE, f"from otel_loopguard import LoopGuard\n{IN_PLACE}{PATCHED_LATE}"]
)
def test_locks_may_be_of_another_class_once_it_is_imported(how: str) -> None:
    """As gevent makes them, late, and as eventlet, which puts others where it finds ours, too.

    Each hook failed, and each question raised a TypeError.
    """
    assert ran(sys.executable, "-c", how).stdout.strip() == "['hint', 'deny', 'abort'] {}"


PRELOADED = """
import faulthandler, os, sys
from collections import Counter
from tests.agents import agent, tool_call
from tests.hostile.rig import LOOP, Rig
rig = Rig()
if child := os.fork():
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
faulthandler.dump_traceback_later(300, exit=True)
from gevent import joinall, monkey, sleep, spawn
monkey.patch_all()
def run(key):
    with agent(rig.tracer, gen_ai__conversation__id=key):
        for _ in range(LOOP):
            tool_call(rig.tracer)
            sleep(0.1)
joinall([spawn(run, f"s{number}") for number in range(5)])
print(sorted(Counter(rig.actions).items()), rig.faults)
"""


def test_gevent_may_come_after_the_fork_that_follows_the_import() -> None:
    """As in gunicorn with `--preload` and gevent's workers: the timer held up every request."""
    told = ran(sys.executable, "-c", PRELOADED).stdout.strip()
    assert told == "[('abort', 5), ('deny', 5), ('hint', 5)] {}"
