"""How far a verdict of its own may go."""

from __future__ import annotations

from typing import TYPE_CHECKING

from otel_loopguard.core import Action

if TYPE_CHECKING:
    from otel_loopguard.settings import Settings


def verdict(settings: Settings, wanted: str, most: Action = Action.ABORT) -> Action:
    """The action that is wanted, but nothing stronger than `most` and the setting `max_action`.

    Args:
        settings: Settings of the guard.
        wanted: Name of an action, as a setting has it.
        most: The strongest action that the evidence allows.
    """
    allowed = (Action(wanted), most, Action(settings.max_action))
    return min(allowed, key=lambda action: action.rank)
