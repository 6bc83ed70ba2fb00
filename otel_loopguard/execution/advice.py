"""Rules that vote on how calls are best executed, and the choice that wins."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from otel_loopguard.core import Choice, Decision
from otel_loopguard.core.admission import Factors, ResourcePressure, Vote
from otel_loopguard.core.decision import FollowUp, Source

if TYPE_CHECKING:
    from otel_loopguard.settings.preferences import Preferences


class Answer(NamedTuple):
    """One possible answer to a call: of the votes, of the flag, of a breaker or a check."""

    source: Source
    choice: Choice
    confidence: float
    reason: str
    follow_ups: tuple[FollowUp, ...]
    decision: Decision | None = None
    objection: str = ""  # short code of what else speaks against the call


FOLLOW_UPS: Final = {
    Choice.EXECUTE_SYNC: (FollowUp.EXECUTE_IMMEDIATELY, FollowUp.TRACK_EXECUTION),
    Choice.PROMPT_USER: (FollowUp.SHOW_EXECUTION_CHOICE_DIALOG, FollowUp.WAIT_FOR_USER_INPUT),
    Choice.AUTO_BACKGROUND: (
        FollowUp.QUEUE, FollowUp.RETURN_JOB_ID, FollowUp.NOTIFY_ON_COMPLETION,
    ),
    Choice.DEFER: (FollowUp.QUEUE_FOR_LATER, FollowUp.RETRY_WHEN_RESOURCES_AVAILABLE),
    Choice.DENY: (FollowUp.NOTIFY_USER, FollowUp.TRACK_EXECUTION),
}  # fmt: skip
"""Follow-ups of a choice for a runtime, in this order."""
_QUIET: Final = (FollowUp.QUEUE, FollowUp.RETURN_JOB_ID)
"""Follow-ups of background execution for users who want no notification."""

_TIES: Final = (
    Choice.PROMPT_USER, Choice.EXECUTE_SYNC, Choice.AUTO_BACKGROUND, Choice.DEFER,
)  # fmt: skip
"""Order in which equally sure options are taken: the one first that leaves the most to the user."""
_REMEMBERED: Final = "remembered"
_BUSY: Final = frozenset({"load_background", "load_defer", "queue_sync"})

_RESOURCES_CONFIDENCE: Final = 0.8
"""Confidence that a machine is critically short of something: measured, but it may soon be over."""

# Between two calls a model reads the answer and asks for the next one: counted as two
# seconds, which lanes side by side share. With more, work goes to the background earlier.
_SWITCH_S: Final = 2.0
_PARALLEL_SWITCH_S: Final = 1.5
# Long work is saved on its way, after every fifth task.
_CHECKPOINT_EVERY: Final = 5
_CHECKPOINT_S: Final = 10.0
# Work that hangs together goes wrong in places, and is repeated there: for a complexity of 1.
_COMPLEXITY_S: Final = 5.0
# So many calls at once are more than a user expects of one request; of still more nobody watches
# the end. One after the other they last longest.
_PROMPT_TASKS: Final = 15
_BACKGROUND_TASKS: Final = 25
_SEQUENTIAL_TASKS: Final = 10
# Many tools, and tasks that depend on each other: the user may want another plan.
_COMPLEX: Final = 0.7
# The machine has little left: what is long leaves the foreground, and what is short waits.
_LOAD: Final = 0.8
_LOAD_S: Final = 30.0
# Behind so many tasks a short call would wait longer than it takes.
_QUEUE_BUSY: Final = 10
_QUEUE_S: Final = 20.0


def advise(
    work: Factors,
    preferences: Preferences,
    pressure: ResourcePressure,
    remembered: Choice | None = None,
    lanes: int = 3,
) -> tuple[Answer, Factors]:
    """Returns the option with the highest mean confidence of its votes, and what it is made of.

    Of the factors that are given only the calls themselves are known.

    What the user answered before decides, where no vote of a busy machine or busy workers is
    for another option. A machine that is critically short of something precedes the votes.
    """
    tasks = work.tasks
    switch_s = _PARALLEL_SWITCH_S / lanes if work.parallel else _SWITCH_S
    added_ms = (
        switch_s * tasks * 1e3,
        tasks // _CHECKPOINT_EVERY * _CHECKPOINT_S * 1e3,
        _COMPLEXITY_S * work.complexity * 1e3,
    )
    total_s = (work.tool_ms + sum(added_ms)) / 1e3
    votes = tuple(_votes(work, total_s, preferences, pressure, remembered))
    # Not `_replace`, which takes a tenth of an answer's time.
    factors = Factors(
        tasks, work.tools, work.parallel, work.tool_ms, work.complexity, work.records,
        work.estimates, *added_ms, remembered, pressure, votes,
    )  # fmt: skip
    if pressure.alerts and pressure.critical:
        short = ", ".join(
            f"{alert.resource} {alert.value:.0f}{'' if alert.resource == 'queue' else ' %'}"
            for alert in pressure.alerts
        )
        reason = f"the machine is short of resources: {short}"
        follow_ups = FOLLOW_UPS[Choice.DEFER]
        sure = _RESOURCES_CONFIDENCE
        return Answer(Source.RESOURCES, Choice.DEFER, sure, reason, follow_ups), factors
    if remembered is not None:
        answer = next((vote.choice for vote in votes if vote.rule == _REMEMBERED), None)
        if answer and not any(v.rule in _BUSY and v.choice is not answer for v in votes):
            votes = tuple(vote for vote in votes if vote.choice is answer)
    choice, sure, reason = _winner(votes, preferences.default_choice)
    follow_ups = FOLLOW_UPS[choice]
    if choice is Choice.AUTO_BACKGROUND and not preferences.notify_on_completion:
        follow_ups = _QUIET
    return Answer(Source.EXECUTION_CHOICE, choice, sure, reason, follow_ups), factors


def _votes(  # noqa: C901  # one rule after the other
    work: Factors,
    total_s: float,
    preferences: Preferences,
    pressure: ResourcePressure,
    remembered: Choice | None,
) -> Iterator[Vote]:
    """The votes in the order of the rules; at least the one on time.

    Of their confidences only the order, and the means of a few, matter. A measured time and a large
    number of tasks are the surest; of what a machine or a queue will do in a minute, and of what a
    user answered another time, less is known. Changing one by less than 0.05 changes no choice.
    """
    tasks, enabled = work.tasks, preferences.auto_background_enabled

    def background(rule: str, confidence: float, reason: str) -> Vote:
        if enabled:
            return Vote(rule, Choice.AUTO_BACKGROUND, confidence, reason)
        return Vote("time_no_background", Choice.PROMPT_USER, 0.7, reason)

    reason = f"all of it takes about {total_s:.1f} s"
    if total_s < preferences.prompt_threshold_s:
        yield Vote("time_sync", Choice.EXECUTE_SYNC, 0.9, reason)
    elif total_s < preferences.auto_background_threshold_s:
        yield Vote("time_prompt", Choice.PROMPT_USER, 0.8, reason)
    else:
        yield background("time_background", 0.85, reason)
    if tasks > _BACKGROUND_TASKS:
        yield background("tasks_background", 0.9, f"there are {tasks} tasks")
    elif tasks > _PROMPT_TASKS:
        yield Vote("tasks_prompt", Choice.PROMPT_USER, 0.85, f"there are {tasks} tasks")
    if not work.parallel and tasks > _SEQUENTIAL_TASKS:
        yield background("sequential_background", 0.75, f"{tasks} tasks in sequence")
    if work.complexity > _COMPLEX:
        reason = f"the tasks have a complexity of {work.complexity:.2f}"
        yield Vote("complexity_prompt", Choice.PROMPT_USER, 0.8, reason)
    if (pressure.load or 0) > _LOAD:
        reason = f"{pressure.load:.0%} of the CPUs are busy"
        if total_s > _LOAD_S:
            yield background("load_background", 0.75, reason)
        else:
            yield Vote("load_defer", Choice.DEFER, 0.6, reason)
    if total_s < _QUEUE_S and (pressure.queue or 0) > _QUEUE_BUSY:
        reason = f"{pressure.queue} tasks wait for a worker"
        yield Vote("queue_sync", Choice.EXECUTE_SYNC, 0.7, reason)
    if remembered is not None and (enabled or remembered is not Choice.AUTO_BACKGROUND):
        yield Vote(_REMEMBERED, remembered, 0.65, f"the user answered {remembered} before")


def _winner(votes: Sequence[Vote], preferred: Choice | None) -> tuple[Choice, float, str]:
    """The option with the highest mean, that mean, and the reasons of its votes."""
    if len(votes) == 1:
        _, choice, confidence, reason = votes[0]
        return choice, confidence, reason
    given: dict[Choice, list[float]] = {}
    for vote in votes:
        given.setdefault(vote.choice, []).append(vote.confidence)
    # Rounded, so that equal means of different sums are equal.
    means = {choice: round(sum(sure) / len(sure), 6) for choice, sure in given.items()}
    most = max(means.values())
    tied = [choice for choice in _TIES if means.get(choice) == most]
    choice = preferred if preferred in tied and preferred is not None else tied[0]
    return choice, most, "; ".join([vote.reason for vote in votes if vote.choice is choice])
