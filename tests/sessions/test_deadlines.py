"""The heap of deadlines."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from otel_loopguard.sessions.active import NEVER, Deadlines


@given(st.lists(st.tuples(st.integers(0, 50), st.booleans()), max_size=300), st.integers(0, 50))
def test_it_gives_what_a_sorted_list_would(entries: list[tuple[int, bool]], now: int) -> None:
    """Nothing before its time, nothing that was dropped, and little dead is kept."""
    deadlines: Deadlines[int] = Deadlines()
    kept: list[tuple[int, int]] = []
    for number, (due, drops) in enumerate(entries):
        ticket = deadlines.add(due, number)
        if drops:
            deadlines.drop(ticket)
            deadlines.drop(ticket)
        else:
            kept.append((due, number))
        assert len(deadlines._heap) <= 2 * len(kept) + 66
    kept.sort()
    assert (len(deadlines), deadlines.top) == (len(kept), kept[0][0] if kept else NEVER)
    early = [one for one in kept if one[0] <= now]
    assert [deadlines.pop(now) for _ in early] == early
    assert deadlines.pop(now) is None
    late = kept[len(early) :]
    assert [deadlines.pop(100) for _ in late] == late
    assert deadlines.top == NEVER
