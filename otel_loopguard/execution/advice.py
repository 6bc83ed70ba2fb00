"""How a call or a batch is best executed: the rules vote, the cheapest way wins.

Source: FEATURES A4. A vote for the background of a user who does not want it is a vote to ask.

Source: FEATURES A4 (times, votes), A9 (what a runtime does next).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from otel_loopguard.core import Choice, Factors, FollowUp, Source, Vote
from otel_loopguard.settings.tuning import CONFIDENCES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from otel_loopguard.core import ResourcePressure
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
    pressure: ResourcePressure
    remembered: Choice | None
    wishes: Preferences


class Votes:
    """The rules of the execution choice, with the numbers of one guard."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._sure = {**CONFIDENCES, **settings.tuning.execution.confidence}
        self._few = min(
            settings.tuning.execution.prompt_tasks,
            settings.tuning.execution.background_tasks,
            settings.tuning.execution.sequential_tasks,
        )

    def cast(self, ballot: Ballot) -> tuple[Vote, ...]:
        """All votes, in the order of the rules; at least the one on time."""
        settings = self._settings
        votes = [self._time(ballot)]
        if ballot.tasks > self._few:
            votes += self._tasks(ballot)
        if ballot.complexity > settings.tuning.execution.complexity:
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
        if tasks > settings.tuning.execution.background_tasks:
            yield self._background("tasks_background", ballot, reason)
        elif tasks > settings.tuning.execution.prompt_tasks:
            yield self._vote("tasks_prompt", Choice.PROMPT_USER, reason)
        if not ballot.parallel and tasks > settings.tuning.execution.sequential_tasks:
            yield self._background("sequential_background", ballot, f"{tasks} tasks in sequence")

    def _busy(self, ballot: Ballot) -> Iterator[Vote]:
        settings, pressure = self._settings, ballot.pressure
        if pressure.load is not None and pressure.load > settings.tuning.execution.load:
            reason = f"{pressure.load:.0%} of the CPUs are busy"
            if ballot.total_s > settings.tuning.execution.load_s:
                yield self._background("load_background", ballot, reason)
            else:
                yield self._vote("load_defer", Choice.DEFER, reason)
        short = ballot.total_s < settings.tuning.execution.queue_s
        if short and (pressure.queue or 0) > settings.tuning.execution.queue_busy:
            reason = f"{pressure.queue} tasks wait for a worker"
            yield self._vote("queue_sync", Choice.EXECUTE_SYNC, reason)

    def _background(self, rule: str, ballot: Ballot, reason: str) -> Vote:
        if ballot.wishes.auto_background_enabled:
            return self._vote(rule, Choice.AUTO_BACKGROUND, reason)
        return self._vote("time_no_background", Choice.PROMPT_USER, reason)

    def _vote(self, rule: str, choice: Choice, reason: str) -> Vote:
        return Vote(rule, choice, self._sure[rule], reason)


_FOLLOW_UPS: Final = {
    Choice.EXECUTE_SYNC: (FollowUp.EXECUTE_IMMEDIATELY, FollowUp.TRACK_EXECUTION),
    Choice.PROMPT_USER: (FollowUp.SHOW_EXECUTION_CHOICE_DIALOG, FollowUp.WAIT_FOR_USER_INPUT),
    Choice.AUTO_BACKGROUND: (
        FollowUp.QUEUE, FollowUp.RETURN_JOB_ID, FollowUp.NOTIFY_ON_COMPLETION,
    ),
    Choice.DEFER: (FollowUp.QUEUE_FOR_LATER, FollowUp.RETRY_WHEN_RESOURCES_AVAILABLE),
    Choice.DENY: (FollowUp.NOTIFY_USER, FollowUp.TRACK_EXECUTION),
}  # fmt: skip
_OWN: Final = Source.EXECUTION_CHOICE
_TIES: Final = (
    Choice.PROMPT_USER, Choice.EXECUTE_SYNC, Choice.AUTO_BACKGROUND, Choice.DEFER,
)  # fmt: skip
"""Which of equally sure options is taken: the one that leaves the most to the user."""


class Work(NamedTuple):
    """What is to be executed.

    Attributes:
        tasks: How many calls; at least 1.
        tools: Their tools, each once, in order of their names.
        parallel: Whether they run side by side.
        tool_ms: Time of the tools, in milliseconds.
        complexity: Complexity of the tasks, 0 to 1 (A5).
        records: Records of past calls behind the estimate.
        estimates: Where the estimate of each tool comes from.
    """

    tasks: int
    tools: tuple[str, ...]
    parallel: bool
    tool_ms: float
    complexity: float
    records: int
    estimates: Mapping[str, str]


class Chosen(NamedTuple):
    """What the votes came to.

    Attributes:
        choice: How to execute it.
        confidence: How sure, 0 to 1.
        reason: Why, in a sentence.
        source: `execution_choice`, or `resources` where the machine is critically short (A7).
        factors: Everything it was made of.
    """

    choice: Choice
    confidence: float
    reason: str
    source: Source
    factors: Factors


class Execution:
    """Chooses how calls are executed, for one guard. Thread-safe: it has no state."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._votes = Votes(settings)

    def choose(
        self,
        work: Work,
        wishes: Preferences,
        pressure: ResourcePressure,
        remembered: Choice | None = None,
    ) -> Chosen:
        """What the votes come to: the mean confidence per option, the highest wins (A4).

        What the user answered before decides, where nothing about the machine or the workers
        speaks for another option (A6). A machine that is critically short of something is heard
        before the votes (A9).
        """
        factors = self._factors(work, pressure, remembered, wishes)
        if pressure.critical:
            short = ", ".join(_shown(one.resource, one.value) for one in pressure.alerts)
            reason = f"the machine is short of resources: {short}"
            sure = self._votes.sure("resources")
            return Chosen(Choice.DEFER, sure, reason, Source.RESOURCES, factors)
        votes = factors.votes
        if len(votes) == 1:
            (vote,) = votes
            return Chosen(vote.choice, vote.confidence, vote.reason, _OWN, factors)
        choice, confidence = _winner(_deciding(votes), wishes)
        reasons = (vote.reason for vote in votes if vote.choice is choice)
        return Chosen(choice, confidence, "; ".join(reasons), _OWN, factors)

    def _factors(
        self, work: Work, pressure: ResourcePressure, remembered: Choice | None, wishes: Preferences
    ) -> Factors:
        settings, tasks = self._settings, work.tasks
        if work.parallel:
            lanes = settings.tuning.execution.max_parallel
            switching = settings.tuning.execution.parallel_switch_s * tasks / lanes * 1e3
        else:
            switching = settings.tuning.execution.switch_s * tasks * 1e3
        every = settings.tuning.execution.checkpoint_every
        checkpoints = tasks // every * settings.tuning.execution.checkpoint_s * 1e3
        complex_ms = settings.tuning.execution.complexity_s * work.complexity * 1e3
        total = work.tool_ms + switching + checkpoints + complex_ms
        votes = self._votes.cast(
            Ballot(total / 1e3, tasks, work.parallel, work.complexity, pressure, remembered, wishes)
        )
        return Factors(
            tasks, work.tools, work.parallel, work.tool_ms, switching, checkpoints,
            work.complexity, complex_ms, work.records, work.estimates, remembered, pressure, votes,
        )  # fmt: skip


def _deciding(votes: tuple[Vote, ...]) -> tuple[Vote, ...]:
    """The votes that count: only those for a remembered answer, unless what is busy is against."""
    answer = next((vote.choice for vote in votes if vote.rule == REMEMBERED), None)
    if answer is None or any(v.rule in BUSY and v.choice is not answer for v in votes):
        return votes
    return tuple(vote for vote in votes if vote.choice is answer)


def _winner(votes: tuple[Vote, ...], wishes: Preferences) -> tuple[Choice, float]:
    """The option with the highest mean, and that mean."""
    given: dict[Choice, list[float]] = {}
    for vote in votes:
        given.setdefault(vote.choice, []).append(vote.confidence)
    # Rounded, so that equal means of different sums are equal.
    means = {choice: round(sum(sure) / len(sure), 6) for choice, sure in given.items()}
    most = max(means.values())
    tied = [choice for choice in _TIES if means.get(choice) == most]
    wished = wishes.default_choice
    return (tied[0] if wished is None or wished not in tied else wished), most


def execution_follow_ups(choice: Choice, *, notify: bool = True) -> tuple[FollowUp, ...]:
    """What a runtime does next about an execution choice, in this order (A9)."""
    steps = _FOLLOW_UPS[choice]
    return steps if notify else tuple(one for one in steps if one is not _NOTIFY)


_NOTIFY: Final = FollowUp.NOTIFY_ON_COMPLETION


def _shown(resource: str, value: float) -> str:
    return f"{resource} {value:.0f}" if resource == "queue" else f"{resource} {value:.0f} %"
