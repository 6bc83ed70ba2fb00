"""Loops of hand-offs: which agent a call goes to, and what follows where nobody could be asked."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from otel_loopguard import semconv
from otel_loopguard.control.people import can_answer
from otel_loopguard.core import Action, Detection, Kind, Source, Step
from otel_loopguard.dialects import as_handoff, hands_off
from otel_loopguard.identity import agent_key

if TYPE_CHECKING:
    from otel_loopguard.control import Control
    from otel_loopguard.settings import Settings

_NAMED = 200


def receiver(tool: str, args: object) -> int:
    """Key of the agent that gets the work by a call: of a hand-off, or of an agent as a tool.

    Args:
        tool: Name of the tool.
        args: Its arguments; None if they are not known.
    """
    name = tool
    if hands_off(tool):
        name = as_handoff(Step(Kind.TOOL, tool, args=args)).name or tool
    return agent_key(name[:_NAMED])


def refused_to(step: Step) -> int | None:
    """Key of the agent that a refused hand-off would have gone to; None for any other step."""
    if step.kind is not Kind.HANDOFF or step.error_type != semconv.ERROR_DENY or not step.name:
        return None
    return agent_key(step.name[:_NAMED])


def stops_handoffs(control: Control) -> bool:
    """Whether what holds is the deny of a loop of agents: no other call says anything about it."""
    decision = control.decision
    if control.action is not Action.DENY or decision is None:
        return False
    return decision.source is Source.GRAPH_LOOP


def attended(found: list[Detection], settings: Settings, *, live: bool) -> list[Detection]:
    """Detections without a pause that nobody could end, because no way to people is set up.

    A replay keeps the pause where a mere hint would take its place: it shows what is done where
    somebody can answer.

    Args:
        found: The detections.
        settings: Settings of the guard.
        live: Whether the steps happen now.
    """
    if can_answer(settings):
        return found
    return [
        replace(one, max_action=one.unanswered)
        if one.max_action is Action.PAUSE
        and one.unanswered is not None
        and (live or one.unanswered.stops)
        else one
        for one in found
    ]
