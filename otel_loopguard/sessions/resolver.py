"""Resolves the session of a run or a step from its span and the open spans around it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from otel_loopguard._util.bounded import BoundedDict
from otel_loopguard._util.errors import InternalErrors, attempt
from otel_loopguard.core import Kind, Step
from otel_loopguard.evidence.normalize import canonical, key_of
from otel_loopguard.sessions.active import Branch
from otel_loopguard.spans.steps import RUNS, holds_runs, is_message, is_nested, is_task, tells_late

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from otel_loopguard.sessions.active import ActiveSpan, ActiveSpans
    from otel_loopguard.sessions.registry import SessionRegistry
    from otel_loopguard.sessions.session import Session
    from otel_loopguard.spans.reader import Reader
    from otel_loopguard.spans.views import SpanView

_TOOL, _MODEL = Kind.TOOL, Kind.MODEL
_SESSIONS: Final = 8
"""Sessions that one run is a turn of: sub-agents with conversations of their own."""
_BESIDE: Final = 256
"""Open runs of one trace: a batch of agents has fewer, and each step looks at all."""
_LANES: Final = 0xFFFF_FFFF
"""Bits of a lane: those of a call within calls of other lanes would grow without end."""
_TRACES: Final = 10_000
"""Traces with open runs, as many as there are sessions: those that never end go."""
_PAUSE: Final = 5_000_000_000
"""Nanoseconds that are too short for a person to read an answer and send the same text again."""


def asked(run: Step | None) -> int | None:
    """A key of what an agent was asked; None for nothing."""
    given = None if run is None or run.kind is not Kind.AGENT else run.args
    return None if given is None else key_of(canonical(given))


class SessionResolver:
    """Finds the sessions of one guard's runs and steps. The guard's lock is held.

    Where `sees_starts` is False spans come when they have ended: a run after what is below it.
    """

    def __init__(  # noqa: PLR0913
        self, sessions: SessionRegistry, active: ActiveSpans, reader: Reader,
        faults: InternalErrors, clock: Callable[[int | None], int], *, sees_starts: bool = True,
    ) -> None:  # fmt: skip
        self._sessions = sessions
        self._active = active
        self._reader = reader
        self._faults = faults
        self._clock = clock
        self._sees_starts = sees_starts
        self._tops: BoundedDict[int, tuple[ActiveSpan, ...]] = BoundedDict(_TRACES)
        # Traces of which a step came that is below something unknown, and when the newest began.
        self._headless: BoundedDict[int, int] = BoundedDict(_TRACES)

    def look(self, opened: ActiveSpan | None, trace_id: int) -> None:
        """Reads what the open runs above a span were asked. Parses, so the lock is not held."""
        if opened is None or (top := opened.top) is None:
            return
        tops = self._tops.get(trace_id, ())
        if top.heard and tops == (top,):
            return
        for one in (*tops, top):
            if not one.heard:
                one.heard = True
                one.asked = asked(attempt(self._faults, "read", self._reader.read, one.view))

    def begins(self, opened: ActiveSpan, step: Step | None) -> None:
        """Handles a span's start: detects a run, its agent and its session."""
        view, parent = opened.view, opened.parent
        if step is None:
            if parent is not None and parent.holds and is_task(view):
                self._holds(parent)
                opened.runs = True
                self._root(opened, None)
            elif opened.top is None and tells_late(view.scope):
                self._root(opened, None)
            return
        opened.runs = True
        if step.kind is Kind.AGENT and not self._is_late(view):
            # Of one that comes after steps of its own, those that come now belong with these.
            opened.agent = step.name
        if is_nested(view):
            return
        if opened.session is None and step.session is not None:
            # Below the span of a request, too: what the run does comes before its end.
            known = self._sessions.of_trace(view.trace_id)
            if view.parent_id is None or known is None or not known.named:
                named = self._sessions.run(view.trace_id, step.session, self._clock(view.start))
                if named is not None and opened.top is not None:
                    self._enters(named, opened.top)
        if opened.top is None and not (parent is not None and is_message(view.scope)):
            opened.holds = holds_runs(view)
            self._root(opened, step)
        else:
            self._works(opened)

    def starts_below(self, opened: ActiveSpan | None) -> None:
        """Handles what starts below an open span: below a call, an agent is at work."""
        if opened is not None and opened.is_call and not opened.works:
            self._works(opened)

    def _works(self, opened: ActiveSpan) -> None:
        """Tells an agent at work below a span apart from those below others open at the same time.

        It works where a run begins, a model was called, or something starts below a call.
        """
        top, path = opened.top, [opened]
        while (place := path[-1]) is not top and not place.works:
            place.works = True
            if place.parent is None:
                return
            path.append(place.parent)
        above = path.pop()
        if path:
            number, inner = self._branch(above, path[-1]), above.inner
            if number:
                inner = (inner * _BESIDE + number) & _LANES
            for one in path:
                one.inner = inner

    @staticmethod
    def _branch(above: ActiveSpan, opened: ActiveSpan) -> int:
        """A number that no branch below a span has that was open with this one."""
        scope, name = opened.view.scope, opened.view.name
        # Another instrumentation has spans of the same work.
        beside = [one for one in above.branches if one.scope == scope]
        taken = {one.number for one in beside if one.ended is None or one.ended > opened.since}
        # The next round of the same branches may begin in another order.
        before = (one.number for one in beside if one.name == name and one.number not in taken)
        number = next(before, -1)
        if number < 0:
            number = next(lane for lane in range(_BESIDE + 1) if lane not in taken)
        opened.branch = Branch(scope, name, number)
        kept = (one for one in above.branches if one.scope != scope or one.number != number)
        above.branches = (*kept, opened.branch)[-_BESIDE:]
        return number

    def identify_late(self, opened: ActiveSpan, step: Step | None) -> bool:
        """Identifies a span again when its first child starts, as attributes may arrive late."""
        opened.described = True
        self.begins(opened, step)
        return opened.runs

    def ends(
        self, span: SpanView, opened: ActiveSpan | None, step: Step | None, at: int,
        judged: Iterable[tuple[Session, Step]],
    ) -> None:  # fmt: skip
        """Handles a span's end, after its sessions have observed its steps."""
        if opened is None:
            # It was of no interest when it started; of a trace's first span it is known what it is.
            if span.parent_id is None and step is not None and step.kind in RUNS:
                for session, _ in judged:
                    session.state.turns.began()
            return
        if opened.branch is not None:
            opened.branch.ended = at
        if opened.top is opened:
            self._drop(opened)
            run = opened.runs or (step is not None and step.kind in RUNS)
            for session in opened.entered:
                end = 0 if step is None else step.end or 0
                session.state.turns.ends(opened.view.span_id, end, run=run)

    def lost(self, opened: ActiveSpan) -> None:
        """Forgets an open span whose end will not be seen."""
        if opened.branch is not None:
            opened.branch.ended = 0
        if opened.top is opened:
            self._drop(opened)
        opened.entered = ()

    def next_run(self, session: str | None, trace_id: int, span_id: int) -> None:
        """Starts a run on behalf of an adapter; see `SessionQueries.next_run`."""
        current = self._active.by_id.get(span_id)
        if current is not None and current.top is not None:
            # Its span may not say so: OpenInference's of a graph is a chain's.
            current.top.runs = True
        found = None if session is None else self._sessions.find(session)
        found = found or self._sessions.of_trace(trace_id)
        if found is None:
            return
        if not found.run and found.state.progress.steps:
            # The previous run started before the session was known.
            found.state.turns.began()
        if current is None:
            self._begin(found, span_id, announced=True)
        elif current.top is not None:
            if current.top.holds and found in current.top.entered:
                # The spans of this trace do not separate its runs; the adapter does.
                if found.state.turns.calls:
                    found.state.turns.calls = 0
                    found.next_run(found.run)
                return
            self._enters(found, current.top)
        elif not any(self._is_call(one.view) for one in (current, *current.above())):
            self._begin(found, span_id, announced=True)

    def _is_call(self, view: SpanView) -> bool:
        step = attempt(self._faults, "read", self._reader.read, view)
        return step is not None and step.kind is _TOOL

    def _holds(self, opened: ActiveSpan) -> None:
        """Marks a span that contains runs and is none itself."""
        opened.top = None
        self._drop(opened)
        for session in opened.entered:
            session.state.turns.ends(opened.view.span_id, run=False)
        opened.entered = ()

    def _root(self, opened: ActiveSpan, step: Step | None) -> None:
        """Starts a topmost run, or a span that may be one."""
        opened.top = opened
        view, session = opened.view, opened.session
        beside = self._tops.get(view.trace_id, ())
        if beside:
            taken = {one.inner for one in beside if one.view.scope == view.scope}
            opened.inner = next(lane for lane in range(_BESIDE + 1) if lane not in taken)
        self._tops[view.trace_id] = (*beside, opened)[-_BESIDE:]
        named = None if step is None else step.session
        if session is None and named is not None and view.parent_id is not None:
            session = self._sessions.find(named)
        session = session or self._sessions.of_trace(view.trace_id)
        if session is not None:
            self._enters(session, opened)

    def _drop(self, opened: ActiveSpan) -> None:
        """Removes a span from the open runs of its trace."""
        trace_id = opened.view.trace_id
        remaining = tuple(one for one in self._tops.pop(trace_id, ()) if one is not opened)
        if remaining:
            self._tops[trace_id] = remaining

    def _enters(self, session: Session, top: ActiveSpan) -> None:
        """Assigns a run to a session: at its start, else at its first step."""
        if session not in top.entered:
            if not top.entered:
                self._beside(session, top)
            top.entered = (*top.entered, session)[-_SESSIONS:]
            self._begin(session, top.view.span_id, top.view.start, top.asked, view=top.view)

    def _beside(self, session: Session, top: ActiveSpan) -> None:
        """Tells a topmost run apart from those of its session that are open in other traces."""
        trace_id, scope = top.view.trace_id, top.view.scope
        found = (self._active.by_id.get(one) for one in session.state.turns.open)
        beside = [one for one in found if one is not None and one.view.trace_id != trace_id]
        if beside:
            beside += (one for one in self._tops.get(trace_id, ()) if one is not top)
            taken = {one.inner for one in beside if one.view.scope == scope}
            if top.inner in taken:
                top.inner = next(lane for lane in range(len(taken) + 1) if lane not in taken)

    def _begin(  # noqa: PLR0913
        self, session: Session, span_id: int, began: int = 0, said: int | None = None, *,
        announced: bool = False, view: SpanView | None = None,
    ) -> None:  # fmt: skip
        turns, late = session.state.turns, view is not None and self._is_late(view)
        root = view is not None and view.parent_id is None
        # A program runs its agent again at once.
        before = turns.ended if late else session.state.progress.time
        turn = turns.begins(
            span_id, self._active.by_id, said, announced=announced,
            paused=not 0 < began - before < _PAUSE, late_from=began if late else 0,
            trace_id=0 if view is None else view.trace_id, root=root,
            inner=view is not None and not (root or self._sees_starts) and began - before < _PAUSE,
        )  # fmt: skip
        if turn or (turn is not None and not session.run):
            session.run = (session.run or span_id) if turn else 0
            session.next_run(span_id, began, late=late)
        elif turn is not None:
            session.run = span_id

    def _is_late(self, view: SpanView) -> bool:
        """True if a step that began within a span came before it: exporters send ended spans."""
        return 0 < view.start <= self._headless.get(view.trace_id, 0)

    def _comes_first(self, session: Session, step: Step) -> None:
        """Handles a step below something unknown, which may be a run that will come later."""
        self._headless[step.trace_id] = max(step.start, self._headless.get(step.trace_id, 0))
        if session.run and session.state.turns.precedes(step.trace_id, step.start, _PAUSE):
            session.run = step.parent_id or session.run
            session.next_run(session.run, step.start)

    def resolve(self, step: Step, opened: ActiveSpan | None, now: int) -> Session:
        """Returns the session of a step; a new one if there is none."""
        if opened is not None and opened.session is not None:
            session = self._sessions.use(opened.session, now)
        else:
            session = self._sessions.of_step(step, now)
        if opened is not None and opened.top is not None:
            # The outer runs of a trace come first, whatever spans lie between them.
            for top in self._tops.get(step.trace_id, ()):
                if session not in top.entered:
                    self._enters(session, top)
            if session not in opened.top.entered:
                self._enters(session, opened.top)
        elif step.parent_id is not None:
            self._comes_first(session, step)
        if step.kind is _TOOL:
            session.state.turns.called(self._active.by_id, step)
        elif step.kind is _MODEL and opened is not None and opened.parent is not None:
            above = opened.parent
            if not above.works and above is not opened.top:
                self._works(above)
                step.lane = above.inner
        return session
