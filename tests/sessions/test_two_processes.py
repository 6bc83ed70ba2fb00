"""Processes that share a session through a real Redis: one is killed, and its successor knows."""

import multiprocessing
import os
import signal
import sys
from multiprocessing.queues import SimpleQueue
from pathlib import Path

import pytest

from otel_loopguard import Decision, LoopGuard, Settings
from otel_loopguard._util.errors import InternalErrors
from otel_loopguard.sessions.journal_worker import WriterJournalStore
from otel_loopguard.stores import Writer, open_store, open_writer
from tests.programs import ran
from tests.sessions.journals import KEYED, call, guard, session_of, until
from tests.stores.servers import Server

ROOT = Path(__file__).resolve().parents[2]


def sharing(address: str, found: list[Decision]) -> tuple[LoopGuard, Writer]:
    """A guard that keeps its journals in Redis, and what writes them."""
    settings = {"store_url": address, "digest_key": KEYED["digest_key"]}
    writer = open_writer(Settings(**settings), InternalErrors())
    return guard(WriterJournalStore(writer), found, **settings), writer


def run(
    address: str, before: int, numbers: list[int], said: SimpleQueue[str], *, dies: bool
) -> None:
    """One process: waits for the calls of before, makes its own, and ends or is killed."""
    found: list[Decision] = []
    one, writer = sharing(address, found)
    session = session_of(one)
    until(lambda: session._number == before)
    for number in numbers:
        one.observe(call(number), "run")
    for decision in found:
        said.put(decision.action.value)
    if dies:
        until(lambda: len(writer.store.journal("run")) >= before + len(numbers))
        os.kill(os.getpid(), signal.SIGKILL)
    one.shutdown()
    writer.close()


def in_a_process(address: str, before: int, numbers: list[int], *, dies: bool = False) -> list[str]:
    """What a process of its own decided."""
    spawning = multiprocessing.get_context("spawn")
    said = spawning.SimpleQueue()
    given = (address, before, numbers, said)
    process = spawning.Process(target=run, args=given, kwargs={"dies": dies})
    process.start()
    process.join(60)
    assert process.exitcode == (-signal.SIGKILL if dies else 0)
    found: list[str] = []
    while not said.empty():
        found.append(said.get())
    return found


def test_a_killed_process_has_a_successor_that_knows(own_redis: Server) -> None:
    """Two equal calls and a kill; the third equal call, in another process, is noticed as such."""
    assert in_a_process(own_redis.url, 0, [0, 1], dies=True) == []
    assert in_a_process(own_redis.url, 2, [2, 3]) == ["hint", "deny"]
    store = open_store(Settings(store_url=own_redis.url))
    entries = store.journal("run")
    store.close()
    names = [name for name, _ in entries]
    assert len(set(names)) == len(names)
    assert max(len(name) + len(raw) for name, raw in entries) <= 200


ADAPTER = """
from otel_loopguard.integrations._adapter import Adapter
with Adapter("test").tool_call("search", {"query": "x"}, session="run"):
    pass
"""
TURN = """
from otel_loopguard import turn
with turn("run") as now:
    now.tool("search", {"query": "x"}, lambda query: "nothing")
"""


@pytest.mark.parametrize("program", [TURN, ADAPTER], ids=["turn", "an adapter"])
def test_a_process_that_ends_without_a_processor_has_stored_its_calls(
    own_redis: Server, program: str
) -> None:
    """Its guard has a provider of its own, which nobody else shuts down."""
    shared = {"LOOPGUARD_STORE_URL": own_redis.url, "LOOPGUARD_DIGEST_KEY": KEYED["digest_key"]}
    environment = {**os.environ, **shared, "PYTHONPATH": str(ROOT)}
    ran(sys.executable, "-c", program, env=environment)
    store = open_store(Settings(store_url=own_redis.url))
    assert store.journal("run")
    store.close()


def test_two_guards_share_a_session_while_both_run(own_redis: Server) -> None:
    """Each sees the calls of the other before its own next one, and what it decided."""
    found: list[Decision] = []
    guards = [sharing(own_redis.url, found)[0] for _ in range(2)]
    for number in range(6):
        mine, other = guards[number % 2], guards[1 - number % 2]
        mine.observe(call(number), "run")
        session = session_of(other)
        until(lambda at=number, s=session: s._number == at + 1)
    assert [one.action for one in found] == ["hint", "deny"]
    for one in guards:
        until(lambda guard=one: guard.flag_named("run").control.action == "deny")
        one.shutdown()


@pytest.mark.rare  # half a minute; the tests above see the same in the default suite
def test_the_example_runs(own_redis: Server) -> None:
    """The researcher that was started again is stopped, and the planner with it."""
    environment = {**os.environ, "LOOPGUARD_STORE_URL": own_redis.url, "PYTHONPATH": str(ROOT)}
    done = ran(sys.executable, "examples/two_processes.py", cwd=ROOT, env=environment)
    *said, last = done.stdout.splitlines()
    assert last.startswith("planner is stopped by the policy: ")
    # How many calls that takes depends on how long they rest, on a busy machine.
    assert said[:3] == ["planner asked for rain: allow", *["researcher asked for loops: allow"] * 2]
    lines = (line.removeprefix("researcher asked for loops: ") for line in said[3:])
    again = list(dict.fromkeys(lines))
    assert again[-3:] == ["hint", "deny", "abort"]
    assert again[:-3] in ([], ["allow"])
