"""Counters and windows that detectors share."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_loopguard.detectors.counters import Periods

LONGEST = 16


def found(symbols: list[int | None], repeats: int = 3, shortest: int = 1) -> list[int]:
    need = [(repeats - 1) * p if p >= shortest else 0 for p in range(LONGEST + 1)]
    periods = Periods(need)
    return [periods.add(symbol) for symbol in symbols]


@pytest.mark.parametrize("period", range(1, LONGEST + 1))
def test_every_period_is_found_at_its_last_symbol(period: int) -> None:
    """Three turns of a cycle are found when the third ends, and not before."""
    symbols: list[int | None] = [*list(range(period)) * 3]
    assert found(symbols) == [0] * (3 * period - 1) + [period]


def test_what_is_not_needed_is_not_looked_for() -> None:
    """A need of 0 leaves a period out, and one symbol over and over is no longer cycle."""
    assert found([1] * 40, shortest=2) == [0] * 40


def test_the_shortest_period_is_told() -> None:
    """A cycle of two is also one of four; it is a cycle of two."""
    assert set(found([1, 2] * 20)[5:]) == {2}


def test_an_unknown_symbol_equals_nothing() -> None:
    """None breaks every cycle, and two of them are not equal."""
    assert found([None] * 40) == [0] * 40
    assert found([1, 2, 1, 2, None, 1, 2, 1, 2]) == [0] * 9


def test_a_symbol_that_differs_starts_over() -> None:
    """What ran before a break counts no more."""
    assert found([1, 2, 1, 2, 1, 3, 1, 2, 1, 2]) == [0] * 10


def test_starting_over_keeps_the_newest_symbols() -> None:
    """The turn that went before is still there to be equal to."""
    periods = Periods([0, 0, 4])
    for symbol in (1, 2, 1, 2):
        periods.add(symbol)
    periods.restart()
    assert [periods.add(symbol) for symbol in (1, 2, 1, 2)] == [0, 0, 0, 2]


def test_halving_halves_what_has_run() -> None:
    """A user who speaks halves the count, as everywhere."""
    periods = Periods([0, 0, 4])
    for symbol in (1, 2, 1, 2, 1, 2):
        periods.add(symbol)
    assert periods.run(2) == 4
    periods.halve()
    assert periods.run(2) == 2
    assert 1 in periods
    assert 3 not in periods


@given(st.lists(st.one_of(st.none(), st.integers(0, 3)), max_size=60))
def test_it_agrees_with_looking_back(symbols: list[int | None]) -> None:
    """Every period found is one by its definition, and none by that definition is passed over."""
    need = [2 * p for p in range(5)]
    periods = Periods(need)
    for end, symbol in enumerate(symbols, 1):
        period = periods.add(symbol)
        runs = [_run(symbols[:end], p) for p in range(5)]
        assert [periods.run(p) for p in range(1, 5)] == runs[1:]
        whole = [p for p in range(1, 5) if runs[p] >= need[p]]
        wanted = whole[0] if whole else 0
        assert period == (0 if runs[1] and wanted > 1 else wanted)


def _run(symbols: list[int | None], period: int) -> int:
    """How many of the last symbols equal the one a period before them, by looking back."""
    run = 0
    for place in range(len(symbols) - 1, period - 1, -1):
        if not period or symbols[place] is None or symbols[place] != symbols[place - period]:
            break
        run += 1
    return run
