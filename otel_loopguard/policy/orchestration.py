"""Which of several decisions is heard first, how sure that makes it, and what a runtime does next.

Source: FEATURES A9: graph loop > tool loop > resources > execution choice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from otel_loopguard.core import Action, FollowUp, Source

if TYPE_CHECKING:
    from otel_loopguard.core import Detection

ORDER: Final = tuple(Source)
"""Sources of decisions, the one heard first in front."""

_SOURCES: Final = {
    "graph": Source.GRAPH_LOOP,
    "exchange": Source.GRAPH_LOOP,
    "budget": Source.RESOURCES,
}
_CERTAINTY: Final = {
    Source.GRAPH_LOOP: (0.98, 0.90),
    Source.TOOL_LOOP: (0.95, 0.85),
    Source.RESOURCES: (0.8, 0.8),
}
_GOES_ON: Final = (FollowUp.EXECUTE_IMMEDIATELY, FollowUp.TRACK_EXECUTION)
_FOLLOW_UPS: Final = {
    Action.ALLOW: _GOES_ON,
    Action.HINT: _GOES_ON,
    Action.STEER: _GOES_ON,
    Action.ASK: (FollowUp.WAIT_FOR_USER_INPUT, FollowUp.TRACK_EXECUTION),
    Action.DENY: (FollowUp.NOTIFY_USER, FollowUp.TRACK_EXECUTION),
    Action.PAUSE: (FollowUp.PAUSE_EXECUTION, FollowUp.REQUEST_HUMAN_INTERVENTION),
    Action.ABORT: (FollowUp.ABORT_EXECUTION, FollowUp.NOTIFY_USER),
}
_HUMAN: Final = "escalate_human"


def source_of(detection: Detection) -> Source:
    """What a detection comes from, by the family of its detector.

    Nodes of a graph and agents that pass work on are one; whatever has no place of its own is a
    loop of one agent's calls.
    """
    return _SOURCES.get(detection.family, Source.TOOL_LOOP)


def place_of(source: Source) -> int:
    """Place in the order, 0 is heard first."""
    return ORDER.index(source)


def certainty_of(source: Source, action: Action, own: float) -> float:
    """How sure the order makes a decision, 0 to 1: a stop is surer than a word.

    Args:
        source: What it comes from.
        action: What is to be done.
        own: Confidence of its own, for a source without a fixed one (an execution choice).
    """
    fixed = _CERTAINTY.get(source)
    return own if fixed is None else fixed[not action.stops]


def follow_ups_of(action: Action, intervention: str | None) -> tuple[FollowUp, ...]:
    """What a runtime does next, in this order.

    Args:
        action: What was decided.
        intervention: What the detector asks for; `escalate_human` brings a person in.
    """
    steps = _FOLLOW_UPS[action]
    if intervention == _HUMAN and FollowUp.REQUEST_HUMAN_INTERVENTION not in steps:
        return (*steps, FollowUp.REQUEST_HUMAN_INTERVENTION)
    return steps
