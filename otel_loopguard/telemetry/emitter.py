"""Writes the log of decisions, and emits log events and decision spans in the background."""

from __future__ import annotations

import atexit
import logging
import os
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from opentelemetry._logs import get_logger
from opentelemetry.trace import Link, Status, StatusCode, get_tracer

from otel_loopguard import semconv
from otel_loopguard._control.flag import anybody_asks
from otel_loopguard._util.errors import attempt, swallow
from otel_loopguard._util.logger import logger
from otel_loopguard._util.worker import BackgroundWorker
from otel_loopguard.core import Action
from otel_loopguard.policy.hints import lasting
from otel_loopguard.spans.sdk_views import ActiveSpanView
from otel_loopguard.telemetry import events
from otel_loopguard.telemetry.events import SpanRef, context_of, span_context, span_ref
from otel_loopguard.telemetry.recorder import MetricsRecorder
from otel_loopguard.telemetry.span_annotator import is_written
from otel_loopguard.version import __version__

if TYPE_CHECKING:
    from opentelemetry._logs import Logger, LoggerProvider
    from opentelemetry.context import Context
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

    from otel_loopguard._util.errors import InternalErrors
    from otel_loopguard.core import Decision
    from otel_loopguard.sessions import CycleNews
    from otel_loopguard.sessions.active import ActiveSpan
    from otel_loopguard.sessions.observation import DecisionRecord, Listener
    from otel_loopguard.settings import Settings
    from otel_loopguard.telemetry.conventions import ConventionEvents
    from otel_loopguard.telemetry.events import Case, Event
    from otel_loopguard.telemetry.metrics import Counts
    from otel_loopguard.telemetry.recorder import Misses, State
    from otel_loopguard.telemetry.verdicts.reporter import VerdictReporter
    from otel_loopguard.telemetry.verdicts.verdict import Verdict

_NAME: Final = "otel_loopguard"
_IDLE_S: Final = 2.0
_NOBODY_ASKS: Final = "nothing here asks for it: add an adapter or `control.check()`"

_OPT_IN: Final = "OTEL_SEMCONV_STABILITY_OPT_IN"
_NEWEST: Final = "gen_ai_latest_experimental"

Fields = Callable[["Decision"], Mapping[str, events.Value]]
"""What the log record of a decision says beside its text."""


class BackgroundEmitter:
    """Emits log events in their order on a thread of its own; nobody who adds one waits.

    Past `tuning.delivery.queue` events that wait, more are dropped and counted. What waits when
    the process ends has `tuning.delivery.flush_s` seconds.
    """

    def __init__(
        self,
        settings: Settings,
        faults: InternalErrors,
        counts: Counts,
        loggers: LoggerProvider | None = None,
        tracers: TracerProvider | None = None,
    ) -> None:
        self._flush_s = settings.tuning.delivery.flush_s
        self._logging = settings.telemetry_events
        self._faults = faults
        self._counts = counts
        self._loggers = loggers
        self._tracers = tracers
        self._logger: Logger | None = None
        self._registered = False
        # Not the method itself, which would be held weakly: what waits outlives the guard.
        self._worker: BackgroundWorker[Event] = BackgroundWorker(
            "events", partial(self._deliver), faults,
            maximum=settings.tuning.delivery.queue, idle_s=_IDLE_S,
        )  # fmt: skip

    def put(self, event: Event) -> None:
        """Adds an event."""
        if not self._worker.put(event):
            self._counts.add(semconv.METRIC_EVENTS, ("queue_full",))
        elif not self._registered:
            # Registered late, and so called before the providers shut themselves down.
            self._registered = True
            atexit.register(_close, weakref.ref(self))

    def close(self) -> None:
        """Waits until what was added is emitted, at most for `tuning.delivery.flush_s`."""
        self._worker.flush(self._flush_s)

    def _deliver(self, event: Event) -> None:
        emitted = attempt(self._faults, "telemetry.emit", self._emit, event)
        self._counts.add(semconv.METRIC_EVENTS, ("" if emitted else "failure",))

    def _emit(self, event: Event) -> bool:
        context = context_of(event.place)
        if event.span:
            self._emit_span(event, context)
        if not self._logging:
            return True
        if self._logger is None:
            self._logger = get_logger(_NAME, __version__, self._loggers)
        now = time.time_ns()
        self._logger.emit(
            timestamp=event.time or now,
            observed_timestamp=now,
            context=context,
            severity_number=event.severity,
            severity_text=event.severity.name,
            body=event.body,
            attributes=event.attributes,
            event_name=event.name,
        )
        return True

    def _emit_span(self, event: Event, context: Context) -> None:
        """A span of its own, below the one that ended without the decision on it."""
        # Names of tools and agents would make it a step for whoever reads the trace.
        attributes = {
            name: value
            for name, value in event.attributes.items()
            if not name.startswith("gen_ai.")
        }
        span = get_tracer(_NAME, __version__, self._tracers).start_span(
            f"loopguard {event.attributes[semconv.DECISION_ACTION]}",
            context,
            attributes=attributes,
            links=[Link(span_context(trace_id, span_id)) for trace_id, span_id in event.links],
            start_time=event.time,
        )
        if event.error is not None:
            span.set_status(Status(StatusCode.ERROR, event.error))
        span.end(event.time)


def _close(reference: weakref.ref[BackgroundEmitter]) -> None:
    emitter = reference()
    if emitter is not None:
        emitter.close()


def _wants_proposed() -> bool:
    """True if the environment asks for the newest GenAI conventions."""
    return _NEWEST in os.environ.get(_OPT_IN, "").replace(" ", "").split(",")


class EventEmitter:
    """Logs what one guard decides, and has events emitted. Nothing here waits or raises.

    Attributes:
        answering: Whether somebody else reports what is put before people (`escalated`).
        on_steps: What hears of every step, as a guard's subscribers have it.
    """

    def __init__(
        self,
        settings: Settings,
        faults: InternalErrors,
        emitter: BackgroundEmitter | None,
        fields: Fields,
        *,
        live: bool,
    ) -> None:
        self._faults = faults
        self._emitter = emitter
        self._fields = fields
        self._events = settings.telemetry_events
        self._spans = settings.decision_spans if live else False
        self._live = live
        self.answering = False
        self.on_steps: list[Listener] = []
        self._conventions: ConventionEvents | None = None
        if emitter is not None and self._events and _wants_proposed():
            from otel_loopguard.telemetry.conventions import ConventionEvents  # noqa: PLC0415

            self._conventions = ConventionEvents(emitter.put)
            self.on_steps.append(("log", self._conventions.on_step))

    def on_decision(self, made: DecisionRecord) -> None:
        """Logs a decision, and has its event emitted."""
        decision, opened = made.decision, made.opened
        fields = self._fields(decision)
        text = decision.message
        if decision.action is Action.PAUSE and not decision.shadow:
            text = (
                f"{text}; it waits for an answer: `otel-loopguard resume {decision.session}` "
                f"(or `abort`), or control.resume({decision.session!r})"
            )
        setting = lasting(decision) if decision.action is Action.DENY else ""
        if setting:
            text = f"{text}; to allow this for good, set {setting}"
        noted = decision.action is Action.ALLOW
        loud = decision.action.stops or (decision.about_limit and not noted)
        level = logging.WARNING if loud else logging.INFO
        said = self._said(decision)
        logger.log(level, "%s: session %s: %s", said, decision.session, text, extra=fields)
        if self._emitter is None:
            return
        place = span_ref(decision.trace_id, decision.span_id, opened)
        span = self._has_span(decision, opened)
        if span or self._events:
            self._emitter.put(events.decided(decision, made.agent, fields, place, span=span))
        if self._conventions is not None:
            self._conventions.on_decision(made, place)
        asks = decision.action in (Action.ASK, Action.PAUSE)
        asks = asks or decision.intervention == "escalate_human"
        if asks and not self.answering:
            self._tell(events.asked(decision, made.agent, place))

    def _tell(self, event: Event) -> None:
        if self._emitter is not None and self._events:
            self._emitter.put(event)

    def _said(self, decision: Decision) -> str:
        """The action as it takes effect: what nobody is stopped by was not done."""
        action = decision.action
        if decision.shadow and action is not Action.ALLOW:
            return f"would {action} (shadow)"
        if action.stops and self._live and not anybody_asks():
            return f"{action} decided; {_NOBODY_ASKS}"
        return str(action)

    def escalated(self, case: Case) -> None:
        """Reports what is put before people, when it is made and when it is over."""
        with swallow(self._faults, "telemetry.escalated"):
            self._tell(events.escalated(case))

    def cycled(self, session: str, news: CycleNews, opened: ActiveSpan | None) -> None:
        """Reports what happened to a cycle of agents."""
        view = None if opened is None else opened.view
        ids = (0, 0) if view is None else (view.trace_id, view.span_id)
        self._tell(events.cycle(session, news, span_ref(*ids, opened)))

    def manual_change(
        self, fields: Mapping[str, str], text: str, span: ActiveSpanView | None
    ) -> None:
        """Reports a change of a flag that the policy did not make."""
        place = SpanRef()
        if span is not None:
            place = SpanRef(span.trace_id, span.span_id, span.sampled)
        self._tell(events.manual_change(fields, text, place))
        if self._conventions is not None:
            self._conventions.on_change(fields, text, place)

    def evaluated(self, verdict: Verdict) -> None:
        """Reports a verdict, as the GenAI conventions have it."""
        self._tell(events.evaluated(verdict))

    def _has_span(self, decision: Decision, opened: ActiveSpan | None) -> bool:
        """Whether it gets a span of its own; usually where no other span has it.

        None has it where nothing is open above, and no exporter of ours writes it.
        """
        if not self._spans or decision.action is Action.ALLOW or not decision.span_id:
            return False
        if self._spans == "always":
            return True
        if is_written(self._faults):
            return False
        if opened is None:
            return True
        return opened.ended and not any(
            isinstance(each.view, ActiveSpanView) and each.view.is_written
            for each in opened.above()
        )


class Escalations(Protocol):
    """What is put before people."""

    def listen(self, listener: Callable[[Case], None]) -> None:
        """Has something called for every escalation, when it is made and when it is over."""
        ...

    def open_escalations(self) -> Sequence[object]:
        """What waits for an answer."""
        ...


class Telemetry:
    """The metrics and the log events of one guard. Thread-safe; never raises, never waits.

    Attributes:
        numbers: What is counted.
        voice: Reports decisions.
        verdicts: Reports them as verdicts, where that is asked for.
    """

    def __init__(  # noqa: PLR0913
        self,
        settings: Settings,
        faults: InternalErrors,
        *,
        live: bool,
        detectors: Sequence[str],
        misses: Misses,
        fields: Fields,
        meters: MeterProvider | None = None,
        loggers: LoggerProvider | None = None,
    ) -> None:
        counting = settings.telemetry_metrics and (live or meters is not None)
        self.numbers = MetricsRecorder(settings, faults, detectors, misses, meters, on=counting)
        self._emitter = None
        if settings.enabled and (live or loggers is not None):
            self._emitter = BackgroundEmitter(settings, faults, self.numbers.counts, loggers)
        self.voice = EventEmitter(settings, faults, self._emitter, fields, live=live)
        self.verdicts: VerdictReporter | None = None
        if self._emitter is not None and settings.verdicts:
            from otel_loopguard.telemetry.verdicts import reporter  # noqa: PLC0415  # who asks

            emit = self.voice.evaluated if "evaluations" in settings.verdicts else None
            count = self.numbers.counts.add
            self.verdicts = reporter.VerdictReporter(settings, faults, emit, count, live=live)
        self._live = live
        self.forked()

    def cycled(self, session: str, news: CycleNews, opened: ActiveSpan | None) -> None:
        """Something happened to a cycle of agents."""
        self.numbers.cycled(news.state)
        self.voice.cycled(session, news, opened)

    def follow(self, escalations: Escalations) -> None:
        """Counts what is put before people while it waits, and reports it."""
        self.voice.answering = True
        self.numbers.waiting = lambda: len(escalations.open_escalations())
        escalations.listen(self.voice.escalated)

    def watch(self, state: State) -> None:
        """Sets what is read when metrics are collected; anew in the child of a fork."""
        self.numbers.watch(state)

    def forked(self) -> None:
        """Starts anew in the child of a fork: what was counted is the parent's."""
        self.numbers.counts.forked()
        # Nothing is before people until `follow`.
        self.numbers.waiting = (lambda: 0) if self._live else None

    def close(self) -> None:
        """Emits what waits, and sends verdicts, each at most for `tuning.delivery.flush_s`.

        It may be used further.
        """
        if self._emitter is not None:
            self._emitter.close()
        if self.verdicts is not None:
            self.verdicts.close()
