"""The guard's own telemetry: metrics and log events."""

from __future__ import annotations

import atexit
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from shlex import quote
from typing import TYPE_CHECKING, Final

from opentelemetry._logs import Logger, LoggerProvider, get_logger
from opentelemetry.trace import INVALID_SPAN_CONTEXT, Link, Status, StatusCode, get_tracer

from otel_loopguard import semconv
from otel_loopguard._control.flag import anybody_asks
from otel_loopguard._util.errors import InternalErrors, attempt, swallow
from otel_loopguard._util.text import printable
from otel_loopguard._util.worker import BackgroundWorker, weak_callback
from otel_loopguard.core import Action, Decision
from otel_loopguard.core.decision import Source
from otel_loopguard.sessions.decisions import lasting
from otel_loopguard.spans.sdk_views import ActiveSpanView
from otel_loopguard.telemetry import events
from otel_loopguard.telemetry.events import Event, context_of, is_sampled, span_context
from otel_loopguard.telemetry.metrics import METRICS, Metric, State
from otel_loopguard.telemetry.recorder import Counts, MetricsRecorder, Misses
from otel_loopguard.telemetry.span_annotator import is_written
from otel_loopguard.version import __version__

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.metrics import MeterProvider

    from otel_loopguard._util.errors import Log
    from otel_loopguard.core.report import Escalation
    from otel_loopguard.sessions.active import ActiveSpan
    from otel_loopguard.sessions.agent_cycles import CycleNews
    from otel_loopguard.sessions.observation import DecisionRecord, Listener
    from otel_loopguard.settings import Settings
    from otel_loopguard.telemetry.verdicts import VerdictReporter

__all__ = ["METRICS", "Metric", "State", "Telemetry"]


_NAME: Final = "otel_loopguard"
# Decisions come in bursts; a process that made none for so long has no thread for them.
_IDLE_S: Final = 2.0
_NOBODY_ASKS: Final = "nothing here asks for it: add an adapter or `control.check()`"

_OPT_IN: Final = "OTEL_SEMCONV_STABILITY_OPT_IN"
_NEWEST: Final = "gen_ai_latest_experimental"


class EventQueue:
    """Emits log events in order on a thread of its own; `put` never blocks.

    Past `tuning.delivery.queue` pending events, more are dropped and counted. When the process
    ends, pending events have `tuning.delivery.flush_s` seconds.
    """

    def __init__(
        self,
        settings: Settings,
        faults: InternalErrors,
        counts: Counts,
        loggers: LoggerProvider | None = None,
    ) -> None:
        self._flush_s = settings.tuning.delivery.flush_s
        self._logging = settings.telemetry_events
        self._faults = faults
        self._counts = counts
        self._loggers = loggers
        self._logger: Logger | None = None
        self._registered = False
        self._worker: BackgroundWorker[Event] = BackgroundWorker(
            "events", self._deliver, faults,
            maximum=settings.tuning.delivery.queue, idle_s=_IDLE_S,
        )  # fmt: skip

    def put(self, event: Event) -> None:
        """Adds an event."""
        if not self._worker.put(event):
            self._counts.add(semconv.METRIC_EVENTS, ("queue_full",))
        elif not self._registered:
            # Registered late, and so called before the providers shut themselves down.
            self._registered = True
            atexit.register(weak_callback(self.close))

    def close(self) -> None:
        """Waits until pending events are emitted, at most for `tuning.delivery.flush_s`."""
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
            # Half of a character in a body fails a whole batch of an exporter, others' records too.
            body=printable(event.body),
            attributes=event.attributes,
            event_name=event.name,
        )
        return True

    def _emit_span(self, event: Event, context: Context) -> None:
        """A separate span, below the one that ended without the decision."""
        # Names of tools and agents would make it a step for whoever reads the trace.
        attributes = {
            name: value
            for name, value in event.attributes.items()
            if not name.startswith("gen_ai.")
        }
        span = get_tracer(_NAME, __version__).start_span(
            f"loopguard {event.attributes[semconv.DECISION_ACTION]}",
            context,
            attributes=attributes,
            links=[Link(span_context(*ids)) for ids in event.links],
            start_time=event.time,
        )
        if event.error is not None:
            span.set_status(Status(StatusCode.ERROR, event.error))
        span.end(event.time)


class Telemetry:
    """The metrics, log events and verdicts of one guard. Thread-safe; never raises, never waits.

    Attributes:
        numbers: Counts for metrics.
        verdicts: Reports decisions as verdicts; None unless the settings ask for them.
        on_steps: Subscribers of steps.
        alerts: Returns what the machine is short of, once somebody has it measured.
        on_events: Subscribers of what becomes a log event and is no decision, whoever emits it.
    """

    def __init__(  # noqa: PLR0913
        self,
        settings: Settings,
        faults: InternalErrors,
        *,
        live: bool,
        local: bool,
        detectors: Sequence[str],
        misses: Misses,
        log: Log,
        meters: MeterProvider | None = None,
        loggers: LoggerProvider | None = None,
    ) -> None:
        self._faults = faults
        self.alerts: Callable[[], tuple[str, ...]] = tuple
        self._log = log
        self._events = settings.telemetry_events
        self._spans = settings.decision_spans if live else False
        self._live, self._local = live, local
        self._settings = settings
        counting = settings.telemetry_metrics and (live or meters is not None)
        self.numbers = MetricsRecorder(settings, faults, detectors, misses, meters, on=counting)
        self.on_steps: list[Listener] = []
        self.on_events: list[Callable[[Event], object]] = []
        self.verdicts: VerdictReporter | None = None
        self._queue: EventQueue | None = None
        self._conventions: events.ConventionEvents | None = None
        if not settings.enabled or not (live or loggers is not None):
            return
        self._queue = EventQueue(settings, faults, self.numbers.counts, loggers)
        wanted = os.environ.get(_OPT_IN, "").replace(" ", "").split(",")
        if self._events and _NEWEST in wanted:
            self._conventions = events.ConventionEvents(self._queue.put)
            self.on_steps.append(("log", self._conventions.on_step))
        if settings.verdicts:
            from otel_loopguard.telemetry.verdicts import VerdictReporter  # noqa: PLC0415

            count = self.numbers.counts.add
            self.verdicts = VerdictReporter(settings, faults, self._put, count, live=live)

    def on_decision(self, made: DecisionRecord) -> None:
        """Logs a decision, and has its event emitted."""
        decision, opened = made.decision, made.opened
        fields = self._fields(decision)
        self._write(decision, fields)
        if self._queue is None:
            return
        place = span_context(decision.trace_id, decision.span_id, sampled=is_sampled(opened))
        span = self._has_span(decision, opened)
        if span or self._events:
            self._queue.put(events.decided(decision, made.agent, fields, place, span=span))
        if self._conventions is not None:
            self._conventions.on_decision(made, place)

    def _fields(self, decision: Decision) -> Mapping[str, events.Value]:
        """Fields of a decision's log record beside its text: attributes in OpenTelemetry."""
        return {
            semconv.SESSION_ID: decision.session,
            semconv.DECISION_ID: decision.id,
            semconv.DECISION_ACTION: decision.action.value,
            semconv.EXECUTION_CONFIDENCE: decision.confidence,
            semconv.EXECUTION_LOOP: decision.source in (Source.GRAPH_LOOP, Source.TOOL_LOOP),
            semconv.EXECUTION_ALERTS: self.alerts(),
            semconv.EXECUTION_TOOLS: int(bool(decision.tool)),
        }

    def _write(self, decision: Decision, fields: Mapping[str, events.Value]) -> None:
        action, text = decision.action, decision.message
        if action is Action.PAUSE and not decision.shadow:
            text = f"{text}; it waits for an answer: {self._answered_by(decision.session)}"
        setting = lasting(decision, self._settings) if action is Action.DENY else ""
        if setting:
            text = f"{text}; to allow this for good, set {setting}"
        noted = action is Action.ALLOW
        loud = action.stops or (decision.about_limit and not noted)
        done = str(action)
        if decision.shadow and not noted:
            done = f"would {action} (shadow)"
        elif action.stops and self._live and not anybody_asks():
            done = f"{action} decided; {_NOBODY_ASKS}"
        level = logging.WARNING if loud else logging.INFO
        self._log.log(level, "%s: session %s: %s", done, decision.session, text, extra=fields)

    def _answered_by(self, session: str) -> str:
        """The ways in which a person can resume a session in this process."""
        reached = self._settings.control_socket or self._settings.store_url
        command = f"`otel-loopguard resume {quote(session)}` (or `abort`), or " if reached else ""
        return command + (f"control.resume({session!r})" if self._local else "the server's page")

    def _put(self, event: Event) -> None:
        for told in self.on_events:
            with swallow(self._faults, "telemetry.events"):
                told(event)
        self._queued(event)

    def _queued(self, event: Event) -> None:
        if self._queue is not None and self._events:
            self._queue.put(event)

    def _has_span(self, decision: Decision, opened: ActiveSpan | None) -> bool:
        """True if a decision gets a span of its own: usually where no other span carries it.

        No other span does where none is open above, and no exporter of ours writes it.
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

    def escalated(self, found: Escalation, by: str | None, answer: str | None) -> None:
        """Reports an escalation when it opens, and when it is over: answered, or not, `by` whom."""
        with swallow(self._faults, "telemetry.escalated"):
            self._put(events.escalated(found, by, answer))

    def cycled(self, session: str, news: CycleNews, opened: ActiveSpan | None) -> None:
        """Counts and reports a change of a cycle of agents."""
        self.numbers.counts.add(semconv.METRIC_CYCLES, (news.state,))
        place = INVALID_SPAN_CONTEXT
        if opened is not None:
            view = opened.view
            place = span_context(view.trace_id, view.span_id, sampled=is_sampled(opened))
        self._put(events.cycle(session, news, place))

    def manual_change(
        self, fields: Mapping[str, str], text: str, span: ActiveSpanView | None, here: bool
    ) -> None:
        """Reports a change of a flag that the policy did not make, `here` or elsewhere."""
        place = INVALID_SPAN_CONTEXT
        if span is not None:
            place = span_context(span.trace_id, span.span_id, sampled=span.sampled)
        # What others made they send to that one place, too.
        (self._put if here else self._queued)(events.manual_change(fields, text, place))
        if self._conventions is not None:
            self._conventions.on_change(fields, text, place)

    def forked(self) -> None:
        """Starts anew in the child of a fork: the parent reports what it counted."""
        self.numbers.counts.forked()

    def close(self) -> None:
        """Emits pending events and sends verdicts, each at most for `tuning.delivery.flush_s`.

        It may be used further.
        """
        if self._queue is not None:
            self._queue.close()
        if self.verdicts is not None:
            self.verdicts.close()
