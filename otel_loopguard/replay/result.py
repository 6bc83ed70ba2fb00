"""The result of replaying one session."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from otel_loopguard.core import Action

if TYPE_CHECKING:
    from otel_loopguard.core import Decision


@dataclass(slots=True)
class SessionResult:
    """What was decided about one session.

    Attributes:
        source: Source of a labelled run, else the name of the file.
        session: Its key: the id of a labelled run, a conversation id, or a trace id.
        decisions: Every decision, in order.
    """

    source: str = ""
    session: str = ""
    decisions: list[Decision] = field(default_factory=list["Decision"])

    @property
    def strongest(self) -> Action:
        """The strongest action decided; allow if there was none."""
        actions = (decision.action for decision in self.decisions)
        return max(actions, key=lambda action: action.rank, default=Action.ALLOW)
