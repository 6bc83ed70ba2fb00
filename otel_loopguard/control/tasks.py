"""The tasks of a session that its application knows before it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from otel_loopguard.errors import PlanError
from otel_loopguard.planning import checked, follow
from otel_loopguard.planning.following import MOST_FOLLOWED

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from otel_loopguard.core import Milestones
    from otel_loopguard.planning import Task


def plan_of(tasks: object) -> list[Task]:
    """The tasks of a plan that a session can follow.

    Args:
        tasks: See `planning.read`.

    Raises:
        PlanError: The plan is not sound, is empty or has more than 1000 tasks, or two ids are one
            in their first 200 characters.
    """
    plan = checked(tasks)
    if not 0 < len(plan) <= MOST_FOLLOWED:
        msg = f"a session can follow 1 to {MOST_FOLLOWED} tasks, got {len(plan)}"
        raise PlanError(msg)
    return plan


def declare(boards: Iterable[Milestones], plan: Sequence[Task], *, by_person: bool = False) -> None:
    """Puts a plan on the boards of a session.

    Args:
        boards: The boards.
        plan: Tasks of a sound plan.
        by_person: Whether a person gave it, in place of the one before (C18).

    Raises:
        PlanError: Two ids are one in their first 200 characters.
    """
    for board in boards:
        if not follow(board, plan, by_person=by_person):
            msg = "two ids of tasks are one in their first 200 characters"
            raise PlanError(msg)
