"""Entries of a journal: small, without content, and read back or skipped."""

from __future__ import annotations

import hashlib
import random
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_loopguard import Settings
from otel_loopguard.core import Action, Decision, Kind, Step
from otel_loopguard.core.decision import Severity
from otel_loopguard.core.evidence import Evidence
from otel_loopguard.evidence import ToolCallExtractor
from otel_loopguard.policy import Loop
from otel_loopguard.sessions.journal_codec import (
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
from tests.sessions.journals import EPOCH, SECOND

CODEC = Codec(b"ab")
BIG = (1 << 64) - 1
NAMES = "call call_exact outcome outcome_exact error_line error_shape place".split()


def seen(step: Step) -> Evidence:
    return ToolCallExtractor(Settings()).evidence(step)


def tool(**more: object) -> Step:
    given: dict[str, object] = {
        "args": {"path": "secret.txt", "offset": 3}, "outcome": "the secret of 12:30:01",
        "start": EPOCH, "end": EPOCH + SECOND,
    }  # fmt: skip
    return Step(Kind.TOOL, "read", **{**given, **more})  # type: ignore[arg-type]


def decision(**more: object) -> Decision:
    given: dict[str, object] = {
        "id": "f" * 16, "session": "run", "action": Action.DENY, "detector": "exact_repeat",
        "reason": "identical_call", "severity": Severity.CRITICAL, "confidence": 0.84,
        "message": "'search' was called 3 times", "loop": "0" * 15 + "1", "count": 3.0,
        "threshold": 3.0, "period": 1, "step": 7, "time": EPOCH, "fingerprint": "ab" * 8,
        "tool": "search",
    }  # fmt: skip
    return Decision(**{**given, **more})  # type: ignore[arg-type]


STEPS = {
    "read": tool(),
    "failed": tool(error=True, error_text="FileNotFoundError: no file /a/b 17", outcome=None),
    "unseen": tool(args=None, outcome=None),
    "no times": tool(start=0, end=None),
    "write": Step(Kind.TOOL, "write_file", args={"path": "a"}, outcome="ok"),
    "measured": tool(outcome="val_loss: 0.25"),
    "no name": Step(Kind.TOOL),
}


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
def test_a_call_comes_back_as_it_was(step: Step) -> None:
    """All that detectors read of it but the arguments; its place in the row is counted anew."""
    before = seen(step)
    entry = CODEC.read(CODEC.call(CallEntry(before, 5000, opened=True)), "run")
    assert isinstance(entry, CallEntry)
    assert (entry.took, entry.opened) == (5000, True)
    after = entry.evidence
    for name in Evidence.__slots__:
        if name == "novelty" and before.novelty is not None:
            assert after.novelty == pytest.approx(before.novelty, abs=0.003)
        elif name in ("rested", "hint_weight", "stop_weight"):
            assert getattr(after, name) == pytest.approx(getattr(before, name), abs=0.003)
        elif name == "ease":
            assert after.ease == pytest.approx(before.ease)
        elif name not in ("number", "round", "epoch", "sample", "terms", "amount"):
            assert getattr(after, name) == getattr(before, name), name


def test_every_field_of_evidence_is_kept_or_counted_anew() -> None:
    """One that is neither a flag nor a key needs a place of its own; other orders a new version."""
    own = "tool outcome_size novelty error_class effect time ease".split()
    own += ["rested", "hint_weight", "stop_weight"]
    anew = ["number", "sample", "terms", "epoch", "round", "waits", "wait", "asked"]
    assert {*_FLAGS, *_KEYS, *_PAIRS, *own, *anew} == set(Evidence.__slots__)
    layout = hashlib.blake2b(" ".join((*_FLAGS, *_KEYS, *_PAIRS)).encode(), digest_size=4)
    assert (VERSION, layout.hexdigest()) == (4, "8b35342c")


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
    assert len(raw) + len(f"{EPOCH:016x}-{0:016x}") <= 200
    entry = CODEC.read(raw, "run")
    assert isinstance(entry, CallEntry)
    assert entry.evidence.tool == "é" * 6
    assert (entry.evidence.failure, entry.evidence.file) == (BIG, 7)
    assert (entry.evidence.score, entry.evidence.place) == ((BIG, 1e300), (BIG, 1e300))
    assert (entry.evidence.call, entry.evidence.error_shape) == (BIG, BIG - 5)


def test_a_loop_comes_back() -> None:
    """Its rung and its keys; where it stands in the row is counted anew."""
    loop = Loop(frozenset({5, 9, BIG}), 9, Action.DENY, 2.25, 40, 41, 3, EPOCH, 1, rounds=7)
    expected = Loop(frozenset({5, 9, BIG}), 9, Action.DENY, 2.25, 0, 0, 3, EPOCH, 1, rounds=7)
    assert CODEC.read(CODEC.loop(loop), "run") == expected
    many = CODEC.loop(Loop(frozenset(range(256)), 0, Action.HINT, 0, 1, 1))
    assert len(many) + 33 <= 200


def test_a_decision_comes_back_without_its_message() -> None:
    """What was decided and by which rule; the sentence is made anew."""
    found = CODEC.read(CODEC.decision(decision()), "run")
    assert isinstance(found, Decision)
    said = "decided before, by exact_repeat: identical_call, about 'search'"
    assert found == decision(message=said)
    large = decision(detector="d" * 99, reason="r" * 99, tool="t" * 99, count=1e300, period=1 << 40)
    assert len(CODEC.decision(large)) + 33 <= 200


@pytest.mark.parametrize("mark", [Mark.TURN, Mark.CLEARED, Mark.LOWERED, Mark.RESTORED])
def test_a_mark_comes_back(mark: Mark) -> None:
    """Eight bytes say it."""
    raw = CODEC.mark(mark)
    assert len(raw) == 8
    assert CODEC.read(raw, "run") is mark


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


@given(st.binary(max_size=250))
def test_any_bytes_are_read_or_skipped(raw: bytes) -> None:
    """Nothing that lies in a store makes it throw."""
    assert isinstance(CODEC.read(raw, "run"), Unread)


@given(st.integers(1, 7), st.binary(max_size=250))
def test_any_body_with_a_right_checksum_is_read_or_skipped(mark: int, body: bytes) -> None:
    """Not even one that was made on purpose."""
    CODEC.read(CODEC._sealed(Mark(mark), body), "run")


def test_a_changed_entry_is_skipped() -> None:
    """Every byte counts."""
    raw = CODEC.call(CallEntry(seen(tool()), 1, opened=False))
    rng = random.Random(1)
    for place in range(4, len(raw)):
        other = bytearray(raw)
        other[place] ^= 1 << rng.randrange(8)
        assert CODEC.read(bytes(other), "run") is Unread.CORRUPTED
        assert CODEC.read(raw[:place], "run") is Unread.CORRUPTED


def test_a_newer_version_and_another_key_are_told_apart() -> None:
    """Who reads the count knows what to do."""
    raw = CODEC.mark(Mark.TURN)
    assert CODEC.read(bytes((VERSION + 1,)) + raw[1:], "run") is Unread.NEWER
    assert CODEC.read(bytes((VERSION - 1,)) + raw[1:], "run") is Unread.OLDER
    assert CODEC.read(Codec(b"cd").mark(Mark.TURN), "run") is Unread.FOREIGN


def test_keys_are_covered_with_the_key_of_the_setting() -> None:
    """Equal with equal keys, different otherwise, and never what they were."""
    one, same, other, none = (
        Pseudonymizer("a"),
        Pseudonymizer("a"),
        Pseudonymizer("b"),
        Pseudonymizer(""),
    )
    assert one.of(7) == same.of(7)
    assert len({7, one.of(7), one.of(8), other.of(7), none.of(7), Pseudonymizer("").of(7)}) == 6
    assert one.id == same.id != other.id
    assert (one.lasting, none.lasting) == (True, False)
