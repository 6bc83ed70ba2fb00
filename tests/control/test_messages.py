"""One change of control, encoded and read; and which of two counts, in whichever order."""

from __future__ import annotations

import time
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_loopguard._control.replication import (
    MOST_BYTES,
    ControlMessage,
    published,
    takes_precedence,
)
from otel_loopguard.core import Action
from tests.control.messages import notice

texts = st.text(max_size=3000)
maybe = st.none() | texts
times = st.integers(1, 2**63 - 1)


@given(
    st.builds(
        ControlMessage,
        id=texts.filter(bool), session=texts.filter(bool), action=st.sampled_from(Action),
        reason=maybe, hint=maybe, who=texts.filter(bool), decision_id=maybe, at=times,
        until=st.none() | times, guidance=maybe, origin=texts,
    )
)  # fmt: skip
def test_whatever_is_encoded_can_be_read(made: ControlMessage) -> None:
    """It fits into 4 KiB, and short texts come out as they went in."""
    raw = made.encode()
    assert len(raw) <= MOST_BYTES
    read = ControlMessage.decode(raw)
    assert read is not None
    assert (read.action, read.at, read.until) == (made.action, made.at, made.until)
    assert len(made.session) > 60 or read.session == made.session


def test_lone_surrogates_are_replaced() -> None:
    """A text that JSON cannot hold does not prevent a stop from being sent."""
    read = ControlMessage.decode(notice(reason="\ud800 odd").encode())
    assert read is not None
    assert read.reason == "? odd"


@given(st.binary(max_size=5000) | st.sampled_from([b"[]", b"null", b"1", b'"text"', b"[" * 4000]))
def test_garbage_is_no_notice(raw: bytes) -> None:
    """Bytes of anybody are read without an exception."""
    assert ControlMessage.decode(raw) is None


WRONG: dict[str, Any] = {
    "unknown action": {"action": "explode"},
    "action of another type": {"action": 1},
    "no action": {"action": None},
    "session of another type": {"session": ["s"]},
    "empty session": {"session": ""},
    "nobody": {"who": ""},
    "time as text": {"at": "1"},
    "time as a truth": {"at": True},
    "time as a fraction": {"at": 1.5},
    "no time": {"at": None},
    "a time before all": {"at": -1},
    "end as text": {"until": "soon"},
    "reason of another type": {"reason": {}},
    "another version": {"v": 2},
    "one field more": {"more": 1},
    "oversized": {"reason": "x" * MOST_BYTES},
}


@pytest.mark.parametrize("change", WRONG.values(), ids=WRONG.keys())
def test_what_is_not_as_it_should_be_is_no_notice(change: dict[str, Any]) -> None:
    """Wrong types, unknown names, large texts and what lacks a field are refused as a whole."""
    right: dict[str, Any] = orjson.loads(notice().encode())
    assert ControlMessage.decode(orjson.dumps(right)) is not None
    assert ControlMessage.decode(orjson.dumps({**right, **change})) is None
    for name in right:
        left = {field: value for field, value in right.items() if field != name}
        assert ControlMessage.decode(orjson.dumps(left)) is None


@pytest.mark.parametrize(
    ("who", "origin"),
    [
        ("policy", ""),
        ("application", ""),
        ("Policy", "elsewhere"),
        ("poli\u200bcy", "elsewhere"),
        ("ada", "baggage"),
    ],
)
def test_a_name_of_the_guard_that_no_guard_sent(who: str, origin: str) -> None:
    """Is no notice; nor is one that says that it came in baggage."""
    assert ControlMessage.decode(notice(who=who, origin=origin).encode()) is None
    assert ControlMessage.decode(notice(who="policy", origin="elsewhere").encode()) is not None


def test_a_notice_of_the_future_does_not_stand_in_the_store() -> None:
    """Whoever wrote it, the new message replaces it."""
    future = notice(at=time.time_ns() + 10**15, action=Action.ABORT)
    now = notice(action=Action.ABORT)
    assert not published(now, 60).stands(future.encode())
    assert published(now, 60).stands(notice(at=now.at + 10**9, action=Action.ABORT).encode())


ALLOW, DENY, PAUSE, ABORT = Action.ALLOW, Action.DENY, Action.PAUSE, Action.ABORT


def said(who: str, action: Action, at: int, **more: Any) -> Any:
    return notice(who=who, action=action, at=at, **more)


CASES: dict[str, Any] = {
    "newer resume lifts a person's abort": (("ada", ABORT, 1), ("bob", ALLOW, 2), False),
    "older resume does not": (("ada", ABORT, 2), ("bob", ALLOW, 1), True),
    "newer resume lifts a policy's abort": (("policy", ABORT, 1), ("bob", ALLOW, 2), False),
    "older resume does not lift a policy's": (("policy", ABORT, 2), ("bob", ALLOW, 1), True),
    "a policy does not lower a person's pause": (("ada", PAUSE, 1), ("policy", ALLOW, 2), True),
    "a policy does not deny what is paused": (("ada", PAUSE, 1), ("policy", DENY, 2), True),
    "a policy aborts what is paused": (("ada", PAUSE, 1), ("policy", ABORT, 2), False),
    "a late pause goes before a policy's deny": (("policy", DENY, 2), ("ada", PAUSE, 1), False),
    "a late pause goes before a policy's allow": (("policy", ALLOW, 2), ("ada", PAUSE, 1), False),
    "a late pause does not undo an abort": (("policy", ABORT, 2), ("ada", PAUSE, 1), True),
    "a policy stops again after a resume": (("ada", ALLOW, 1), ("policy", DENY, 2), False),
    "an old stop comes after the resume": (("ada", ALLOW, 2), ("policy", ABORT, 1), True),
    "the same twice": (("ada", PAUSE, 1), ("ada", PAUSE, 1), True),
}


@pytest.mark.parametrize(("last", "new", "expected"), CASES.values(), ids=CASES.keys())
def test_which_one_counts(last: Any, new: Any, *, expected: bool) -> None:
    """The newer one, but people go before policies."""
    assert takes_precedence(said(*last), said(*new)) is expected


def test_a_policy_takes_down_only_what_the_same_guard_said() -> None:
    """Another guard's deny that is lowered says nothing about an abort."""
    last = said("policy", ABORT, 1, origin="one")
    assert takes_precedence(last, said("policy", ALLOW, 2, origin="two"))
    assert not takes_precedence(last, said("policy", ALLOW, 2, origin="one"))


def test_what_is_over_stands_no_more() -> None:
    """A pause with an end keeps nothing out after it."""
    last = said("ada", PAUSE, 5, until=10)
    assert takes_precedence(last, said("policy", DENY, 9))
    assert not takes_precedence(last, said("policy", DENY, 11))
