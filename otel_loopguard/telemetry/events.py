"""The log events of the guard."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from opentelemetry._logs import SeverityNumber
from opentelemetry.context import Context
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, set_span_in_context

from otel_loopguard import semconv
from otel_loopguard.core import Action
from otel_loopguard.sessions.decisions import annotation
from otel_loopguard.spans.sdk_views import ActiveSpanView

if TYPE_CHECKING:
    from otel_loopguard.core import Decision
    from otel_loopguard.core.escalation import Escalation
    from otel_loopguard.sessions.active import ActiveSpan
    from otel_loopguard.sessions.agent_cycles import CycleNews


class SpanRef(NamedTuple):
    """A span, by its ids.

    Attributes:
        trace_id: Its trace; 0 if there is none.
        span_id: Its id; 0 if there is none.
        sampled: True if it is exported.
    """

    trace_id: int = 0
    span_id: int = 0
    sampled: bool = True


def span_ref(trace_id: int, span_id: int, opened: ActiveSpan | None) -> SpanRef:
    """The place of a decision."""
    view = None if opened is None else opened.view
    return SpanRef(trace_id, span_id, view.sampled if isinstance(view, ActiveSpanView) else True)


def context_of(place: SpanRef) -> Context:
    """A context in which a span is the current one; empty for no span."""
    if not place.trace_id or not place.span_id:
        return Context()
    return set_span_in_context(NonRecordingSpan(span_context(place)), Context())


def span_context(place: SpanRef) -> SpanContext:
    """The context of a span of this process."""
    flags = TraceFlags(TraceFlags.SAMPLED if place.sampled else TraceFlags.DEFAULT)
    return SpanContext(place.trace_id, place.span_id, is_remote=False, trace_flags=flags)


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
    place: SpanRef
    span: bool = False
    links: tuple[tuple[int, int], ...] = ()
    error: str | None = None


def decided(
    decision: Decision,
    agent: str | None,
    fields: Mapping[str, Value],
    place: SpanRef,
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
    place = SpanRef()
    if decision is not None:
        place = SpanRef(decision.trace_id, decision.span_id)
        attributes |= annotation(decision, with_session=True, status=False).attributes
    add_names(attributes, found.agent, "" if decision is None else decision.tool)
    if by is None:
        return Event(semconv.EVENT_ESCALATION, _WARN, found.reason, attributes, found.at, place)
    attributes[semconv.CONTROL_BY] = by
    if answer is not None:
        attributes[semconv.ESCALATION_ANSWER] = answer
    said = f"an escalation is over: {answer or 'nobody answered'}"
    return Event(semconv.EVENT_ESCALATION, INFO, said, attributes, 0, place)


def manual_change(fields: Mapping[str, str], text: str, place: SpanRef) -> Event:
    """The event of a change of a flag that the policy did not make."""
    return Event(semconv.EVENT_CONTROL, INFO, text, fields, 0, place)


def cycle(session: str, news: CycleNews, place: SpanRef) -> Event:
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
