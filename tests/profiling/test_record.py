"""Records: what is kept of a call, and how it is written."""

from __future__ import annotations

import pytest

from otel_loopguard.execution.latency import CallRecord
from otel_loopguard.stores.store import time_of
from tests.profiling.past import START

FULL = CallRecord(START, 12.5, 40, "run", True, True, 0.25, 55.0, 3.0, 120.5)


@pytest.mark.parametrize(
    "record",
    [FULL, CallRecord(START, 0.0, None, "", False)],
    ids=["everything", "nothing but time and duration"],
)
def test_a_record_survives_the_store(record: CallRecord) -> None:
    """What was written is read again, field by field."""
    assert CallRecord.decoded(record.encoded()) == record


def test_a_record_starts_with_its_time() -> None:
    """A store finds the time of a record without knowing its form, and it is small."""
    assert time_of(FULL.encoded()) == START
    assert len(FULL.encoded()) < 100


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\xff\x00",
        b"null",
        b"{}",
        b"[]",
        b"[1,1,2]",
        FULL.encoded().replace(b",1,", b",2,", 1),
        FULL.encoded().replace(b"12.5", b"-1.0"),
        FULL.encoded().replace(b"12.5", b"true"),
        FULL.encoded().replace(b'"run"', b"7"),
        FULL.encoded().replace(str(START).encode(), b'"now"'),
    ],
    ids=[
        "empty", "no text", "null", "map", "no fields", "few fields", "later form",
        "negative duration", "no number", "no session", "no time",
    ],
)  # fmt: skip
def test_what_is_no_record_is_none(raw: bytes) -> None:
    """Bytes that are not understood are told apart from records, and never throw."""
    assert CallRecord.decoded(raw) is None
