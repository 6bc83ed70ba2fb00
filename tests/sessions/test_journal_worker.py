"""The history of a session: written behind, and taken in again by another process or guard."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

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


def listen(guard: LoopGuard, listener: Callable[[Decision], object]) -> None:
    """Has a function called with every decision of a guard."""
    guard.subscribers.decisions.append(("on_decision", lambda made: listener(made.decision)))


def observed(journals: JournalsInMemory, *steps: Step, **settings: object) -> list[str]:
    """A guard sees steps of one session and goes; what it decided."""
    found: list[Decision] = []
    one = guard(journals, **settings)
    listen(one, found.append)
    for step in steps:
        one.observe(step, "run")
    one.shutdown()
    return decided(found)


def after(journals: JournalsInMemory, calls: int, *steps: Step, **settings: object) -> list[str]:
    """The same, after a restart, once the calls of before are known."""
    found: list[Decision] = []
    one, _ = restarted(journals, calls, **settings)
    listen(one, found.append)
    for step in steps:
        one.observe(step, "run")
    one.shutdown()
    return decided(found)


def test_a_loop_that_began_before_the_restart_is_noticed_after_it() -> None:
    """Two calls before it and one after it are three."""
    journals = JournalsInMemory()
    assert observed(journals, call(0), call(1)) == []
    assert after(journals, 2, call(2)) == ["hint"]


def test_the_ladder_goes_on_where_it_stood() -> None:
    """A hint before the restart is spent: what comes after it is a deny, then an abort."""
    journals = JournalsInMemory()
    assert observed(journals, *map(call, range(3))) == ["hint"]
    assert after(journals, 3, call(3)) == ["deny"]
    assert after(journals, 4, call(4), call(5), call(6)) == ["abort"]


def test_the_same_run_in_one_process_says_the_same() -> None:
    """Restarted after every step, or not at all."""
    steps = [call(number) for number in range(9)]
    whole, parts = JournalsInMemory(), JournalsInMemory()
    together = observed(whole, *steps)
    apart = observed(parts, steps[0])
    for number, step in enumerate(steps[1:], 1):
        apart += after(parts, number, step)
    assert together == apart == ["hint", "deny", "abort"]


def test_loops_keep_their_name() -> None:
    """The digest of a loop on the trace is that of before the restart."""
    journals, names = JournalsInMemory(), set[str]()
    one = guard(journals)
    listen(one, lambda decision: names.add(decision.loop))
    for number in range(3):
        one.observe(call(number), "run")
    one.shutdown()
    two, _ = restarted(journals, 3)
    listen(two, lambda decision: names.add(decision.loop))
    two.observe(call(3), "run")
    assert len(names) == 1


def test_the_flag_is_raised_again() -> None:
    """What was decided holds: the runtime sees the deny of before, and its hint."""
    journals = JournalsInMemory()
    observed(journals, *map(call, range(4)))
    _, session = restarted(journals, 4)
    control = session.flag.control
    assert control.action is Action.DENY
    assert control.hint
    assert control.decision is not None
    assert control.decision.detector == "exact_repeat"


def test_a_new_run_of_the_agent_is_the_users_next_turn() -> None:
    """No run outlives its process: an abort of before does not stop the run after it."""
    journals = JournalsInMemory()
    assert observed(journals, *map(call, range(7)))[-1] == "abort"
    new = guard(journals)
    session = session_of(new)
    with session.lock:
        session.next_run(77)
    until(lambda: session.journal and session.journal.before.calls == 7)
    assert session.flag.control.action is Action.ALLOW
    found: list[Decision] = []
    listen(new, found.append)
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


def test_waiting_goes_on_after_the_restart() -> None:
    """A poll of minutes is no loop, however often the process is restarted."""
    journals = JournalsInMemory()

    def poll(number: int) -> Step:
        start = EPOCH + number * 30 * SECOND
        said = "state: pending, not ready yet"
        return Step(Kind.TOOL, "job_status", args={"id": 7}, outcome=said, start=start,
                    end=start + SECOND)  # fmt: skip

    assert observed(journals, *map(poll, range(4))) == []
    for number in range(4, 12):
        assert after(journals, number, poll(number)) == []


def test_healthy_work_stays_healthy_across_restarts() -> None:
    """Short equal answers to many different calls are work, before and after."""
    journals = JournalsInMemory()
    steps = [
        call(n, "check_item", news(n), outcome="fine" if n % 2 else news(n + 100))
        for n in range(40)
    ]
    assert observed(journals, *steps[:20]) == []
    assert after(journals, 20, *steps[20:]) == []


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


def test_a_decision_is_written_at_once() -> None:
    """A process that is stopped right after it has not forgotten it."""
    journals = JournalsInMemory()
    one = guard(journals, tuning={"journal": {"flush_s": 60}})
    for number in range(3):
        one.observe(call(number), "run")
    found = [Codec(raw[2:4]).read(raw, "run") for _, raw in journals.store.journal("run")]
    assert [type(entry).__name__ for entry in found][-2:] == ["Loop", "Decision"]


def test_what_waits_is_written_after_a_time() -> None:
    """A quiet session does not keep its steps to itself."""
    journals = JournalsInMemory()
    one = guard(journals)
    one.observe(call(0), "run")
    until(lambda: len(journals.store.journal("run")) == 1)


def test_an_entry_takes_less_than_200_bytes() -> None:
    """Id and value of each, of calls with arguments, errors and decisions."""
    journals = JournalsInMemory()
    observed(journals, *map(call, range(8)), Step(Kind.MODEL, "m", start=EPOCH, end=EPOCH + SECOND))
    found = journals.store.journal("run")
    assert len(found) > 10
    assert max(len(name) + len(raw) for name, raw in found) <= 200


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
    journals, found = JournalsInMemory(), list[Decision]()
    one, two = guard(journals), guard(journals)
    listen(two, found.append)
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


def test_a_corrupted_entry_is_skipped_counted_and_told_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """With the session; the others are taken in."""
    journals = JournalsInMemory()
    observed(journals, call(0), call(1))
    # Only now: the guard that wrote the others may read its journal too, and warn.
    journals.store.append("run", [("0-a", bytes((VERSION, 2)) * 9), ("0-b", b"\xff" * 40)])
    journals.store.append("run", [("0-c", b"")])
    with caplog.at_level(logging.WARNING, "otel_loopguard"):
        one, _ = restarted(journals, 2)
    scribe = one._sessions._journal_worker
    assert scribe is not None
    assert scribe.unread == {Unread.CORRUPTED: 2, Unread.NEWER: 1}
    told = [record.getMessage() for record in caplog.records]
    assert told == [
        "otel-loopguard: session 'run': an entry of its journal is corrupted and was skipped"
    ]


def test_what_another_key_wrote_is_not_compared() -> None:
    """Digests of two keys never meet: it is counted, and the run is judged by itself."""
    journals = JournalsInMemory()
    observed(journals, call(0), call(1))
    one = guard(journals, digest_key="another key of tests")
    session = session_of(one)
    scribe = one._sessions._journal_worker
    assert scribe is not None
    until(lambda: scribe.unread[Unread.FOREIGN] == 2)
    one.observe(call(2), "run")
    assert session.flag.control.action is Action.ALLOW


def test_a_store_that_cannot_be_read_is_asked_again() -> None:
    """The past comes when it is back; nobody waited for it."""
    journals = JournalsInMemory()
    observed(journals, call(0), call(1))
    journals.down = True
    one = guard(journals)
    session = session_of(one)
    scribe = one._sessions._journal_worker
    assert scribe is not None
    until(lambda: scribe.failed >= 2)
    journals.down = False
    until(lambda: session.journal and session.journal.before.calls == 2)


def test_a_journal_store_that_raises_does_not_reach_the_agent() -> None:
    """It is a fault that is counted, and the step is judged all the same."""
    raise_faults(False)

    class Broken(JournalsInMemory):
        def submit(self, session: str, entries: object) -> None:
            raise OSError(session)

    found: list[Decision] = []
    one = guard(Broken(), tuning={"journal": {"flush_s": 60}})
    listen(one, found.append)
    for number in range(3):
        one.observe(call(number), "run")
    assert decided(found) == ["hint"]
    assert one.faults.counts == {"journal:OSError": 1}


def test_no_hook_waits_for_a_store_that_hangs() -> None:
    """Reading is the thread's business."""
    hangs = threading.Event()
    read: list[str] = []

    class Frozen(JournalsInMemory):
        def journal(self, session: str, after: str | None = None) -> list[tuple[str, bytes]]:
            hangs.wait(60)
            read.append(session)
            return super().journal(session, after)

    one = guard(Frozen())
    for number in range(50):
        one.observe(call(number, args=number, outcome=news(number)), "run")
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


def test_a_guard_without_a_journal_store_keeps_no_history() -> None:
    """And pays nothing: keys of evidence stay as they are."""
    one = guard(None)
    one.observe(call(0), "run")
    assert session_of(one).journal is None


def test_all_evidence_of_a_session_is_covered() -> None:
    """What detectors compare is what stands in the journal, so that both are one kind."""
    one = guard(JournalsInMemory())
    one.observe(call(0), "run")
    session = session_of(one)
    seen = session.evidence
    assert seen is not None
    plain = ToolCallExtractor(Settings()).evidence(call(0))
    assert seen.call == session.call_of(call(0)) != plain.call
    assert seen.outcome != plain.outcome
