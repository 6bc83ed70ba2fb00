"""What applications say of sessions that have no step yet: milestones, plans, results, notes."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from otel_loopguard._util.bounded import BoundedDict
from otel_loopguard.core.milestones import Milestones
from otel_loopguard.core.report import Memory
from otel_loopguard.errors import PlanError
from otel_loopguard.plans import MOST_FOLLOWED, checked, follow

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from otel_loopguard.core.report import Topic
    from otel_loopguard.core.task import Task

# Sessions between their declaration and their first step: seconds, as a rule.
_BOARDS: Final = 1024
_waiting: BoundedDict[str, Milestones] = BoundedDict(_BOARDS)


def waiting(key: str) -> Milestones:
    """The board that a session will get when its first step is seen; the newest 1024 are kept."""
    return _waiting.setdefault(key, Milestones())


def claimed(key: str) -> Milestones | None:
    """The board that waits for a session, which has it from now on; None if there is none."""
    return _waiting.pop(key, None) if _waiting else None


# Fewer than boards, for results may be large.
_EARLY: Final = 256
# As of a session with steps.
_PARTS: Final = 20
_early: BoundedDict[str, deque[object]] = BoundedDict(_EARLY)


def keep_early(key: str, result: object) -> None:
    """Keeps a result for a session until its first step is seen; of the newest 256 sessions."""
    _early.setdefault(key, deque(maxlen=_PARTS)).append(result)


def early(key: str) -> deque[object] | None:
    """The results that wait for a session, which has them from now on; None if there are none."""
    return _early.pop(key, None) if _early else None


# Of one session; each has 200 characters at most.
_NOTES: Final = 64
_noted: BoundedDict[str, Memory] = BoundedDict(_EARLY)


def note_early(key: str, topic: Topic, text: str) -> None:
    """Notes something for a session until its first step is seen; of the newest 256 sessions.

    Raises:
        ValueError: There is no such topic.
    """
    _noted.setdefault(key, Memory(_NOTES)).note(topic, text)


def early_notes(key: str) -> Memory | None:
    """The notes that wait for a session, which has them from now on; None if there are none."""
    return _noted.pop(key, None) if _noted else None


def plan_of(tasks: object) -> list[Task]:
    """The tasks of a plan that a session can follow."""
    plan = checked(tasks)
    if not 0 < len(plan) <= MOST_FOLLOWED:
        msg = f"a session can follow 1 to {MOST_FOLLOWED} tasks, got {len(plan)}"
        raise PlanError(msg)
    return plan


def declare(boards: Iterable[Milestones], plan: Sequence[Task], *, by_person: bool = False) -> None:
    """Puts a plan on the boards of a session."""
    for board in boards:
        if not follow(board, plan, by_person=by_person):
            msg = "two ids of tasks are one in their first 200 characters"
            raise PlanError(msg)
