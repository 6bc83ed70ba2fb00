"""A set of keys that never grows."""

# pyright: reportPrivateUsage=false

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from xxhash import xxh3_64_intdigest as key_of

from otel_loopguard._util.bounded import BloomSketch

KEYS = st.lists(st.integers(0, 2**64 - 1), max_size=60)


def keys(start: int, stop: int) -> list[int]:
    return [key_of(b"%d" % number) for number in range(start, stop)]


@given(KEYS, KEYS)
def test_what_was_shown_is_known(shown: list[int], others: list[int]) -> None:
    """No key of the newest thousands is ever taken for new again."""
    sketch = BloomSketch()
    assert set(sketch.add(shown)) <= set(shown)
    sketch.add(others)
    assert sketch.add(shown) == set()


def test_new_keys_are_new() -> None:
    """Few keys that were not shown are taken for known: one in fifty at most."""
    sketch = BloomSketch()
    new = sum(len(sketch.add(keys(start, start + 50))) for start in range(0, 100_000, 50))
    assert new >= 0.98 * 100_000


def test_a_key_counts_once_within_one_call() -> None:
    """The second of two equal keys is known."""
    assert BloomSketch().add([5, 5, 5]) == {5}


def test_the_newest_keys_are_known() -> None:
    """Whatever was shown before them."""
    sketch = BloomSketch()
    for start in range(0, 100_000, 500):
        sketch.add(keys(start, start + 500))
    assert sketch.add(keys(97_500, 100_000)) == set()


def test_the_oldest_keys_are_forgotten_and_memory_does_not_grow() -> None:
    """Two generations of 4 KiB are all there ever is."""
    sketch = BloomSketch()
    for start in range(0, 100_000, 500):
        sketch.add(keys(start, start + 500))
        assert sketch._new is not None
        assert len(sketch._new) * sketch._new.itemsize == 4096
        assert sketch._old is None or len(sketch._old) == len(sketch._new)
    assert len(sketch.add(keys(0, 1000))) >= 0.95 * 1000


def test_a_session_of_few_keys_needs_little() -> None:
    """The first keys are kept as they are."""
    sketch = BloomSketch()
    assert sketch.add(keys(0, 60)) == set(keys(0, 60))
    assert sketch._new is None
    assert sketch.add(keys(0, 60)) == set()
