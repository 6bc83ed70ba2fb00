"""What the guard of one test decided, and how much it saw."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from otel_loopguard.core import Decision, Step
    from otel_loopguard.sessions import Session

_KEPT: Final = 10_000


class Tally:
    """Listens to a guard.

    Attributes:
        steps: How many steps it judged.
        decisions: Its newest 10,000 decisions, in their order.
    """

    def __init__(self) -> None:
        self.steps = 0
        self.decisions: deque[Decision] = deque(maxlen=_KEPT)

    def stepped(self, session: Session, index: int, step: Step) -> None:
        """Takes a step."""
        del session, index, step
        self.steps += 1

    def decided(self, session: Session, decision: Decision) -> None:
        """Takes a decision."""
        del session
        self.decisions.append(decision)
