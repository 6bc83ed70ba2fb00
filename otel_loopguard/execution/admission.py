"""Admission control: the answer to a call before it runs, and how it is best executed."""

from __future__ import annotations

import logging
import secrets
import weakref
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

import orjson

from otel_loopguard import semconv
from otel_loopguard._util.bounded import BoundedDict
from otel_loopguard._util.errors import InternalErrors, logger, swallow
from otel_loopguard._util.locks import new_lock
from otel_loopguard.core import Action, Choice, Decision, Kind, Step
from otel_loopguard.core.admission import (
    Acceptance,
    Admission,
    Factors,
    Objection,
    ResourcePressure,
    Vote,
)
from otel_loopguard.core.decision import FollowUp, Source
from otel_loopguard.core.task import Task
from otel_loopguard.execution.resources import Resources, queue_depth
from otel_loopguard.execution.users import Users
from otel_loopguard.plans import complexity
from otel_loopguard.policy import certainty_of, follow_ups_of
from otel_loopguard.sessions.profiler import Estimate, Knowledge

if TYPE_CHECKING:
    from otel_loopguard.execution.users import Preferences
    from otel_loopguard.resilience import ResilienceRegistry
    from otel_loopguard.sessions import Session
    from otel_loopguard.sessions.profiler import Profiler
    from otel_loopguard.settings import Settings
    from otel_loopguard.stores import Writer


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


_CHOICES: Final[Mapping[Action, Choice]] = {
    Action.ASK: Choice.PROMPT_USER,
    Action.DENY: Choice.DENY,
    Action.PAUSE: Choice.DEFER,
    Action.ABORT: Choice.DENY,
}


def _flagged(session: Session, tasks: Sequence[Task], agent: str | None) -> Answer | None:
    """The flag's answer to calls; None if it is about other calls."""
    control = session.flag.control
    choice, decision = _CHOICES.get(control.action), control.decision
    if choice is None:
        return None
    reason = control.reason or f"the session is at {control.action}"
    if decision is None:  # a person set it
        follow_ups = follow_ups_of(control.action, None)
        return Answer(Source.GRAPH_LOOP, choice, 1.0, reason, follow_ups)
    if control.action in (Action.DENY, Action.ASK):
        with session.lock:
            if not any(_concerns(session, decision, task, agent) for task in tasks):
                return None
    sure = certainty_of(decision.source, decision.action, decision.confidence)
    return Answer(decision.source, choice, sure, reason, decision.follow_ups, decision)


def _concerns(session: Session, decision: Decision, task: Task, agent: str | None) -> bool:
    """True if a call belongs to a loop that is denied, or asked about.

    A loop of nodes or of agents has no calls: it is every call that its user is asked about, and
    the hand-offs to its agents that are denied.
    """
    if decision.source is Source.GRAPH_LOOP:
        asks = decision.action is Action.ASK
        by = session.denied_by(task.tool or "", task.args, task.agent, within=agent)
        return asks or by is not None
    call = session.call_of(Step(Kind.TOOL, task.tool, agent=task.agent or agent, args=task.args))
    if call is None:  # its arguments are not known
        return task.tool == decision.tool
    policy = session.state.policy
    return policy.denies(call) if decision.action is Action.DENY else policy.knows(call)


_REFUSED: Final = (FollowUp.QUEUE_FOR_LATER, FollowUp.NOTIFY_USER)
"""Follow-ups of an open breaker, in this order."""
_BREAKER_CONFIDENCE: Final = 0.95
"""Confidence of an open breaker: its failures were counted, and it knows when it lets a call
pass."""
_CHECK_CONFIDENCE: Final = 0.85
"""Confidence of a check: files and texts may change until the call."""


def _objections(
    known: ResilienceRegistry, task: Task, session: str | None
) -> tuple[list[Answer], list[str]]:
    """Refusals of a session's call by breakers and checks, and warnings of checks.

    A refusal has the precedence of a loop of the tool.
    """
    breakers, checks, tool = known.breakers, known.checks, task.tool
    refused = (
        None if tool is None else breakers.refusal(session, tool, task.args),
        breakers.open(tool, "tool"),
        breakers.open(task.agent, "agent"),
    )
    loop, deny = Source.TOOL_LOOP, Choice.DENY
    found = [
        Answer(loop, deny, _BREAKER_CONFIDENCE, message, _REFUSED, objection="breaker_open")
        for message in refused
        if message
    ]
    if tool is None or not checks.may_object(tool):
        return found, []
    problems = checks.of(tool, _named(task.args))
    message = " ".join(str(problem) for problem in problems if not problem.warns)
    if message:
        follow_ups, failed = FOLLOW_UPS[deny], "check_failed"
        found.append(Answer(loop, deny, _CHECK_CONFIDENCE, message, follow_ups, objection=failed))
    return found, [str(problem) for problem in problems if problem.warns]


_PARSED: Final = 100_000
"""Characters of arguments up to which they are parsed: a check is asked on the caller's thread."""


def _named(args: object) -> Mapping[str, Any] | None:
    """Arguments by name, where they are a JSON object or the text of one."""
    if isinstance(args, str) and args[:1] == "{" and len(args) <= _PARSED:
        try:
            args = orjson.loads(args)
        except orjson.JSONDecodeError:
            return None
    return cast("Mapping[str, Any]", args) if isinstance(args, Mapping) else None


_Counts = Counter[tuple[Choice, "Choice | None"]]
"""Admissions by the choice given and the choice that the user took; None for no answer yet."""


def _overrides(given: Choice, taken: Choice) -> bool:
    """True if the user took another choice; a user who was asked to choose overrides nothing."""
    return given is not Choice.PROMPT_USER and taken is not given


class AcceptanceCounts:
    """Counts of one guard, in all and per session; a session's go with it. Not thread-safe."""

    def __init__(self) -> None:
        self._all: _Counts = Counter()
        self._own: weakref.WeakKeyDictionary[Session, _Counts] = weakref.WeakKeyDictionary()
        self.estimates: Counter[str] = Counter()  # by what they rest on

    def admitted(self, admission: Admission, session: Session | None) -> None:
        """Counts an execution choice that was given, and what its estimates rest on."""
        for source in admission.factors.estimates.values():
            self.estimates[source] += 1
        self._add((admission.choice, None), 1, session)

    def answered(
        self, given: Choice, before: Choice | None, taken: Choice, session: Session | None
    ) -> None:
        """Counts what a user chose, in place of an earlier answer."""
        self._add((given, before), -1, session)
        self._add((given, taken), 1, session)

    def _add(
        self, answer: tuple[Choice, Choice | None], number: int, session: Session | None
    ) -> None:
        self._all[answer] += number
        if session is not None:
            self._own.setdefault(session, Counter())[answer] += number

    @property
    def choices(self) -> Mapping[Choice, int]:
        """Number of admissions per choice."""
        return _given(self._all)

    @property
    def answers(self) -> Counter[tuple[str, str]]:
        """Number of admissions that were `accepted` or `overridden`, per choice."""
        found: Counter[tuple[str, str]] = Counter()
        for (given, taken), count in self._all.copy().items():
            if taken is not None:
                overridden = _overrides(given, taken)
                found[given.value, "overridden" if overridden else "accepted"] += count
        return found

    def acceptance(self, session: Session | None) -> Acceptance | None:
        """Counts of one session, or of all; None without admissions."""
        counts = self._all if session is None else self._own.get(session)
        if not counts:
            return None
        background = Choice.AUTO_BACKGROUND
        taken = [(given, took, n) for (given, took), n in counts.items() if took is not None]
        return Acceptance(
            {choice.value: count for choice, count in _given(counts).most_common()},
            sum(n for _, _, n in taken),
            sum(n for given, took, n in taken if _overrides(given, took)),
            sum(n for given, _, n in taken if given is background),
            counts[background, background],
        )


def _given(counts: _Counts) -> Counter[Choice]:
    found: Counter[Choice] = Counter()
    for (given, _), count in counts.copy().items():
        found[given] += count
    return found


class _Given:
    """An admission that may be answered, and the answer so far."""

    __slots__ = ("admission", "session", "taken")

    def __init__(self, admission: Admission, session: Session | None) -> None:
        self.admission = admission
        self.session = None if session is None else weakref.ref(session)
        self.taken: Choice | None = None


_ANSWERABLE: Final = 4096
"""Newest admissions that may be answered: a person answers within minutes, or not at all."""
_ALONE: Final = complexity([Task("0", "one")]).score
"""Complexity of a call that is part of no plan."""


class Admissions:
    """Answers for one guard, from memory. Thread-safe."""

    def __init__(
        self,
        settings: Settings,
        profiler: Profiler,
        faults: InternalErrors,
        resilience: ResilienceRegistry,
        store: Writer | None,
    ) -> None:
        self._settings = settings
        self._resilience = resilience
        self._lanes = settings.tuning.plans.max_parallel
        self._faults = faults
        self._profiler = profiler
        self.resources = Resources(settings, faults, queue_depth(settings.execution_queue, faults))
        self.users = Users(settings, store)
        self._lock = new_lock()
        self.forked()

    def forked(self) -> None:
        """Starts anew in the child of a fork; what users prefer stays."""
        self.counts = AcceptanceCounts()
        self._given: BoundedDict[str, _Given] = BoundedDict(_ANSWERABLE)

    def admit(
        self,
        tasks: Sequence[Task],
        session: Session | None = None,
        *,
        user: str = "",
        agent: str | None = None,
        parallel: bool | None = None,
    ) -> Admission:
        """Returns how to execute calls that are about to run, or what speaks against them.

        For a batch, `parallel` says whether its calls run in parallel; None leaves that to the
        calls and the user's preferences.
        """
        preferences = self.users.preferences(user)
        work = self._workload(tasks, preferences, parallel)
        found, factors = advise(
            work, preferences, self.resources.pressure,
            self.users.remembered(user, work.tools), self._lanes,
        )  # fmt: skip
        key = None if session is None else session.key
        answers: list[Answer] = []
        warnings: list[str] = []
        if session is not None and session.flag.raised:
            flagged = _flagged(session, tasks, agent)
            if flagged is not None:
                answers.append(flagged)
        for task in tasks:
            with swallow(self._faults, "objections"):
                objections, warned = _objections(self._resilience, task, key)
                answers += objections
                warnings += warned
        if answers:
            # A refusal precedes everything; else the order of sources.
            found = min(
                (*answers, found), key=lambda one: (one.choice is not Choice.DENY, one.source.rank)
            )
        notify = preferences.notify_on_completion
        admission = Admission(
            secrets.token_hex(8), found.choice, found.confidence, factors.tool_ms, found.reason,
            found.follow_ups, found.source, factors, key, user, found.decision,
            found.objection or None, preferences.notification_channels if notify else (),
            tuple(warnings),
        )  # fmt: skip
        with self._lock:
            self._given[admission.id] = _Given(admission, session)
            self.counts.admitted(admission, session)
        if logger.isEnabledFor(logging.DEBUG):
            _log(admission)
        return admission

    def forbidding(self, task: Task, session: str | None = None) -> Objection | None:
        """Returns the objection because of which a call must not run; None without one."""
        settings = self._settings
        denies = Action(settings.max_action).rank >= Action.DENY.rank
        if not settings.enabled or settings.mode == "shadow" or not denies:
            return None
        with swallow(self._faults, "objections"):
            found, _ = _objections(self._resilience, task, session)
            return next((Objection(one.objection, one.reason) for one in found), None)
        return None

    def answered(self, admission_id: str, choice: Choice) -> bool:
        """Counts and remembers what a user chose about a call."""
        with self._lock:
            given = self._given.get(admission_id)
            if given is None:
                return False
            admission, before, given.taken = given.admission, given.taken, choice
            if before is choice:
                return True
            session = None if given.session is None else given.session()
            self.counts.answered(admission.choice, before, choice, session)
        self.users.answered(admission.user, admission.factors.tools, choice)
        return True

    def decision_of(self, admission_id: str) -> str:
        """Id of the decision that a call was denied for; else the id itself."""
        given = self._given.get(admission_id)
        decision = None if given is None else given.admission.decision
        return admission_id if decision is None else decision.id

    def acceptance(self, session: Session | None = None) -> Acceptance | None:
        """Counts of accepted answers in one session, or in all of this guard."""
        with self._lock:
            return self.counts.acceptance(session)

    def alerts(self) -> tuple[str, ...]:
        """Resources that the machine is short of."""
        return _alerts(self.resources.newest)

    def _workload(
        self, tasks: Sequence[Task], preferences: Preferences, parallel: bool | None
    ) -> Factors:
        """The size of calls; `parallel` None: side by side where they may, and it is preferred."""
        if len(tasks) == 1:
            (task,) = tasks
            tool, ms = task.tool or "", task.estimate_ms
            if ms is not None:
                return _single(tool, Estimate(ms, 0, Knowledge.GIVEN))
            return _single(tool, self._profiler.estimate(tool, task.args))
        found = self._profiler.batch(tasks)
        if parallel is None:
            parallel = found.can_run_in_parallel and preferences.parallel_execution_preferred
        sources = {
            task.tool or "": one.source.value
            for task, one in zip(tasks, found.estimates, strict=True)
        }
        return Factors(
            len(tasks), tuple(sorted(sources)), parallel,
            found.parallel_ms if parallel else found.sequential_ms, complexity(tasks).score,
            sum(one.records for one in found.estimates), sources,
        )  # fmt: skip


def _single(tool: str, estimate: Estimate) -> Factors:
    """The size of one call."""
    ms, sources = estimate.duration_ms, {tool: estimate.source.value}
    return Factors(1, (tool,), False, ms, _ALONE, estimate.records, sources)


def _log(admission: Admission) -> None:
    """One structured record per choice."""
    tools = admission.factors.tools
    logger.debug(
        "%s %s in session %s: %s",
        admission.choice,
        ", ".join(tools) or "nothing",
        admission.session or "(none)",
        admission.reason,
        extra={
            semconv.SESSION_ID: admission.session or "",
            semconv.DECISION_ID: admission.id,
            semconv.EXECUTION_CHOICE: admission.choice.value,
            semconv.EXECUTION_CONFIDENCE: admission.confidence,
            semconv.EXECUTION_ESTIMATE_MS: admission.estimate_ms,
            semconv.EXECUTION_LOOP: admission.decision is not None,
            semconv.EXECUTION_ALERTS: _alerts(admission.factors.pressure),
            semconv.EXECUTION_TOOLS: len(tools),
        },
    )


def _alerts(pressure: ResourcePressure) -> tuple[str, ...]:
    return tuple(alert.resource for alert in pressure.alerts)
