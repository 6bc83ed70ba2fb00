"""Order of sources, their certainty, and what follows (A9)."""

from __future__ import annotations

import pytest

from otel_loopguard import Action
from otel_loopguard.core import Detection
from otel_loopguard.core.decision import FollowUp, Severity, Source
from otel_loopguard.policy import certainty_of, follow_ups_of, place_of, source_of


@pytest.mark.parametrize(
    ("source", "families", "stops", "speaks"),
    [
        (Source.GRAPH_LOOP, ("graph", "exchange"), 0.98, 0.90),
        # What has no place of its own is a loop of one agent's calls.
        (Source.TOOL_LOOP, ("repetition", "text", "of a user's own"), 0.95, 0.85),
        (Source.RESOURCES, ("budget",), 0.8, 0.8),
        # An execution choice has its own confidence.
        (Source.EXECUTION_CHOICE, (), 0.6, 0.6),
    ],
    ids=str,
)
def test_sources(source: Source, families: tuple[str, ...], stops: float, speaks: float) -> None:
    """In this order; a stop is surer than a word."""
    for family in families:
        found = Detection("d", "r", Severity.WARNING, 0.5, frozenset({1}), 3, 3, "m", family=family)
        assert source_of(found) is source
    said = [certainty_of(source, action, 0.6) for action in (Action.ABORT, Action.HINT)]
    assert said == [stops, speaks]
    later = [*Source][[*Source].index(source) + 1 :]
    assert all(place_of(source) < place_of(each) for each in later)


@pytest.mark.parametrize("action", list(Action), ids=str)
def test_every_action_has_follow_ups(action: Action) -> None:
    """No decision leaves the runtime without a word on what to do next."""
    assert follow_ups_of(action, None)
    brought = follow_ups_of(action, "escalate_human")
    assert brought.count(FollowUp.REQUEST_HUMAN_INTERVENTION) == 1
