"""Which of two changes of a session's control counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from otel_loopguard.control.flag import POLICY
from otel_loopguard.core import Action

if TYPE_CHECKING:
    from otel_loopguard.remote.notice import Notice


def stands(last: Notice, new: Notice) -> bool:
    """Whether what was heard last goes before what is heard now, in whichever order they came.

    The newer one counts, with three exceptions. A pause or an abort by a person is not taken down
    by a policy, only made stronger. A pause or an abort by a person does not wait behind a weaker
    word of a policy. And a policy takes down only what the same guard set.

    Args:
        last: What was heard last.
        new: What is heard now.
    """
    if last.until is not None and last.until <= new.at:
        return False
    by_person, now_person = last.who != POLICY, new.who != POLICY
    weaker = new.action.rank <= last.action.rank
    if by_person and not now_person and last.action.stops:
        return weaker
    if now_person and not by_person:
        return weaker and new.at <= last.at
    if not now_person and new.action is Action.ALLOW:
        return last.action is Action.ALLOW or new.origin != last.origin or new.at <= last.at
    return new.at <= last.at
