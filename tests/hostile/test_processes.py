"""A process ends when its program does, and its forked children judge, whatever threads hold."""

import ast
import gc
import os
import sys
import threading
from pathlib import Path

import pytest

import otel_loopguard
from otel_loopguard import LoopGuardSpanProcessor
from otel_loopguard._util import locks
from tests.agents import provider_with, tool_call
from tests.programs import ran
from tests.stores.servers import wait_for

PACKAGE = Path(otel_loopguard.__file__).parent

LAST = """
import sys
from otel_loopguard import LoopGuard, LoopGuardSpanProcessor
from tests.agents import provider_with, tool_call
from tests.hostile.rig import TOOL

class Nowhere:
    def submit(self, session, entries):
        pass

    def journal(self, session, after=None):
        return []

guard = LoopGuard(journal_store=Nowhere() if sys.argv[1] == "journal" else None)
tracer = provider_with(LoopGuardSpanProcessor(guard)).get_tracer("my.agent")
tool_call(tracer)
sys.modules["open"] = tracer.start_span("execute_tool search", attributes=TOOL)
sys.modules["kept"] = guard  # it goes last, when the interpreter is being finalized
print("over")
"""


@pytest.mark.parametrize("with_", ["timer", "journal"])
def test_a_guard_that_goes_last_ends_with_its_process(with_: str) -> None:
    """Its threads are gone with all that they held, and nobody waits for them."""
    assert ran(sys.executable, "-c", LAST, with_).stdout == "over\n"


LOOPS = """
import sys
from otel_loopguard import LoopGuardSpanProcessor, control
from tests.agents import agent, provider_with, tool_call

tracer = provider_with(LoopGuardSpanProcessor()).get_tracer("my.agent")
before = set(sys.modules)
with agent(tracer):
    while not control.current().action.stops:
        tool_call(tracer)
rooms = {name.split(".")[1] for name in before if name.startswith("otel_loopguard.")}
print(set(sys.modules) - before, rooms & {"execution", "resilience"})
"""


def test_judging_imports_nothing() -> None:
    """A fork in the middle would leave the child waiting; what nobody asks for is not loaded."""
    assert ran(sys.executable, "-c", LOOPS).stdout == "set() set()\n"


def test_the_timers_thread_ends_without_being_told() -> None:
    """It looks whether its guard is there, and is not called when the guard goes."""
    before = set(threading.enumerate())
    provider = provider_with(LoopGuardSpanProcessor())
    tool_call(provider.get_tracer("my.agent"))
    new = (one for one in threading.enumerate() if one not in before)
    (thread,) = (one for one in new if one.name == "loopguard-timer")
    del provider
    # The thread itself may hold the guard while it settles.
    wait_for(lambda: gc.collect() >= 0 and not thread.is_alive())


def test_every_lock_is_made_in_one_place() -> None:
    """Otherwise `held` would not know it. The others are for threads of ours, never for a hook."""
    found = [
        f"{path.relative_to(PACKAGE)}: {ast.unparse(node.func)}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for text in [path.read_text(encoding="utf-8")]
        if path.name != "locks.py" and "threading" in text
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call)
        if ast.unparse(node) == "threading.Condition()"
        or ast.unparse(node.func) in {"threading.Lock", "threading.RLock", "threading.Event"}
    ]
    assert found == [
        "hooks/process.py: threading.Lock",
        "hooks/process.py: threading.Lock",
        "integrations/langchain.py: threading.Lock",
        "server/metrics.py: threading.Lock",
        "sessions/journal_worker.py: threading.Event",
        "sessions/observation.py: threading.RLock",
    ]


def test_locks_that_nobody_has_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards come and go; a lock that is still somebody's stays known."""
    # Guards of other tests in this process have locks too, however many.
    monkeypatch.setattr(locks, "_known", [])
    monkeypatch.setattr(locks._state, "most_known", 64)
    kept = [locks.new_lock() for _ in range(10)]
    burst = [locks.new_lock() for _ in range(10_000)]
    del burst
    for _ in range(200):
        locks.new_lock()
    assert len(locks._known) < 100
    with kept[0]:
        assert locks.held()
    assert not locks.held()


PROGRAM = """
import os, random, sys, threading, time, warnings
warnings.simplefilter("ignore")  # newer Pythons warn of a fork beside threads
from opentelemetry import trace
import otel_loopguard
from otel_loopguard import LoopGuard, LoopGuardSpanProcessor, control
from otel_loopguard._util import locks
from tests.agents import agent, provider_with, tool_call

guard = LoopGuard()
processor = LoopGuardSpanProcessor(guard)
tracer = provider_with(processor).get_tracer("my.agent")
locked = [vars(one)[name] for one in (guard, guard.faults, guard.profiler) for name in ("_lock",)]
working = True

def work(number):
    dice = random.Random(number)
    while working:
        key = f"parent-{number}-{dice.randrange(5)}"
        with agent(tracer, gen_ai__conversation__id=key):
            tool_call(tracer, "t", f'{{"n": {dice.random()}}}', dice.random())
        control.pause(key)
        control.resume(key)

def hold():
    # Whoever forks meets each of these locks held by a thread that is not in the child.
    while working:
        for lock in (*locked, control.flag._changing):
            with lock:
                time.sleep(0.002)

threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(8)]
threads.append(threading.Thread(target=hold, daemon=True))
for thread in threads:
    thread.start()

def child(number):
    key, actions = f"child-{number}", []
    with agent(tracer, gen_ai__conversation__id=key):
        for _ in range(8):
            tool_call(tracer, "search", '{"q": "x"}', "nothing was found here")
            actions.append(guard.flag_of(key).control.action.value)
    healthy = f"healthy-{number}"
    with trace.use_span(trace.INVALID_SPAN), agent(tracer, gen_ai__conversation__id=healthy):
        for page in range(6):
            tool_call(tracer, "read", f'{{"page": {page}}}', "abcdefgh"[page] * 30)
    fine = guard.flag_of(healthy).control.action.value
    processor.shutdown()
    return actions[-1] == "abort" and fine == "allow" and not guard.faults.counts

children = []
for number in range(int(sys.argv[1])):
    time.sleep(0.02)
    process = os.fork()
    if process == 0:
        right = False
        try:
            right = child(number)
        finally:
            if number % 2:
                os._exit(0 if right else 1)
        sys.exit(0 if right else 1)  # ends as programs do: finalizers and exit handlers run
    children.append(process)
codes = [os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) for process in children]
working = False
print(codes)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
@pytest.mark.parametrize("children", [10, pytest.param(100, marks=pytest.mark.rare)])
def test_children_of_a_busy_parent_judge_and_end(children: int) -> None:
    """Each child stops its stuck session, leaves its healthy one alone, and exits."""
    done = ran(sys.executable, "-c", PROGRAM, str(children))
    assert done.stdout.strip() == str([0] * children)
