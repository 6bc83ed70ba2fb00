"""Counts the tasks of a plan by the finished steps that name them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from otel_loopguard.core import Kind, Reached
from otel_loopguard.planning import follow, read, validate

if TYPE_CHECKING:
    from otel_loopguard.core import Progress, Step
    from otel_loopguard.settings import Settings

_RUNS: Final = frozenset({Kind.AGENT, Kind.NODE, Kind.WORKFLOW, Kind.TOOL})


class Tasks:
    """Writes on the board of a session what becomes of the tasks of its plan; gives no evidence.

    A plan comes from the application or from a span (`Step.tasks`); the application's goes before,
    and so do milestones that it declared, and what a person gave in their place. One on a span that
    is not sound is passed over: nobody is there to be told. A task is done when an agent, a node, a
    workflow or a tool call has ended well that names it, by `Step.task` or by its own name, and has
    failed after `plan_task_failures` (3) that did not; so a step that is tried again harms nobody.

    Args:
        settings: Settings of the guard.
        progress: Totals of the session, with its board.
    """

    __slots__ = ("_declared", "_failures", "_limit", "_progress")

    def __init__(self, settings: Settings, progress: Progress) -> None:
        self._limit = settings.plan_task_failures
        self._progress = progress
        self._declared: tuple[object, ...] | None = None
        self._failures: dict[str, int] = {}

    def see(self, step: Step) -> None:
        """Takes one finished step."""
        if step.tasks is not None and step.tasks != self._declared:
            self._declare(step.tasks)
        board = self._progress.milestones
        if not board.changes or not board.follows or step.kind not in _RUNS:
            return
        name = step.task if step.task in board.follows else step.name
        if name is not None and name in board.follows:
            self._finished(name, failed=step.error)

    def _declare(self, plan: tuple[object, ...]) -> None:
        board = self._progress.milestones
        ours = self._declared is not None and bool(board.follows)
        self._declared = plan
        if board.by_person or (board.changes and not ours):
            return
        tasks, problems = read(plan)
        if not problems and not validate(tasks) and follow(board, tasks):
            self._failures.clear()

    def _finished(self, name: str, *, failed: bool) -> None:
        if not failed:
            self._failures.pop(name, None)
            self._progress.milestones.report(name, Reached.DONE)
            return
        failures = self._failures[name] = self._failures.get(name, 0) + 1
        board = self._progress.milestones
        if failures >= self._limit and board.state(name) is Reached.OPEN:
            board.report(name, Reached.FAILED)
