"""A server that forks its workers while its other threads are in the midst of the guard."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

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
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(children)],
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip() == str([0] * children)
