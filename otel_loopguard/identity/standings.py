"""How a session stands with the milestones that its application declared."""

from __future__ import annotations

from typing import TYPE_CHECKING

from otel_loopguard.identity.canonical import key_of

if TYPE_CHECKING:
    from otel_loopguard.core import Progress, Standing, Step
    from otel_loopguard.settings import Settings


class Standings:
    """Reads the board of milestones at every step; says nothing while none was declared.

    What was declared in an earlier task does not count: it is the next one's business to say what
    it wants to reach.

    Args:
        settings: Settings of the guard.
        progress: Totals of the session, with its board.
    """

    __slots__ = ("_changed_at", "_progress", "_seen", "_since", "_task", "_time")

    def __init__(self, settings: Settings, progress: Progress) -> None:
        del settings
        self._progress = progress
        self._task = progress.task
        self._since = 0
        self._seen = 0
        self._changed_at = 0
        self._time = 0

    def see(self, step: Step) -> Standing | None:
        """The standing after this step; None without milestones in the task at hand."""
        del step
        progress = self._progress
        changes = progress.milestones.changes
        if progress.task != self._task:
            self._task = progress.task
            self._since = changes
        if changes == self._since:
            return None
        if changes != self._seen:
            self._seen, self._changed_at, self._time = changes, progress.steps, progress.time
        return progress.milestones.standing(
            self._since,
            progress.steps - self._changed_at,
            max(progress.time - self._time, 0) / 1e9 if self._time else 0.0,
            key_of(b"milestones %d" % changes),
        )
