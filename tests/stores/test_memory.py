"""The memory store is bounded, and keeps what was used last."""

from __future__ import annotations

from otel_loopguard.stores import MemoryStore


def test_the_journal_unused_for_longest_goes_first() -> None:
    """Journals are kept up to a number of bytes."""
    store = MemoryStore(journal_bytes=50_000)
    for session in range(100):
        store.append("kept", [(f"e{session}", b"x" * 100)])
        store.append(f"s{session}", [(f"e{n}", b"x" * 100) for n in range(10)])
    assert len(store.journal("kept")) == 100
    assert store.journal("s0") == []
    assert len(store.journal("s99")) == 10
    assert store._bytes <= 50_000
    assert store._bytes == sum(
        len(entry_id) + len(value) + 200
        for journal in store._journals.values()
        for entry_id, value in journal.items()
    )


def test_tools_values_and_claims_are_bounded() -> None:
    """A run of new names does not grow the tables without an end."""
    store = MemoryStore()
    for number in range(11_000):
        store.add_records(f"tool{number}", [b"x"])
        store.put("choice", str(number), b"x")
        store.claim("breaker", str(number), "me", 60)
    assert len(store._records) == 1000
    assert len(store._values["choice"]) == len(store._claims) == 10_000
    assert store.get("choice", "0") is None
    assert store.get("choice", "10999") == b"x"


def test_old_records_are_not_given() -> None:
    """Nobody adds to a tool any more: its records still end after seven days (A1)."""
    now = [1_000_000 * 10**9]
    store = MemoryStore(clock=lambda: now[0])
    store.add_records("t", [b"[%d]" % now[0]])
    assert len(store.records("t")) == 1
    now[0] += 604_801 * 10**9
    assert store.records("t") == []
