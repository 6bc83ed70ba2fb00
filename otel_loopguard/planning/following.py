"""A plan on the board of its session, so that its progress is counted while it runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from otel_loopguard.planning.groups import groups

if TYPE_CHECKING:
    from otel_loopguard.core import Milestones
    from otel_loopguard.planning.task import Task

MOST_FOLLOWED: Final = 1000
"""Tasks of one session that are followed."""


def follow(board: Milestones, tasks: Sequence[Task], *, by_person: bool = False) -> bool:
    """Declares the tasks of a sound plan as milestones with their dependencies (D2, E10).

    Every task weighs the same. What was done before under the same id stays done.

    Args:
        board: Board of the session.
        tasks: The tasks.
        by_person: Whether a person gave them, in place of the plan before (C18).

    Returns:
        Whether it is followed: there are at most 1000 tasks, and no two are one in their first 200
        characters.

    Raises:
        PlanError: The plan is not sound.
    """
    if not 0 < len(tasks) <= MOST_FOLLOWED:
        return False
    ordered = [task for group in groups(tasks) for task in group]
    return board.follow(
        {task.id: task.depends_on for task in ordered},
        [task.id for task in ordered if task.optional],
        by_person=by_person,
    )
