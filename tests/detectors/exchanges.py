"""Exchanges between agents, for tests."""

from __future__ import annotations

from otel_loopguard.core import Kind, Step
from tests.calls import EPOCH, SECOND

NOTHING = "The page did not change; it shows the list of flavors that it showed before."


def hand(
    text: object, agent: str = "critic", source: str | None = "planner", *, at: float | None = None
) -> Step:
    """One hand-off of work to an agent; `at` seconds after the epoch of the tests."""
    end = 0 if at is None else EPOCH + round(at * SECOND)
    return Step(Kind.HANDOFF, agent, agent=source, args=text, start=end, end=end)


def spoke(text: str | None, agent: str | None = None) -> Step:
    """One model call of an agent."""
    return Step(Kind.MODEL, "model", agent=agent, text=text)


def ran(
    agent: str, text: str | None = None, answer: str | None = None, *, begin: float = 0, end: float
) -> Step:
    """One run of a sub-agent that no hand-off announced, in seconds."""
    start, stop = EPOCH + round(begin * SECOND), EPOCH + round(end * SECOND)
    return Step(Kind.AGENT, agent, agent=agent, args=text, outcome=answer, start=start, end=stop)


def news(number: int, words: int = 40) -> str:
    """A text that says something else for each number."""
    return ", ".join(f"finding {number}x{place}" for place in range(words))
