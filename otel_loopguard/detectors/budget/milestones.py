"""Does the run still come to its milestones, and can it still come to its end? (D2, E10)"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from otel_loopguard.core import Action, Detection, Severity, Standing
from otel_loopguard.detectors.budget.verdict import verdict

if TYPE_CHECKING:
    from otel_loopguard.settings import Settings

_FEW: Final = 2


class MilestoneStall:
    """Notices that no milestone was reached for `milestone_steps` (10) or `milestone_s` (60 s).

    Only while a milestone that was declared is still open: without one nobody said that there is
    more to come. Seconds count from the second step on, for one slow call is no stall. Any change
    of a milestone, a failure too, starts the count anew. It leads to a hint at most.

    Source: FEATURES D2.
    """

    name = "milestone_stall"
    family = "milestones"
    takes = Standing
    __slots__ = ("_seconds", "_steps")

    def __init__(self, settings: Settings) -> None:
        self._steps = settings.milestone_steps
        self._seconds = settings.milestone_s

    def user_turn(self) -> None:
        """A user spoke: the evidence leaves out what was declared before."""

    def observe(self, standing: Standing) -> Detection | None:
        """Takes a standing; gives a detection while it stalls."""
        late = standing.seconds >= self._seconds and standing.steps >= _FEW
        due = standing.paced and standing.open
        if not due or not (late or standing.steps >= self._steps):
            return None
        total = standing.done + standing.failed + standing.open
        return Detection(
            detector=self.name,
            reason="no_milestone",
            severity=Severity.WARNING,
            confidence=0.5,
            keys=frozenset({standing.key}),
            count=standing.steps,
            threshold=self._steps,
            message=f"no milestone changed for {standing.steps} steps and {standing.seconds:.0f} "
            f"s; {standing.done} of {total} are done ({standing.percent:g} %)",
            max_action=Action.HINT,
            advice="Say which milestone you are working on and what keeps you from it, or change "
            "the plan.",
        )


class CannotSucceed:
    """Notices that a required milestone failed while none is open that could still succeed.

    A verdict of its own: `milestone_failed_action` (`pause`), once per failure. Only milestones
    declared with `control.milestones(...)` are required, for only there the plan is complete, and
    the tasks of a plan. A task that waits for one that failed cannot succeed.

    Source: FEATURES E10.
    """

    name = "cannot_succeed"
    family = "milestones"
    takes = Standing
    __slots__ = ("_action", "_said")

    def __init__(self, settings: Settings) -> None:
        self._action = verdict(settings, settings.milestone_failed_action)
        self._said: int | None = None

    def user_turn(self) -> None:
        """A user spoke: the evidence leaves out what was declared before."""

    def observe(self, standing: Standing) -> Detection | None:
        """Takes a standing; gives a detection once if the task cannot succeed any more."""
        if standing.hopeless is None or standing.key == self._said:
            return None
        self._said = standing.key
        return Detection(
            detector=self.name,
            reason="cannot_succeed",
            severity=Severity.CRITICAL,
            confidence=0.9,
            keys=frozenset({standing.key}),
            count=standing.failed,
            threshold=1,
            message=_told(standing),
            max_action=self._action,
            own=self._action,
            advice="Say what failed and hand over what was reached; do not go on.",
            intervention="end_early",
        )


def _told(standing: Standing) -> str:
    done = f"{standing.done} are done ({standing.percent:g} %)"
    if standing.paced:
        return f"the required milestone {standing.hopeless!r} failed and no other is open; {done}"
    waiting = f", and {standing.blocked} that wait for it cannot start" if standing.blocked else ""
    return f"the task {standing.hopeless!r} failed{waiting}; no other is open; {done}"
