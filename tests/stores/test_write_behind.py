"""The writer: nobody waits for the store, and what it acknowledged is stored."""

import gc
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest

from otel_loopguard import LoopGuard, LoopGuardSpanProcessor, Settings
from otel_loopguard._util.errors import raise_faults
from otel_loopguard.errors import StoreError
from otel_loopguard.stores import PublishedValue, write_behind
from otel_loopguard.stores.redis import RedisStore
from tests.agents import provider_with
from tests.control.messages import call, flag, new_name
from tests.escalation.hooks import Hook, served
from tests.merged import merged
from tests.stores.conftest import Write
from tests.stores.memory import MemoryStore
from tests.stores.servers import Server, free_port, listen, wait_for


class Flaky(MemoryStore):
    """Fails for a reason; a failed call may have had its effect."""

    def __init__(self, reason: str | None = None, *, after: bool = False) -> None:
        super().__init__()
        self.reason = reason
        self.after = after
        self.calls = 0
        self.gate = threading.Event()
        self.gate.set()

    def append(self, session: str, entries: Sequence[tuple[str, bytes]]) -> None:
        self.calls += 1
        assert self.gate.wait(60)
        if self.reason and self.after:
            super().append(session, entries)
        if self.reason != "refused" or session == "bad":
            self.ping()
        super().append(session, entries)

    def ping(self) -> None:
        if self.reason:
            raise StoreError(f"it is {self.reason}", self.reason)  # type: ignore[arg-type]


def entries(count: int, start: int = 0) -> list[tuple[str, bytes]]:
    return [(f"e{number}", b"x") for number in range(start, start + count)]


def test_what_is_taken_is_stored_in_order(write: Write) -> None:
    """Every family reaches the store, and the counts say so."""
    writer = write(store := Flaky())
    store.gate.clear()
    assert writer.append("s", entries(1))
    wait_for(lambda: store.calls == 1)
    assert all(writer.append("s", [entry]) for entry in entries(19, 1))
    store.gate.set()
    assert writer.add_records("t", lambda: [b"[1700000000000000000]", b"x"])
    assert writer.put("control", "k", b"1")
    assert writer.put("control", "k", b"2", 60)
    assert writer.flush()
    assert store.journal("s") == entries(20)
    assert (store.records("t"), store.get("control", "k")) == ([b"x"], b"2")
    assert store.calls == 2, "what waits for one place is written together"
    assert (writer.state, writer.why, writer.stored) == ("healthy", "", 24)
    assert (writer.waiting, writer.dropped, writer.refused, writer.retries) == (0, 0, 0, 0)


def test_a_flush_stores_where_no_thread_can_be_started(write: Write, threadless: None) -> None:
    """As while the interpreter ends, from Python 3.12 on."""
    writer = write(store := Flaky())
    assert writer.append("s", entries(3))
    assert writer.flush()
    assert store.journal("s") == entries(3)


def test_a_call_that_hangs_is_slow(write: Write) -> None:
    """That is seen while it hangs, and is over with the next call."""
    writer = write(store := Flaky(), slow_s=0.02)
    store.gate.clear()
    writer.append("s", entries(1))
    wait_for(lambda: writer.state == "slow")
    store.gate.set()
    assert writer.flush()
    wait_for(
        lambda: writer.append("s", entries(1)) and writer.flush() and writer.state == "healthy"
    )


@pytest.mark.parametrize("reason", ["down", "slow", "full", "read_only"])
@pytest.mark.parametrize("after", [False, True], ids=["not stored", "acknowledgement lost"])
def test_it_is_written_when_the_store_is_back(
    write: Write, reason: str, after: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Retried until it is acknowledged, stored once; logged when it begins, and its end (E8)."""
    writer = write(store := Flaky(reason, after=after))
    writer.append("s", entries(3))
    writer.append("t", entries(2))
    wait_for(lambda: store.calls >= 3)
    assert (writer.state, writer.why) == (reason, f"it is {reason}")
    store.reason = None
    assert writer.flush()
    assert (store.journal("s"), store.journal("t")) == (entries(3), entries(2))
    assert writer.state == "healthy"
    assert writer.stored == 5
    assert writer.retries >= 2
    told = [text for found in caplog.records if "the store is " in (text := found.getMessage())]
    begin, end = told
    assert begin == f"otel-loopguard: the store is {reason}: it is {reason}"
    assert "healthy" in end


def test_a_store_that_comes_and_goes_fills_no_log(
    write: Write, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A begin has its end, and trouble that lasts is told although the one before was too."""
    writer = write(store := Flaky())

    def told() -> list[str]:
        found = [one.getMessage().rpartition("the store is ")[2] for one in caplog.records]
        return [text.split()[0].strip(":") for text in found]

    for _ in range(3):
        store.reason = "down"
        writer.append("s", entries(1))
        wait_for(lambda: writer.state == "down")
        store.reason = None
        assert writer.flush()
    assert told() == ["down", "healthy"]
    store.reason = "down"
    writer.append("s", entries(1))
    wait_for(lambda: writer.state == "down")
    assert told() == ["down", "healthy"]
    monkeypatch.setattr(write_behind, "_LOG_AGAIN_S", 0)
    wait_for(lambda: told() == ["down", "healthy", "down"])
    store.reason = None
    assert writer.flush()
    assert told() == ["down", "healthy"] * 2


def test_what_is_refused_does_not_hold_up_the_rest(
    write: Write, caplog: pytest.LogCaptureFixture
) -> None:
    """It is counted and named once; the state stays healthy, and others are stored."""
    writer = write(store := Flaky("refused"), delay_s=0)
    for number in range(3):
        writer.append("bad", entries(1, number))
        assert writer.flush()
    writer.append("good", entries(2))
    assert writer.flush()
    assert store.journal("good") == entries(2)
    assert writer.refused == 3
    assert (writer.state, writer.waiting) == ("healthy", 0)
    assert [found.getMessage() for found in caplog.records] == [
        "otel-loopguard: store: journal bad: not stored: it is refused"
    ]


@pytest.mark.parametrize("bound", [{"queue": 10}, {"queue_bytes": 1024}], ids=["writes", "bytes"])
def test_past_its_bound_it_drops_and_counts(write: Write, bound: dict[str, int]) -> None:
    """Memory does not grow while the store is away; what was accepted is stored."""
    writer = write(store := Flaky("down"), **bound)
    value = b"x" * 100
    taken = [writer.append("s", [(f"{number}", value)]) for number in range(30)]
    assert taken == [True] * 10 + [False] * 20
    assert (writer.waiting, writer.dropped) == (10, 20)
    store.reason = None
    assert writer.flush()
    assert len(store.journal("s")) == 10
    assert writer.append("s", [("more", value)])
    writer.close()
    assert len(store.journal("s")) == 11


def test_a_value_that_is_too_large_is_refused(
    write: Write, caplog: pytest.LogCaptureFixture
) -> None:
    """It would hold up everything behind it."""
    writer = write(MemoryStore(), value_bytes=1024)
    assert not writer.put("control", "k", b"x" * 1025)
    assert writer.put("control", "k", b"x" * 1024)
    assert writer.flush()
    assert writer.refused == 1
    assert "value control k: not stored: 1025 bytes are too many" in caplog.text


def test_shutdown_ends_within_its_limit(write: Write, caplog: pytest.LogCaptureFixture) -> None:
    """What could not be stored is counted and logged; later writes work again."""
    writer = write(store := Flaky("down"))
    writer.append("s", entries(7))
    writer.close(0.2)
    wait_for(lambda: writer.dropped == 7)
    assert writer.waiting == 0
    assert "7 writes were given up: it is down" in caplog.text
    store.reason = None
    writer.append("s", entries(2))
    wait_for(lambda: store.journal("s") == entries(2))


def test_a_question_is_answered_on_the_thread(write: Write) -> None:
    """One that cannot be says so; and a store that is well again is seen without a write."""
    writer = write(store := Flaky())
    store.append("s", entries(3))
    said: list[object] = []
    writer.ask(
        lambda found: found.journal("s"),
        lambda found: said.append((len(found), threading.current_thread().name)),
    )
    wait_for(lambda: said)
    assert said == [(3, "loopguard-store")]
    store.reason = "down"
    assert writer.ask(lambda found: found.ping(), said.append, lambda: said.append("failed"))
    wait_for(lambda: said[1:] == ["failed"])
    assert writer.state == "down"
    store.reason = None
    wait_for(lambda: writer.state == "healthy")


def test_the_code_of_a_store_may_be_broken(write: Write) -> None:
    """Any exception is counted as a fault; the write is given up, and the next one goes on."""

    class Broken(MemoryStore):
        def put(self, kind: str, key: str, value: bytes, ttl_s: float | None = None) -> None:
            raise ZeroDivisionError

    raise_faults(False)
    writer = write(store := Broken())
    answered: list[bool] = []
    writer.put("control", "k", b"x")
    writer.ask(lambda _: 1 / 0, lambda _: None, lambda: answered.append(True))
    writer.append("s", entries(1))
    assert writer.flush()
    faults = writer._faults.counts
    assert faults == {"store:ZeroDivisionError": 1, "store_read:ZeroDivisionError": 1}
    assert answered == [True]
    assert store.journal("s") == entries(1)
    assert writer.refused == 1


def test_it_may_be_used_by_a_finalizer_inside_of_itself(write: Write) -> None:
    """A garbage collection within `append` may end a span, which appends again."""
    writer = write(MemoryStore(), queue=10**6)
    taken: list[bool] = []

    class Ends:
        def __init__(self) -> None:
            self.me = self

        def __del__(self) -> None:
            taken.append(writer.append("s", [(f"f{id(self)}", b"x")]))

    gc.set_threshold(5)
    try:
        for number in range(3000):
            Ends()
            assert writer.append("s", [(f"e{number}", b"x")])
    finally:
        gc.set_threshold(700, 10, 10)
    assert writer.flush()
    assert all(taken)
    assert len(taken) > 2000
    assert writer.stored == 3000 + len(taken)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_of_a_fork_writes_its_own(write: Write) -> None:
    """The child has its own thread and counts; what waited in the parent, the parent writes."""
    writer = write(store := Flaky("down"))
    writer.append("s", entries(2))
    wait_for(lambda: store.calls)
    # As if another thread held them in the moment of the fork.
    with writer._lock, store._lock:
        child = os.fork()
        if child == 0:
            store.reason = None
            mine = writer.append("c", entries(3)) and writer.flush(60)
            right = mine and store.journal("c") == entries(3) and store.journal("s") == []
            os._exit(0 if right and writer.stored == 3 else 1)
    assert os.waitpid(child, 0)[1] == 0
    store.reason = None
    assert writer.flush()
    assert store.journal("s") == entries(2)


def test_many_threads_lose_nothing(write: Write) -> None:
    """Every accepted write is stored, whoever made it."""
    store = MemoryStore(journal_entries=10_000)
    writer = write(store, queue=10_000, batch=50)

    def work(number: int) -> None:
        for entry in range(500):
            assert writer.append("s", [(f"{number}:{entry}", b"x")])

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert writer.flush()
    assert len(store.journal("s")) == writer.stored == 4000


def published(value: bytes, stands: bool = False) -> PublishedValue:
    return PublishedValue(value, 60, "t", lambda before: stands and before != value)


def test_a_notice_is_put_and_published(write: Write) -> None:
    """At once: nobody waits for a batch to be full."""
    writer = write(store := MemoryStore(), delay_s=30)
    heard, _subscription = listen(store, "t")
    assert writer.publish("control", "k", published(b"1"))
    wait_for(lambda: heard == [b"1"])
    assert store.get("control", "k") == b"1"
    assert writer.publish("control", "k", published(b"2", stands=True))
    assert writer.flush(60)
    assert store.get("control", "k") == b"1"
    assert writer.publish("control", "k", published(b"3"))
    wait_for(lambda: heard == [b"1", b"3"])


LAZY = {"stores": {"delay_s": 60}, "journal": {"flush_s": 600, "flush_steps": 10_000}}
"""So long that what is stored was not waiting for its time."""
Make = Callable[..., LoopGuard]


@pytest.fixture
def made() -> Iterator[Make]:
    """Makes guards, and ends them."""
    with ExitStack() as ends:

        def make(**settings: Any) -> LoopGuard:
            guard = LoopGuard(Settings(**merged({"tuning": LAZY}, settings)))
            ends.callback(guard.shutdown)
            return guard

        yield make


def test_a_flush_stores_everything(kept: Server, store: RedisStore, made: Make) -> None:
    """A process that is killed after it loses nothing of what was done before."""
    guard, run, tool = made(store_url=kept.url), new_name(), new_name("tool")
    guard.observe(call(tool), run)
    assert provider_with(LoopGuardSpanProcessor(guard)).force_flush()
    assert store.journal(run)
    assert store.records(tool)


def test_a_flush_that_fails_says_so(made: Make) -> None:
    """Within its deadline, which is never longer than that of a shutdown."""
    url = f"redis://127.0.0.1:{free_port()}/0"
    guard = made(store_url=url, tuning={"stores": {"flush_s": 0.1}})
    guard.observe(call(), new_name())
    assert not provider_with(LoopGuardSpanProcessor(guard)).force_flush()


def test_a_flush_waits_for_the_webhook(made: Make) -> None:
    """It has the escalation, or the flush has failed."""
    come, answered = threading.Event(), threading.Event()

    def answer(_number: int) -> tuple[int, bytes]:
        come.set()
        answered.wait(60)
        return 200, b"ok"

    with served(Hook(answer)) as hook:
        guard = made(webhook_url=hook.url, max_action="pause")
        provider, run = provider_with(LoopGuardSpanProcessor(guard)), new_name()
        for _ in range(4):
            guard.observe(call(), run)
        assert come.wait(60)
        assert not provider.force_flush(1)
        answered.set()
        assert provider.force_flush()
    assert len(hook.posts) == 1


def test_a_decision_does_not_wait_for_others(kept: Server, store: RedisStore, made: Make) -> None:
    """Without a flush: nothing but the way to the store is between it and a kill."""
    guard, run = made(store_url=kept.url), new_name()
    for _ in range(4):
        guard.observe(call(), run)
    assert flag(guard, run).raised
    wait_for(lambda: len(store.journal(run)) >= 4)
