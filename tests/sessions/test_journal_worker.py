"""The history of a session: written behind, and taken in again by another process or guard."""

import logging
import threading
from collections.abc import Callable

import pytest

from otel_loopguard import LoopGuard, LoopGuardSpanProcessor, Settings
from otel_loopguard._util.errors import raise_faults
from otel_loopguard.core import Action, Decision, Step
from otel_loopguard.evidence import ToolCallExtractor
from otel_loopguard.sessions.journal import VERSION, Codec
from tests.calls import call as tool_call
from tests.hostile.rig import TOOL, ended
from tests.sessions.journals import JournalsInMemory, call, guard, new, news, session_of, until


def restarted(journals: JournalsInMemory, found: list[Decision] | None = None) -> LoopGuard:
    """A guard of another process that has taken in what came before it."""
    one = guard(journals, found, manual=True)
    one.recall("run", 0)
    return one


def observed(journals: JournalsInMemory, *steps: Step) -> list[Decision]:
    """What a process decides that sees steps of one session and ends."""
    found: list[Decision] = []
    one = restarted(journals, found)
    for step in steps:
        one.observe(step, "run")
    one.write_journals()
    return found


def decided(found: list[Decision]) -> list[str]:
    return [one.action.value for one in found if one.action is not Action.ALLOW]


def test_the_same_run_in_one_process_says_the_same() -> None:
    """Restarted after every step, or not at all; loops keep their name, and the flag is raised."""
    whole, parts = JournalsInMemory(), JournalsInMemory()
    together = observed(whole, *map(call, range(9)))
    apart: list[Decision] = []
    for number in range(9):
        apart += observed(parts, call(number))
        if number == 3:
            control = restarted(parts).flag_named("run").control
            assert (control.action, bool(control.hint)) == (Action.DENY, True)
            assert control.decision is not None
            assert control.decision.detector == "exact_repeat"
    assert decided(together) == decided(apart) == ["hint", "deny", "abort"]
    assert len({one.loop for one in apart}) == 1
    entries = parts.store.journal("run")
    assert max(len(name) + len(raw) for name, raw in entries) <= 200


def poll(number: int) -> Step:
    """A poll of minutes, which is no loop."""
    return tool_call("job_status", {"id": 7}, "state: pending, not ready yet", at=number * 30)


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
        assert observed(journals, *map(made, range(number, number + 4))) == []


@pytest.mark.parametrize("first", ["the run", "the past"])
def test_a_new_run_of_the_agent_is_the_users_next_turn(first: str) -> None:
    """No run outlives its process: an abort of before does not stop the run after it."""
    journals = JournalsInMemory()
    assert observed(journals, *map(call, range(7)))[-1].action is Action.ABORT
    found: list[Decision] = []
    one = guard(journals, found, manual=True)
    flag = one.flag_named("run")
    if first == "the past":
        one.recall("run", 0)
        assert flag.control.action is Action.ABORT
    one.next_run("run", 1, 77)
    one.recall("run", 0)
    assert flag.control.action is Action.ALLOW
    one.observe(call(9, args="something else", outcome="an answer"), "run")
    one.observe(call(10, args="more", outcome="another answer"), "run")
    assert found == []


def test_what_a_person_let_go_on_stays_let_go() -> None:
    """A session that was cleared starts over after the restart too."""
    journals = JournalsInMemory()
    one = restarted(journals)
    for number in range(4):
        one.observe(call(number), "run")
    assert one.flag_named("run").stops
    one.flag_named("run").clear()
    one.observe(call(4, args="other", outcome="new"), "run")
    one.write_journals()
    assert restarted(journals).flag_named("run").control.action is Action.ALLOW
    assert decided(observed(journals, *map(call, range(5, 9)))) == ["hint", "deny"]


@pytest.mark.parametrize("steps", [99, 100, 250])
def test_every_hundred_entries_are_written(steps: int) -> None:
    """Neither each by itself, nor all at the end (C6)."""
    journals = JournalsInMemory()
    one = guard(journals, tuning={"journal": {"flush_s": 60}})
    one.bind(1, "run")
    until(lambda: journals.reads)
    for number in range(steps):
        one.observe(new(number), "run")
        if number % 100 == 99:
            until(lambda at=number: sum(journals.batches) == at + 1)
    assert journals.batches == [100] * (steps // 100)
    one.shutdown()
    assert sum(journals.batches) == len(journals.store.journal("run")) == steps


def test_no_memory_grows_where_the_thread_does_not_come_to_write() -> None:
    """Then who makes the steps hands them on, ten times as many at once."""
    journals = JournalsInMemory()
    one = guard(journals, manual=True, tuning={"journal": {"flush_steps": 10}})
    for number in range(250):
        one.observe(new(number), "run")
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


def test_own_entries_that_are_kept_no_more_are_not_those_of_others() -> None:
    """More may be stored of a session than its buffer keeps: no call counts twice."""
    journals = JournalsInMemory()
    one = guard(journals, manual=True, tuning={"journal": {"steps": 16}})
    for number in range(60):
        one.observe(new(number), "run")
    one.write_journals()
    session = session_of(one)
    assert session.journal is not None
    assert (len(journals.store.journal("run")), len(session.journal.entries)) == (60, 16)
    one.recall("run", 1)
    assert session._number == 60


def test_steps_of_others_are_put_in_order_of_time() -> None:
    """One that was made before ours and read later comes before ours."""
    journals = JournalsInMemory()
    one, two = restarted(journals), restarted(journals)
    two.observe(call(5, args="later", outcome="b"), "run")
    one.observe(call(1, args="earlier", outcome="a"), "run")
    one.write_journals()
    two.recall("run", 0)
    two.write_journals()
    kept = session_of(two).journal
    assert kept is not None
    names = [name for name, _ in kept.entries]
    assert names == sorted(names)
    assert len(names) == len(set(names)) == 2


def test_a_corrupted_entry_is_skipped_and_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """With the session; the others are taken in, but by a guard of another key."""
    journals = JournalsInMemory()
    observed(journals, call(0), call(1))
    journals.store.append("run", [("0-a", bytes((VERSION, 2)) * 9), ("0-b", b"\xff" * 40)])
    journals.store.append("run", [("0-c", b"")])
    with caplog.at_level(logging.WARNING, "otel_loopguard"):
        restarted(journals)
    (said,) = caplog.messages
    assert said.endswith("session 'run': an entry of its journal is corrupted and was skipped")
    assert decided(observed(journals, call(2))) == ["hint"]
    foreign = guard(journals, manual=True, digest_key="another key of tests")
    with caplog.at_level(logging.WARNING, "otel_loopguard"):
        foreign.recall("run", 0)
    assert "written with another digest_key and was skipped" in caplog.messages[-1]
    foreign.observe(call(2), "run")
    assert foreign.flag_named("run").control.action is Action.ALLOW


def test_a_store_that_cannot_be_read_is_asked_again() -> None:
    """The past comes when it is back; nobody waited for it."""
    journals = JournalsInMemory()
    observed(journals, call(0), call(1))
    journals.down, before = True, journals.reads
    one = guard(journals)
    session = session_of(one)
    until(lambda: journals.reads >= before + 2)
    journals.down = False
    until(lambda: session._number == 2)


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

    found: list[Decision] = []
    one = guard(Broken(), found, tuning={"journal": {"flush_s": 60}})
    for number in range(3):
        one.observe(call(number), "run")
    assert decided(found) == ["hint"]
    assert one.faults.counts == {"journal:OSError": 1}
    assert read == []
    hangs.set()


def test_a_session_that_gets_its_key_late_is_written_under_it() -> None:
    """What was written under the trace id before is written once more."""
    journals = JournalsInMemory()
    processor = LoopGuardSpanProcessor(guard(journals, manual=True))
    for number, more in enumerate(({}, {"gen_ai.conversation.id": "conversation"}), 1):
        processor.on_end(ended({**TOOL, **more}, span_id=number, trace_id=5))
        processor.guard.write_journals()
        key = more.get("gen_ai.conversation.id", f"{5:032x}")
        assert len(journals.store.journal(key)) == number


@pytest.mark.parametrize("journals", [JournalsInMemory(), None], ids=["kept", "not kept"])
def test_all_evidence_of_a_session_is_covered(journals: JournalsInMemory | None) -> None:
    """What detectors compare is what stands in the journal; without one keys stay as they are."""
    plain = ToolCallExtractor(Settings()).evidence(call(0))
    one = guard(journals)
    one.observe(call(0), "run")
    session = session_of(one)
    seen = session.evidence
    assert seen is not None
    assert seen.call == session.call_of(call(0))
    assert (seen.call == plain.call) is (seen.outcome == plain.outcome) is (journals is None)
