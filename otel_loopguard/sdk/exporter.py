"""LoopGuardSpanExporter: exports annotated spans to the next exporter.

The SDK freezes a span before `on_end`, so what was decided about a span that has ended can only be
put on a copy, and only on the way to the exporter (opentelemetry-python#5614).
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast
from urllib.parse import urlsplit

from opentelemetry.attributes import BoundedAttributes
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.util import BoundedList
from opentelemetry.trace import Link, SpanContext, Status, StatusCode

from otel_loopguard import semconv
from otel_loopguard._util import clock
from otel_loopguard._util.clock import now, off
from otel_loopguard._util.errors import logger, swallow
from otel_loopguard._util.locks import new_lock, settle
from otel_loopguard._util.text import expected
from otel_loopguard.core import Action
from otel_loopguard.errors import LoopGuardSettingsError
from otel_loopguard.guard.guard import LoopGuard
from otel_loopguard.settings import Settings
from otel_loopguard.spans.sdk_views import EndedSpanView
from otel_loopguard.telemetry.span_annotator import writers

if TYPE_CHECKING:
    from opentelemetry.util.types import AnyValue

    from otel_loopguard.core.decision import Annotation

_GROUP: Final = "opentelemetry_traces_exporter"
_VARIABLE: Final = "LOOPGUARD_EXPORTER"
_OTLP: Final = {
    "grpc": ("otlp_proto_grpc",),
    "http/protobuf": ("otlp_proto_http",),
    "": ("otlp_proto_grpc", "otlp_proto_http"),
}

_NOWHERE: Final = "spans are watched and go nowhere: exporter %r (%s, entry points %s) %s"


def without_none(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings without those that are None: in a configuration file a variable that is not set."""
    return {name: value for name, value in settings.items() if value is not None}


def resolve_exporter(
    exporter: SpanExporter | str | Mapping[str, Any] | None,
) -> SpanExporter | None:
    """The exporter that is asked for: itself, by name, or by name with its options.

    None is the name in `LOOPGUARD_EXPORTER`. Gives None where spans go nowhere.
    """
    options: Mapping[str, Any] = {}
    if isinstance(exporter, Mapping):
        if len(exporter) != 1:
            msg = f"exporter must be one name with its options, got {sorted(exporter)}"
            raise LoopGuardSettingsError(msg)
        ((exporter, given),) = exporter.items()
        if not isinstance(given, (Mapping, type(None))):
            raise TypeError(f"exporter {exporter!r}: {expected('its options by name', given)}")
        options = without_none(cast("Mapping[str, Any]", given or {}))
    if exporter is not None and not isinstance(exporter, str):
        if isinstance(exporter, type) or not hasattr(exporter, "export"):
            instead = f"{exporter.__name__}()" if isinstance(exporter, type) else ""
            raise TypeError(expected("a SpanExporter or the name of one", exporter, instead))
        return exporter
    name = (exporter or os.environ.get(_VARIABLE) or "otlp").strip()
    if name == "none":
        return None
    found, why = _entry_point(name), "is not installed"
    if found is None and name.startswith("otlp"):
        why += ": pip install 'otel-loopguard[otlp]'"
    try:
        factory = found.load() if found else None
    except (ImportError, AttributeError) as error:
        factory, why = None, f"does not load ({error})"
    if factory is None:
        logger.warning(_NOWHERE, name, _VARIABLE, _GROUP, why)
        return None
    return factory(**options)


def _entry_point(name: str) -> EntryPoint | None:
    names = (name,)
    if name == "otlp":
        protocol = os.environ.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL") or os.environ.get(
            "OTEL_EXPORTER_OTLP_PROTOCOL", ""
        )
        names = _OTLP.get(protocol.strip(), ())
    candidates = (found for name in names for found in entry_points(group=_GROUP, name=name))
    # Its own name would wrap without end.
    return next((found for found in candidates if found.name != "loopguard"), None)


class ExportHealth:
    """Warns once when an exporter begins to fail, and once when it works again.

    The exporters of the SDK log why each batch failed, but neither the address nor how much is
    lost.
    """

    def __init__(self, exporter: SpanExporter | None) -> None:
        # Not public, but all exporters of OTLP have it; the name alone is not much of a help.
        place = _place(getattr(exporter, "_endpoint", ""))
        self._where = type(exporter).__name__ + (f" to {place}" if place else "")
        self._lost = 0

    def record(self, spans: int, error: str) -> None:
        """Records how an export of some spans ended; `error` is empty where it did not fail."""
        lost, self._lost = self._lost, self._lost + spans if error else 0
        if error and not lost:
            told = "spans, and the decisions on them, do not arrive: %s %s"
            logger.warning(told + "; its own log says why", self._where, error)
        elif lost and not error:
            told = "spans arrive again: %s; %d were lost in between"
            logger.warning(told, self._where, lost)


def _place(endpoint: object) -> str:
    """Host and port of an address, whose other parts may be secret; empty for an invalid one."""
    written = f"{endpoint}"
    with suppress(ValueError):
        parts = urlsplit(written if "//" in written else f"//{written}")
        port = "" if parts.port is None else f":{parts.port}"
        return f"{parts.hostname or ''}{port}"
    return ""


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
        TypeError: What was given is no exporter.
    """

    def __init__(
        self,
        exporter: SpanExporter | str | Mapping[str, Any] | None = None,
        guard: LoopGuard | None = None,
        **settings: Any,
    ) -> None:
        settings = without_none(settings)
        if guard is not None and settings:
            msg = f"a guard was given: set {sorted(settings)} in its Settings instead"
            raise LoopGuardSettingsError(msg)
        self._given = guard
        self._settings = Settings(**settings) if settings else None
        self._own_guard: LoopGuard | None = None
        self._making = new_lock()
        self._failed = False
        self._inner = resolve_exporter(exporter)
        self._health = ExportHealth(self._inner)
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
            self._health.record(len(copies), error)
            for guard in guards[:1]:
                guard.telemetry.numbers.exported(len(copies), decided, error)
        return result

    def shutdown(self) -> None:
        """Shuts the inner exporter down, after the guard has counted what it held back."""
        if self._own_guard is not None:
            with swallow(self._own_guard.faults, "exporter.shutdown"):
                self._own_guard.shutdown()
        if self._inner:
            self._inner.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Flushes the inner exporter, which has up to `timeout_millis` milliseconds."""
        return self._inner.force_flush(timeout_millis) if self._inner else True

    def _watching(self) -> tuple[LoopGuard, ...]:
        """Guards that live processors feed, of which this exporter writes the decisions."""
        if self._given is None:
            # That of a test has an exporter of its own, and ends with it.
            return tuple(one for one in LoopGuard.all_attached() if one is not clock.state.only)
        return (self._given,) if self._given.attached else ()

    def _feed(self, spans: Sequence[ReadableSpan]) -> tuple[LoopGuard, ...]:
        """Shows ended spans to a guard as they happened; gives the guard, if there is one."""
        guard = self._own_guard
        if guard is None:
            with self._making:  # behind a `SimpleSpanProcessor` threads come at once
                guard = self._own_guard = self._own_guard or self._create_guard()
            settle()
            if guard is None:
                return ()
        if guard.settings.enabled and not off(guard):
            with swallow(guard.faults, "exporter.feed"):
                moments = _moments(_unfed(guard, spans))
                for _, started, view in sorted(moments, key=lambda moment: moment[0]):
                    with swallow(guard.faults, "exporter.feed"):
                        (guard.on_start if started else guard.on_end)(view)
                guard.tick(now())
        return (guard,)

    def _create_guard(self) -> LoopGuard | None:
        """The guard that it feeds itself; None where the environment is wrong: spans go on.

        None as well where a live processor is there and was switched off.
        """
        if self._given is not None or self._failed or LoopGuard.any_switched_off():
            return self._given
        try:
            return LoopGuard(self._settings) if self._settings else LoopGuard.default()
        except LoopGuardSettingsError as error:
            self._failed = True
            logger.error("%s; spans go on as they are", error)
            return None


_given_settings: weakref.WeakKeyDictionary[LoopGuardSpanExporter, dict[str, Any]]
_given_settings = weakref.WeakKeyDictionary()


def exporter_settings() -> dict[str, Any]:
    """Settings that exporters were given, for a live guard that watches instead of theirs."""
    return {name: value for given in _given_settings.values() for name, value in given.items()}


# Of each guard: a span goes to all exporters as the same object.
_fed: Final[weakref.WeakKeyDictionary[LoopGuard, weakref.WeakSet[ReadableSpan]]]
_fed = weakref.WeakKeyDictionary()
_feeding: Final = new_lock()


def _unfed(guard: LoopGuard, spans: Sequence[ReadableSpan]) -> list[ReadableSpan]:
    """The spans that no other exporter has shown to the guard."""
    with _feeding:
        known = _fed.setdefault(guard, weakref.WeakSet())
        unfed = [span for span in spans if span not in known]
        known.update(unfed)
    settle()
    return unfed


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
) -> Iterator[tuple[tuple[int, int, int], bool, EndedSpanView]]:
    """Yields starts and ends of spans, with keys that sort them as they happened.

    At one time, ends come before starts, but a span without duration starts before it ends;
    parents start before and end after their children.
    """
    for span in spans:
        view = EndedSpanView(span)
        start = view.start
        end = max(view.end or 0, start)
        yield (start, 1, -end), True, view
        yield (end, 0 if end > start else 2, -start), False, view


def _copy(span: ReadableSpan, annotation: Annotation) -> ReadableSpan:
    """Builds the annotated copy; `instrumentation_info`, deprecated since 1.11, is left out."""
    attributes: dict[str, AnyValue] = {**(span.attributes or {})}
    turned = annotation.error is not None and span.status.status_code is not StatusCode.ERROR
    added = annotation.added_to(attributes)
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
