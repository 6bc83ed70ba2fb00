"""Tokens per model call that rise far more steeply than a conversation does."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from otel_loopguard import Settings
from otel_loopguard.core import Kind, Step
from tests.calls import Run


def seen(tokens: list[int | None], agents: str = "a", action: str = "hint") -> list[str]:
    """What token_rate says about model calls, by turns of several agents."""
    run = Run(Settings(budget_action=action, budget_tokens=0, budget_operation_tokens=0))
    run.calls(
        *(
            Step(Kind.MODEL, "m", tokens_in=count, agent=agents[number % len(agents)])
            for number, count in enumerate(tokens)
        )
    )
    return [one.action.value for one in run.decisions if one.detector == "token_rate"]


def test_a_steep_rise_is_said_once() -> None:
    """Every call a third more than the one before."""
    assert seen([round(300 * 1.33**number) for number in range(24)]) == ["hint"]


def test_by_default_it_is_noted_only() -> None:
    """As every other verdict about a budget."""
    assert seen([round(300 * 1.33**number) for number in range(24)], action="allow") == ["allow"]


HEALTHY: dict[str, Callable[[int], int | None]] = {
    "a conversation": lambda number: 2000 + 900 * number,
    "from nothing": lambda number: 1500 * (number + 1),
    "a large file": lambda number: 3000 if number < 15 else 90_000,
    "single calls": lambda number: 90_000 if number % 7 == 3 else 3000,
    "small": lambda number: round(10 * 1.33 ** (number % 16)),
    "unknown": lambda number: None if number % 2 else 4000,
}


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_run_is_left_alone(name: str) -> None:
    """Growth in proportion, a leap, outliers, small numbers, tokens that were not captured."""
    assert seen([HEALTHY[name](number) for number in range(40)]) == []


def test_every_agent_has_a_context_of_its_own() -> None:
    """A small and a large agent by turns are no rise."""
    sizes = {"a": 1000, "b": 12_000, "c": 90_000}
    order = "aaaaabbbbbccccc"
    assert seen([sizes[name] for name in order * 3], order) == []
