"""Spans that are open, and which of them have been open for long."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from otel_loopguard.dialects import SpanView
    from otel_loopguard.sessions import Session


class Open:
    """One open span.

    Attributes:
        view: The span; live views show what was set on it meanwhile.
        parent: The open span above it, as far as it is known.
        session: Its session, where the context named one.
        since: When it was shown, or its start if that was before; nanoseconds since the epoch.
        agent: Name of the agent whose run it is part of, as far as that was told at a start.
        ended: Whether it has ended.
    """

    __slots__ = ("agent", "ended", "parent", "session", "since", "view")

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


class Opens:
    """The open spans of one guard, and two queues of deadlines. O(1) per span.

    Spans start in about the order of time, so that the one open for longest is at the front of
    its queue: the timer never looks at more than what is due. A span that never ends goes when
    there is no more room.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._open: OrderedDict[int, Open] = OrderedDict()
        self._warn: OrderedDict[int, Open] = OrderedDict()
        self._late: OrderedDict[int, Open] = OrderedDict()

    def __len__(self) -> int:
        return len(self._open)

    def __bool__(self) -> bool:
        return bool(self._open)

    def get(self, span_id: int | None) -> Open | None:
        """The open span of an id."""
        return None if span_id is None else self._open.get(span_id)

    def has(self, opened: Open) -> bool:
        """Whether this very span is still open."""
        return self._open.get(opened.view.span_id) is opened

    def add(self, span_id: int, opened: Open) -> None:
        """Takes a span that started."""
        self._open[span_id] = opened
        self._warn[span_id] = opened
        if len(self._open) > self._most:
            gone, _ = self._open.popitem(last=False)
            self._warn.pop(gone, None)
            self._late.pop(gone, None)

    def take(self, span_id: int) -> Open | None:
        """Lets go of a span that ended."""
        self._warn.pop(span_id, None)
        self._late.pop(span_id, None)
        opened = self._open.pop(span_id, None)
        if opened is not None:
            opened.ended = True
        return opened

    def to_warn(self, started_before: int) -> list[Open]:
        """Spans open since before a time, each once."""
        return _due(self._warn, started_before)

    def to_judge(self, started_before: int) -> list[Open]:
        """Of the spans given to `watch_further`, those open since before a time, each once."""
        return _due(self._late, started_before)

    def watch_further(self, opened: Open) -> None:
        """Keeps a span that was warned about until it is to be judged."""
        self._late[opened.view.span_id] = opened


def _due(queue: OrderedDict[int, Open], started_before: int) -> list[Open]:
    found: list[Open] = []
    while queue:
        opened = next(iter(queue.values()))
        if opened.since > started_before:
            break
        queue.popitem(last=False)
        found.append(opened)
    return found
