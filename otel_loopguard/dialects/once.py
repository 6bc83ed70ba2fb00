"""One call that several spans tell of is one step."""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import TYPE_CHECKING

from otel_loopguard.core import Kind, Step
from otel_loopguard.dialects.runs import Runs
from otel_loopguard.dialects.told import Told
from otel_loopguard.dialects.twins import (
    absorb,
    contradict,
    distance,
    encloses,
    ends_near,
    overlaps,
    related,
    same_name,
    same_tokens,
    starts_near,
    tells_of,
    together,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from otel_loopguard.dialects.view import SpanView

_RECENT = 256
_HELD = 128
_OPEN = 10_000
_LOOKED_AT = 64
_DEPTH = 32
_SECOND = 1_000_000_000
_NEVER = 2**63 - 1
# Tuples, because an enum member hashes in Python and compares by identity first.
_CALLS = (Kind.TOOL, Kind.HANDOFF)
_COUNTED_ONCE = (Kind.TOOL, Kind.MODEL, Kind.NODE, Kind.AGENT, Kind.HANDOFF)


class _Held:
    """A step that waits, from `since`, for spans which may say more of it."""

    def __init__(self, step: Step, waits: set[int], since: int) -> None:
        self.step = step
        self.waits = waits
        self.since = since


class Once:
    """Counts each call once, in the order in which spans end.

    A step that has arguments and result is counted at once; what other spans say of it later is
    dropped, but for a failure and what was unknown, which are put on the counted step. A tool call
    that lacks one of them is held while a span is open that may have more of it.

    Two steps are one call if kind and name are equal, arguments and call ids do not contradict,
    and: one is the direct parent of the other; or their scopes differ (or one is the serving side
    of the other), there was a time at which both ran, and within one run they start together or one
    encloses the other; or, in two traces, they start and end together. Two steps of one scope are
    parallel or successive calls.

    Not thread-safe by itself.

    Args:
        joined: Called with two trace ids that turned out to be one run.
        tolerance_ms: Milliseconds by which times of one call may differ.
    """

    def __init__(
        self, *, joined: Callable[[int, int], None] | None = None, tolerance_ms: float = 5.0
    ) -> None:
        self._tolerance = int(tolerance_ms * 1_000_000)
        self._runs = Runs(joined)
        self._open: dict[int, SpanView] = {}
        self._recent: deque[Step] = deque(maxlen=_RECENT)
        self._told = Told()
        self._inner: dict[int, Step] = {}
        self._held: list[_Held] = []
        self._scope: str | None = None
        self._several = False

    def opened(self, span: SpanView) -> None:
        """Notes a span that starts. Only its name, ids, scope and start are looked at."""
        if len(self._open) >= _OPEN:
            for span_id in tuple(islice(self._open, _OPEN // 4)):
                del self._open[span_id]
                self._inner.pop(span_id, None)
        self._open[span.span_id] = span

    def closed(self, span: SpanView, step: Step | None, now: int | None = None) -> tuple[Step, ...]:
        """Steps to count now that a span ended.

        Args:
            span: The span.
            step: Its step; None if it is none.
            now: The time by the clock of `overdue`, nanoseconds since the epoch; the end of the
                span by default.

        Returns:
            The steps to count, in order: those that waited for this span, then its own.
        """
        span_id = span.span_id
        self._open.pop(span_id, None)
        inner = self._inner.pop(span_id, None) if self._inner else None
        if step is None:
            return self._released(span_id) if self._held else ()
        if step.kind not in _COUNTED_ONCE:
            return (*self._released(span_id), step) if self._held else (step,)
        if inner is None and step.scope == self._scope and not self._several and not self._held:
            parent = self._open.get(step.parent_id) if step.parent_id is not None else None
            if parent is None or self._stands_alone(step, parent):
                self._recent.append(step)
                return (step,)
        return self._settled(span_id, step, inner, (span.end or 0) if now is None else now)

    @staticmethod
    def _stands_alone(step: Step, parent: SpanView) -> bool:
        """Whether the span around a step surely does not tell of it, by its name."""
        return not step.server and step.name is not None and step.name not in parent.name

    def overdue(self, now: int) -> tuple[Step, ...]:
        """Steps that have waited for a second, to be counted after all.

        Args:
            now: The time, nanoseconds since the epoch.
        """
        if not self._held:
            return ()
        late = [held for held in self._held if now - held.since > _SECOND]
        for held in late:
            self._held.remove(held)
        return tuple(self._counted(held.step) for held in late)

    @property
    def due(self) -> int:
        """When a step that waits will be overdue, nanoseconds since the epoch; else 2**63 - 1."""
        ends = (held.since + _SECOND + 1 for held in tuple(self._held))
        return min(ends, default=_NEVER)

    def _settled(self, span_id: int, step: Step, inner: Step | None, now: int) -> tuple[Step, ...]:
        """What to count for a step of which others may have spoken."""
        if self._scope is None:
            self._scope = step.scope
        elif step.scope != self._scope:
            self._several = True
        if inner is not None and same_name(inner, step) and not self._differ(inner, step):
            self._told.note(step, inner)
            absorb(inner, step)
            return self._released(span_id)
        held = self._waiting_twin(step)
        if held is not None:
            return self._merged(held, span_id, step)
        twin = self._twin(step, reversed(self._recent))
        if twin is not None:
            self._told.note(step, twin)
            absorb(twin, step)
            return self._released(span_id)
        before = self._released(span_id)
        waits = self._may_say_more(step) if step.lacks else None
        if not waits:
            return (*before, self._counted(step))
        self._held.append(_Held(step, waits, now))
        if len(self._held) > _HELD:
            return (*before, self._counted(self._held.pop(0).step))
        return before

    def _merged(self, held: _Held, span_id: int, step: Step) -> tuple[Step, ...]:
        """Puts a held step and one that ended into one, and counts it if it is complete."""
        first = held.step
        self._told.note(step, first)
        held.step = together(first, step)
        self._told.move(first, held.step)
        held.waits |= self._may_say_more(step)
        if not held.step.lacks:
            held.waits.clear()
        held.waits.add(span_id)
        return self._released(span_id)

    def _released(self, span_id: int) -> tuple[Step, ...]:
        """Held steps that waited only for this span; counted now."""
        if not self._held:
            return ()
        free: list[Step] = []
        for held in tuple(self._held):
            held.waits.discard(span_id)
            if not held.waits:
                self._held.remove(held)
                free.append(self._counted(held.step))
        return tuple(free)

    def _counted(self, step: Step) -> Step:
        self._recent.append(step)
        parent = self._open.get(step.parent_id) if step.parent_id is not None else None
        if parent is not None and step.name is not None and step.name in parent.name:
            self._inner[parent.span_id] = step
        return step

    def _waiting_twin(self, step: Step) -> _Held | None:
        twin = self._twin(step, (held.step for held in self._held)) if self._held else None
        return next((held for held in self._held if held.step is twin), None)

    def _twin(self, step: Step, earlier: Iterable[Step]) -> Step | None:
        """The step among earlier ones that tells of the same call; the closest if several do.

        Two traces are one run only if no third one fits: calls of sessions that run at the same
        time may look alike, and are then counted once each without joining their sessions.
        """
        fitting = self._fitting(step, earlier)
        if not fitting:
            return None
        run = self._runs.first(step.trace_id)
        inside = [other for other in fitting if self._runs.first(other.trace_id) == run]
        best = min(inside or fitting, key=lambda other: distance(other, step))
        if not inside and len({self._runs.first(other.trace_id) for other in fitting}) == 1:
            self._runs.join(best.trace_id, best.scope, step.trace_id, step.scope)
        return best

    def _fitting(self, step: Step, earlier: Iterable[Step]) -> list[Step]:
        earliest = step.start - self._tolerance
        latest = (step.end or step.start) + self._tolerance
        fitting: list[Step] = []
        for other in earlier:
            ended = other.end or other.start
            if ended < step.start - _SECOND:
                break
            # Times first: they cost least, and leave little to compare.
            near = ended >= earliest and other.start <= latest
            if near and same_name(other, step) and self._same(other, step):
                fitting.append(other)
        return fitting

    def _same(self, other: Step, step: Step) -> bool:
        """Whether two steps of equal kind and name are one."""
        if self._differ(other, step):
            return False
        if related(other, step):
            return True
        if self._told.by(step, other):
            return False
        # Only the clock of another process may be off; calls in a row can be quick, and equal.
        if not overlaps(other, step, self._tolerance if other.server or step.server else 0):
            return False
        if self._runs.first(other.trace_id) == self._runs.first(step.trace_id):
            return self._at_once(other, step)
        return (
            (step.kind in _CALLS or (step.kind is Kind.MODEL and same_tokens(other, step)))
            and starts_near(other, step, self._tolerance)
            and ends_near(other, step, self._tolerance)
            and (other.session is None or step.session is None or other.session == step.session)
            and self._runs.may_join(other.trace_id, other.scope, step.trace_id, step.scope)
        )

    def _at_once(self, other: Step, step: Step) -> bool:
        """Whether two steps of one run fall together in time.

        A busy machine puts more than the tolerance between two instrumentations: where both know
        the same of a call, it is enough that they overlap.
        """
        if starts_near(other, step, self._tolerance):
            return True
        if step.kind is Kind.MODEL:
            known = same_tokens(other, step)
        elif step.kind in _CALLS:
            known = step.args is not None and other.args is not None
            known = known or (step.call_id is not None and step.call_id == other.call_id)
        else:
            # An agent or a node inside another of its name is another one.
            return False
        within = overlaps if known else encloses
        return within(other, step, self._tolerance)

    @staticmethod
    def _differ(other: Step, step: Step) -> bool:
        if other.call_id is not None and step.call_id is not None and other.call_id != step.call_id:
            return True
        # The state of a node is written by each instrumentation in its own way.
        return step.kind is not Kind.NODE and contradict(other.args, step.args)

    def _may_say_more(self, step: Step) -> set[int]:
        """Open spans that may tell of the same call: around it, or started together with it."""
        found: set[int] = set()
        parent_id, direct = step.parent_id, True
        for _ in range(_DEPTH):
            parent = self._open.get(parent_id) if parent_id is not None else None
            if parent is None:
                break
            if (direct or parent.scope != step.scope or step.server) and tells_of(parent, step):
                found.add(parent.span_id)
            parent_id, direct = parent.parent_id, False
        for span in islice(reversed(self._open.values()), _LOOKED_AT):
            if span.start < step.start - self._tolerance and not step.server:
                break
            if self._beside(span, step) and tells_of(span, step):
                found.add(span.span_id)
        return found

    def _beside(self, span: SpanView, step: Step) -> bool:
        if step.server and span.trace_id == step.trace_id:
            return span.kind != "SERVER" and span.start <= step.start
        return span.scope != step.scope and abs(span.start - step.start) <= self._tolerance
