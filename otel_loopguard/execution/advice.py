"""How calls are best executed: what they amount to, and the rules that vote on them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from otel_loopguard._util.values import NamedTuple
from otel_loopguard.core import Choice, Factors, FollowUp, Source, Vote
from otel_loopguard.core.task import Task
from otel_loopguard.execution.latency import FEW_RECORDS, Knowledge
from otel_loopguard.execution.profiler import PlannedCall
from otel_loopguard.plans.plans import complexity

if TYPE_CHECKING:
    from otel_loopguard.core import ResourcePressure
    from otel_loopguard.execution.latency import Estimate
    from otel_loopguard.execution.profiler import BatchEstimate
    from otel_loopguard.settings import Settings
    from otel_loopguard.settings.preferences import Preferences


class Workload(NamedTuple):
    """What calls amount to: the estimate of the tools is in milliseconds."""

    tasks: int
    tools: tuple[str, ...]
    parallel: bool
    tool_ms: float
    complexity: float
    records: int
    estimates: Mapping[str, str]


class LatencyEstimator(Protocol):
    """Estimates from past calls: the profiler of a guard."""

    def estimate(self, tool: str, args: object = None) -> Estimate:
        """How long a call will take, from memory."""
        ...

    def batch(self, calls: Sequence[PlannedCall]) -> BatchEstimate:
        """How long several calls take, and whether they may run at the same time."""
        ...


class WorkloadEstimator:
    """Estimates what calls amount to, for one guard; from memory."""

    def __init__(self, settings: Settings, estimator: LatencyEstimator) -> None:
        self._settings = settings
        self._estimator = estimator
        self._alone: float | None = None

    def estimate(
        self, tasks: Sequence[Task], preferences: Preferences, *, parallel: bool | None
    ) -> Workload:
        """The workload of calls; `parallel` None: side by side where it may be and is preferred."""
        if len(tasks) == 1:
            (task,) = tasks
            tool = task.tool or ""
            if task.estimate_ms is not None:
                given = {tool: "given"}
                return Workload(1, (tool,), False, task.estimate_ms, self._complexity(()), 0, given)
            return self._single(tool, self._estimator.estimate(tool, task.args))
        calls = [PlannedCall(one.tool or "", one.args, one.id, one.depends_on) for one in tasks]
        found = self._estimator.batch(calls)
        if parallel is None:
            parallel = found.can_run_in_parallel and preferences.parallel_execution_preferred
        sources = {
            call.tool: one.source.value for call, one in zip(calls, found.estimates, strict=True)
        }
        return Workload(
            len(tasks),
            tuple(sorted(sources)),
            parallel,
            found.parallel_ms if parallel else found.sequential_ms,
            self._complexity(tasks),
            sum(one.records for one in found.estimates),
            sources,
        )

    def estimate_known(self, tool: str) -> Workload | None:
        """The workload of one call; None where only a default for such tools is known."""
        settings, estimate = self._settings, self._estimator.estimate(tool)
        if estimate.source in (Knowledge.UNKNOWN, Knowledge.DEFAULT):
            known = tool in settings.tools and settings.tools[tool].duration_ms is not None
        else:
            known = estimate.records >= FEW_RECORDS
        return self._single(tool, estimate) if known else None

    def _complexity(self, tasks: Sequence[Task]) -> float:
        """How complex calls are as a plan; without any, how complex one is that nobody planned."""
        if tasks:
            return complexity(tasks).score
        if self._alone is None:
            self._alone = complexity([Task("0", "one")]).score
        return self._alone

    def _single(self, tool: str, estimate: Estimate) -> Workload:
        ms, sources = estimate.duration_ms, {tool: estimate.source.value}
        return Workload(1, (tool,), False, ms, self._complexity(()), estimate.records, sources)


_FOLLOW_UPS: Final = {
    Choice.EXECUTE_SYNC: (FollowUp.EXECUTE_IMMEDIATELY, FollowUp.TRACK_EXECUTION),
    Choice.PROMPT_USER: (FollowUp.SHOW_EXECUTION_CHOICE_DIALOG, FollowUp.WAIT_FOR_USER_INPUT),
    Choice.AUTO_BACKGROUND: (
        FollowUp.QUEUE, FollowUp.RETURN_JOB_ID, FollowUp.NOTIFY_ON_COMPLETION,
    ),
    Choice.DEFER: (FollowUp.QUEUE_FOR_LATER, FollowUp.RETRY_WHEN_RESOURCES_AVAILABLE),
    Choice.DENY: (FollowUp.NOTIFY_USER, FollowUp.TRACK_EXECUTION),
}  # fmt: skip
# How sure each vote is (feature A4). Time is what users feel, so its votes are the surest; what a
# user answered once about the same tools is the weakest, and a machine under load is between.
CONFIDENCES: Final[Mapping[str, float]] = {
    "time_sync": 0.9,
    "time_background": 0.85,
    "time_no_background": 0.7,
    "time_prompt": 0.8,
    "tasks_prompt": 0.85,
    "tasks_background": 0.9,
    "complexity_prompt": 0.8,
    "sequential_background": 0.75,
    "load_background": 0.75,
    "load_defer": 0.6,
    "queue_sync": 0.7,
    "remembered": 0.65,
    "resources": 0.8,
}
_TIES: Final = (
    Choice.PROMPT_USER, Choice.EXECUTE_SYNC, Choice.AUTO_BACKGROUND, Choice.DEFER,
)  # fmt: skip
"""Which of equally sure options is taken: the one that leaves the most to the user."""
_REMEMBERED: Final = "remembered"

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
_BUSY: Final = frozenset({"load_background", "load_defer", "queue_sync"})


def execution_follow_ups(choice: Choice, *, notify: bool = True) -> tuple[FollowUp, ...]:
    """What a runtime does next about an execution choice, in this order."""
    steps = _FOLLOW_UPS[choice]
    return steps if notify else tuple(s for s in steps if s is not FollowUp.NOTIFY_ON_COMPLETION)


class Advice(NamedTuple):
    """What the votes came to, and everything that it was made of."""

    choice: Choice
    confidence: float
    reason: str
    source: Source
    factors: Factors


class ExecutionAdvisor:
    """Chooses how calls are executed, for one guard. Thread-safe: it has no state."""

    def __init__(self, settings: Settings) -> None:
        self._lanes = settings.tuning.execution.max_parallel

    def advise(
        self,
        work: Workload,
        preferences: Preferences,
        pressure: ResourcePressure,
        remembered: Choice | None = None,
    ) -> Advice:
        """The option with the highest mean confidence of its votes.

        What the user answered before decides, where no vote of a busy machine or busy workers is
        for another option. A machine that is critically short of something precedes the votes.
        """
        tasks = work.tasks
        if work.parallel:
            switching_ms = _PARALLEL_SWITCH_S * tasks / self._lanes * 1e3
        else:
            switching_ms = _SWITCH_S * tasks * 1e3
        checkpoints_ms = tasks // _CHECKPOINT_EVERY * _CHECKPOINT_S * 1e3
        complexity_ms = _COMPLEXITY_S * work.complexity * 1e3
        total_s = (work.tool_ms + switching_ms + checkpoints_ms + complexity_ms) / 1e3
        votes = tuple(self._votes(work, total_s, preferences, pressure, remembered))
        factors = Factors(
            tasks, work.tools, work.parallel, work.tool_ms, switching_ms, checkpoints_ms,
            work.complexity, complexity_ms, work.records, work.estimates, remembered, pressure,
            votes,
        )  # fmt: skip
        if pressure.critical:
            short = ", ".join(
                f"{alert.resource} {alert.value:.0f}{'' if alert.resource == 'queue' else ' %'}"
                for alert in pressure.alerts
            )
            reason = f"the machine is short of resources: {short}"
            sure = CONFIDENCES["resources"]
            return Advice(Choice.DEFER, sure, reason, Source.RESOURCES, factors)
        if remembered is not None:
            answer = next((vote.choice for vote in votes if vote.rule == _REMEMBERED), None)
            if answer and not any(v.rule in _BUSY and v.choice is not answer for v in votes):
                votes = tuple(vote for vote in votes if vote.choice is answer)
        choice, confidence = _winner(votes, preferences.default_choice)
        reason = "; ".join([vote.reason for vote in votes if vote.choice is choice])
        return Advice(choice, confidence, reason, Source.EXECUTION_CHOICE, factors)

    def _votes(
        self,
        work: Workload,
        total_s: float,
        preferences: Preferences,
        pressure: ResourcePressure,
        remembered: Choice | None,
    ) -> Iterator[Vote]:
        """The votes in the order of the rules; at least the one on time."""
        tasks, background = work.tasks, preferences.auto_background_enabled
        reason = f"all of it takes about {total_s:.1f} s"
        if total_s < preferences.prompt_threshold_s:
            yield self._vote("time_sync", Choice.EXECUTE_SYNC, reason)
        elif total_s < preferences.auto_background_threshold_s:
            yield self._vote("time_prompt", Choice.PROMPT_USER, reason)
        else:
            yield self._background("time_background", reason, enabled=background)
        if tasks > _BACKGROUND_TASKS:
            reason = f"there are {tasks} tasks"
            yield self._background("tasks_background", reason, enabled=background)
        elif tasks > _PROMPT_TASKS:
            yield self._vote("tasks_prompt", Choice.PROMPT_USER, f"there are {tasks} tasks")
        if not work.parallel and tasks > _SEQUENTIAL_TASKS:
            reason = f"{tasks} tasks in sequence"
            yield self._background("sequential_background", reason, enabled=background)
        if work.complexity > _COMPLEX:
            reason = f"the tasks have a complexity of {work.complexity:.2f}"
            yield self._vote("complexity_prompt", Choice.PROMPT_USER, reason)
        yield from self._busy(total_s, pressure, background=background)
        if remembered is not None and (background or remembered is not Choice.AUTO_BACKGROUND):
            yield self._vote(_REMEMBERED, remembered, f"the user answered {remembered} before")

    def _busy(
        self, total_s: float, pressure: ResourcePressure, *, background: bool
    ) -> Iterator[Vote]:
        if pressure.load is not None and pressure.load > _LOAD:
            reason = f"{pressure.load:.0%} of the CPUs are busy"
            if total_s > _LOAD_S:
                yield self._background("load_background", reason, enabled=background)
            else:
                yield self._vote("load_defer", Choice.DEFER, reason)
        if total_s < _QUEUE_S and (pressure.queue or 0) > _QUEUE_BUSY:
            reason = f"{pressure.queue} tasks wait for a worker"
            yield self._vote("queue_sync", Choice.EXECUTE_SYNC, reason)

    def _background(self, rule: str, reason: str, *, enabled: bool) -> Vote:
        """A vote for the background; of a user who does not want it, one to ask."""
        if enabled:
            return self._vote(rule, Choice.AUTO_BACKGROUND, reason)
        return self._vote("time_no_background", Choice.PROMPT_USER, reason)

    def _vote(self, rule: str, choice: Choice, reason: str) -> Vote:
        return Vote(rule, choice, CONFIDENCES[rule], reason)


def _winner(votes: Sequence[Vote], preferred: Choice | None) -> tuple[Choice, float]:
    """The option with the highest mean, and that mean."""
    if len(votes) == 1:
        return votes[0].choice, votes[0].confidence
    given: dict[Choice, list[float]] = {}
    for vote in votes:
        given.setdefault(vote.choice, []).append(vote.confidence)
    # Rounded, so that equal means of different sums are equal.
    means = {choice: round(sum(sure) / len(sure), 6) for choice, sure in given.items()}
    most = max(means.values())
    tied = [choice for choice in _TIES if means.get(choice) == most]
    return (preferred if preferred in tied and preferred is not None else tied[0]), most
