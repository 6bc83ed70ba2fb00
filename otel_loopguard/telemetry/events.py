"""The log events of the guard, and those of proposed GenAI conventions for who asks for them.

`OTEL_SEMCONV_STABILITY_OPT_IN=gen_ai_latest_experimental` is how instrumentations are asked for the
newest conventions. Proposed are what was decided about a call before it runs, in
open-telemetry/semantic-conventions-genai#535, and the pause of an agent, in #445.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from opentelemetry._logs import SeverityNumber
from opentelemetry.context import Context
from opentelemetry.trace import (
    INVALID_SPAN_CONTEXT,
    NonRecordingSpan,
    SpanContext,
    TraceFlags,
    set_span_in_context,
)

from otel_loopguard import semconv
from otel_loopguard._util.bounded import BoundedDict
from otel_loopguard.core import Action, Decision
from otel_loopguard.sessions.decisions import annotation
from otel_loopguard.spans.sdk_views import ActiveSpanView

if TYPE_CHECKING:
    from otel_loopguard.core.report import Escalation
    from otel_loopguard.sessions.active import ActiveSpan
    from otel_loopguard.sessions.agent_cycles import CycleNews
    from otel_loopguard.sessions.observation import DecisionRecord, Observation


def span_context(trace_id: int, span_id: int, *, sampled: bool = True) -> SpanContext:
    """A span of this process; not a valid one where an id is 0."""
    flags = TraceFlags(TraceFlags.SAMPLED if sampled else TraceFlags.DEFAULT)
    return SpanContext(trace_id, span_id, is_remote=False, trace_flags=flags)


def is_sampled(opened: ActiveSpan | None) -> bool:
    """True if a span is exported, as far as that is known."""
    view = None if opened is None else opened.view
    return view.sampled if isinstance(view, ActiveSpanView) else True


def context_of(place: SpanContext) -> Context:
    """A context in which a span is the current one; empty for no span."""
    return set_span_in_context(NonRecordingSpan(place), Context()) if place.is_valid else Context()


AGENT: Final = "gen_ai.agent.name"
TOOL: Final = "gen_ai.tool.name"

Value = str | bool | int | float | Sequence[str]

INFO, _WARN, _ERROR = SeverityNumber.INFO, SeverityNumber.WARN, SeverityNumber.ERROR
_SEVERITIES: Final = {Action.DENY: _WARN, Action.PAUSE: _WARN, Action.ABORT: _ERROR}
_CYCLES: Final = {"intervened": _WARN, "escalated": _ERROR}


@dataclass(frozen=True, slots=True)
class Event:
    """One log event.

    Attributes:
        name: Its name.
        severity: How severe it is.
        body: A sentence.
        attributes: Its attributes, without content of calls.
        time: Nanoseconds since the epoch; 0 for now.
        place: The span that it belongs to.
        span: True if it is a span of its own too.
        links: Links of that span, by trace and span id.
        error: Description of the ERROR status of that span; None for none.
    """

    name: str
    severity: SeverityNumber
    body: str
    attributes: Mapping[str, Value]
    time: int
    place: SpanContext
    span: bool = False
    links: tuple[tuple[int, int], ...] = ()
    error: str | None = None


def decided(
    decision: Decision,
    agent: str | None,
    fields: Mapping[str, Value],
    place: SpanContext,
    *,
    span: bool = False,
) -> Event:
    """The event of a decision."""
    marked = annotation(decision, with_session=True)
    attributes: dict[str, Value] = {**marked.attributes, **fields}
    attributes.pop(semconv.ERROR_TYPE, None)
    add_names(attributes, agent, decision.tool)
    return Event(
        semconv.EVENT_DECISION,
        _SEVERITIES.get(decision.action, INFO),
        decision.message,
        attributes,
        decision.time,
        place,
        span=span,
        links=decision.earlier,
        error=marked.error,
    )


def escalated(found: Escalation, by: str | None, answer: str | None) -> Event:
    """The event of an escalation: of its opening, or, with `by`, of its end."""
    decision = found.decision
    attributes: dict[str, Value] = {
        semconv.SESSION_ID: found.session,
        semconv.ESCALATION_ID: found.id,
        semconv.ESCALATION_CAUSE: found.cause,
    }
    place = INVALID_SPAN_CONTEXT
    if decision is not None:
        place = span_context(decision.trace_id, decision.span_id)
        attributes |= annotation(decision, with_session=True, status=False).attributes
    add_names(attributes, found.agent, "" if decision is None else decision.tool)
    if by is None:
        return Event(semconv.EVENT_ESCALATION, _WARN, found.reason, attributes, found.at, place)
    attributes[semconv.CONTROL_BY] = by
    if answer is not None:
        attributes[semconv.ESCALATION_ANSWER] = answer
    said = f"an escalation is over: {answer or 'nobody answered'}"
    return Event(semconv.EVENT_ESCALATION, INFO, said, attributes, 0, place)


def manual_change(fields: Mapping[str, str], text: str, place: SpanContext) -> Event:
    """The event of a change of a flag that the policy did not make."""
    return Event(semconv.EVENT_CONTROL, INFO, text, fields, 0, place)


def cycle(session: str, news: CycleNews, place: SpanContext) -> Event:
    """The event of a cycle of agents."""
    one = news.cycle
    attributes: dict[str, Value] = {
        semconv.SESSION_ID: session,
        semconv.CYCLE_STATE: news.state,
        semconv.CYCLE_ID: one.id,
        semconv.CYCLE_PATTERNS: one.patterns,
        semconv.CYCLE_AGENTS: one.agents,
        semconv.CYCLE_COUNT: float(one.count),
        semconv.CYCLE_DURATION: one.seconds,
        semconv.DETECTION_SEVERITY: one.severity.value,
    }
    if one.topic is not None:
        attributes[semconv.CYCLE_TOPIC] = one.topic
    if news.outcome is not None:
        attributes[semconv.CYCLE_OUTCOME] = news.outcome
    said = f"a cycle of agents was {news.state}: {', '.join(one.agents or one.patterns)}"
    severity = _CYCLES.get(news.state, INFO)
    return Event(semconv.EVENT_CYCLE, severity, said, attributes, 0, place)


def add_names(attributes: dict[str, Value], agent: str | None, tool: str) -> None:
    """Adds the names of an agent and a tool, unless they are empty."""
    if agent:
        attributes[AGENT] = agent
    if tool:
        attributes[TOOL] = tool


EVENT_CALL: Final = "gen_ai.tool.call.decision"
"""A call was refused (`deny`), or waits for a person (`require_approval`)."""
CALL_OUTCOME: Final = "gen_ai.tool.call.decision.outcome"
CALL_ID: Final = "gen_ai.tool.call.id"
EVENT_PAUSED: Final = "gen_ai.agent.paused"
EVENT_RESUMED: Final = "gen_ai.agent.resumed"
EXECUTION_ID: Final = "gen_ai.agent.execution.id"
"""The session: it outlives the pause, in whichever process it goes on."""
PAUSE_ID: Final = "gen_ai.agent.pause.id"
PAUSE_REASON: Final = "gen_ai.agent.pause.reason"
RESUMED_TYPE: Final = "gen_ai.agent.resumed_from.type"
RESUMED_ID: Final = "gen_ai.agent.resumed_from.id"

_PAUSED: Final = 4096
"""Paused sessions that are remembered, as many as sessions by default: more are not kept."""


class _Pause(NamedTuple):
    """A pause that was reported.

    Attributes:
        id: Its id: that of the decision, else one of its own.
        agent: Name of the agent.
    """

    id: str
    agent: str | None


class ConventionEvents:
    """Reports refused calls, pauses and their ends by the conventions.

    Args:
        put: Has an event emitted.
    """

    def __init__(self, put: Callable[[Event], None]) -> None:
        self._put = put
        self._paused: BoundedDict[str, _Pause] = BoundedDict(_PAUSED)

    def on_step(self, seen: Observation) -> None:
        """Reports a call that was refused."""
        step, flag = seen.step, seen.session.flag
        if not step.refused:
            return
        attributes: dict[str, Value] = {CALL_OUTCOME: "deny", semconv.SESSION_ID: seen.session.key}
        if step.call_id is not None:
            attributes[CALL_ID] = step.call_id
        if flag.stops and flag.standing:
            attributes[semconv.DECISION_ID] = flag.standing
        add_names(attributes, seen.agent, step.name or "")
        place = span_context(step.trace_id, step.span_id)
        said = f"a call of {step.name or 'a tool'} was refused"
        self._put(Event(EVENT_CALL, INFO, said, attributes, step.end or 0, place))

    def on_decision(self, made: DecisionRecord, place: SpanContext) -> None:
        """Reports a pause that was decided; whatever calls come wait for a person."""
        decision = made.decision
        if decision.shadow:
            return
        if decision.action is Action.ABORT:
            self._paused.pop(decision.session, None)
        elif decision.action is Action.PAUSE and decision.session not in self._paused:
            attributes: dict[str, Value] = {
                CALL_OUTCOME: "require_approval",
                semconv.SESSION_ID: decision.session,
                semconv.DECISION_ID: decision.id,
            }
            add_names(attributes, made.agent, decision.tool)
            said = decision.message
            self._put(Event(EVENT_CALL, INFO, said, attributes, decision.time, place))
            pause = _Pause(decision.id, made.agent)
            self._pauses(decision.session, pause, said, decision.time, place)

    def on_change(self, fields: Mapping[str, str], text: str, place: SpanContext) -> None:
        """Reports what a person, a time limit or the application did to a session."""
        session, action = fields[semconv.SESSION_ID], fields[semconv.DECISION_ACTION]
        if action == Action.PAUSE.value:
            if session not in self._paused:
                self._pauses(session, _Pause(secrets.token_hex(8), None), text, 0, place)
            return
        pause = self._paused.pop(session, None)
        if pause is None or action == Action.ABORT.value:
            return
        attributes: dict[str, Value] = {
            EXECUTION_ID: session, RESUMED_TYPE: "pause", RESUMED_ID: pause.id,
        }  # fmt: skip
        add_names(attributes, pause.agent, "")
        self._put(Event(EVENT_RESUMED, INFO, text, attributes, 0, place))

    def _pauses(
        self, session: str, pause: _Pause, text: str, time: int, place: SpanContext
    ) -> None:
        self._paused[session] = pause
        attributes: dict[str, Value] = {
            EXECUTION_ID: session, PAUSE_ID: pause.id, PAUSE_REASON: "human_input",
        }  # fmt: skip
        add_names(attributes, pause.agent, "")
        self._put(Event(EVENT_PAUSED, INFO, text, attributes, time, place))
