"""Accounts: what was decided about each session of a replay."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from otel_loopguard.core import Action, Decision

if TYPE_CHECKING:
    from otel_loopguard.core import Step
    from otel_loopguard.reports import Report
    from otel_loopguard.sessions import Session

_HELD: Final = 10_000


@dataclass(slots=True)
class Account:
    """What was decided about one session.

    Attributes:
        source: Where it comes from: a labelled run's source, else the name of the file.
        session: Key of the session: a labelled run's id, a conversation id, or a trace id.
        steps: How many steps were counted.
        decisions: All decisions, in order.
        report: What the session came to; None until it is closed.
    """

    source: str
    session: str
    steps: int = 0
    decisions: list[Decision] = field(default_factory=list[Decision])
    report: Report | None = None

    @property
    def strongest(self) -> Action:
        """The strongest action decided; allow if there was none."""
        actions = (decision.action for decision in self.decisions)
        return max(actions, key=lambda action: action.rank, default=Action.ALLOW)

    def row(self) -> dict[str, object]:
        """The account as one JSON object."""
        return {
            "source": self.source,
            "session": self.session,
            "steps": self.steps,
            "decisions": [decision_row(decision) for decision in self.decisions],
            "strongest": self.strongest.value,
        }


def decision_row(decision: Decision) -> dict[str, object]:
    """A decision as one JSON object; `step` is the index of the canonical step."""
    return {
        "step": decision.step,
        "action": decision.action.value,
        "detector": decision.detector,
        "severity": decision.severity.value,
        "confidence": decision.confidence,
        "loop": decision.loop,
        "count": decision.count,
        "reason": decision.reason,
        "message": decision.message,
        "id": decision.id,
        "period": decision.period,
    }


class Book:
    """Accounts of the sessions of one file of spans, kept while the guard calls.

    Args:
        source: Name of the file.
        held: Accounts kept open; past that the one unused for longest is closed. A session that
            goes on after that (the guard has forgotten it by then, too) gets a second account.
    """

    def __init__(self, source: str, held: int = _HELD) -> None:
        self._source = source
        self._max_held = held
        self._open: OrderedDict[int, tuple[Session, Account]] = OrderedDict()
        self._closed: list[Account] = []

    def on_step(self, session: Session, _index: int, _step: Step) -> None:
        """One more step of a session was counted."""
        self._account(session).steps += 1

    def on_decision(self, session: Session, decision: Decision) -> None:
        """Something was decided about a session."""
        self._account(session).decisions.append(decision)

    def closed(self) -> Iterator[Account]:
        """Accounts that were closed since this was asked last."""
        closed, self._closed = self._closed, []
        yield from closed

    def close(self) -> Iterator[Account]:
        """Closes and gives all that are left, in the order of their last step."""
        while self._open:
            self._close_oldest()
        yield from self.closed()

    def _account(self, session: Session) -> Account:
        # By the object, for the key may change while spans come in; the object is kept, so that its
        # id is not given to another.
        known = self._open.get(id(session))
        if known is None:
            known = (session, Account(self._source, session.key))
            self._open[id(session)] = known
        self._open.move_to_end(id(session))
        if len(self._open) > self._max_held:
            self._close_oldest()
        return known[1]

    def _close_oldest(self) -> None:
        _, (session, account) = self._open.popitem(last=False)
        account.session = session.key
        account.report = session.report()
        self._closed.append(account)
