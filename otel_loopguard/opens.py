"""Spans that are open."""

from __future__ import annotations

from collections import Counter, OrderedDict
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from otel_loopguard.dialects import SpanView
    from otel_loopguard.sessions import Session
    from otel_loopguard.watch import Run, Ticket


_LONG_AGO: Final = 600 * 10**9
"""A start this far back, in nanoseconds, is told of a recording: nothing hangs by it."""


class Open:
    """One open span.

    Attributes:
        view: The span; live views show what was set on it meanwhile.
        parent: The open span above it, as far as it is known.
        session: Its session, where the context named one.
        since: Since when it runs by the clock of the guard, nanoseconds since the epoch.
        agent: Name of the agent whose run it is part of, as far as that was told at a start.
        ended: Whether it has ended.
        runs: Whether it is the run of an agent or a workflow, as far as its start told.
        run: The outermost such run that it is part of; None if none is known.
        top: The topmost run that it is part of, or what may turn out to be one; itself, if it is
            that. None if none is known.
        told: Whether it said at its start what it is.
        holds: Whether it is a trace of an SDK, around any number of runs.
        entered: The sessions in which it was taken for a run.
        said: Codes of what was said about its limits.
        ticket: When it is to be looked at next; None if it is not.
        unreadable: Whether it could not be looked at: nobody tries again.
    """

    __slots__ = (
        "agent", "ended", "entered", "holds", "parent", "run", "runs", "said", "session", "since",
        "ticket", "told", "top", "unreadable", "view",
    )  # fmt: skip

    def __init__(
        self, view: SpanView, parent: Open | None, session: Session | None, since: int = 0
    ) -> None:
        # What has ended is passed over, so that a chain of turns does not keep them all.
        parent = _still_open(parent)
        if parent is not None:
            parent.parent = _still_open(parent.parent)
        self.view = view
        self.parent = parent
        self.session = session
        self.since = since
        self.agent: str | None = None if parent is None else parent.agent
        self.ended = False
        self.runs = False
        self.run: Run | None = None if parent is None else parent.run
        top = None if parent is None else parent.top
        self.top: Open | None = None if top is None or top.ended else top
        self.told = True
        self.holds = False
        self.entered: tuple[Session, ...] = ()
        self.said: set[str] | None = None
        self.ticket: Ticket[object] | None = None
        self.unreadable = False

    def above(self) -> Iterator[Open]:
        """The open spans above it, nearest first; at most 64, whatever the ids say."""
        place = self.parent
        for _ in range(64):
            if place is None:
                return
            yield place
            place = place.parent


def _still_open(place: Open | None) -> Open | None:
    while place is not None and place.ended:
        place = place.parent
    return place


def shown_at(start: int, now: int) -> int:
    """Since when a span runs: its start, but never later than it is shown.

    A start more than ten minutes back is that of a recorded span; it counts from when it is shown.

    Args:
        start: What the span says, nanoseconds since the epoch.
        now: When it is shown, likewise.
    """
    return now if now - start > _LONG_AGO else min(start, now)


class Opens:
    """The open spans of one guard. O(1) per span.

    A span that never ends goes when there is no more room.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._open: OrderedDict[int, Open] = OrderedDict()
        self._in_trace: Counter[int] = Counter()
        # By identity: an open span keeps the session that the context named for it.
        self._in_session: Counter[int] = Counter()

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[Open]:
        return iter(self._open.values())

    def get(self, span_id: int | None) -> Open | None:
        """The open span of an id."""
        return None if span_id is None else self._open.get(span_id)

    def has(self, opened: Open) -> bool:
        """Whether this very span is still open."""
        return self._open.get(opened.view.span_id) is opened

    def uses(self, session: Session) -> bool:
        """Whether a span of a session is open."""
        return id(session) in self._in_session or not self._in_trace.keys().isdisjoint(
            session.traces
        )

    def add(self, span_id: int, opened: Open) -> Open | None:
        """Takes a span that started; gives the oldest one where there is no more room."""
        before = self._open.pop(span_id, None)
        self._open[span_id] = opened
        self._count(opened, 1)
        if before is None and len(self._open) > self._most:
            before = self._open.popitem(last=False)[1]
        if before is not None:
            self._count(before, -1)
        return before

    def take(self, span_id: int) -> Open | None:
        """Lets go of a span that ended."""
        opened = self._open.pop(span_id, None)
        if opened is not None:
            opened.ended = True
            self._count(opened, -1)
        return opened

    def _count(self, opened: Open, by: int) -> None:
        _add(self._in_trace, opened.view.trace_id, by)
        if opened.session is not None:
            _add(self._in_session, id(opened.session), by)


def _add(counter: Counter[int], key: int, by: int) -> None:
    counter[key] += by
    if counter[key] <= 0:
        del counter[key]
