"""Decisions, and sessions that ended without one, as verdicts on spans and sessions.

They go to log events, span attributes, and the backends of the setting `verdicts`.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from otel_loopguard import semconv
from otel_loopguard._util.errors import swallow
from otel_loopguard._util.locks import held, later
from otel_loopguard._util.logger import logger
from otel_loopguard._util.text import encoded
from otel_loopguard._util.worker import DeliveryQueue
from otel_loopguard.core import Action
from otel_loopguard.spans.sdk_views import ActiveSpanView
from otel_loopguard.telemetry.events import INFO, Event, SpanRef

if TYPE_CHECKING:
    from otel_loopguard._util.errors import InternalErrors
    from otel_loopguard.sessions import Session
    from otel_loopguard.sessions.observation import DecisionRecord
    from otel_loopguard.settings import Settings

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
        f"{before}.metadata": encoded(dict(verdict.metadata)).decode(),
    }


Write = Callable[[Verdict], None]
"""Writes a verdict to a backend; blocks, and raises `DeliveryError` if it was not taken."""


class VerdictReporter:
    """Sends verdicts to the log events and the backends. Never waits, never raises.

    Args:
        settings: Settings.
        faults: Counts what is swallowed.
        emit: Emits a log event.
        count: Adds one to a metric, by the values of its attributes.
        backends: Host of each backend, and what writes a verdict to it, by name.
    """

    def __init__(
        self, settings: Settings, faults: InternalErrors, emit: Callable[[Event], None],
        count: Callable[[str, tuple[str, ...]], None], backends: Mapping[str, tuple[str, Write]],
    ) -> None:  # fmt: skip
        self._faults = faults
        self._emit = emit if "evaluations" in settings.verdicts else None
        self._count = count
        self._tuning = settings.tuning.delivery
        self._logged: set[str] = set()  # backends whose first loss was logged
        self._queues = {
            name: (host, self._queue(name, write)) for name, (host, write) in backends.items()
        }

    def on_decision(self, made: DecisionRecord) -> None:
        """Reports a decision; a mere note judges nothing."""
        if made.decision.action is not Action.ALLOW:
            self._report(of_decision(made))

    def on_end(self, session: Session) -> None:
        """A session is over; reported once, and if nothing was decided. May be called anywhere."""
        with swallow(self._faults, "verdicts.end"):
            if session.judged or session.over or not (session.named or session.traces):
                return
            session.over = True
            verdict = of_end(session, time.time_ns())
            if held():
                later(partial(self._report, verdict))
            else:
                self._report(verdict)

    def close(self) -> None:
        """Delivers pending verdicts, within `tuning.delivery.flush_s` in all."""
        until = time.monotonic() + self._tuning.flush_s
        for _, queue in self._queues.values():
            queue.close(max(until - time.monotonic(), 0))

    def _report(self, verdict: Verdict) -> None:
        if self._emit is not None:
            self._emit(evaluation(verdict))
        # A verdict on a span that no backend gets is of no use there.
        for name, (_, queue) in self._queues.items() if verdict.sampled else ():
            if not queue.put(verdict):
                self._lost(name, "queue_full", "too many wait")

    def _queue(self, name: str, write: Write) -> DeliveryQueue[Verdict]:
        def deliver(verdict: Verdict) -> None:
            write(verdict)
            self._count(semconv.METRIC_VERDICTS, (name, ""))

        def failed(_: Verdict, why: str, again: bool) -> None:
            if not again:
                self._lost(name, "failure", why)

        return DeliveryQueue(
            f"verdicts-{name}", deliver, self._faults, failed,
            maximum=self._tuning.queue, attempts=self._tuning.attempts,
            retry_s=self._tuning.retry_s,
        )  # fmt: skip

    def _lost(self, name: str, kind: str, why: str) -> None:
        self._count(semconv.METRIC_VERDICTS, (name, kind))
        if name not in self._logged:
            self._logged.add(name)
            msg = "verdicts do not arrive at %s (%s): %s; more are counted, and not logged"
            logger.warning(msg, name, self._queues[name][0], why)
