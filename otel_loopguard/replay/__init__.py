"""Recorded runs: files of spans, of labelled steps or of coding agents, read and replayed.

`Recording` reads a file, `recordings` finds the transcripts of a folder; `SpanReplay` and
`replay_run` feed them to a guard on the recording's own clock. Nothing here needs
OpenTelemetry, a terminal or the network.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import inf
from typing import Final, Protocol

from otel_loopguard._util.bounded import BoundedDict
from otel_loopguard._util.fields import is_map, sequence
from otel_loopguard.core import Action, Decision, Step
from otel_loopguard.core.decision import rank
from otel_loopguard.replay.followed_transcripts import FollowedFolders, FollowedSession
from otel_loopguard.replay.labelled_runs import Run
from otel_loopguard.replay.recording import Recording, recordings
from otel_loopguard.replay.transcripts import Transcript
from otel_loopguard.spans.views import RecordedSpan, SpanView

__all__ = [
    "MISTIMED", "REPEATED", "Feed", "FollowedFolders", "FollowedSession", "Recording", "Run",
    "SessionResult", "SpanChecks", "SpanReplay", "Transcript", "recordings", "replay_run",
]  # fmt: skip

# Traces whose sessions and times are known: 15 MB. A span of an older one counts as out of time.
_TRACES: Final = 100_000
# What a span costs beside its texts, in characters: objects, names of attributes, places in heaps.
_SPAN_CHARS: Final = 1_000
# Spans that are known when they come again: 43 MB (tracemalloc, Python 3.11).
_SPANS: Final = 200_000
_END, _START = 0, 1  # of events at one time ends come first


@dataclass(slots=True)
class SessionResult:
    """The decisions about one session.

    Attributes:
        source: Source of a labelled run, else the name of the file.
        session: Its key: the id of a labelled run, a conversation id, or a trace id.
        decisions: Every decision, in order.
    """

    source: str = ""
    session: str = ""
    decisions: list[Decision] = field(default_factory=list["Decision"])

    @property
    def strongest(self) -> Action:
        """The strongest action decided; allow if there was none."""
        actions = (decision.action for decision in self.decisions)
        return max(actions, key=rank, default=Action.ALLOW)


class Feed(Protocol):
    """The part of a guard that a replay needs, such as `LoopGuard(clock="replay")`."""

    def on_start(self, span: SpanView) -> None:
        """A span started."""

    def on_end(self, span: SpanView, *, step: Step | None = None) -> None:
        """A span ended; `step` is its step, where it was read."""

    def observe(self, step: Step, session: str) -> None:
        """A canonical step of a session."""

    def tick(self, now: int) -> None:
        """The clock is now `now`, in nanoseconds since the epoch."""

    def bind(self, trace_id: int, session: str) -> None:
        """A trace belongs to a session."""


REPEATED: Final = "a span came again, and counts once"
MISTIMED: Final = "a span starts before 1973: its times are not in the unit of their format"
_EARLIEST: Final = 100_000_000 * 1_000_000_000  # a time of today in µs is 1970 in ns, as in ms


class SpanChecks:
    """Looks at all spans of a recording, in its order.

    Exporters that retry, and files that overlap, write spans twice. Of a trace id and a span id the
    first one counts, unless it has no length, as of a span that was written while it was open, and
    this one has.

    Args:
        told: Counts what is found: `REPEATED`, `MISTIMED`.
    """

    def __init__(self, told: Counter[str]) -> None:
        self._told = told
        self._ended: BoundedDict[int, bool] = BoundedDict(_SPANS)

    def takes(self, span: RecordedSpan) -> bool:
        """False of a span that came before."""
        place = hash((span.trace_id, span.span_id))
        ended = span.end is not None and span.end > span.start
        known = self._ended.get(place)
        if known is not None and known >= ended:
            self._told[REPEATED] += 1
            return False
        self._ended[place] = ended
        if 0 < span.start < _EARLIEST:
            self._told[MISTIMED] += 1
        return True


class SpanReplay:
    """Feeds recorded spans to a guard, their starts and ends in order of time.

    Files hold spans in the order of their export, roughly by end; a guard has to see them start and
    end.

    Of events at one time, ends come before starts, and parents start before and end after their
    children (as far as times or the order of export tell). The clock is moved before each event.
    When the buffer is full its earliest event goes; a span that comes after its time is still fed,
    at once. A trace that comes as a whole after its time (files whose traces do not stand in order
    of time) waits until the buffer has run empty, and the clock goes back to its start.

    Args:
        feed: The guard.
        read: Reads a span as a step, to learn its session id before anything of it is fed.
    """

    max_spans = 20_000
    """Spans that the buffer holds."""
    max_chars = 64_000_000
    """Characters of names and attribute values that the buffer holds, about."""

    def __init__(self, feed: Feed, read: Callable[[SpanView], Step | None]) -> None:
        self._feed = feed
        self._read = read
        self._heap: list[_Event] = []
        self._later: list[tuple[RecordedSpan, Step | None, int]] = []
        self._waiting: set[int] = set()
        self._fed: BoundedDict[int, None] = BoundedDict(_TRACES)
        self._bound: BoundedDict[int, None] = BoundedDict(_TRACES)
        self._now = 0
        self._order = 0
        self._chars = 0

    def add(self, span: RecordedSpan, step: Step | None = None) -> None:
        """Takes one span, and its step if it was read; feeds what the buffer cannot hold."""
        step = self._bind(span, step)
        chars = _chars(span)
        self._chars += chars
        late = span.start < self._now and span.trace_id not in self._fed
        if late or span.trace_id in self._waiting:
            self._waiting.add(span.trace_id)
            self._later.append((span, step, chars))
        else:
            self._start(span, step, chars)
        while len(self._heap) + len(self._later) > self.max_spans or self._chars > self.max_chars:
            self._advance()

    def finish(self) -> None:
        """Feeds all that the buffer still holds; what comes then has an order of its own."""
        while self._heap or self._later:
            self._advance()
        self._now = 0

    def _bind(self, span: RecordedSpan, step: Step | None) -> Step | None:
        """Names the session of a trace, once a span has one; returns what was read for it."""
        if span.trace_id in self._bound:
            return step
        step = step or self._read(span)
        if step is not None and step.session is not None:
            self._bound[span.trace_id] = None
            self._feed.bind(span.trace_id, step.session)
        return step

    def _start(self, span: RecordedSpan, step: Step | None, chars: int) -> None:
        self._fed[span.trace_id] = None
        self._order += 1
        end = inf if span.end is None else span.end
        heappush(self._heap, (span.start, _START, -end, -self._order, span, step, chars))

    def _advance(self) -> None:
        """Feeds the earliest event."""
        if not self._heap:
            self._turn_back()
        time, phase, _, order, span, step, chars = heappop(self._heap)
        if time > self._now:
            self._now = time
            self._feed.tick(time)
        if phase == _START:
            self._feed.on_start(span.started())
            if span.end is not None:
                end = max(span.end, span.start)
                heappush(self._heap, (end, _END, -span.start, -order, span, step, chars))
                return
        else:
            self._feed.on_end(span, step=step)
        self._chars -= chars

    def _turn_back(self) -> None:
        """Begins again with the traces that came after their time; nothing else is under way."""
        self._now = 0
        self._fed.clear()
        self._waiting.clear()
        later, self._later = self._later, []
        for span, step, chars in later:
            self._start(span, step, chars)


def replay_run(feed: Feed, run: Run) -> None:
    """Feeds a labelled run: its steps in order, in a session named after the run.

    The clock is moved to the start of each step whose start is known, never back.
    """
    now = 0
    for step in run.steps:
        if step.start > now:
            now = step.start
            feed.tick(now)
        feed.observe(step, run.id)


_Event = tuple[int, int, float, int, RecordedSpan, "Step | None", int]
"""Time, phase, rank in it, order of arrival (children are exported first), span, its step if it was
read, characters."""


def _chars(span: RecordedSpan) -> int:
    """Characters of the text in a span, and a flat amount for the rest."""
    total = _SPAN_CHARS + len(span.name)
    waiting: list[object] = [attributes for _, attributes in span.events]
    for value in span.attributes.values():
        if isinstance(value, str):
            total += len(value)
        else:
            waiting.append(value)
    while waiting:
        value = waiting.pop()
        if isinstance(value, (str, bytes)):
            total += len(value)
        elif is_map(value):
            waiting.extend(value.values())
        else:
            waiting.extend(sequence(value))
    return total
