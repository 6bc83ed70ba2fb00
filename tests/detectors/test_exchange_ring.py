"""Work that goes round in a ring of agents."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from otel_loopguard import Settings
from tests.calls import Run, call
from tests.detectors.exchanges import hand, news

if TYPE_CHECKING:
    from otel_loopguard.core import Decision, Step

AGENTS = ("planner", "writer", "critic", "editor", "lawyer", "printer", "courier")
TASK = "Please bring the summary of the quarterly report into the form that the board wants"
SAID = (
    "write the summary of the quarterly report for the board",
    "review whether all sources stand behind their numbers",
    "decide what is still missing from this text and who adds it",
    "bring the layout of every page into the form of the house",
    "check whether the wording holds in front of a court",
    "put it on paper with colours that last for years",
)
ONLY = {"switched_off": "exchange_pair,exchange_topic"}


def ring(size: int, times: int) -> list[Step]:
    """Exchanges that go round among the first agents; each says the same every turn."""
    return [
        hand(SAID[number % size], AGENTS[(number + 1) % size], AGENTS[number % size])
        for number in range(times)
    ]


def rings(run: Run) -> list[Decision]:
    return [decision for decision in run.decisions if decision.detector == "exchange_ring"]


@pytest.mark.parametrize("size", [3, 4, 5, 6])
def test_a_ring_is_noticed_when_three_exchanges_came_round(size: int) -> None:
    """Whatever its size, between 3 and 6 agents."""
    run = Run(Settings(**ONLY))
    run.calls(*ring(size, 2 * size))
    found = rings(run)[0]
    assert (found.step, found.period, found.reason) == (size + 2, size, "agent_cycle")
    assert "'writer' -> 'critic' and came back 3 times" in found.message
    assert found.intervention == "break_cycle"


@pytest.mark.parametrize("size", [2, 7])
def test_other_sizes_are_no_ring(size: int) -> None:
    """Two agents are a pair; seven are not looked for."""
    run = Run(Settings(**ONLY))
    said = [f"{SAID[number % 6]} {'abcdefg'[number % size] * 9}" for number in range(size)]
    run.calls(
        *[
            hand(said[number % size], AGENTS[(number + 1) % size], AGENTS[number % size])
            for number in range(5 * size)
        ]
    )
    assert rings(run) == []


def test_it_climbs_with_its_severity() -> None:
    """From low to critical, by the exchanges that came round."""
    run = Run(Settings(control_socket="auto", **ONLY))
    run.calls(*ring(3, 16))
    assert [(one.action.value, one.intervention) for one in rings(run)] == [
        ("hint", "break_cycle"),
        ("steer", "break_cycle"),
        ("ask", "inject_context"),
        ("pause", "escalate_human"),
    ]


HEALTHY: dict[str, list[Step]] = {
    "each turn brings news": [
        step
        for number, handed in enumerate(ring(3, 30))
        for step in (call("read", {"page": number}, news(number)), handed)
    ],
    "each turn is about the next item": [
        hand(f"{SAID[number % 3]} {number // 3}", AGENTS[(number + 1) % 3], AGENTS[number % 3])
        for number in range(30)
    ],
    "a line of agents": [
        hand(TASK, AGENTS[number + 1], AGENTS[number]) for number in range(len(AGENTS) - 1)
    ],
    "nothing captured": [
        hand(None, AGENTS[(number + 1) % 3], AGENTS[number % 3]) for number in range(30)
    ],
}


@pytest.mark.parametrize("steps", HEALTHY.values(), ids=HEALTHY.keys())
def test_healthy_rings_are_left_alone(steps: list[Step]) -> None:
    """Agents may take turns for as long as it brings news, or as it cannot be told."""
    run = Run()
    run.calls(*steps)
    assert [one.message for one in run.decisions if one.detector.startswith("exchange")] == []
