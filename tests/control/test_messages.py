"""What processes tell each other of a session by notices in the store."""

import time
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_loopguard import Action
from otel_loopguard._control.replication import (
    MOST_BYTES,
    ControlMessage,
    published,
    takes_precedence,
)
from tests.control.messages import notice
from tests.tables import rows

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


LARGE = pytest.param(f'{{"reason": "{"x" * MOST_BYTES}"}}', id="large")


@pytest.mark.parametrize("change", [*rows(__file__, "wrong"), LARGE])
def test_what_is_not_as_it_should_be_is_no_notice(change: str) -> None:
    """Wrong types, unknown names, large texts and what lacks a field are refused as a whole."""
    right: dict[str, Any] = orjson.loads(notice().encode())
    wrong = {**right, **orjson.loads(change)}
    assert ControlMessage.decode(orjson.dumps(right)) is not None
    assert ControlMessage.decode(orjson.dumps(wrong)) is None
    for name in right:
        left = {field: value for field, value in right.items() if field != name}
        assert ControlMessage.decode(orjson.dumps(left)) is None


SENT_BY_NONE = [
    *(("policy", ""), ("application", ""), ("ada", "baggage")),
    *(("Policy", "elsewhere"), ("poli\u200bcy", "elsewhere")),
]


@pytest.mark.parametrize(("who", "origin"), SENT_BY_NONE)
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


def said(text: str) -> ControlMessage:
    """A notice: who, what, when; and perhaps `by=` the guard and `until=` when."""
    who, action, at, *more = text.split()
    known = dict(one.split("=") for one in more)
    until = known.get("until")
    return notice(
        who=who, action=Action(action), at=int(at), until=until and int(until),
        origin=known.get("by", "elsewhere"),
    )  # fmt: skip


@pytest.mark.parametrize(("last", "new", "stands"), rows(__file__, "precedence"))
def test_which_one_counts(last: str, new: str, stands: str) -> None:
    """The newer one, but people go before policies."""
    assert takes_precedence(said(last), said(new)) is (stands == "stands")
