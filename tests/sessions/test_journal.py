"""Entries of a journal: small, without content, and read back or skipped."""

import hashlib
import random
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_loopguard import Settings
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
ANEW = "number sample terms epoch round waits wait asked numbers _moment".split()
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
    assert (VERSION, layout.hexdigest()) == (5, "647a32c0")


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
    assert max(len(CODEC.loop(many)), len(CODEC.decision(large))) + NAMED <= 200
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
    assert (one.lasting, none.lasting) == (True, False)
