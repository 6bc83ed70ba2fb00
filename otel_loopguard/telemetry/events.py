"""The log events of the guard."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from opentelemetry._logs import SeverityNumber
from opentelemetry.context import Context
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, set_span_in_context

from otel_loopguard import semconv
from otel_loopguard._util.values import NamedTuple, dataclass
from otel_loopguard.core import Action
from otel_loopguard.sessions.decisions import annotation
from otel_loopguard.spans.sdk_views import ActiveSpanView
from otel_loopguard.telemetry.metrics import AGENT, TOOL

if TYPE_CHECKING:
    from otel_loopguard.core import Decision
    from otel_loopguard.core.escalation import Escalation
    from otel_loopguard.core.report import Spent
    from otel_loopguard.sessions.active import ActiveSpan
    from otel_loopguard.sessions.agent_cycles import CycleNews
    from otel_loopguard.telemetry.verdicts.verdict import Verdict

EVENT_EVALUATION: Final = "gen_ai.evaluation.result"
EVALUATION_NAME: Final = "gen_ai.evaluation.name"
EVALUATION_SCORE: Final = "gen_ai.evaluation.score.value"
EVALUATION_LABEL: Final = "gen_ai.evaluation.score.label"
EVALUATION_EXPLANATION: Final = "gen_ai.evaluation.explanation"


class Saved(NamedTuple):
    """What a stop is reckoned to save.

    Attributes:
        tokens: Tokens.
        seconds: Seconds.
    """

    tokens: float
    seconds: float


def saved(decision: Decision, spent: Spent) -> Saved:
    """What the rest of a loop would have cost: as long again as it was, at the session's own rate.

    A loop that was seen `count` times with a `period` of so many calls is reckoned to go on for as
    many calls as it had; each call costs what the calls of the session cost on average, model calls
    between them included. How long a loop would really have gone on nobody can know; of loops whose
    length has no scale half go on for longer. What is not known (tokens that no span says, times)
    saves nothing.
    """
    if spent.calls <= 0:
        return Saved(0, 0)
    calls = min(max(decision.count, 0) * max(decision.period, 1), spent.calls)
    share = calls / spent.calls
    return Saved(spent.tokens * share, spent.seconds * share)


class SpanRef(NamedTuple):
    """A span, by its ids.

    Attributes:
        trace_id: Its trace; 0 if there is none.
        span_id: Its id; 0 if there is none.
        sampled: Whether it is exported.
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
    found = span_context(place.trace_id, place.span_id, sampled=place.sampled)
    return set_span_in_context(NonRecordingSpan(found), Context())


def span_context(trace_id: int, span_id: int, *, sampled: bool = True) -> SpanContext:
    """The context of a span of this process, by its ids."""
    flags = TraceFlags(TraceFlags.SAMPLED if sampled else TraceFlags.DEFAULT)
    return SpanContext(trace_id, span_id, is_remote=False, trace_flags=flags)


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
        attributes: What there is to know, without content of calls.
        time: When, nanoseconds since the epoch; 0 for now.
        place: The span that it belongs to.
        span: Whether it is a span of its own too.
        links: Spans that this one is linked to, by trace and span id.
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


class Reply(Protocol):
    """How an escalation ended, as far as its event says it; see `escalation.Reply`."""

    # ruff: noqa: D102
    @property
    def answer(self) -> str | None: ...
    @property
    def by(self) -> str: ...


class Case(Protocol):
    """One escalation and its outcome, as its events have them."""

    @property
    def escalation(self) -> Escalation:
        """What is put before people."""
        ...

    @property
    def reply(self) -> Reply | None:
        """How it ended; None while it is open."""
        ...


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


def escalated(case: Case) -> Event:
    """The event of what is put before people: when it is made, and when it is over."""
    one, reply = case.escalation, case.reply
    decision = one.decision
    place = SpanRef() if decision is None else SpanRef(decision.trace_id, decision.span_id)
    attributes: dict[str, Value] = {
        semconv.SESSION_ID: one.session,
        semconv.ESCALATION_ID: one.id,
        semconv.ESCALATION_CAUSE: one.cause,
    }
    if decision is not None:
        attributes |= annotation(decision, with_session=True, status=False).attributes
    add_names(attributes, one.agent, "" if decision is None else decision.tool)
    if reply is None:
        return Event(semconv.EVENT_ESCALATION, _WARN, one.reason, attributes, one.at, place)
    attributes[semconv.CONTROL_BY] = reply.by
    if reply.answer is not None:
        attributes[semconv.ESCALATION_ANSWER] = str(reply.answer)
    said = f"an escalation is over: {reply.answer or 'nobody answered'}"
    return Event(semconv.EVENT_ESCALATION, INFO, said, attributes, 0, place)


def asked(decision: Decision, agent: str | None, place: SpanRef) -> Event:
    """The event of a decision that calls for a person, where nobody puts it before one."""
    marked = annotation(decision, with_session=True, status=False)
    attributes: dict[str, Value] = {**marked.attributes}
    attributes[semconv.ESCALATION_ID] = decision.id
    cause = decision.action.value if decision.action in _ASKING else "cycle"
    attributes[semconv.ESCALATION_CAUSE] = cause
    add_names(attributes, agent, decision.tool)
    said = decision.question or decision.message
    return Event(semconv.EVENT_ESCALATION, _WARN, said, attributes, decision.time, place)


_ASKING: Final = (Action.ASK, Action.PAUSE)


def evaluated(verdict: Verdict) -> Event:
    """The event of a verdict, by the GenAI conventions."""
    attributes: dict[str, Value] = {
        **verdict.metadata,
        EVALUATION_NAME: verdict.name,
        EVALUATION_SCORE: verdict.score,
        EVALUATION_LABEL: verdict.label,
        EVALUATION_EXPLANATION: verdict.explanation,
    }
    place = SpanRef(verdict.trace_id, verdict.span_id, verdict.sampled)
    text = verdict.explanation
    return Event(EVENT_EVALUATION, INFO, text, attributes, verdict.time, place)


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
    """Adds the names of an agent and a tool, as far as there are any."""
    if agent:
        attributes[AGENT] = agent
    if tool:
        attributes[TOOL] = tool
