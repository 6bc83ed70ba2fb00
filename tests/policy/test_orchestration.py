"""Order of sources, their certainty, and what follows (A9)."""

from __future__ import annotations

import pytest

from otel_loopguard import Action
from otel_loopguard.core import Detection
from otel_loopguard.core.decision import FollowUp, Severity, Source
from otel_loopguard.policy import certainty_of, follow_ups_of, place_of, source_of


def test_the_order_of_sources() -> None:
    """Graph loop before tool loop before resources before execution choice."""
    order = sorted(Source, key=place_of)
    assert order == [
        Source.GRAPH_LOOP, Source.TOOL_LOOP, Source.RESOURCES, Source.EXECUTION_CHOICE,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("family", "source"),
    [
        ("graph", Source.GRAPH_LOOP),
        ("exchange", Source.GRAPH_LOOP),
        ("repetition", Source.TOOL_LOOP),
        ("text", Source.TOOL_LOOP),
        ("budget", Source.RESOURCES),
        ("of a user's own", Source.TOOL_LOOP),
    ],
)
def test_a_family_has_a_source(family: str, source: Source) -> None:
    """What has no place of its own is a loop of one agent's calls."""
    found = Detection("d", "r", Severity.WARNING, 0.5, frozenset({1}), 3, 3, "m", family=family)
    assert source_of(found) is source


@pytest.mark.parametrize(
    ("source", "stops", "speaks"),
    [
        (Source.GRAPH_LOOP, 0.98, 0.90),
        (Source.TOOL_LOOP, 0.95, 0.85),
        (Source.RESOURCES, 0.8, 0.8),
        (Source.EXECUTION_CHOICE, 0.6, 0.6),
    ],
    ids=str,
)
def test_certainty(source: Source, stops: float, speaks: float) -> None:
    """A stop is surer than a word; an execution choice has its own confidence."""
    assert [certainty_of(source, action, 0.6) for action in (Action.ABORT, Action.HINT)] == [
        stops, speaks,
    ]  # fmt: skip


@pytest.mark.parametrize("action", list(Action), ids=str)
def test_every_action_has_follow_ups(action: Action) -> None:
    """No decision leaves the runtime without a word on what to do next."""
    assert follow_ups_of(action, None)
    brought = follow_ups_of(action, "escalate_human")
    assert brought.count(FollowUp.REQUEST_HUMAN_INTERVENTION) == 1
