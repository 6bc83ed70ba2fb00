"""Admission control: the answer to a call before it runs."""

from __future__ import annotations

import logging
import math
import secrets
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, cast

import orjson

from otel_loopguard import semconv
from otel_loopguard._util.bounded import BoundedDict
from otel_loopguard._util.clock import now
from otel_loopguard._util.errors import attempt
from otel_loopguard._util.locks import new_lock
from otel_loopguard._util.logger import logger
from otel_loopguard._util.values import NamedTuple
from otel_loopguard.core import (
    Acceptance,
    Action,
    Admission,
    Annotation,
    Choice,
    Decision,
    FollowUp,
    Kind,
    Objection,
    Source,
    Step,
)
from otel_loopguard.core.task import Task
from otel_loopguard.execution.advice import (
    Advice,
    ExecutionAdvisor,
    WorkloadEstimator,
    execution_follow_ups,
)
from otel_loopguard.execution.resources import Resources, queue_depth
from otel_loopguard.execution.users import Users
from otel_loopguard.policy import certainty_of, follow_ups_of, place_of
from otel_loopguard.resilience import registry
from otel_loopguard.spans.sdk_views import ActiveSpanView

if TYPE_CHECKING:
    from otel_loopguard._util.errors import InternalErrors
    from otel_loopguard.core import ResourcePressure
    from otel_loopguard.execution.advice import LatencyEstimator, Workload
    from otel_loopguard.execution.users import BackgroundStore
    from otel_loopguard.sessions import Session
    from otel_loopguard.sessions.active import ToolSpans
    from otel_loopguard.settings import Settings
    from otel_loopguard.settings.preferences import Preferences
    from otel_loopguard.spans.reader import Reader
    from otel_loopguard.spans.views import SpanView


class Candidate(NamedTuple):
    """One possible answer; the candidate that precedes all others is given."""

    source: Source
    choice: Choice
    confidence: float
    reason: str
    follow_ups: tuple[FollowUp, ...]
    decision: Decision | None = None
    objection: str | None = None

    @property
    def precedence(self) -> tuple[bool, int]:
        """A refusal precedes everything; else the order of sources."""
        return self.choice is not Choice.DENY, place_of(self.source)

    @classmethod
    def from_advice(cls, advice: Advice, *, notify: bool) -> Candidate:
        """What the votes on the execution came to."""
        follow_ups = execution_follow_ups(advice.choice, notify=notify)
        return cls(advice.source, advice.choice, advice.confidence, advice.reason, follow_ups)

    @classmethod
    def from_objection(cls, found: Objection) -> Candidate:
        """What a breaker or a check says has the precedence of a loop of the tool."""
        follow_ups = found.follow_ups or execution_follow_ups(found.choice)
        return cls(
            Source.TOOL_LOOP, found.choice, found.confidence, found.message, follow_ups, None,
            found.reason,
        )  # fmt: skip

    @classmethod
    def from_flag(
        cls, session: Session, tasks: Sequence[Task], agent: str | None
    ) -> Candidate | None:
        """What the flag of a session says about calls; None where it is about others."""
        control = session.flag.control
        choice, decision = _CHOICES.get(control.action), control.decision
        if choice is None:
            return None
        reason = control.reason or f"the session is at {control.action}"
        if decision is None:  # a person set it
            follow_ups = follow_ups_of(control.action, None)
            return cls(Source.GRAPH_LOOP, choice, 1.0, reason, follow_ups)
        if control.action in (Action.DENY, Action.ASK):
            with session.lock:
                if not any(_concerns(session, decision, task, agent) for task in tasks):
                    return None
        sure = certainty_of(decision.source, decision.action, decision.confidence)
        return cls(decision.source, choice, sure, reason, decision.follow_ups, decision)


_CHOICES: Final[Mapping[Action, Choice]] = {
    Action.ASK: Choice.PROMPT_USER,
    Action.DENY: Choice.DENY,
    Action.PAUSE: Choice.DEFER,
    Action.ABORT: Choice.DENY,
}


def _concerns(session: Session, decision: Decision, task: Task, agent: str | None) -> bool:
    """Whether a call belongs to a loop that is denied, or asked about.

    A loop of nodes or of agents has no calls: it is every call that its user is asked about, and
    the hand-offs to its agents that are denied.
    """
    if decision.source is Source.GRAPH_LOOP:
        asks = decision.action is Action.ASK
        return asks or session.denies(task.tool or "", task.args, task.agent or agent)
    call = session.call_of(Step(Kind.TOOL, task.tool, agent=task.agent or agent, args=task.args))
    if call is None:  # its arguments are not known
        return task.tool == decision.tool
    policy = session.policy
    return policy.denies(call) if decision.action is Action.DENY else policy.knows(call)


def pre_check(task: Task) -> Objection | None:
    """What a breaker that code named, or a registered check, says against a call."""
    known = registry.current()
    if not known.breakers.idle:
        found = _open_breaker(task.tool, "tool") or _open_breaker(task.agent, "agent")
        if found is not None:
            return found
    if task.tool is None or not known.checks.may_object(task.tool):
        return None
    problems = known.checks.of(task.tool, _named(task.args))
    message = " ".join(str(problem) for problem in problems if not problem.warns)
    return Objection("check_failed", message, Choice.DENY, 0.85) if message else None


def _open_breaker(name: str | None, kind: Literal["tool", "agent"]) -> Objection | None:
    """The objection of an open breaker; a half-open one permits the call."""
    if name is None:
        return None
    breakers = registry.current().breakers
    standing = breakers.standing(name, kind)
    if standing.state != "open":
        return None
    failed = f"after {standing.failures} failures in a row: {breakers.again_in(standing.until)}"
    return _breaker_open(f"the breaker of the {kind} {name!r} is open {failed}")


def _failing(task: Task, session: str | None) -> Objection | None:
    """The objection of a breaker of what the call is about, where the settings ask for those."""
    breakers = registry.current().breakers
    if task.tool is None or not breakers.watches:
        return None
    message = breakers.refusal(session, task.tool, task.args)
    return None if message is None else _breaker_open(message)


def _breaker_open(message: str) -> Objection:
    follow_ups = (FollowUp.QUEUE_FOR_LATER, FollowUp.NOTIFY_USER)
    return Objection("breaker_open", message, follow_ups=follow_ups)


def _learned_warning(task: Task) -> str | None:
    """What was learned from failures of such calls; it keeps nobody from making one."""
    checks = registry.current().checks
    if task.tool is None or not checks.may_object(task.tool):
        return None
    learned = checks.learned(task.tool, _named(task.args))
    return str(learned) if learned is not None and learned.warns else None


def _named(args: object) -> Mapping[str, Any] | None:
    """Arguments by name, where they are a JSON object, or text of at most 100,000 that is one."""
    if isinstance(args, str) and args[:1] == "{" and len(args) <= 100_000:
        try:
            args = orjson.loads(args)
        except orjson.JSONDecodeError:
            return None
    # Asking an abstract class costs ten times as much as asking `dict`.
    if isinstance(args, dict) or isinstance(args, Mapping):  # noqa: SIM101
        return cast("Mapping[str, Any]", args)
    return None


class _Counts:
    """Admissions by choice, and answers by the choice that was given and the one taken."""

    __slots__ = ("answers", "choices")

    def __init__(self) -> None:
        self.choices: Counter[Choice] = Counter()
        self.answers: Counter[tuple[Choice, Choice]] = Counter()

    def acceptance(self) -> Acceptance | None:
        """How answers were taken; None without an admission."""
        if not self.choices:
            return None
        answers, background = self.answers, Choice.AUTO_BACKGROUND
        return Acceptance(
            {choice.value: count for choice, count in self.choices.most_common()},
            answers.total(),
            sum(count for (given, taken), count in answers.items() if _overrides(given, taken)),
            sum(count for (given, _), count in answers.items() if given is background),
            answers[background, background],
        )


def _overrides(given: Choice, taken: Choice) -> bool:
    """Whether a user took another choice; who was to choose overrides nothing."""
    return given is not Choice.PROMPT_USER and taken is not given


class AcceptanceCounts:
    """Counts of one guard, in all and per session; a session's go with it. Not thread-safe."""

    def __init__(self) -> None:
        self._all = _Counts()
        self._own: weakref.WeakKeyDictionary[Session, _Counts] = weakref.WeakKeyDictionary()
        self._taken: BoundedDict[str, Choice] = BoundedDict(_KEPT)
        self.estimates: Counter[str] = Counter()  # by what they rest on

    def admitted(self, admission: Admission, session: Session | None) -> None:
        """Counts an execution choice that was given, and what its estimates rest on."""
        self._all.choices[admission.choice] += 1
        for source in admission.factors.estimates.values():
            self.estimates[source] += 1
        if session is not None:
            own = self._own.get(session)
            if own is None:
                own = self._own[session] = _Counts()
            own.choices[admission.choice] += 1

    def answered(self, admission: Admission, choice: Choice, session: Session | None) -> bool:
        """Counts what a user chose, in place of an earlier answer; False for the same again."""
        own = None if session is None else self._own.get(session)
        before = self._taken.get(admission.id)
        for counts in (self._all, own):
            if counts is not None:
                counts.answers[admission.choice, choice] += 1
                if before is not None:
                    counts.answers[admission.choice, before] -= 1
        self._taken[admission.id] = choice
        return before is not choice

    @property
    def choices(self) -> Mapping[Choice, int]:
        """How often which choice was given."""
        return self._all.choices

    @property
    def answers(self) -> Counter[tuple[str, str]]:
        """How often which choice was `accepted` or `overridden`."""
        found: Counter[tuple[str, str]] = Counter()
        for (given, taken), count in dict(self._all.answers).items():
            found[given.value, "overridden" if _overrides(given, taken) else "accepted"] += count
        return found

    def acceptance(self, session: Session | None) -> Acceptance | None:
        """Of one session, or of all; None if nobody asked."""
        found = self._all if session is None else self._own.get(session)
        return None if found is None else found.acceptance()


_NO_ANNOTATION: Final = (0.0, None)
_NOTHING: Final = (0, 0.0)
_KEPT: Final = 4096
"""Newest admissions that may be answered."""

Objector = Callable[[Task], "Objection | None"]
"""Says what speaks against a call, from memory; None where nothing does."""


class Admissions:
    """Answers for one guard, from memory. Thread-safe."""

    def __init__(
        self,
        settings: Settings,
        estimator: LatencyEstimator,
        faults: InternalErrors,
        store: BackgroundStore | None = None,
    ) -> None:
        self._settings = settings
        self._faults = faults
        self._workload = WorkloadEstimator(settings, estimator)
        self._advisor = ExecutionAdvisor(settings)
        # What spans of a tool say, until when. Readers take no lock.
        # The same by the name of a span, for hooks: a call may be over before it is judged.
        self.chosen: BoundedDict[str, Annotation] = BoundedDict(1024)
        # Since when the hook writes the choice on spans of a name, by the guard's clock, and until
        # when that is the choice, by the monotonic one.
        self._written: BoundedDict[str, tuple[int, float]] = BoundedDict(1024)
        self._annotations: BoundedDict[str, tuple[float, Annotation | None]] = BoundedDict(1024)
        self.resources = Resources(settings, faults, queue_depth(settings.execution_queue, faults))
        self._store = store
        self._users: Users | None = None
        # Asked about every call, in order.
        self.objectors: list[Objector] = [pre_check]
        self.forked()

    def forked(self) -> None:
        """Starts anew in the child of a fork; what users prefer stays."""
        self._lock = new_lock()
        self.counts = AcceptanceCounts()
        self._given: BoundedDict[str, tuple[Admission, weakref.ref[Session] | None]] = BoundedDict(
            _KEPT
        )
        if self._users is not None:
            self._users.forked()

    @property
    def users(self) -> Users:
        """What users prefer, and what they answered before."""
        users = self._users
        if users is None:
            with self._lock:
                users = self._users = self._users or Users(self._store)
        return users

    def admit(
        self,
        tasks: Sequence[Task],
        session: Session | None = None,
        *,
        user: str = "",
        agent: str | None = None,
        parallel: bool | None = None,
    ) -> Admission:
        """How to execute calls that are about to run, or what speaks against them.

        Of a batch, `parallel` says whether it is to run in parallel; None: as its calls and the
        user allow.
        """
        preferences = self.users.preferences(user)
        work = self._workload.estimate(tasks, preferences, parallel=parallel)
        advice = self._advise(work, preferences, user)
        found = Candidate.from_advice(advice, notify=preferences.notify_on_completion)
        candidates: list[Candidate] = []
        warnings: list[str] = []
        for task in tasks:
            key = None if session is None else session.key
            candidates += map(Candidate.from_objection, self._objections(task, key))
            said = _learned_warning(task)
            if said is not None:
                warnings.append(said)
        if session is not None and session.flag.raised:
            flagged = Candidate.from_flag(session, tasks, agent)
            if flagged is not None:
                candidates.insert(0, flagged)
        if candidates:
            found = min((*candidates, found), key=lambda one: one.precedence)
        admission = Admission(
            secrets.token_hex(8),
            found.choice,
            found.confidence,
            advice.factors.tool_ms,
            found.reason,
            found.follow_ups,
            found.source,
            advice.factors,
            None if session is None else session.key,
            user,
            found.decision,
            found.objection,
            preferences.notification_channels if preferences.notify_on_completion else (),
            tuple(warnings),
        )
        with self._lock:
            self._given[admission.id] = (
                admission,
                None if session is None else weakref.ref(session),
            )
            self.counts.admitted(admission, session)
        _log(admission)
        return admission

    def _objections(self, task: Task, session: str | None) -> Iterator[Objection]:
        """Everything that speaks against a call of a session."""
        asked = (partial(_failing, session=session), *self.objectors)
        found = (attempt(self._faults, "objector", ask, task) for ask in asked)
        return (one for one in found if one)

    def forbidding(self, task: Task, session: str | None = None) -> Objection | None:
        """What speaks against a call so that it is not to be made; None where nothing does."""
        settings = self._settings
        denies = Action(settings.max_action).rank >= Action.DENY.rank
        if not settings.enabled or settings.mode == "shadow" or not denies:
            return None
        found = self._objections(task, session)
        return next((one for one in found if one.choice is Choice.DENY), None)

    def answered(self, admission_id: str, choice: Choice) -> bool:
        """Counts and remembers what a user chose about a call."""
        with self._lock:
            found = self._given.get(admission_id)
            if found is None:
                return False
            admission, reference = found
            session = None if reference is None else reference()
            new = self.counts.answered(admission, choice, session)
        if new:
            self.users.answered(admission.user, admission.factors.tools, choice)
        return True

    def decision_of(self, admission_id: str) -> str:
        """Id of the decision that a call was denied for; else the id itself."""
        found = self._given.get(admission_id)
        decision = None if found is None else found[0].decision
        return admission_id if decision is None else decision.id

    def acceptance(self, session: Session | None = None) -> Acceptance | None:
        """How answers were taken in one session, or in all of this guard."""
        with self._lock:
            return self.counts.acceptance(session)

    def fields(self, decision: Decision) -> Mapping[str, str | bool | float | tuple[str, ...]]:
        """What the log record of a decision says beside its text, for OTel as attributes."""
        return {
            semconv.SESSION_ID: decision.session,
            semconv.DECISION_ID: decision.id,
            semconv.DECISION_ACTION: decision.action.value,
            semconv.EXECUTION_CONFIDENCE: decision.confidence,
            semconv.EXECUTION_LOOP: decision.source in (Source.GRAPH_LOOP, Source.TOOL_LOOP),
            semconv.EXECUTION_ALERTS: _alerts(self.resources.newest),
            semconv.EXECUTION_TOOLS: int(bool(decision.tool)),
        }

    def is_written(self, name: str, at: int) -> bool:
        """Whether the hook wrote the choice on a span of a name that started at a time, if any."""
        since, until = self._written.get(name, _NOTHING)
        return at >= since and time.monotonic() < until

    def starting(self, span: SpanView, name: str, reader: Reader, tools: ToolSpans) -> None:
        """Writes the choice about a call on its span, where it is not to run the call at once.

        It is the choice for the tool as a whole, a second old at most.
        """
        if not self._settings.execution_on_spans:
            self._written[name] = (0, math.inf)
            return
        if not isinstance(span, ActiveSpanView):
            return
        tool = tools.only(name)
        if tool is None:
            return
        several = not tool
        if several:
            step = reader.read(span)
            tool = "" if step is None else step.name or ""
        until, annotation = self._annotations.get(tool, _NO_ANNOTATION)
        if time.monotonic() >= until:
            annotation = self._annotation(tool) if tool else None
        if annotation is None or several:
            self.chosen.pop(name, None)
        else:
            self.chosen[name] = annotation
        if not several:
            since = 0 if annotation is None else now()
            self._written[name] = (since, self._annotations.get(tool, _NO_ANNOTATION)[0])
        if annotation is not None:
            span.annotate(annotation)

    def _annotation(self, tool: str) -> Annotation | None:
        """What spans of a tool say from now on; None for nothing."""
        work = self._workload.estimate_known(tool)
        if work is None:  # only a default for such tools is known
            return None
        advice, annotation = self._advise(work, self.users.preferences(""), ""), None
        if self._settings.execution_on_spans == "all" or advice.choice is not Choice.EXECUTE_SYNC:
            annotation = Annotation(
                {
                    semconv.EXECUTION_CHOICE: advice.choice.value,
                    semconv.EXECUTION_CONFIDENCE: advice.confidence,
                    semconv.EXECUTION_ESTIMATE_MS: round(work.tool_ms, 1),
                }
            )
        self._annotations[tool] = (time.monotonic() + 1.0, annotation)
        return annotation

    def _advise(self, work: Workload, preferences: Preferences, user: str) -> Advice:
        remembered = self.users.remembered(user, work.tools)
        return self._advisor.advise(work, preferences, self.resources.pressure, remembered)


def _log(admission: Admission) -> None:
    """One structured record per choice."""
    if not logger.isEnabledFor(logging.DEBUG):
        return
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
