"""Spans of the SDK that waited in the backlog, shown to the guard in order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, cast

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import get_current_span

from otel_loopguard._control.context import named_session
from otel_loopguard._control.flag import any_stops
from otel_loopguard.spans.keys import INVOKES
from otel_loopguard.spans.reader import TOOL_SPAN, Reader, ScopeKind
from otel_loopguard.spans.sdk_views import ActiveSpanView, EndedSpanView, attributes_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from opentelemetry.context import Context

    from otel_loopguard._control.context import CurrentCall
    from otel_loopguard._control.flag import Flag
    from otel_loopguard._util.backlog import Event
    from otel_loopguard._util.errors import InternalErrors
    from otel_loopguard.core import Step
    from otel_loopguard.sessions.active import ActiveSpans, ToolSpans
    from otel_loopguard.spans.views import SpanView
    from otel_loopguard.telemetry import Telemetry

_AGENT: Final = ScopeKind.AGENT
_MIXED: Final = ScopeKind.MIXED
_NONE: Final = ScopeKind.NONE
_BY_NAME: Final = (TOOL_SPAN, INVOKES)
_SCOPES: Final = 1024
"""Scopes passed over at most: a program that makes up names of scopes pays for more."""
_OWN: Final = "otel_loopguard"
"""The scope of decision spans, which are no steps."""


class Guard(Protocol):
    """What a guard has for it."""

    active: ActiveSpans
    faults: InternalErrors
    telemetry: Telemetry
    tools: ToolSpans

    def flag_in(self, trace_id: int) -> Flag | None:
        """The flag of the session of a trace."""
        ...

    def on_start(  # noqa: PLR0913
        self, span: SpanView, session: str | None = None, above: SpanView | None = None,
        attributes: Mapping[str, object] | None = None, *, at: int | None = None,
        call: CurrentCall | None = None,
    ) -> None:  # fmt: skip
        """Handles a start."""
        ...

    def end(self, span: SpanView, session: str | None, step: Step | None, at: int | None) -> None:
        """Handles an end."""
        ...


class Intake:
    """Picks the spans that may be of interest. The backlog's lock is held.

    Attributes:
        passed_over: Names of scopes whose spans are of no interest, whatever they carry.
    """

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._scopes, self._marks = reader.scopes, reader.marks
        self.passed_over: set[str] = {_OWN}

    def judge(self, guard: Guard, event: Event) -> None:
        """Shows a start or an end to the guard, if it may be of interest."""
        span, named, call, at, ended = event
        try:
            scope = span.instrumentation_scope
            name = "" if scope is None else scope.name
            if name in self.passed_over:
                return
            interest = self._scopes.get(name) or self._reader.interest(name)
            if interest is _NONE:
                if len(self.passed_over) < _SCOPES:
                    self.passed_over.add(name)
                return
            attributes = attributes_of(span)
            wanted = interest is _AGENT or not self._marks.isdisjoint(attributes)
            if ended:
                if wanted or (interest is _MIXED and not self._drops(guard, span, at)):
                    self._end(guard, span, EndedSpanView(span, attributes, name), named, at)
            elif wanted or (interest is _MIXED and not self._defers(guard, span, named, call, at)):
                self._start(guard, span, ActiveSpanView(span, name), named, call, at, attributes)
        except Exception as fault:  # noqa: BLE001
            guard.faults.caught("_ended" if ended else "_started", fault)

    def _start(  # noqa: PLR0913, PLR0917
        self, guard: Guard, span: ReadableSpan, view: ActiveSpanView, context: Context,
        call: CurrentCall | None, at: int, attributes: Mapping[str, object],
    ) -> None:  # fmt: skip
        active = guard.active
        known, deferred = active.by_id.get(view.span_id), active.deferred.get(view.span_id)
        if (known is not None and _is_view_of(known.view, span)) or (
            deferred is not None and deferred[0] is span
        ):
            # The provider has this processor, or another one of the same guard, twice.
            active.expect_twice()
            return
        parent_id, above = view.parent_id, None
        if parent_id is not None and not (
            parent_id in active.by_id or parent_id in active.deferred
        ):
            above = _live_parent(context)
        guard.on_start(view, named_session(context), above, attributes, at=at, call=call)

    def _end(
        self, guard: Guard, span: ReadableSpan, view: EndedSpanView, session: str | None,
        at: int,
    ) -> None:  # fmt: skip
        if guard.active.is_second_end(span):
            return
        began, numbers = 0, guard.telemetry.numbers
        timed = numbers.timed
        if timed.left > 1:
            timed.left -= 1
        else:
            began = numbers.began()
        guard.end(view, session, None, at)
        if began:
            numbers.ended(began, view.trace_id, view.span_id)

    def _defers(
        self, guard: Guard, span: ReadableSpan, context: Context, call: CurrentCall | None,
        at: int,
    ) -> bool:  # fmt: skip
        """Defers a span without anything of interest at its start, where that is safe."""
        own, parent, name = span.get_span_context(), span.parent, span.name
        # Ids are read by their places: a context is a tuple, and its properties are calls.
        if (
            own is None
            or type(name) is not str
            or name.startswith(_BY_NAME)
            or guard.tools.first(name) is not None
            or named_session(context) is not None
            or call is not None
            # A root span is annotated if its session was stopped.
            or (parent is None and any_stops() and guard.flag_in(own[0]) is not None)
        ):
            return False
        above, active = None, guard.active
        if parent is not None:
            above = parent[1]
            found = active.deferred.get(above)
            if found is not None and above not in active.checked:
                if not self._marks.isdisjoint(attributes_of(cast("ReadableSpan", found[0]))):
                    return False
                active.checked.add(above)
        return active.defer(own[1], span, above, at)

    def _drops(self, guard: Guard, span: ReadableSpan, at: int) -> bool:
        """Forgets a deferred span that ended without anything of interest."""
        own, name = span.get_span_context(), span.name
        if own is None or type(name) is not str or name.startswith(TOOL_SPAN):
            return False
        return guard.active.drop(own[1], at)


def _is_view_of(view: SpanView, span: ReadableSpan) -> bool:
    return isinstance(view, ActiveSpanView) and view.wraps(span)


def _live_parent(context: Context) -> ActiveSpanView | None:
    """Returns the parent span if it is of this process; its scope may be one not followed."""
    parent = get_current_span(context)
    return ActiveSpanView(parent) if isinstance(parent, ReadableSpan) else None
