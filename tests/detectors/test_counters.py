"""Counters and windows that detectors share."""

from hypothesis import given
from hypothesis import strategies as st

from otel_loopguard.detectors.counters import Periods


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
