"""The history of a session: small entries without content, written behind, and taken in again."""

import hashlib
import random
import struct
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab import recorded, tables
from lab.tables import Table
from otel_loopguard import LoopGuard, LoopGuardSpanProcessor, Settings
from otel_loopguard._util.errors import raise_faults
from otel_loopguard.core import Action, Decision, Evidence, Kind, Severity, Step
from otel_loopguard.evidence import ToolCallExtractor
from otel_loopguard.policy import Loop
from otel_loopguard.sessions.journal import (
    _FLAGS,
    _KEYS,
    _PAIRS,
    VERSION,
    CallEntry,
    Codec,
    Mark,
    Pseudonymizer,
    Unread,
)
from tests.calls import EPOCH, SECOND
from tests.calls import call as tool_call
from tests.hostile.rig import TOOL, ended
from tests.sessions.journals import JournalsInMemory, call, guard, new, news, session_of, until

CODEC = Codec(b"ab")
BIG = (1 << 64) - 1
NAMES = "call call_exact outcome outcome_exact error_line error_shape place".split()
NAMED = len(f"{EPOCH:016x}-{0:016x}")
"""Bytes of the id of an entry."""


def seen(step: Step) -> Evidence:
    return ToolCallExtractor(Settings()).evidence(step)


def tool(**more: Any) -> Step:
    given: dict[str, Any] = {
        "args": {"path": "secret.txt", "offset": 3}, "outcome": "the secret of 12:30:01",
        "start": EPOCH, "end": EPOCH + SECOND, **more,
    }  # fmt: skip
    return Step(Kind.TOOL, "read", **given)


def decision(**more: Any) -> Decision:
    given: dict[str, Any] = {
        "id": "f" * 16, "session": "run", "action": Action.DENY, "detector": "exact_repeat",
        "reason": "identical_call", "severity": Severity.CRITICAL, "confidence": 0.84,
        "message": "'search' was called 3 times", "loop": "0" * 15 + "1", "count": 3.0,
        "threshold": 3.0, "period": 1, "step": 7, "time": EPOCH, "fingerprint": "ab" * 8,
        "tool": "search", **more,
    }  # fmt: skip
    return Decision(**given)


STEPS = {
    "read": tool(),
    "failed": tool(error=True, error_text="FileNotFoundError: no file /a/b 17", outcome=None),
    "unseen": tool(args=None, outcome=None),
    "no times": tool(start=0, end=None),
    "write": Step(Kind.TOOL, "write_file", args={"path": "a"}, outcome="ok"),
    "measured": tool(outcome="val_loss: 0.25"),
    "no name": Step(Kind.TOOL),
}
ANEW = "number began sample terms epoch round waits wait asked numbers _moment".split()
ROUNDED = "novelty rested hint_weight stop_weight ease".split()


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
def test_a_call_comes_back_as_it_was(step: Step) -> None:
    """All that detectors read of it but the arguments; its place in the row is counted anew."""
    before = seen(step)
    entry = CODEC.read(CODEC.call(CallEntry(before, 5000, opened=True)), "run")
    assert isinstance(entry, CallEntry)
    assert (entry.took, entry.opened) == (5000, True)
    for name in {*Evidence.__slots__} - {*ANEW, "amount"}:
        was, found = getattr(before, name), getattr(entry.evidence, name)
        if name in ROUNDED and was is not None:
            was = pytest.approx(was, abs=0.003)
        assert found == was, name


def test_every_field_of_evidence_is_kept_or_counted_anew() -> None:
    """One that is neither a flag nor a key needs a place of its own; other orders a new version."""
    own = ["tool", "outcome_size", "error_class", "effect", "time", *ROUNDED]
    assert {*_FLAGS, *_KEYS, *_PAIRS, *own, *ANEW} == set(Evidence.__slots__)
    layout = hashlib.blake2b(" ".join((*_FLAGS, *_KEYS, *_PAIRS)).encode(), digest_size=4)
    assert (VERSION, layout.hexdigest()) == (5, "0a10d8d9")


def test_the_largest_call_has_less_than_200_bytes() -> None:
    """With every key there, all different, and a name without end; its id included."""
    step = tool(error=True, error_text="ValueError: 7 at /tmp/x")
    step.name = "é" * 500
    found = seen(step)
    for number, name in enumerate(NAMES[:-1]):
        setattr(found, name, BIG - number)
    found.place, found.outcome_size, found.ease = (BIG, 1e300), 1 << 40, 1e300
    found.agent, found.failure, found.file, found.score = BIG - 9, BIG, 7, (BIG, 1e300)
    raw = CODEC.call(CallEntry(found, 1 << 80, opened=True))
    assert len(raw) + NAMED <= 200
    entry = CODEC.read(raw, "run")
    assert isinstance(entry, CallEntry)
    back = entry.evidence
    assert (back.tool, back.failure, back.file) == ("é" * 6, BIG, 7)
    assert (back.score, back.place) == ((BIG, 1e300), (BIG, 1e300))
    assert (back.call, back.error_shape) == (BIG, BIG - 5)


def test_loops_decisions_and_marks_come_back() -> None:
    """A loop's place in the row is counted anew, and the sentence of a decision is made anew."""
    loop = Loop(frozenset({5, 9, BIG}), 9, Action.DENY, 2.25, 40, 41, 3, EPOCH, 1, rounds=7)
    expected = Loop(frozenset({5, 9, BIG}), 9, Action.DENY, 2.25, 0, 0, 3, EPOCH, 1, rounds=7)
    assert CODEC.read(CODEC.loop(loop), "run") == expected
    said = "decided before, by exact_repeat: identical_call, about 'search'"
    assert CODEC.read(CODEC.decision(decision()), "run") == decision(message=said)
    many = Loop(frozenset(range(256)), 0, Action.HINT, 0, 1, 1)
    large = decision(detector="d" * 99, reason="r" * 99, tool="t" * 99, count=1e300, period=1 << 40)
    assert len(CODEC.decision(large)) + NAMED <= 200
    assert len(CODEC.loop(many)) + NAMED <= 320
    for mark in (Mark.TURN, Mark.CLEARED, Mark.LOWERED, Mark.RESTORED):
        assert CODEC.read(CODEC.mark(mark), "run") is mark


def test_nothing_of_the_arguments_is_in_it() -> None:
    """Neither text nor a key that anybody could compute."""
    found = seen(tool())
    plain = [getattr(found, name) for name in NAMES if getattr(found, name) is not None]
    Pseudonymizer("k").call(found)
    raw = CODEC.call(CallEntry(found, 1, opened=False))
    assert b"secret" not in raw
    assert len(plain) == 5
    for key in plain:
        number = key[0] if isinstance(key, tuple) else key
        assert struct.pack("<Q", number) not in raw


@given(st.integers(1, 7), st.binary(max_size=250))
def test_any_bytes_are_read_or_skipped(mark: int, raw: bytes) -> None:
    """Nothing that lies in a store makes it throw, not even with a right checksum."""
    assert isinstance(CODEC.read(raw, "run"), Unread)
    CODEC.read(CODEC._sealed(Mark(mark), raw), "run")


def test_an_entry_that_was_changed_or_is_of_others_is_skipped() -> None:
    """Every byte counts; a newer version and another key are told apart."""
    raw = CODEC.call(CallEntry(seen(tool()), 1, opened=False))
    rng = random.Random(1)
    for place in range(4, len(raw)):
        other = bytearray(raw)
        other[place] ^= 1 << rng.randrange(8)
        assert CODEC.read(bytes(other), "run") is Unread.CORRUPTED
        assert CODEC.read(raw[:place], "run") is Unread.CORRUPTED
    assert CODEC.read(bytes((VERSION + 1,)) + raw[1:], "run") is Unread.NEWER
    assert CODEC.read(bytes((VERSION - 1,)) + raw[1:], "run") is Unread.OLDER
    assert CODEC.read(Codec(b"cd").mark(Mark.TURN), "run") is Unread.FOREIGN


def test_keys_are_covered_with_the_key_of_the_setting() -> None:
    """Equal with equal keys, different otherwise, and never what they were."""
    one, same, other, none, again = map(Pseudonymizer, ("a", "a", "b", "", ""))
    assert one.of(7) == same.of(7)
    assert len({7, one.of(7), one.of(8), other.of(7), none.of(7), again.of(7)}) == 6
    assert one.id == same.id != other.id


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


def test_what_only_a_journal_knows_of_a_loop_is_not_foretold() -> None:
    """It has the rung; what a round weighs is seen with the next one."""
    journals = JournalsInMemory()
    observed(journals, *map(call, range(3)))
    one = restarted(journals)
    known: list[tuple[str, float | None, Action | None]] = []
    for number in (3, 4):
        session = one.find("run")
        assert session is not None
        (loop,) = session.explain().loops
        known.append((loop.action.value, loop.weight, loop.next))
        assert "weighs 0" not in str(session.explain())
        one.observe(call(number), "run")
    assert known == [("hint", None, None), ("deny", 1, Action.ABORT)]


def test_an_answer_of_before_is_no_news_after_a_restart() -> None:
    """Whatever call gave it: the words of a list that was kept are the same each time."""
    journals, told = JournalsInMemory(), news(0)
    observed(journals, call(0, "keep", "one", told))
    one = restarted(journals)
    for number, text in enumerate((told, news(1)), 1):
        one.observe(call(number, "keep", f"another {number}", text), "run")
        evidence = session_of(one).evidence
        assert evidence is not None
        assert evidence.novelty == float(text != told)


def test_a_refusal_that_nobody_heard_is_not_defied_after_a_restart() -> None:
    """Though each call brings something new as far as its process knows: it shows the loop."""
    journals = JournalsInMemory()
    found: list[Decision] = []
    for number in range(20):
        one = restarted(journals, found)
        flag = one.flag_named("run")
        flag.asked = True
        for decision in found:
            if decision.action is Action.HINT:
                flag.hear(decision.id, 0)
        command = {"command": f": look at file {number}"}
        said = "(Bash completed with no output)"
        one.observe(tool_call("Bash", command, said, at=number * 2, took=1), "run")
        one.write_journals()
    assert decided(found) == ["hint", "deny"]


TABLES = tables.load(Path(__file__).with_name("restarts.txt"))


@pytest.mark.parametrize("every", [2, 3, 7])
@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_restarts_change_nothing(table: Table, every: int) -> None:
    """What healthy work hears in one process it hears in several, and a loop is found in both."""
    steps = recorded.steps(table.draw(bare=True))
    together = observed(JournalsInMemory(), *steps)
    assert " ".join(decided(together) or ["nothing"]) == table.told
    journals = JournalsInMemory()
    apart: list[Decision] = []
    for number in range(0, len(steps), every):
        apart += observed(journals, *steps[number : number + every])
    assert [one.detector for one in apart] == [one.detector for one in together]
    assert decided(apart) == decided(together)


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


def test_a_guard_keeps_journals_after_its_shutdown() -> None:
    """As where it watches two providers and one of them is shut down."""
    journals = JournalsInMemory()
    one = guard(journals)
    one.shutdown()
    one.observe(new(0), "run")
    until(lambda: journals.reads and journals.batches)
    one.shutdown()


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


def test_entries_that_are_skipped_are_told_once_for_each_reason(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """With a session: after an upgrade all have some. The others are taken in, by the same key."""
    journals = JournalsInMemory()
    observed(journals, call(0), call(1))
    journals.store.append("run", [("0-a", bytes((VERSION, 2)) * 9), ("0-b", b"\xff" * 40)])
    journals.store.append("run", [("0-c", b"")])
    restarted(journals)
    assert all("session 'run'" in said for said in caplog.messages)
    for why, said in zip(("corrupted", "newer version"), caplog.messages, strict=True):
        assert why in said
    assert decided(observed(journals, call(2))) == ["hint"]
    foreign = guard(journals, manual=True, digest_key="another key of tests")
    foreign.recall("run", 0)
    assert any("another digest_key" in said for said in caplog.messages)
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
