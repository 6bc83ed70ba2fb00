"""What applications say of sessions that have no step yet: milestones, plans, results, notes."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from otel_loopguard._util.bounded import BoundedDict
from otel_loopguard.core.milestones import Milestones
from otel_loopguard.errors import PlanError
from otel_loopguard.plans import MOST_FOLLOWED, checked, follow

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from otel_loopguard.core.report import Memory
    from otel_loopguard.core.task import Task

BOARDS: Final[BoundedDict[str, Milestones]] = BoundedDict(1024)
"""Boards of sessions between their declaration and their first step: seconds, as a rule."""
RESULTS: Final[BoundedDict[str, deque[object]]] = BoundedDict(256)
"""Results so far of such sessions; of fewer, for results may be large."""
NOTES: Final[BoundedDict[str, Memory]] = BoundedDict(256)
"""What such sessions are to remember."""


def board_of(key: str) -> Milestones:
    """The board that a session will get when its first step is seen."""
    return BOARDS.setdefault(key, Milestones())


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
