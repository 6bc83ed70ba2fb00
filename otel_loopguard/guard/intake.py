"""Spans of the SDK that waited in the backlog, shown to the guard in order."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, Protocol, cast

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import get_current_span

from otel_loopguard._control.context import named_session
from otel_loopguard._control.flag import any_stops
from otel_loopguard.evidence import prepare
from otel_loopguard.spans.keys import INVOKES
from otel_loopguard.spans.reader import TOOL_SPAN, Reader, ScopeKind
from otel_loopguard.spans.sdk_views import (
    REWRITTEN,
    ActiveSpanView,
    EndedSpanView,
    attributes_of,
)

if TYPE_CHECKING:
    from collections import deque
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

    @property
    def decided(self) -> bool:
        """Whether something was decided that nobody has heard of yet."""
        ...

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


_Read = tuple[
    "Event", "ActiveSpanView | EndedSpanView | None", "Mapping[str, object]", "Step | None"
]
"""What started or ended; its view, if it is of interest for sure; its attributes; its step."""


class Intake:
    """Picks the spans that may be of interest. The backlog's lock is held.

    Attributes:
        passed_over: Names of scopes whose spans are of no interest, whatever they carry.
    """

    def __init__(self, reader: Reader, max_chars: int) -> None:
        self._reader, self._max_chars = reader, max_chars
        self._scopes, self._marks = reader.scopes, reader.marks
        self.passed_over: set[str] = {_OWN}

    def judge(self, guard: Guard, events: deque[Event]) -> None:
        """Takes starts and ends off, in order, and shows the guard those that may be of interest.

        All are read before the first is judged: code that runs many times in a row is in the
        processor's cache by then. What comes after a decision is left, until it was heard.
        """
        began = time.perf_counter_ns()
        read = [self._read(guard, event) for event in events]
        took = (time.perf_counter_ns() - began) // len(read)
        for found in read:
            events.popleft()
            if found is None:
                continue
            (span, named, call, at, ended), view, attributes, step = found
            try:
                if ended:
                    if view is None and not self._drops(guard, span, at):
                        view = EndedSpanView(span, attributes)
                    if view is not None and not guard.active.is_second_end(span):
                        self._end(guard, cast("EndedSpanView", view), named, step, at, took)
                else:
                    if view is None and not self._defers(guard, span, named, call, at):
                        view = ActiveSpanView(span)
                    if view is not None:
                        view = cast("ActiveSpanView", view)
                        self._start(guard, span, view, named, call, at, attributes)
            except Exception as fault:  # noqa: BLE001
                guard.faults.caught("_ended" if ended else "_started", fault)
            if guard.decided:
                break

    def _read(self, guard: Guard, event: Event) -> _Read | None:
        """Reads a span, and the step of one that ended; None if it is of no interest."""
        span, ended, step = event[0], event[4], None
        try:
            scope = span.instrumentation_scope
            name = "" if scope is None else scope.name
            if name in self.passed_over:
                return None
            interest = self._scopes.get(name) or self._reader.interest(name)
            if interest is _NONE:
                if len(self.passed_over) < _SCOPES:
                    self.passed_over.add(name)
                return None
            attributes = attributes_of(span)
            if interest is not _AGENT and self._marks.isdisjoint(attributes):
                return (event, None, attributes, None) if interest is _MIXED else None
            if not ended:
                return event, ActiveSpanView(span, name), attributes, None
            view = EndedSpanView(span, attributes, name)
        except Exception as fault:  # noqa: BLE001
            guard.faults.caught("_ended" if ended else "_started", fault)
            return None
        if REWRITTEN not in attributes:
            try:
                step = self._reader.read(view)
                if step is not None:
                    prepare(step, self._max_chars)
            except Exception:  # noqa: BLE001
                step = None  # it is read once more, and told then
        return event, view, attributes, step

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

    @staticmethod
    def _end(  # noqa: PLR0913, PLR0917
        guard: Guard, view: EndedSpanView, session: str | None, step: Step | None, at: int,
        read_ns: int,
    ) -> None:  # fmt: skip
        began, numbers = 0, guard.telemetry.numbers
        timed = numbers.timed
        if timed.left > 1:
            timed.left -= 1
        else:
            began = numbers.began()
        guard.end(view, session, step, at)
        if began:
            numbers.ended(began - read_ns, view.trace_id, view.span_id)

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
