"""The heap of deadlines."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from otel_loopguard.sessions.active import NEVER, Deadlines


def test_the_earliest_comes_first_and_nothing_before_its_time() -> None:
    """Each subject is given once, with its own time."""
    deadlines: Deadlines[str] = Deadlines()
    for due, name in ((30, "c"), (10, "a"), (20, "b")):
        deadlines.add(due, name)
    assert deadlines.top == 10
    assert deadlines.pop(9) is None
    assert [deadlines.pop(25) for _ in range(3)] == [(10, "a"), (20, "b"), None]
    assert deadlines.top == 30


def test_what_was_dropped_does_not_come() -> None:
    """Neither does it hold the top."""
    deadlines: Deadlines[str] = Deadlines()
    ticket = deadlines.add(10, "a")
    deadlines.add(20, "b")
    deadlines.drop(ticket)
    deadlines.drop(ticket)
    assert (len(deadlines), deadlines.top) == (1, 20)
    assert deadlines.pop(99) == (20, "b")
    assert (len(deadlines), deadlines.top) == (0, NEVER)


@given(st.lists(st.tuples(st.integers(0, 50), st.booleans()), max_size=300))
def test_it_gives_what_a_sorted_list_would(entries: list[tuple[int, bool]]) -> None:
    """Whatever is added and dropped, what is left comes in order, and little dead is kept."""
    deadlines: Deadlines[int] = Deadlines()
    kept: list[tuple[int, int]] = []
    for number, (due, drops) in enumerate(entries):
        ticket = deadlines.add(due, number)
        if drops:
            deadlines.drop(ticket)
        else:
            kept.append((due, number))
        assert len(deadlines._heap) <= 2 * len(kept) + 66
    found = [deadlines.pop(100) for _ in kept]
    assert found == sorted(kept)
    assert deadlines.pop(100) is None
