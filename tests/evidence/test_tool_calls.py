"""Rounds of tool calls, by times and by the messages of models."""

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


SECOND = 1_000_000_000


def numbers(rounds: Rounds, *calls: tuple[float, float], agent: int = 0) -> list[int]:
    """Rounds of different calls that began and ended at these seconds."""
    return [
        rounds.add(round(start * SECOND), round(end * SECOND), agent, number + round(start * 1000))
        for number, (start, end) in enumerate(calls)
    ]


ONE_AFTER_ANOTHER = [(10 + i / 10, 10.05 + i / 10) for i in range(17)]


def test_calls_of_one_message_share_a_round() -> None:
    """Also where they run one after the other."""
    rounds = Rounds()
    rounds.asked()
    assert len(set(numbers(rounds, *ONE_AFTER_ANOTHER))) == 1
    rounds.asked()
    assert numbers(rounds, (20, 21)) == [2]


def test_without_model_calls_each_call_is_a_round() -> None:
    """Then only what runs in parallel shares one."""
    assert len(set(numbers(Rounds(), *ONE_AFTER_ANOTHER))) == 17


def test_a_pause_may_hide_a_model_call() -> None:
    """What comes later than a quarter of a second is no call of the same message."""
    rounds = Rounds()
    rounds.asked()
    assert numbers(rounds, (10, 11), (12, 13), (14, 15)) == [1, 2, 3]


def test_a_program_that_loops_is_no_message() -> None:
    """More than 24 calls, and more than two equal ones, are counted by themselves."""
    rounds = Rounds()
    rounds.asked()
    many = [(10 + i / 10, 10.05 + i / 10) for i in range(40)]
    assert len(set(numbers(rounds, *many))) == 17
    again = Rounds()
    again.asked()
    equal = [again.add(10 * SECOND + i, 10 * SECOND + i, 0, 7) for i in range(1, 6)]
    assert len(set(equal)) == 4


def test_agents_have_messages_of_their_own() -> None:
    """A model call of one agent does not divide the calls of another."""
    rounds = Rounds()
    rounds.asked(1)
    rounds.asked(2)
    first = numbers(rounds, (10, 10.1), agent=1)
    rounds.asked(2)
    assert numbers(rounds, (10.2, 10.3), agent=1) == first
    assert numbers(rounds, (10.4, 10.5), agent=2) != first


def test_models_of_another_name_count_for_who_has_none() -> None:
    """Where the calls of tools do not say whose they are, or name it otherwise."""
    rounds = Rounds()
    seen: list[int] = []
    for second in range(10, 13):
        rounds.asked(1)
        seen += numbers(rounds, (second, second + 0.9))
        seen += numbers(rounds, (second + 0.95, second + 0.99), agent=2)
    assert len(set(seen)) == 6
