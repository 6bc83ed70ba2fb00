"""What each rule of the execution choice is for.

Source: FEATURES A4. A vote for the background of a user who does not want it is a vote to ask.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from otel_loopguard.core import Choice, Vote
from otel_loopguard.settings.execution import CONFIDENCES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from otel_loopguard.core import Pressure
    from otel_loopguard.policy.preferences import Preferences
    from otel_loopguard.settings import Settings

REMEMBERED: Final = "remembered"
"""The rule of the answer that a user gave before."""
BUSY: Final = frozenset({"load_background", "load_defer", "queue_sync"})
"""The rules that speak for the machine and the workers."""


class Ballot(NamedTuple):
    """What is voted about.

    Attributes:
        total_s: Seconds that all of it takes.
        tasks: How many calls.
        parallel: Whether they run side by side.
        complexity: Complexity of the tasks, 0 to 1.
        pressure: How busy machine and workers are.
        remembered: What the user answered before for the same tools.
        wishes: What the user prefers.
    """

    total_s: float
    tasks: int
    parallel: bool
    complexity: float
    pressure: Pressure
    remembered: Choice | None
    wishes: Preferences


class Votes:
    """The rules of the execution choice, with the numbers of one guard.

    Args:
        settings: Settings of the guard.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._sure = {**CONFIDENCES, **settings.execution_confidence}
        self._few = min(
            settings.execution_prompt_tasks,
            settings.execution_background_tasks,
            settings.execution_sequential_tasks,
        )

    def cast(self, ballot: Ballot) -> tuple[Vote, ...]:
        """All votes, in the order of the rules; at least the one on time."""
        settings = self._settings
        votes = [self._time(ballot)]
        if ballot.tasks > self._few:
            votes += self._tasks(ballot)
        if ballot.complexity > settings.execution_complexity:
            reason = f"the tasks have a complexity of {ballot.complexity:.2f}"
            votes.append(self._vote("complexity_prompt", Choice.PROMPT_USER, reason))
        votes += self._busy(ballot)
        kept = ballot.remembered
        unwanted = kept is Choice.AUTO_BACKGROUND and not ballot.wishes.auto_background_enabled
        if kept is not None and not unwanted:
            reason = f"the user answered {kept} before"
            votes.append(self._vote(REMEMBERED, kept, reason))
        return tuple(votes)

    def sure(self, name: str) -> float:
        """How sure a vote of a name is, 0 to 1."""
        return self._sure[name]

    def _time(self, ballot: Ballot) -> Vote:
        wishes, total = ballot.wishes, ballot.total_s
        reason = f"all of it takes about {total:.1f} s"
        if total < wishes.prompt_threshold_s:
            return self._vote("time_sync", Choice.EXECUTE_SYNC, reason)
        if total < wishes.auto_background_threshold_s:
            return self._vote("time_prompt", Choice.PROMPT_USER, reason)
        return self._background("time_background", ballot, reason)

    def _tasks(self, ballot: Ballot) -> Iterator[Vote]:
        settings, tasks = self._settings, ballot.tasks
        reason = f"there are {tasks} tasks"
        if tasks > settings.execution_background_tasks:
            yield self._background("tasks_background", ballot, reason)
        elif tasks > settings.execution_prompt_tasks:
            yield self._vote("tasks_prompt", Choice.PROMPT_USER, reason)
        if not ballot.parallel and tasks > settings.execution_sequential_tasks:
            yield self._background("sequential_background", ballot, f"{tasks} tasks in sequence")

    def _busy(self, ballot: Ballot) -> Iterator[Vote]:
        settings, pressure = self._settings, ballot.pressure
        if pressure.load is not None and pressure.load > settings.execution_load:
            reason = f"{pressure.load:.0%} of the CPUs are busy"
            if ballot.total_s > settings.execution_load_s:
                yield self._background("load_background", ballot, reason)
            else:
                yield self._vote("load_defer", Choice.DEFER, reason)
        short = ballot.total_s < settings.execution_queue_s
        if short and (pressure.queue or 0) > settings.execution_queue_busy:
            reason = f"{pressure.queue} tasks wait for a worker"
            yield self._vote("queue_sync", Choice.EXECUTE_SYNC, reason)

    def _background(self, rule: str, ballot: Ballot, reason: str) -> Vote:
        if ballot.wishes.auto_background_enabled:
            return self._vote(rule, Choice.AUTO_BACKGROUND, reason)
        return self._vote("time_no_background", Choice.PROMPT_USER, reason)

    def _vote(self, rule: str, choice: Choice, reason: str) -> Vote:
        return Vote(rule, choice, self._sure[rule], reason)
