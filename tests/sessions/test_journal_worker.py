"""The history of a session: written behind, and taken in again by another process or guard."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest

from otel_loopguard import LoopGuard
from otel_loopguard._util.errors import raise_faults
from otel_loopguard.core import Action, Decision, Kind, Step
from otel_loopguard.evidence import ToolCallExtractor
from otel_loopguard.sessions.journal_codec import VERSION, Codec, Unread
from otel_loopguard.sessions.journal_worker import WriterJournalStore
from otel_loopguard.settings import Settings
from otel_loopguard.stores import Writer
from tests.sessions.journals import (
    EPOCH,
    SECOND,
    JournalsInMemory,
    call,
    guard,
    news,
    restarted,
    session_of,
    until,
)
from tests.stores.memory import MemoryStore


def decided(found: list[Decision]) -> list[str]:
    return [one.action.value for one in found if one.action is not Action.ALLOW]


def listen(guard: LoopGuard) -> list[Decision]:
    """Every decision of a guard from now on."""
    found: list[Decision] = []
    guard.subscribers.decisions.append(("on_decision", lambda made: found.append(made.decision)))
    return found


def observed(journals: JournalsInMemory, *steps: Step, after: int = 0) -> list[Decision]:
    """What a guard decides that sees steps of one session and goes; before it, so many calls."""
    one = restarted(journals, after)[0] if after else guard(journals)
    found = listen(one)
    for step in steps:
        one.observe(step, "run")
    one.shutdown()
    return found


def test_a_loop_that_began_before_the_restart_is_noticed_after_it() -> None:
    """Two calls before it and one after it are three."""
    journals = JournalsInMemory()
    assert observed(journals, call(0), call(1)) == []
    assert decided(observed(journals, call(2), after=2)) == ["hint"]


def test_the_same_run_in_one_process_says_the_same() -> None:
    """Restarted after every step, or not at all; loops keep their name, and the flag is raised."""
    steps = [call(number) for number in range(9)]
    whole, parts = JournalsInMemory(), JournalsInMemory()
    together = observed(whole, *steps)
    apart: list[Decision] = []
    for number, step in enumerate(steps):
        apart += observed(parts, step, after=number)
        if number == 3:
            control = restarted(parts, 4)[1].flag.control
            assert (control.action, bool(control.hint)) == (Action.DENY, True)
            assert control.decision is not None
            assert control.decision.detector == "exact_repeat"
    assert decided(together) == decided(apart) == ["hint", "deny", "abort"]
    assert len({one.loop for one in apart}) == 1
    entries = parts.store.journal("run")
    assert max(len(name) + len(raw) for name, raw in entries) <= 200


def poll(number: int) -> Step:
    """A poll of minutes, which is no loop."""
    start = EPOCH + number * 30 * SECOND
    said = "state: pending, not ready yet"
    times = {"start": start, "end": start + SECOND}
    return Step(Kind.TOOL, "job_status", args={"id": 7}, outcome=said, **times)


def check(number: int) -> Step:
    """Short equal answers to many different calls are work."""
    said = "fine" if number % 2 else news(number + 100)
    return call(number, "check_item", news(number), outcome=said)


@pytest.mark.parametrize(("made", "before", "steps"), [(poll, 4, 12), (check, 20, 40)])
def test_healthy_work_stays_healthy_across_restarts(
    made: Callable[[int], Step], before: int, steps: int
) -> None:
    journals = JournalsInMemory()
    assert observed(journals, *map(made, range(before))) == []
    for number in range(before, steps, 4):
        assert observed(journals, *map(made, range(number, number + 4)), after=number) == []


def test_a_new_run_of_the_agent_is_the_users_next_turn() -> None:
    """No run outlives its process: an abort of before does not stop the run after it."""
    journals = JournalsInMemory()
    assert observed(journals, *map(call, range(7)))[-1].action is Action.ABORT
    new = guard(journals)
    session = session_of(new)
    with session.lock:
        session.next_run(77)
    until(lambda: session.journal and session.journal.before.calls == 7)
    assert session.flag.control.action is Action.ALLOW
    found = listen(new)
    new.observe(call(9, args="something else", outcome="an answer"), "run")
    new.observe(call(10, args="more", outcome="another answer"), "run")
    assert found == []


def test_what_a_person_let_go_on_stays_let_go() -> None:
    """A session that was cleared starts over after the restart too."""
    journals = JournalsInMemory()
    one = guard(journals)
    for number in range(4):
        one.observe(call(number), "run")
    flag = one.flag_of("run")
    assert flag is not None
    assert flag.stops
    flag.clear()
    one.observe(call(4, args="other", outcome="new"), "run")
    one.shutdown()
    _, session = restarted(journals, 5)
    assert session.flag.control.action is Action.ALLOW
    assert not session.state.policy.ended


@pytest.mark.parametrize("steps", [99, 100, 250])
def test_every_hundred_entries_are_written(steps: int) -> None:
    """Neither each by itself, nor all at the end (C6)."""
    journals = JournalsInMemory()
    one = guard(journals, tuning={"journal": {"flush_s": 60}})
    session = session_of(one)
    until(lambda: journals.reads)
    for number in range(steps):
        one.observe(call(number, args=number, outcome=news(number)), "run")
        if number % 100 == 99:
            until(lambda: session.journal is not None and not session.journal.pending)
    assert journals.batches == [100] * (steps // 100)
    one.shutdown()
    assert sum(journals.batches) == steps
    assert len(journals.store.journal("run")) == steps


def test_no_memory_grows_where_the_thread_does_not_come_to_write() -> None:
    """Then who makes the steps hands them on, ten times as many at once."""
    journals = JournalsInMemory()
    one = guard(journals, tuning={"journal": {"flush_steps": 10}})
    scribe = one._sessions._journal_worker
    assert scribe is not None
    scribe._closed = True
    for number in range(250):
        one.observe(call(number, args=number, outcome=news(number)), "run")
    assert journals.batches == [100, 100]


@pytest.mark.parametrize(("flush_s", "steps", "last"), [(60, 3, "Decision"), (0, 1, "CallEntry")])
def test_a_decision_is_written_at_once_and_what_waits_after_a_time(
    flush_s: int, steps: int, last: str
) -> None:
    """A process that is stopped right after it has not forgotten it; no session is kept quiet."""
    journals = JournalsInMemory()
    one = guard(journals, tuning={"journal": {"flush_s": flush_s or 0.05}})
    for number in range(steps):
        one.observe(call(number), "run")
    until(lambda: flush_s or journals.store.journal("run"))
    found = [Codec(raw[2:4]).read(raw, "run") for _, raw in journals.store.journal("run")]
    assert type(found[-1]).__name__ == last


def test_only_the_newest_are_kept() -> None:
    """Memory does not grow with the length of a run."""
    journals = JournalsInMemory()
    one = guard(journals, tuning={"journal": {"steps": 32}})
    for number in range(100):
        one.observe(call(number, args=number, outcome=news(number)), "run")
    session = session_of(one)
    assert session.journal is not None
    one.shutdown()
    # The thread may be handing on the last of them.
    until(lambda: session.journal is not None and len(session.journal.entries) == 32)


def test_two_guards_see_each_others_steps() -> None:
    """The third equal call is noticed, whoever makes it; each entry counts once."""
    journals = JournalsInMemory()
    one, two = guard(journals), guard(journals)
    found = listen(two)
    one.observe(call(0), "run")
    until(lambda: journals.store.journal("run"))
    two.observe(call(1), "run")
    session = session_of(two)
    until(lambda: session.journal and session.journal.before.calls == 1)
    one.observe(call(2), "run")
    two.observe(Step(Kind.MODEL, "m", start=EPOCH, end=EPOCH + SECOND), "run")
    until(lambda: session.journal and session.journal.before.calls == 2)
    assert found == []
    two.observe(call(3), "run")
    assert decided(found) == ["hint"]
    mine = session_of(one)
    one.observe(Step(Kind.MODEL, "m", start=EPOCH, end=EPOCH + SECOND), "run")
    until(lambda: mine.flag.control.action is Action.HINT)
    assert session._number == mine._number == 4


def test_own_entries_that_are_kept_no_more_are_not_those_of_others() -> None:
    """More may be stored of a session than its buffer keeps: no call counts twice."""
    journals = JournalsInMemory()
    settings = Settings(digest_key="the key of the tests", tuning={"journal": {"steps": 16}})
    one = LoopGuard(settings, journal_store=journals, manual_journals=True)
    for number in range(60):
        one.observe(call(number, args=number, outcome=news(number)), "run")
    one.write_journals()
    assert len(journals.store.journal("run")) == 60
    one.recall("run", 1)
    session = session_of(one)
    assert session.journal is not None
    assert session.journal.before.calls == 0
    assert session._number == 60


def test_steps_of_others_are_put_in_order_of_time() -> None:
    """One that was made before ours and read later comes before ours."""
    journals = JournalsInMemory()
    one, two = guard(journals), guard(journals)
    two.observe(call(5, args="later", outcome="b"), "run")
    session = session_of(two)
    one.observe(call(1, args="earlier", outcome="a"), "run")
    two.observe(Step(Kind.MODEL, "m", start=EPOCH, end=EPOCH + SECOND), "run")
    until(lambda: session.journal and session.journal.before.calls == 1)
    assert session.journal is not None
    two.shutdown()
    names = [name for name, _ in session.journal.entries]
    assert names == sorted(names)
    assert len(names) == len(set(names)) == 2


def worker_of(one: LoopGuard) -> Any:
    worker = one._sessions._journal_worker
    assert worker is not None
    return worker


def test_a_corrupted_entry_is_skipped_counted_and_told_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """With the session; the others are taken in, but by a guard of another key."""
    journals = JournalsInMemory()
    observed(journals, call(0), call(1))
    # Only now: the guard that wrote the others may read its journal too, and warn.
    journals.store.append("run", [("0-a", bytes((VERSION, 2)) * 9), ("0-b", b"\xff" * 40)])
    journals.store.append("run", [("0-c", b"")])
    with caplog.at_level(logging.WARNING, "otel_loopguard"):
        one, _ = restarted(journals, 2)
    assert worker_of(one).unread == {Unread.CORRUPTED: 2, Unread.NEWER: 1}
    told = [record.getMessage() for record in caplog.records]
    assert told == [
        "otel-loopguard: session 'run': an entry of its journal is corrupted and was skipped"
    ]
    one = guard(journals, digest_key="another key of tests")
    session = session_of(one)
    until(lambda: worker_of(one).unread[Unread.FOREIGN] == 2)
    one.observe(call(2), "run")
    assert session.flag.control.action is Action.ALLOW


def test_a_store_that_cannot_be_read_is_asked_again() -> None:
    """The past comes when it is back; nobody waited for it."""
    journals = JournalsInMemory()
    observed(journals, call(0), call(1))
    journals.down = True
    one = guard(journals)
    session = session_of(one)
    until(lambda: worker_of(one).failed >= 2)
    journals.down = False
    until(lambda: session.journal and session.journal.before.calls == 2)


def test_no_hook_waits_for_a_store_that_hangs_or_raises() -> None:
    """Reading is the thread's business; a fault is counted, and the step is judged all the same."""
    raise_faults(False)
    hangs = threading.Event()
    read: list[str] = []

    class Broken(JournalsInMemory):
        def submit(self, session: str, entries: object) -> None:
            raise OSError(session)

        def journal(self, session: str, after: str | None = None) -> list[tuple[str, bytes]]:
            hangs.wait(60)
            read.append(session)
            return super().journal(session, after)

    one = guard(Broken(), tuning={"journal": {"flush_s": 60}})
    found = listen(one)
    for number in range(3):
        one.observe(call(number), "run")
    assert decided(found) == ["hint"]
    assert one.faults.counts == {"journal:OSError": 1}
    assert read == []
    hangs.set()


def test_a_session_that_gets_its_key_late_is_written_under_it() -> None:
    """What was written under the trace id before is written once more."""
    journals = JournalsInMemory()
    one = guard(journals)
    step = call(0)
    step.trace_id = 5
    session = one._sessions.of_step(step, EPOCH)
    with session.lock:
        session.observe(step)
        one._sessions.wrote(session, now=True)
    assert len(journals.store.journal(f"{5:032x}")) == 1
    one.bind(5, "conversation")
    with session.lock:
        one._sessions.wrote(session, now=True)
    assert len(journals.store.journal("conversation")) == 1


def test_the_writer_of_a_store_keeps_journals() -> None:
    """Its entries come back through it."""
    one = guard(JournalsInMemory())
    writer = Writer(MemoryStore(), Settings(), one.faults)
    journals = WriterJournalStore(writer)
    journals.submit("run", [("a", b"1"), ("b", b"2"), ("a", b"3")])
    assert writer.flush(60)
    assert journals.journal("run") == [("a", b"1"), ("b", b"2")]
    assert journals.journal("run", "a") == [("b", b"2")]


def test_all_evidence_of_a_session_is_covered() -> None:
    """What detectors compare is what stands in the journal; without one keys stay as they are."""
    plain = ToolCallExtractor(Settings()).evidence(call(0))
    for journals in (JournalsInMemory(), None):
        one = guard(journals)
        one.observe(call(0), "run")
        session = session_of(one)
        seen = session.evidence
        assert seen is not None
        assert seen.call == session.call_of(call(0))
        assert (seen.call == plain.call) is (seen.outcome == plain.outcome) is (journals is None)
        assert (session.journal is None) is (journals is None)
