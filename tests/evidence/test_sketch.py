"""A set of keys that never grows."""

from hypothesis import given
from hypothesis import strategies as st
from xxhash import xxh3_64_intdigest as key_of

from otel_loopguard._util.bounded import BloomSketch

KEYS = st.lists(st.integers(0, 2**64 - 1), max_size=60)


def keys(start: int, stop: int) -> list[int]:
    return [key_of(b"%d" % number) for number in range(start, stop)]


@given(KEYS, KEYS)
def test_what_was_shown_is_known(shown: list[int], others: list[int]) -> None:
    """No key of the newest thousands is ever taken for new again, nor twice within one call."""
    sketch = BloomSketch()
    assert set(sketch.add(shown)) == set(shown)
    sketch.add(others)
    assert sketch.add(shown) == set()
    assert BloomSketch().add([5, 5, 5]) == {5}


def test_new_keys_are_new_and_the_newest_are_known() -> None:
    """One in fifty is taken for known at most; the oldest are forgotten, and nothing grows."""
    sketch = BloomSketch()
    sketch.add(keys(0, 60))
    assert sketch._new is None  # few keys are kept as they are
    new = 0
    for start in range(60, 100_060, 50):
        new += len(sketch.add(keys(start, start + 50)))
        for table in (sketch._new, sketch._old):  # two generations of 4 KiB
            assert table is None or len(table) * table.itemsize == 4096
    assert new >= 0.98 * 100_000
    assert sketch.add(keys(97_560, 100_060)) == set()
    assert len(sketch.add(keys(0, 1000))) >= 0.95 * 1000
