"""Signed entries of baggage: short, and of no use to whoever has not the key."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_loopguard._control.replication import wire_name
from otel_loopguard._control.signing import Entries, Seal, opened, sealed
from otel_loopguard.core import Action

KEY, TRACE, NOW = b"a secret", 0x1234, 1_800_000_000
SEAL = Seal("run-42", Action.ABORT, NOW)


def read(entries: Entries, **changes: Any) -> Any:
    given = {"keys": (KEY,), "trace_id": TRACE, "now": NOW, "ttl_s": 300.0, **changes}
    return opened(entries, **given)


@given(st.text(min_size=1), st.sampled_from([Action.ALLOW, Action.PAUSE, Action.ABORT]))
def test_both_entries_take_at_most_128_bytes(key: str, action: Action) -> None:
    """Whatever the key of the session, as baggage writes them; and they are read again."""
    seal = Seal(wire_name(key), action, NOW)
    entries = sealed(seal, KEY, TRACE)
    named = {"loopguard.session": entries.session, "loopguard.control": entries.control}
    header = ",".join(f"{name}={quote_plus(str(value))}" for name, value in named.items())
    assert len(header.encode()) <= 128
    assert read(entries) == seal


@given(st.text(min_size=1))
def test_the_name_of_a_name_is_itself(key: str) -> None:
    """A process that knows a session by its digest sends it on as it is."""
    assert wire_name(wire_name(key)) == wire_name(key)


def test_a_short_key_is_its_own_name() -> None:
    """A UUID, and what people write; longer keys and control characters are digests."""
    for key in ("run-42", "0123456789abcdef" * 2, "12345678-1234-5678-1234-567812345678", "Größe"):
        assert wire_name(key) == key
    assert wire_name("x" * 49).startswith("~")
    assert wire_name("a\nb").startswith("~")
    assert wire_name("x" * 49) != wire_name("x" * 50)


right = sealed(SEAL, KEY, TRACE)
control = right.control or ""
WRONG: dict[str, Any] = {
    "another session": (Entries("run-43", control), {}, "forged"),
    "another action": (Entries("run-42", control.replace("abort", "pause")), {}, "forged"),
    "another time": (Entries("run-42", f"abort.{NOW + 1:08x}.{control[-16:]}"), {}, "forged"),
    "another trace": (right, {"trace_id": 1}, "forged"),
    "no trace": (right, {"trace_id": 0}, "forged"),
    "another key": (right, {"keys": (b"other", b"another")}, "forged"),
    "no key": (right, {"keys": ()}, "no_key"),
    "replayed too late": (right, {"now": NOW + 301}, "expired"),
    "from the future": (right, {"now": NOW - 61}, "expired"),
    "no signature": (Entries("run-42", ""), {}, "unsigned"),
    "only an action": (Entries("run-42", "abort"), {}, "garbage"),
    "no session": (Entries("", control), {}, "garbage"),
    "a long session": (Entries("x" * 49, control), {}, "garbage"),
    "two of one name": (Entries(None, control), {}, "oversized"),
    "an oversized one": (Entries("run-42", None), {}, "oversized"),
    "other digits": (Entries("run-42", control[:-1] + "é"), {}, "garbage"),
}


@pytest.mark.parametrize(("entries", "changes", "why"), WRONG.values(), ids=WRONG.keys())
def test_what_is_refused(entries: Entries, changes: dict[str, Any], why: str) -> None:
    """Everything but what was signed by a key that counts, here and now."""
    assert read(entries, **changes) == why


@given(st.text(max_size=60), st.text(max_size=60))
def test_garbage_is_never_believed(session: str, value: str) -> None:
    """Text of anybody is read without an exception."""
    assert isinstance(read(Entries(session, value)), str)
