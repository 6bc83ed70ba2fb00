"""The writer: nobody waits for the store, and what it acknowledged is stored."""

from __future__ import annotations

import gc
import logging
import os
import threading
from collections.abc import Sequence

import pytest
from opentelemetry import context

from otel_loopguard._util.errors import InternalErrors, raise_faults
from otel_loopguard.errors import StoreError
from otel_loopguard.settings import Settings
from otel_loopguard.stores import Writer
from tests.merged import merged
from tests.stores.memory import MemoryStore
from tests.stores.servers import wait_for


class Flaky(MemoryStore):
    """Fails on request; a failed call may have had its effect."""

    def __init__(self) -> None:
        super().__init__()
        self.reason: str | None = None
        self.after = False
        self.calls = 0
        self.gate = threading.Event()
        self.gate.set()

    def append(self, session: str, entries: Sequence[tuple[str, bytes]]) -> None:
        self.calls += 1
        assert self.gate.wait(60)
        if self.reason and self.after:
            super().append(session, entries)
        if self.reason and (self.reason != "refused" or session == "bad"):
            msg = f"it is {self.reason}"
            raise StoreError(msg, self.reason)  # type: ignore[arg-type]
        super().append(session, entries)

    def ping(self) -> None:
        if self.reason:
            msg = f"it is {self.reason}"
            raise StoreError(msg, self.reason)  # type: ignore[arg-type]


def settings(**more: object) -> Settings:
    return Settings(**merged({"tuning": {"stores": {"delay_s": 0.01, "retry_s": 0.05}}}, more))


def entries(count: int, start: int = 0) -> list[tuple[str, bytes]]:
    return [(f"e{number}", b"x") for number in range(start, start + count)]


def test_what_is_taken_is_stored_in_order() -> None:
    """Every family reaches the store, and the counts say so."""
    store = Flaky()
    writer = Writer(store, settings(), InternalErrors())
    store.gate.clear()
    assert writer.append("s", entries(1))
    wait_for(lambda: store.calls == 1)
    assert all(writer.append("s", [entry]) for entry in entries(19, 1))
    store.gate.set()
    assert writer.add_records("t", lambda: [b"[1700000000000000000]", b"x"])
    assert writer.put("control", "k", b"1")
    assert writer.put("control", "k", b"2", 60)
    assert writer.put("choice", "gone", b"1")
    assert writer.delete("choice", "gone")
    assert writer.flush()
    assert store.journal("s") == entries(20)
    assert (store.records("t"), store.get("control", "k")) == ([b"x"], b"2")
    assert store.get("choice", "gone") is None
    assert store.calls == 2, "what waits for one place is written together"
    assert writer.standing == ("healthy", "", 0, 26, 0, 0, 0)
    writer.close()


def test_nothing_waits_while_the_store_hangs() -> None:
    """A thousand writes are taken while it hangs, and are stored when it goes on."""
    store = Flaky()
    writer = Writer(store, settings(tuning={"stores": {"slow_s": 0.02}}), InternalErrors())
    store.gate.clear()
    writer.append("s", entries(1))
    wait_for(lambda: store.calls)
    for entry in entries(1000, 1):
        assert writer.append("s", [entry])
    wait_for(lambda: writer.state == "slow")
    assert writer.standing.waiting == 1001
    store.gate.set()
    assert writer.flush()
    assert store.journal("s") == entries(1001)[-1000:]
    writer.append("t", entries(1))
    assert writer.flush()
    assert writer.state == "healthy"
    writer.close()


@pytest.mark.parametrize("reason", ["down", "slow", "full", "read_only"])
@pytest.mark.parametrize("after", [False, True], ids=["not stored", "acknowledgement lost"])
def test_it_is_written_when_the_store_is_back(
    reason: str, after: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Retried until it is acknowledged, stored once; one warning says what is wrong (E8)."""
    store = Flaky()
    store.reason, store.after = reason, after
    writer = Writer(store, settings(), InternalErrors())
    writer.append("s", entries(3))
    writer.append("t", entries(2))
    wait_for(lambda: store.calls >= 3)
    assert writer.state == reason
    assert writer.standing.why == f"it is {reason}"
    store.reason = None
    assert writer.flush()
    assert (store.journal("s"), store.journal("t")) == (entries(3), entries(2))
    assert writer.state == "healthy"
    assert writer.standing.stored == 5
    assert writer.standing.retries >= 2
    told = [found for found in caplog.records if found.levelno == logging.WARNING]
    assert [found.getMessage() for found in told] == [
        f"otel-loopguard: the store is {reason}: it is {reason}"
    ]
    writer.close()


def test_what_is_refused_does_not_hold_up_the_rest(caplog: pytest.LogCaptureFixture) -> None:
    """It is counted and named once; the state stays healthy, and others are stored."""
    store = Flaky()
    store.reason = "refused"
    writer = Writer(store, settings(tuning={"stores": {"delay_s": 0}}), InternalErrors())
    for number in range(3):
        writer.append("bad", entries(1, number))
        assert writer.flush()
    writer.append("good", entries(2))
    assert writer.flush()
    assert store.journal("good") == entries(2)
    assert writer.standing.refused == 3
    assert (writer.state, writer.standing.waiting) == ("healthy", 0)
    assert [found.getMessage() for found in caplog.records] == [
        "otel-loopguard: store: journal bad: not stored: it is refused"
    ]
    writer.close()


@pytest.mark.parametrize(
    ("limits", "kept"),
    [
        ({"tuning": {"stores": {"queue": 10}}}, 10),
        ({"tuning": {"stores": {"queue_bytes": 1024}}}, 10),
    ],
    ids=["writes", "bytes"],
)
def test_past_its_bound_it_drops_and_counts(limits: dict[str, int], kept: int) -> None:
    """Memory does not grow while the store is away; what was accepted is stored."""
    store = Flaky()
    store.reason = "down"
    writer = Writer(store, settings(**limits), InternalErrors())
    value = b"x" * 100
    taken = [writer.append("s", [(f"{number}", value)]) for number in range(30)]
    assert taken == [True] * kept + [False] * (30 - kept)
    assert (writer.standing.waiting, writer.standing.dropped) == (kept, 30 - kept)
    store.reason = None
    assert writer.flush()
    assert len(store.journal("s")) == kept
    assert writer.append("s", [("more", value)])
    writer.close()
    assert len(store.journal("s")) == kept + 1


def test_a_value_that_is_too_large_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    """It would hold up everything behind it."""
    writer = Writer(
        MemoryStore(), settings(tuning={"stores": {"value_bytes": 1024}}), InternalErrors()
    )
    assert not writer.put("control", "k", b"x" * 1025)
    assert writer.put("control", "k", b"x" * 1024)
    assert writer.flush()
    assert writer.standing.refused == 1
    assert "value control k: not stored: 1025 bytes are too many" in caplog.text
    writer.close()


def test_shutdown_ends_within_its_limit(caplog: pytest.LogCaptureFixture) -> None:
    """What could not be stored is counted and logged; later writes work again."""
    store = Flaky()
    store.reason = "down"
    writer = Writer(store, settings(), InternalErrors())
    writer.append("s", entries(7))
    writer.close(0.2)
    wait_for(lambda: writer.standing.dropped == 7)
    assert writer.standing.waiting == 0
    assert "7 writes were given up: it is down" in caplog.text
    store.reason = None
    writer.append("s", entries(2))
    wait_for(lambda: store.journal("s") == entries(2))
    writer.close()


def test_a_store_that_is_well_again_is_seen_without_a_write() -> None:
    """The state does not stay bad because nothing happens."""
    store = Flaky()
    store.reason = "down"
    writer = Writer(store, settings(), InternalErrors())
    failed: list[bool] = []
    assert writer.ask(lambda found: found.ping(), lambda _: None, lambda: failed.append(True))
    wait_for(lambda: failed)
    assert writer.state == "down"
    store.reason = None
    wait_for(lambda: writer.state == "healthy")
    writer.close()


def test_a_question_is_answered_on_the_thread() -> None:
    """And before what waits to be written."""
    store = MemoryStore()
    store.append("s", entries(3))
    writer = Writer(store, settings(), InternalErrors())
    said: list[tuple[int, str]] = []
    writer.ask(
        lambda found: found.journal("s"),
        lambda found: said.append((len(found), threading.current_thread().name)),
    )
    wait_for(lambda: said)
    assert said == [(3, "loopguard-store")]
    writer.close()


def test_the_code_of_a_store_may_be_broken() -> None:
    """Any exception is counted as a fault; the write is given up, and the next one goes on."""

    class Broken(MemoryStore):
        def put(self, kind: str, key: str, value: bytes, ttl_s: float | None = None) -> None:
            raise ZeroDivisionError

    raise_faults(False)
    faults = InternalErrors()
    store = Broken()
    writer = Writer(store, settings(), faults)
    answered: list[bool] = []
    writer.put("control", "k", b"x")
    writer.ask(lambda _: 1 / 0, lambda _: None, lambda: answered.append(True))
    writer.append("s", entries(1))
    assert writer.flush()
    assert faults.counts == {"store:ZeroDivisionError": 1, "store_read:ZeroDivisionError": 1}
    assert answered == [True]
    assert store.journal("s") == entries(1)
    assert writer.standing.refused == 1
    writer.close()


def test_calls_of_the_store_leave_no_spans() -> None:
    """Its thread suppresses instrumentation."""
    seen: list[object] = []

    class Traced(MemoryStore):
        def append(self, session: str, entries: Sequence[tuple[str, bytes]]) -> None:
            seen.append(context.get_value("suppress_instrumentation"))

    writer = Writer(Traced(), settings(), InternalErrors())
    writer.append("s", entries(1))
    assert writer.flush()
    assert seen == [True]
    writer.close()


def test_it_may_be_used_by_a_finalizer_inside_of_itself() -> None:
    """A garbage collection within `append` may end a span, which appends again."""
    writer = Writer(MemoryStore(), settings(tuning={"stores": {"queue": 10**6}}), InternalErrors())

    taken: list[bool] = []

    class Ends:
        def __del__(self) -> None:
            taken.append(writer.append("s", [(f"f{id(self)}", b"x")]))

    gc.set_threshold(5)
    try:
        for number in range(3000):
            made = Ends()
            made.me = made  # type: ignore[attr-defined]
            assert writer.append("s", [(f"e{number}", b"x")])
            del made
    finally:
        gc.set_threshold(700, 10, 10)
    assert writer.flush()
    assert all(taken)
    assert len(taken) > 2000
    assert writer.standing.stored == 3000 + len(taken)
    writer.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_of_a_fork_writes_its_own() -> None:
    """The child has its own thread and counts; what waited in the parent, the parent writes."""
    store = Flaky()
    store.reason = "down"
    writer = Writer(store, settings(), InternalErrors())
    writer.append("s", entries(2))
    wait_for(lambda: store.calls)
    # As if another thread held them in the moment of the fork.
    queue, table = writer._lock, store._lock
    with queue, table:
        child = os.fork()
        if child == 0:
            store.reason = None
            mine = writer.append("c", entries(3)) and writer.flush(60)
            right = mine and store.journal("c") == entries(3) and store.journal("s") == []
            os._exit(0 if right and writer.standing.stored == 3 else 1)
    assert os.waitpid(child, 0)[1] == 0
    store.reason = None
    assert writer.flush()
    assert store.journal("s") == entries(2)
    writer.close()


def test_many_threads_lose_nothing() -> None:
    """Every accepted write is stored, whoever made it."""
    store = MemoryStore(journal_entries=10_000)
    writer = Writer(
        store, settings(tuning={"stores": {"queue": 10_000, "batch": 50}}), InternalErrors()
    )

    def work(number: int) -> None:
        for entry in range(500):
            assert writer.append("s", [(f"{number}:{entry}", b"x")])

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert writer.flush()
    assert len(store.journal("s")) == writer.standing.stored == 4000
    writer.close()
