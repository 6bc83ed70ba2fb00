"""Rounds: what ran in parallel."""

from __future__ import annotations

import pytest

from otel_loopguard.evidence.tool_calls import Rounds

HOUR = 3_600_000_000_000


@pytest.mark.parametrize(
    ("spans", "expected"),
    [
        pytest.param([(10, 20), (20, 30), (31, 40)], [1, 2, 3], id="one after the other"),
        pytest.param([(10, 20), (11, 21), (12, 22)], [1, 1, 1], id="side by side"),
        pytest.param([(10, 40), (11, 15), (16, 20), (39, 50)], [1, 1, 1, 1], id="inside of one"),
        pytest.param([(10, 40), (11, 15), (41, 50)], [1, 1, 2], id="after the longest"),
        pytest.param([(0, 0), (0, 0), (0, 0)], [1, 2, 3], id="without times"),
        pytest.param([(10, 20), (0, 0), (11, 15)], [1, 2, 3], id="one without times"),
        pytest.param(
            [(2 * HOUR, 2 * HOUR + 5), (10, 20), (20, 30)], [1, 2, 3], id="the clock went back"
        ),
    ],
)
def test_rounds(spans: list[tuple[int, int]], expected: list[int]) -> None:
    """A call that began before the newest end of its round belongs to it."""
    rounds = Rounds()
    assert [rounds.add(start, end) for start, end in spans] == expected
