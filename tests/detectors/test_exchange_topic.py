"""One issue that is passed around, whoever holds it."""

from __future__ import annotations

import pytest

from otel_loopguard import Settings
from otel_loopguard.core import Decision, Kind, Step
from tests.bad_input.sizes import sizes
from tests.calls import Run, call
from tests.detectors.exchanges import hand, news

ISSUE = "{}: the refund for the broken lamp was refused, and nobody knows who has to approve it"
HOW = ("look at this", "have a look", "take this over", "see whether you can help", "your turn")
WAY = ("sales", "support", "billing", "sales", "billing", "support", "sales", "support", "billing")
ONLY = {"switched_off": "exchange_pair,exchange_ring"}


def passed(way: tuple[str, ...], source: str = "desk") -> list[Step]:
    """One issue in other words, from each agent to the next."""
    givers = (source, *way)
    return [
        hand(ISSUE.format(HOW[number % len(HOW)]), agent, givers[number])
        for number, agent in enumerate(way)
    ]


def topics(run: Run) -> list[Decision]:
    return [decision for decision in run.decisions if decision.detector == "exchange_topic"]


def test_an_issue_that_comes_back_is_noticed() -> None:
    """When it came back three times to an agent that had it before, in whatever order."""
    run = Run(Settings(**ONLY))
    run.calls(*passed(WAY))
    found = topics(run)[0]
    assert (found.step, found.action.value, found.reason) == (5, "hint", "topic_cycle")
    assert found.message == (
        "the same topic was passed around 3 agents and came back 3 times to one that had it "
        "before, and nothing new came back"
    )
    assert "Skip 'support'" in found.advice


def test_other_work_in_between_does_not_hide_it() -> None:
    """The issue is followed, not the order of the hand-offs."""
    run = Run(Settings(switched_off="handoff_repeat"))
    for number, step in enumerate(passed(WAY)):
        other = f"Draw chart number {number} about growth in region {number} with colours"
        run.calls(step, hand(other, f"artist{number}", "desk"))
    assert topics(run)


HEALTHY: dict[str, list[Step]] = {
    "a task that goes down a line": passed(("a", "b", "c", "d", "e", "f", "g")),
    "one question to many experts": [
        hand(ISSUE.format(HOW[0]), f"expert{number}", "desk") for number in range(12)
    ],
    "news at every hand": [
        step
        for number, handed in enumerate(passed(WAY * 3))
        for step in (call("read", {"page": number}, news(number)), handed)
    ],
    "many issues": [
        hand(f"{ISSUE.format(HOW[0])} in case {number}", WAY[number % 9], "desk")
        for number in range(27)
    ],
    "the user speaks": [
        step for handed in passed(WAY) for step in (handed, Step(Kind.OTHER, "user", text="go on"))
    ],
}


@pytest.mark.parametrize("steps", HEALTHY.values(), ids=HEALTHY.keys())
def test_healthy_teams_are_left_alone(steps: list[Step]) -> None:
    """Work may pass through many hands."""
    run = Run()
    run.calls(*steps)
    assert [one.message for one in run.decisions if one.detector.startswith("exchange")] == []


def test_tables_do_not_grow_with_the_session() -> None:
    """Every exchange has another giver, receiver and text, hundreds of words of it."""
    run = Run()

    def feed(first: int, last: int) -> int:
        for number in range(first, last):
            text = " ".join(f"word{number}x{place}" for place in range(100))
            run.calls(hand(text, f"agent{number}", f"giver{number}"))
        return sizes(run.guard, depth=9)

    early, late = feed(0, 100), feed(100, 300)
    assert late < early * 1.05
    assert [one.message for one in run.decisions if one.detector.startswith("exchange")] == []
