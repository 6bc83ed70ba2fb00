"""Masks for volatile values."""

from __future__ import annotations

import pytest

from otel_loopguard.evidence.normalize import masked_call, masked_outcome, without_volatile


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param("at 10:31:07 ok", "at 10:31:12 ok", id="clock"),
        pytest.param("2026-11-21T10:00:00Z up", "2026-11-22 11:01:09.123+01:00 up", id="timestamp"),
        pytest.param("done in 12 ms", "done in 7 ms", id="duration"),
        pytest.param("took 1.25s", "took 0.5s", id="seconds"),
        pytest.param(
            "id 0b9f3a52-1111-4222-8333-444455556666",
            "id 1c0f3a52-9999-4222-8333-444455556667",
            id="uuid",
        ),
        pytest.param("rev deadbeef0123456789", "rev 0123456789cafebabe", id="long hex"),
        pytest.param("<object at 0x7fb5510c0b50>", "<object at 0x7fb5510de310>", id="pointer"),
        pytest.param("pid=4711 busy", "pid=4712 busy", id="process"),
        pytest.param("wrote /tmp/a1b2/x.txt", "wrote /tmp/c3d4/x.txt", id="temporary path"),
        pytest.param('{"took_ms": 100}', '{"took_ms": 101}', id="field of a duration"),
        pytest.param('{"request_id":"r-1"}', '{"request_id":"r-2"}', id="field of an id"),
        pytest.param("stamp 1795293099", "stamp 1795293100", id="seconds since the epoch"),
    ],
)
def test_volatile_values_do_not_matter(one: str, other: str) -> None:
    """Two outcomes that differ only by what changes by itself are masked-equal."""
    assert masked_outcome(one.encode()) == masked_outcome(other.encode())


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param("37 %", "41 %", id="percent"),
        pytest.param("page 3 of 9", "page 4 of 9", id="page"),
        pytest.param("12 failed", "11 failed", id="failures"),
        pytest.param("bytes 100-200", "bytes 200-300", id="offset"),
        pytest.param("version 1.2.3", "version 1.2.4", id="version"),
        pytest.param("line 12: x", "line 13: x", id="line"),
        pytest.param("price 19.99", "price 21.99", id="price"),
        pytest.param("2026-11-21", "2026-11-22", id="date"),
        pytest.param("42 hits", "43 hits", id="hits"),
    ],
)
def test_plain_numbers_matter(one: str, other: str) -> None:
    """A number that moved is progress."""
    assert masked_outcome(one.encode()) != masked_outcome(other.encode())


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param(b'{"delay":"30s"}', b'{"delay":"60s"}', id="duration"),
        pytest.param(b'{"day":"2026-11-21"}', b'{"day":"2026-11-22"}', id="date"),
        pytest.param(b'{"slot":"2026-11-21T10:00"}', b'{"slot":"2026-11-21T11:00"}', id="slot"),
        pytest.param(b'{"offset":40}', b'{"offset":80}', id="offset"),
        pytest.param(b'{"cursor":"abc12"}', b'{"cursor":"abc13"}', id="cursor"),
    ],
)
def test_what_a_call_asks_for_matters(one: bytes, other: bytes) -> None:
    """Durations, dates and places in arguments are not masked."""
    assert masked_call(one) != masked_call(other)


def test_arguments_volatile_by_name_are_left_out() -> None:
    """Who asks, when and why is left out, unless there is nothing else."""
    assert without_volatile({"user": "u1", "request_id": "r-1"}) == {"user": "u1"}
    assert without_volatile({"request_id": "r-1"}) == {"request_id": "r-1"}
    same = {"user": "u1"}
    assert without_volatile(same) is same


@pytest.mark.parametrize(
    "text",
    [
        "1" * 200000,
        "1:" * 100000,
        "a1-" * 60000,
        "0x" * 100000,
        "/tmp/" * 40000,
        "1.1" * 60000,
        '"took' * 40000 + "0",
        "12 m" * 50000,
        "0000:00" * 30000,
    ],
    ids=lambda text: text[:6],
)
def test_masks_are_linear(text: str) -> None:
    """However a text is made: quadratic time would take minutes."""
    masked_outcome(text.encode())
    masked_call(text[:100_000].encode())
