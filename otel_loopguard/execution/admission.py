"""Admission control: the answer to a call before it runs.

Source: FEATURES A9.

Source: FEATURES E5, C14; asked by `execution.admit`.

Source: FEATURES A4, A9 (order), A10 (overrides), A11 (one log record per decision).
"""

from __future__ import annotations

import logging
import secrets
import weakref
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, cast

import orjson

from otel_loopguard import semconv
from otel_loopguard._util.errors import attempt
from otel_loopguard._util.locks import new_lock
from otel_loopguard._util.logger import logger
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
from otel_loopguard.execution.advice import Chosen, Execution, execution_follow_ups
from otel_loopguard.execution.resources import Resources, queue_depth
from otel_loopguard.execution.users import Users
from otel_loopguard.execution.workload import AcceptanceCounts, SpanAdvice, Workload
from otel_loopguard.policy import certainty_of, follow_ups_of, place_of
from otel_loopguard.resilience.breaker import BreakerState
from otel_loopguard.resilience.registry import current as current_remedies
from otel_loopguard.spans.sdk_views import ActiveSpanView

if TYPE_CHECKING:
    from otel_loopguard._util.errors import InternalErrors
    from otel_loopguard.core import ResourcePressure
    from otel_loopguard.execution.users import Keeping
    from otel_loopguard.execution.workload import Estimator
    from otel_loopguard.policy import Preferences
    from otel_loopguard.resilience.registry import ResilienceRegistry
    from otel_loopguard.sessions import Session
    from otel_loopguard.sessions.active import ActiveSpan
    from otel_loopguard.sessions.stats import SessionStats
    from otel_loopguard.settings import Settings
    from otel_loopguard.spans.reader import Reader
    from otel_loopguard.spans.views import SpanView


class Candidate(NamedTuple):
    """One thing that is to be heard about calls.

    Attributes:
        source: What it comes from.
        choice: What follows.
        confidence: How sure, 0 to 1.
        reason: Why, in a sentence.
        follow_ups: What a runtime does next, in this order.
        decision: The decision about a loop behind it.
        objection: Short code of what else is behind it.
    """

    source: Source
    choice: Choice
    confidence: float
    reason: str
    follow_ups: tuple[FollowUp, ...]
    decision: Decision | None = None
    objection: str | None = None


def place(word: Candidate) -> tuple[bool, int]:
    """A refusal goes before everything; else the order of sources."""
    return word.choice is not Choice.DENY, place_of(word.source)


def objecting(said: Objection) -> Candidate:
    """What a breaker or a check says: heard as a loop of the tool is."""
    follows = said.follow_ups or execution_follow_ups(said.choice)
    return Candidate(
        Source.TOOL_LOOP, said.choice, said.confidence, said.message, follows, None, said.reason
    )


_CHOICES: Final[Mapping[Action, Choice]] = {
    Action.ASK: Choice.PROMPT_USER,
    Action.DENY: Choice.DENY,
    Action.PAUSE: Choice.DEFER,
    Action.ABORT: Choice.DENY,
}


def against(session: Session, tasks: Sequence[Task], agent: str | None) -> Candidate | None:
    """What the flag of a session says about calls; None where it is about others."""
    control = session.flag.control
    choice, decision = _CHOICES.get(control.action), control.decision
    if choice is None:
        return None
    if control.action in (Action.DENY, Action.ASK) and decision is not None:
        with session.lock:
            if not any(_concerns(session, decision, task, agent) for task in tasks):
                return None
    reason = control.reason or f"the session is at {control.action}"
    if decision is None:  # a person set it
        return Candidate(
            Source.GRAPH_LOOP, choice, 1.0, reason, follow_ups_of(control.action, None)
        )
    sure = certainty_of(decision.source, decision.action, decision.confidence)
    return Candidate(decision.source, choice, sure, reason, decision.follow_ups, decision)


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


_LATER: Final = (FollowUp.QUEUE_FOR_LATER, FollowUp.NOTIFY_USER)
_LONG: Final = 100_000
"""Characters up to which arguments that are text are parsed."""


class PreChecks:
    """Asks the breakers and checks of a guard; from memory, but for checks that are registered."""

    def __init__(self, remedies: Callable[[], ResilienceRegistry]) -> None:
        self._remedies = remedies

    def __call__(self, task: Task) -> Objection | None:
        """What speaks against a call; None if nothing does. No trial is begun by asking."""
        remedies = self._remedies()
        shut = _shut(remedies, task.tool, "tool") or _shut(remedies, task.agent, "agent")
        if shut is not None or task.tool is None:
            return shut
        found = remedies.checks.of(task.tool, _named(task.args))
        said = " ".join(str(problem) for problem in found if not problem.warns)
        if not said:
            return None
        return Objection("check_failed", said, Choice.DENY, 0.85)

    def warning(self, task: Task) -> str | None:
        """What was learned from failures of such calls; it keeps nobody from making one."""
        if task.tool is None:
            return None
        learned = self._remedies().checks.learned(task.tool, _named(task.args))
        return str(learned) if learned is not None and learned.warns else None


def _shut(
    remedies: ResilienceRegistry, name: str | None, of: Literal["tool", "agent"]
) -> Objection | None:
    """What an open breaker says; one that is half-open lets the call try."""
    if name is None:
        return None
    standing = remedies.breakers.standing(name, of)
    if standing.state is not BreakerState.OPEN:
        return None
    failures = standing.failures
    said = f"the breaker of the {of} {name!r} is open after {failures} failures in a row"
    return Objection("breaker_open", said, follow_ups=_LATER)


def _named(args: object) -> Mapping[str, Any] | None:
    """Arguments by name, where they are or say a JSON object."""
    if isinstance(args, str) and args[:1] == "{" and len(args) <= _LONG:
        try:
            args = orjson.loads(args)
        except orjson.JSONDecodeError:
            return None
    return cast("Mapping[str, Any]", args) if isinstance(args, Mapping) else None


_KEPT: Final = 4096

Objector = Callable[[Task], "Objection | None"]
"""Says what speaks against a call, from memory; None where nothing does."""


class Asking(NamedTuple):
    """Who asks, and how.

    Attributes:
        session: The session of the calls, if one is known.
        user: Whose preferences count; empty for nobody's in particular.
        agent: Name of the agent that makes the calls, if it is known.
        parallel: Whether a batch is to run in parallel; None: as its calls and the user allow.
    """

    session: Session | None = None
    user: str = ""
    agent: str | None = None
    parallel: bool | None = None


class Admissions:
    """Answers for one guard, from memory. Thread-safe.

    Attributes:
        resources: How busy the machine is.
        users: What users prefer, and what they answered before.
        objectors: Asked about every call, in order. Adding to it takes one line.
        tallies: How often what was answered, and how it was taken.
    """

    def __init__(
        self,
        settings: Settings,
        estimator: Estimator,
        faults: InternalErrors,
        keeping: Keeping | None = None,
    ) -> None:
        self._settings = settings
        self._works = Workload(settings, estimator)
        self._faults = faults
        self._execution = Execution(settings)
        self._said = SpanAdvice()
        self.resources = Resources(
            settings, faults, queue_depth(settings.execution_queue, faults)
        )  # fmt: skip
        self.users = Users(settings, keeping)
        objections = PreChecks(current_remedies)
        self.objectors: list[Objector] = [objections]
        self._warning = objections.warning
        self.forked()

    def forked(self) -> None:
        """Starts anew in the child of a fork; what users prefer stays."""
        self._lock = new_lock()
        self.tallies = AcceptanceCounts()
        self._given: OrderedDict[str, tuple[Admission, weakref.ref[SessionStats] | None]] = (
            OrderedDict()
        )
        self.users.forked()

    def admit(self, tasks: Sequence[Task], asking: Asking) -> Admission:
        """How to execute calls that are about to run, or what speaks against them."""
        user, session = asking.user, asking.session
        wishes = self.users.preferences(user)
        chosen = self._chosen(tasks, asking, wishes)
        word = self._heard(chosen, tasks, asking, wishes)
        admission = Admission(
            secrets.token_hex(8),
            word.choice,
            word.confidence,
            chosen.factors.tool_ms,
            word.reason,
            word.follow_ups,
            word.source,
            chosen.factors,
            None if session is None else session.key,
            user,
            word.decision,
            word.objection,
            wishes.notification_channels if wishes.notify_on_completion else (),
            tuple(said for task in tasks if (said := self._warning(task)) is not None),
        )
        self._keep(admission, session)
        _tell(admission)
        return admission

    def forbidding(self, task: Task) -> Objection | None:
        """What speaks against a call so that it is not to be made; None where nothing does."""
        settings = self._settings
        denies = Action(settings.max_action).rank >= Action.DENY.rank
        if not settings.enabled or settings.mode == "shadow" or not denies:
            return None
        said = (attempt(self._faults, "objector", ask, task) for ask in self.objectors)
        return next((one for one in said if one and one.choice is Choice.DENY), None)

    def answered(self, admission_id: str, choice: Choice) -> bool:
        """Takes what a user chose about a call: counted (A10), and remembered (A6)."""
        with self._lock:
            found = self._given.get(admission_id)
            if found is None:
                return False
            admission, reference = found
            record = None if reference is None else reference()
            again = self.tallies.answered(admission, choice, record)
        if not again:
            self.users.answered(admission.user, admission.factors.tools, choice)
        return True

    def decision_of(self, admission_id: str) -> str:
        """Id of the decision that a call was denied for; else the id itself."""
        found = self._given.get(admission_id)
        decision = None if found is None else found[0].decision
        return admission_id if decision is None else decision.id

    def acceptance(self, record: SessionStats | None = None) -> Acceptance | None:
        """How answers were taken in one session, by its record, or in all of this guard (A10)."""
        with self._lock:
            return self.tallies.acceptance(record)

    def fields(self, decision: Decision) -> Mapping[str, str | bool | float | tuple[str, ...]]:
        """What the log record of a decision says beside its text (A11), for OTel as attributes."""
        return {
            semconv.SESSION_ID: decision.session,
            semconv.DECISION_ID: decision.id,
            semconv.DECISION_ACTION: decision.action.value,
            semconv.EXECUTION_CONFIDENCE: decision.confidence,
            semconv.EXECUTION_LOOP: decision.source in (Source.GRAPH_LOOP, Source.TOOL_LOOP),
            semconv.EXECUTION_ALERTS: _alerts(self.resources.newest),
            semconv.EXECUTION_TOOLS: int(bool(decision.tool)),
        }

    def learn(self, span: SpanView, step: Step | None) -> None:
        """Takes a span that ended: where it was a tool call, the next of its name is looked at."""
        if step is not None and step.kind is Kind.TOOL and step.name is not None:
            self._said.learn(span.name, step.name)

    def starting(self, opened: ActiveSpan, reader: Reader) -> None:
        """Writes the choice about a call on its span, where its tool has a profile (A4).

        On the way of every span: it is the choice for the tool as a whole, a second old at most.
        """
        span = opened.view
        if not self._settings.execution_on_spans or not isinstance(span, ActiveSpanView):
            return
        tool = self._said.tool(span.name)
        if tool is None:
            return
        step = None if tool else reader.read(span)
        name = tool or ("" if step is None or step.name is None else step.name)
        said = self._said.of(name, self._first_word) if name else None
        if said is not None:
            span.annotate(said, event=False)

    def _first_word(self, tool: str) -> Annotation | None:
        """What spans of a tool say now; None where only a default for such tools is known."""
        work = self._works.known(tool, None)
        if work is None:
            return None
        wishes, remembered = self.users.preferences(""), self.users.remembered("", work.tools)
        chosen = self._execution.choose(work, wishes, self.resources.pressure, remembered)
        return Annotation(
            {
                semconv.EXECUTION_CHOICE: chosen.choice.value,
                semconv.EXECUTION_CONFIDENCE: chosen.confidence,
                semconv.EXECUTION_ESTIMATE_MS: round(work.tool_ms, 1),
            }
        )

    def _chosen(self, tasks: Sequence[Task], asking: Asking, wishes: Preferences) -> Chosen:
        work = self._works.of(tasks, wishes, parallel=asking.parallel)
        remembered = self.users.remembered(asking.user, work.tools)
        return self._execution.choose(work, wishes, self.resources.pressure, remembered)

    def _heard(
        self, chosen: Chosen, tasks: Sequence[Task], asking: Asking, wishes: Preferences
    ) -> Candidate:
        """What is heard of all that is known: the earliest in the order of sources (A9)."""
        notify = wishes.notify_on_completion
        word = Candidate(
            chosen.source, chosen.choice, chosen.confidence, chosen.reason,
            execution_follow_ups(chosen.choice, notify=notify),
        )  # fmt: skip
        if self.objectors:
            word = min((word, *self._objections(tasks)), key=place)
        session = asking.session
        if session is None or not session.flag.raised:
            return word
        flagged = against(session, tasks, asking.agent)
        return word if flagged is None else min((flagged, word), key=place)

    def _objections(self, tasks: Sequence[Task]) -> list[Candidate]:
        said = (
            attempt(self._faults, "objector", ask, task) for task in tasks for ask in self.objectors
        )
        return [objecting(one) for one in said if one is not None]

    def _keep(self, admission: Admission, session: Session | None) -> None:
        record = None if session is None else session.record
        with self._lock:
            self._given[admission.id] = (admission, None if record is None else weakref.ref(record))
            if len(self._given) > _KEPT:
                self._given.popitem(last=False)
            self.tallies.given(admission, record)


def _tell(admission: Admission) -> None:
    """One structured record per choice (A11)."""
    if not logger.isEnabledFor(logging.DEBUG):
        return
    fields = {
        semconv.SESSION_ID: admission.session or "",
        semconv.DECISION_ID: admission.id,
        semconv.EXECUTION_CHOICE: admission.choice.value,
        semconv.EXECUTION_CONFIDENCE: admission.confidence,
        semconv.EXECUTION_ESTIMATE_MS: admission.estimate_ms,
        semconv.EXECUTION_LOOP: admission.decision is not None,
        semconv.EXECUTION_ALERTS: _alerts(admission.factors.pressure),
        semconv.EXECUTION_TOOLS: len(admission.factors.tools),
    }
    logger.debug(
        "%s %s in session %s: %s",
        admission.choice,
        ", ".join(admission.factors.tools) or "nothing",
        admission.session or "(none)",
        admission.reason,
        extra=fields,
    )


def _alerts(pressure: ResourcePressure) -> tuple[str, ...]:
    return tuple(alert.resource for alert in pressure.alerts)
