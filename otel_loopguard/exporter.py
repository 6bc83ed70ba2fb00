"""LoopGuardSpanExporter: annotated spans go out.

The SDK freezes a span before `on_end`, so what was decided about a span that has ended can only be
put on a copy, and only on the way to the exporter (opentelemetry-python#5614).
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from opentelemetry.attributes import BoundedAttributes
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.util import BoundedList
from opentelemetry.trace import Link, SpanContext, Status, StatusCode

from otel_loopguard import semconv
from otel_loopguard.arrivals import Arrivals
from otel_loopguard.core import Action, Annotation
from otel_loopguard.errors import LoopGuardSettingsError
from otel_loopguard.faults import swallow
from otel_loopguard.guard import LoopGuard
from otel_loopguard.live import EndedSpan
from otel_loopguard.logger import logger
from otel_loopguard.marks import writers
from otel_loopguard.onward import asked_for, given
from otel_loopguard.rehearsal import now, off
from otel_loopguard.settings import Settings

if TYPE_CHECKING:
    from opentelemetry.util.types import AnyValue

_T = TypeVar("_T")


class LoopGuardSpanExporter(SpanExporter):
    """Passes spans on to another exporter; those with a decision go on as annotated copies.

    A span without a decision is passed on as the same object. A copy has every field of its span
    and the same dropped counts, only the attribute limit of the SDK is not applied again. Where no
    `LoopGuardSpanProcessor` feeds the guard, the exporter feeds it with the ended spans, so that
    loops are found and reported, late and without a chance to stop them.

    A `SimpleSpanProcessor` that stands before the live processor exports each span before it is
    judged; its decision is then on the open spans above only. Let the live processor stand first,
    or use a `BatchSpanProcessor`.

    Args:
        exporter: Where spans go: an exporter, or its name as in `OTEL_TRACES_EXPORTER` (`otlp`,
            `console`, `none`, any of the entry points `opentelemetry_traces_exporter`), or a
            mapping of the one name to what the exporter is made with, for configuration files:
            `{"otlp_proto_http": {"endpoint": "http://…"}}`. The default is the name in
            `LOOPGUARD_EXPORTER`, or `otlp`. A name that is not there is warned about once, and
            spans go nowhere.
        guard: The guard whose decisions are written. The default is every guard that a live
            `LoopGuardSpanProcessor` feeds; where there is none, the guard of the process.
        **settings: Settings (see `Settings`) of a guard of its own, instead of `guard`, for where
            no processor watches. `LoopGuardInstrumentor` takes them over. None is as not given.

    Raises:
        LoopGuardSettingsError: A setting cannot be used, both `guard` and settings were given, or a
            mapping has not one name.
    """

    def __init__(
        self,
        exporter: SpanExporter | str | Mapping[str, Any] | None = None,
        guard: LoopGuard | None = None,
        **settings: Any,
    ) -> None:
        settings = given(settings)
        if guard is not None and settings:
            msg = f"a guard was given: set {sorted(settings)} in its Settings instead"
            raise LoopGuardSettingsError(msg)
        self._given = guard
        self._settings = Settings(**settings) if settings else None
        self._alone: LoopGuard | None = None
        self._unguarded = False
        self._inner = asked_for(exporter)
        self._arrivals = Arrivals(self._inner)
        writers[self] = None if guard is None else guard.faults
        # At shutdown the processor may end before the last batch comes, so what once was watched
        # by a processor stays watched: nothing is fed twice.
        self._watched = bool(self._watching())
        if settings:
            _given_settings[self] = settings

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Feeds a guard where nothing else does, annotates, and lets the inner exporter work.

        Returns:
            The result of the inner exporter; SUCCESS where there is none.
        """
        guards = self._watching()
        self._watched = self._watched or bool(guards)
        if not self._watched:
            guards = self._feed(spans)
        copies = [_annotated(guards, span) for span in spans]
        decided = sum(copy is not span for copy, span in zip(copies, spans, strict=True))
        error = "raised"
        try:
            result = self._inner.export(copies) if self._inner else SpanExportResult.SUCCESS
            error = "" if result is SpanExportResult.SUCCESS else "failure"
        finally:
            self._arrivals.note(len(copies), error)
            for guard in guards[:1]:
                guard.telemetry.numbers.exported(len(copies), decided, error)
        return result

    def shutdown(self) -> None:
        """Shuts the inner exporter down, after the guard has counted what it held back."""
        if self._alone is not None:
            with swallow(self._alone.faults, "exporter.shutdown"):
                self._alone.shutdown()
        if self._inner:
            self._inner.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Flushes the inner exporter, which has up to `timeout_millis` milliseconds."""
        return self._inner.force_flush(timeout_millis) if self._inner else True

    def _watching(self) -> tuple[LoopGuard, ...]:
        """Guards that live processors feed, of which this exporter writes the decisions."""
        if self._given is None:
            return LoopGuard.all_attached()
        return (self._given,) if self._given.attached else ()

    def _feed(self, spans: Sequence[ReadableSpan]) -> tuple[LoopGuard, ...]:
        """Shows ended spans to a guard as they happened; gives the guard, if there is one."""
        guard = self._alone
        if guard is None:
            guard = self._alone = self._made()
            if guard is None:
                return ()
        if guard.settings.enabled and not off():
            with swallow(guard.faults, "exporter.feed"):
                for _, started, view in sorted(_moments(spans), key=lambda moment: moment[0]):
                    with swallow(guard.faults, "exporter.feed"):
                        (guard.opened if started else guard.closed)(view)
                guard.tick(now())
        return (guard,)

    def _made(self) -> LoopGuard | None:
        """The guard that it feeds itself; None where the environment is wrong: spans go on."""
        if self._given is not None or self._unguarded:
            return self._given
        try:
            return LoopGuard(self._settings) if self._settings else LoopGuard.default()
        except LoopGuardSettingsError as error:
            self._unguarded = True
            logger.error("%s; spans go on as they are", error)
            return None


_given_settings: weakref.WeakKeyDictionary[LoopGuardSpanExporter, dict[str, Any]]
_given_settings = weakref.WeakKeyDictionary()


def exporter_settings() -> dict[str, Any]:
    """Settings that exporters were given, for a live guard that watches instead of theirs."""
    return {name: value for given in _given_settings.values() for name, value in given.items()}


def _annotated(guards: Sequence[LoopGuard], span: ReadableSpan) -> ReadableSpan:
    for guard in guards:
        with swallow(guard.faults, "exporter.annotate"):
            context = span.get_span_context()
            found = context and guard.annotation(context.trace_id, context.span_id)
            if found:
                return _copy(span, found)
    return span


def _moments(
    spans: Sequence[ReadableSpan],
) -> Iterator[tuple[tuple[int, int, int], bool, EndedSpan]]:
    """Yields starts and ends of spans, with keys that sort them as they happened.

    At one time, ends come before starts, but a span without duration starts before it ends;
    parents start before and end after their children.
    """
    for span in spans:
        view = EndedSpan(span)
        start = view.start
        end = max(view.end or 0, start)
        yield (start, 1, -end), True, view
        yield (end, 0 if end > start else 2, -start), False, view


def _copy(span: ReadableSpan, annotation: Annotation) -> ReadableSpan:
    """Builds the annotated copy; `instrumentation_info`, deprecated since 1.11, is left out."""
    attributes: dict[str, AnyValue] = {**(span.attributes or {})}
    turned = annotation.error is not None and span.status.status_code is not StatusCode.ERROR
    added = dict(annotation.attributes)
    kind = added.pop(semconv.ERROR_TYPE, _error_type(annotation))
    if turned:
        attributes.setdefault(semconv.ERROR_TYPE, kind)
    attributes.update(added)
    return ReadableSpan(
        name=span.name,
        context=span.get_span_context(),
        parent=span.parent,
        resource=span.resource,
        attributes=_attributes(attributes, span.dropped_attributes),
        events=_sequence(span.events, span.dropped_events),
        links=_sequence(_links(span, annotation), span.dropped_links),
        kind=span.kind,
        status=Status(StatusCode.ERROR, annotation.error) if turned else span.status,
        start_time=span.start_time,
        end_time=span.end_time,
        instrumentation_scope=span.instrumentation_scope,
    )


def _links(span: ReadableSpan, annotation: Annotation) -> Sequence[Link]:
    """The links of a span, and those to the first steps of the loop that was decided on."""
    context = span.get_span_context()
    if context is None or not annotation.links:
        return span.links
    flags = context.trace_flags
    added = (
        Link(SpanContext(trace_id, span_id, is_remote=False, trace_flags=flags))
        for trace_id, span_id in annotation.links
    )
    return (*span.links, *added)


def _error_type(annotation: Annotation) -> str:
    action = annotation.attributes.get(semconv.DECISION_ACTION)
    return semconv.ERROR_ABORT if action == Action.ABORT else semconv.ERROR_DENY


# Only the SDK's own containers have a dropped count. Where nothing was dropped the plain values do,
# and values that another processor put there past the SDK's checks stay as they are.
def _attributes(attributes: Mapping[str, AnyValue], dropped: int) -> Mapping[str, AnyValue]:
    if not dropped:
        return attributes
    bounded = BoundedAttributes(attributes=attributes)
    bounded.dropped = dropped
    return bounded


def _sequence(items: Sequence[_T], dropped: int) -> Sequence[_T]:
    if not dropped:
        return items
    bounded: BoundedList[_T] = BoundedList(None)
    bounded.extend(items)
    bounded.dropped = dropped
    return bounded
