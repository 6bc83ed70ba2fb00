"""Decisions, and sessions that ended without one, as verdicts on spans and sessions."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import orjson

from otel_loopguard import semconv
from otel_loopguard._util.values import dataclass
from otel_loopguard.core import Action
from otel_loopguard.spans.sdk_views import ActiveSpanView
from otel_loopguard.telemetry.events import INFO, Event, SpanRef

if TYPE_CHECKING:
    from otel_loopguard.sessions import Session
    from otel_loopguard.sessions.observation import DecisionRecord

NAME: Final = "agent_loop"
"""The name of every verdict: the same for all, so that they can be compared."""
SOURCE: Final = "otel-loopguard"
_OK: Final = "ok"

EVENT_EVALUATION: Final = "gen_ai.evaluation.result"
EVALUATION_NAME: Final = "gen_ai.evaluation.name"
EVALUATION_SCORE: Final = "gen_ai.evaluation.score.value"
EVALUATION_LABEL: Final = "gen_ai.evaluation.score.label"
EVALUATION_EXPLANATION: Final = "gen_ai.evaluation.explanation"

Attributes = dict[str, str | bool | int | float]


@dataclass(frozen=True, slots=True)
class Verdict:
    """A verdict on one span, or on a session that is over; without content of calls.

    Attributes:
        label: The action of the decision; `ok` for a session that ended without one.
        score: 0 for `ok` to 1 for `abort`, by the force of the action.
        explanation: A sentence.
        session: Key of the session.
        named: True if spans carry that key; else it is a trace id.
        detector: Name of the detector; empty for `ok`.
        trace_id: Trace of the span; 0 if there is none.
        span_id: The span judged; 0 if there is none.
        root_id: The topmost span above it, if known; else 0.
        sampled: True if the span is exported.
        time: Nanoseconds since the epoch.
        metadata: Further facts, by the names of their span attributes.
    """

    label: str
    score: float
    explanation: str
    session: str
    named: bool
    detector: str
    trace_id: int
    span_id: int
    root_id: int
    sampled: bool
    time: int
    metadata: Mapping[str, str | bool | int | float]

    @property
    def id(self) -> str:
        """The same for the same session, detector and span, in any process; 32 hex digits."""
        text = "\0".join((self.session, self.detector, f"{self.trace_id:x}-{self.span_id:x}"))
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def of_decision(made: DecisionRecord) -> Verdict:
    """The verdict of a decision."""
    decision, opened = made.decision, made.opened
    metadata: Attributes = {
        semconv.DECISION_ID: decision.id,
        semconv.DECISION_REASON: decision.reason,
        semconv.DETECTOR_NAME: decision.detector,
        semconv.DETECTION_SEVERITY: decision.severity.value,
        semconv.DETECTION_SCORE: decision.confidence,
        semconv.DETECTION_REPEAT_COUNT: float(decision.count),
        semconv.LOOP_ID: decision.loop,
        semconv.SESSION_ID: decision.session,
    }
    if decision.shadow:
        metadata[semconv.DECISION_SHADOW] = True
    view = None if opened is None else opened.view
    above = () if opened is None else tuple(opened.above())
    root_id = above[-1].view.span_id if above else 0
    return Verdict(
        decision.action.value,
        round(decision.action.rank / Action.ABORT.rank, 2),
        decision.message,
        decision.session,
        made.session.named,
        decision.detector,
        decision.trace_id,
        decision.span_id,
        root_id or made.session.run or decision.span_id,
        view.sampled if isinstance(view, ActiveSpanView) else True,
        decision.time,
        metadata,
    )


def of_end(session: Session, time: int) -> Verdict:
    """The verdict on a session that ends without a decision: on the run that began last."""
    trace_id = next(reversed(session.traces), 0)
    run = session.run if trace_id else 0
    metadata = {semconv.SESSION_ID: session.key}
    text = "the session ended without a decision"
    return Verdict(
        _OK, 0.0, text, session.key, session.named, "", trace_id, run, run, True, time, metadata
    )


def evaluation(verdict: Verdict) -> Event:
    """The log event of a verdict, by the GenAI conventions."""
    attributes: Attributes = {
        **verdict.metadata,
        EVALUATION_NAME: NAME,
        EVALUATION_SCORE: verdict.score,
        EVALUATION_LABEL: verdict.label,
        EVALUATION_EXPLANATION: verdict.explanation,
    }
    place = SpanRef(verdict.trace_id, verdict.span_id, verdict.sampled)
    return Event(EVENT_EVALUATION, INFO, verdict.explanation, attributes, verdict.time, place)


def span_annotations(made: DecisionRecord) -> Attributes:
    """Attributes of the judged span, by OpenInference's convention for annotations."""
    return _annotation(of_decision(made), "annotations")


def topmost_annotations(made: DecisionRecord, said: Mapping[str, object]) -> Attributes:
    """Annotations of trace and session on the topmost span, each with the strongest verdict."""
    verdict, found = of_decision(made), Attributes()
    for scope in ("trace.annotations", "session.annotations")[: 1 + verdict.named]:
        before = said.get(f"{scope}.0.annotation.score")
        if not isinstance(before, float) or before <= verdict.score:
            found |= _annotation(verdict, scope)
    return found


def _annotation(verdict: Verdict, scope: str) -> Attributes:
    before = f"{scope}.0.annotation"
    return {
        f"{before}.name": NAME,
        f"{before}.score": verdict.score,
        f"{before}.label": verdict.label,
        f"{before}.explanation": verdict.explanation,
        f"{before}.annotator_kind": "CODE",
        f"{before}.identifier": SOURCE,
        f"{before}.metadata": orjson.dumps(dict(verdict.metadata)).decode(),
    }
