"""Handoffs that are written as tool calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

from otel_loopguard.core import Kind
from otel_loopguard.dialects.values import text, within

if TYPE_CHECKING:
    from otel_loopguard.core import Step

_TRANSFER = "transfer_to_"
_DELEGATES = frozenset(("delegate_work_to_coworker", "Delegate work to coworker"))
_NAMED = frozenset((*_DELEGATES, "transfer_to_agent", "handoff_to_agent"))
"""Tools that name the agent in an argument."""
_TARGETS = ("agent_name", "coworker", "agent")


def hands_off(name: str) -> bool:
    """Whether a tool of this name hands the work to another agent.

    The names are those of ADK (`transfer_to_agent`), AutoGen Swarm and LangGraph
    (`transfer_to_<agent>`), Strands (`handoff_to_agent`) and CrewAI (`delegate_work_to_coworker`).
    """
    return name.startswith(_TRANSFER) or name in _NAMED


def as_handoff(step: Step) -> Step:
    """Turns a tool call into a handoff: `name` becomes the agent it goes to, if that is known."""
    name = step.name or ""
    target = None
    if name in _NAMED:
        for key in _TARGETS:
            target = target or text(within(step.args, key))
    else:
        target = name[len(_TRANSFER) :] or None
    step.kind = Kind.HANDOFF
    step.name = target
    return step
