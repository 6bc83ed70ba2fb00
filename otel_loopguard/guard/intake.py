"""Spans of the SDK that waited in the backlog, shown to the guard in order."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import get_current_span

from otel_loopguard._control.context import CurrentCall, named_session
from otel_loopguard._control.flag import STOPPING, Flag
from otel_loopguard._util.errors import is_of_signal
from otel_loopguard.evidence import prepare
from otel_loopguard.sessions.active import ActiveSpans, Deferred
from otel_loopguard.spans.reader import TOOL_SPAN, Reader, ScopeKind
from otel_loopguard.spans.sdk_views import REWRITTEN, ActiveSpanView, EndedSpanView, attributes_of
from otel_loopguard.spans.steps import INVOKES, tells_late

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Mapping

    from opentelemetry.context import Context

    from otel_loopguard._util.backlog import Event
    from otel_loopguard._util.errors import InternalErrors
    from otel_loopguard.core import Step
    from otel_loopguard.sessions.observation import Subscribers
    from otel_loopguard.spans.views import SpanView
    from otel_loopguard.telemetry import Telemetry

_AGENT: Final = ScopeKind.AGENT
_MIXED: Final = ScopeKind.MIXED
_NONE: Final = ScopeKind.NONE
_UNKNOWN: Final = ScopeKind.UNKNOWN
_SCOPES: Final = 1024
"""Scopes that are remembered: in one whose name is made up later every span is looked at."""


class Guard(Protocol):
    """The parts of a guard that it needs."""

    active: ActiveSpans
    faults: InternalErrors
    subscribers: Subscribers
    telemetry: Telemetry

    def flag_of(self, place: str | int) -> Flag | None:
        """The flag of a session, by its key or a trace of it."""
        ...

    def on_start(  # noqa: PLR0913
        self, span: SpanView, session: str | None = None, above: SpanView | None = None,
        attributes: Mapping[str, object] | None = None, *, at: int | None = None,
        call: CurrentCall | None = None,
    ) -> None:  # fmt: skip
        """Handles a start."""
        ...

    def end(
        self, span: SpanView, session: str | None, step: Step | None, at: int | None, *, read: bool
    ) -> None:
        """Handles an end."""
        ...


class _Shown(NamedTuple):
    """A span that started or ended, as far as it was read before the first is judged.

    Attributes:
        event: The start or the end.
        scope: Name of the instrumentation scope.
        attributes: Those of the span.
        bare: Whether nothing on it tells of an agent.
        is_call: Whether a start says that it is a call, and so no run.
        view: Of what ended, its view.
        step: Its step; None if it is none, or was not read.
        read: Whether it was read.
    """

    event: Event
    scope: str
    attributes: Mapping[str, object]
    bare: bool = False
    is_call: bool = False
    view: EndedSpanView | None = None
    step: Step | None = None
    read: bool = False


class Intake:
    """Picks the spans that may be of interest."""

    def __init__(self, reader: Reader, max_chars: int) -> None:
        self._reader, self._max_chars = reader, max_chars
        self._scopes, self._marks = reader.scopes, reader.marks
        # Unknown scopes of which a span was to be read: what it tells is known only then.
        self._marked: set[str] = set()

    def ignores(self, span: ReadableSpan) -> bool:
        """True if a span that starts or ends need not be read; called by the hooks.

        Where most spans of a process are none of agents', keeping them costs more than this look.
        """
        scope = span.instrumentation_scope
        name = "" if scope is None else scope.name
        interest = self._scopes.get(name) or self._reader.interest(name)
        if interest is _NONE:
            return True
        if interest is not _UNKNOWN or name in self._marked:
            return False
        if self._marks.isdisjoint(attributes_of(span)):
            return True
        if len(self._marked) < _SCOPES:
            self._marked.add(name)
        return False

    def judge(self, guard: Guard, events: deque[Event]) -> None:
        """Takes starts and ends off, in order, and shows the guard those that may be of interest.

        The backlog's lock is held. All are read before the first is judged: code that runs many
        times in a row is in the processor's cache by then. What comes after a decision is left,
        until it was heard.
        """
        began = time.perf_counter_ns()
        read = [self._read(guard, event) for event in events]
        took, subscribers = (time.perf_counter_ns() - began) // len(read), guard.subscribers
        for found in read:
            events.popleft()
            if found is None:
                continue
            try:
                if found.event[4]:
                    self._end(guard, found, took)
                else:
                    self._start(guard, found)
            except Exception as fault:  # noqa: BLE001
                guard.faults.caught("_ended" if found.event[4] else "_started", fault)
            if subscribers.decided:
                break

    def _read(self, guard: Guard, event: Event) -> _Shown | None:
        """Reads a span, and the step of one that ended; None if it is of no interest."""
        span, ended, step, is_read = event[0], event[4], None, False
        try:
            scope = span.instrumentation_scope
            name = "" if scope is None else scope.name
            interest = self._scopes.get(name) or self._reader.interest(name)
            attributes = attributes_of(span)
            if interest is not _AGENT and self._marks.isdisjoint(attributes):
                return _Shown(event, name, attributes, bare=True) if interest is _MIXED else None
            if not ended:
                # In a scope that tells late, a topmost span stands for a run, whatever it says.
                is_call = self._reader.is_call(attributes) and not tells_late(str(name))
                return _Shown(event, name, attributes, is_call=is_call)
            view = EndedSpanView(span, attributes, name)
        except Exception as fault:  # noqa: BLE001
            guard.faults.caught("_ended" if ended else "_started", fault)
            return None
        if REWRITTEN not in attributes:
            try:
                step = self._reader.read(view)
                if step is not None:
                    prepare(step, self._max_chars)
                is_read = True
            except Exception as fault:
                if is_of_signal(fault):
                    raise
                step = None  # it is read once more, and told then
        return _Shown(event, name, attributes, view=view, step=step, read=is_read)

    def _start(self, guard: Guard, found: _Shown) -> None:
        span, context, call, at, _ = found.event
        session = named_session(context)
        no_run = found.bare or found.is_call
        if no_run and call is None and self._defers(guard, span, session, at, bare=found.bare):
            return
        view, active = ActiveSpanView(span, found.scope), guard.active
        known, deferred = active.by_id.get(view.span_id), active.deferred.get(view.span_id)
        if (known is not None and _is_view_of(known.view, span)) or (
            deferred is not None and deferred.span is span
        ):
            # The provider has this processor, or another one of the same guard, twice.
            active.expect_twice()
            return
        parent_id, above = view.parent_id, None
        if parent_id is not None and not (
            parent_id in active.by_id or parent_id in active.deferred
        ):
            above = _live_parent(context)
        guard.on_start(view, session, above, found.attributes, at=at, call=call)

    @staticmethod
    def _end(guard: Guard, found: _Shown, read_ns: int) -> None:
        span, session, _, at, _ = found.event
        if found.bare:
            # A tool's span may say so by its name alone.
            own, name = span.context, span.name
            if (
                own is not None
                and type(name) is str
                and not name.startswith(TOOL_SPAN)
                and guard.active.drop(own[1], at)
            ):
                return
        if guard.active.is_second_end(span):
            return
        view = found.view or EndedSpanView(span, found.attributes, found.scope)
        began, numbers = 0, guard.telemetry.numbers
        if numbers.untimed > 1:
            numbers.untimed -= 1
        else:
            began = numbers.began()
        guard.end(view, session, found.step, at, read=found.read)
        if began:
            numbers.ended(began - read_ns, view.trace_id, view.span_id)

    def _defers(
        self, guard: Guard, span: ReadableSpan, session: str | None, at: int, *, bare: bool
    ) -> bool:
        """Defers a span that is no run, as far as its start tells, where that is safe."""
        own, parent, name = span.context, span.parent, span.name
        # Ids are read by their places: a context is a tuple, and its properties are calls.
        if (
            own is None
            or type(name) is not str
            or (bare and name.startswith(INVOKES))
            # It is annotated if its session was stopped.
            or (STOPPING and (flag := guard.flag_of(own[0])) is not None and flag.stops)
        ):
            return False
        above, active = None, guard.active
        if parent is not None:
            above = parent[1]
            found = active.deferred.get(above)
            if found is not None and not found.described:
                if not self._marks.isdisjoint(attributes_of(found.span)):
                    return False
                found.described = True
        return active.defer(own[1], Deferred(span, at, not bare, not bare), above, session)


def _is_view_of(view: SpanView, span: ReadableSpan) -> bool:
    return isinstance(view, ActiveSpanView) and view.wraps(span)


def _live_parent(context: Context) -> ActiveSpanView | None:
    """Returns the parent span if it is of this process; its scope may be one not followed."""
    parent = get_current_span(context)
    try:
        return ActiveSpanView(parent) if isinstance(parent, ReadableSpan) else None
    except AttributeError:
        return None  # Laminar's wrapper of a span has no parent
