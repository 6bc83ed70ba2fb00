"""Where one turn of a session ends and the next begins: runs, model calls, compacted contexts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from otel_loopguard._util.bounded import keep
from otel_loopguard.evidence.normalize import NAMED

if TYPE_CHECKING:
    from collections.abc import Container

    from otel_loopguard.core import Step


class Silence:
    """Counts the questions to a session's model since its last tool call.

    Model calls may each have a trace of their own. After a pause the count starts again, because a
    user may have spoken.
    """

    __slots__ = ("_end", "_trace_id", "_turns")

    def __init__(self) -> None:
        self._trace_id = self._turns = self._end = 0

    def turn(self, step: Step, gap_s: float) -> int:
        """The model was asked once more; how often by now."""
        paused = bool(self._end and step.start) and step.start - self._end >= gap_s * 1e9
        self._turns = 1 if paused and step.trace_id != self._trace_id else self._turns + 1
        self._trace_id, self._end = step.trace_id, step.end or 0
        return self._turns


_MOST: Final = 256
"""Runs of a session that are open at a time, as many as of a trace."""
_SPEAKERS: Final = 64
"""Speakers whose context is known: two models for each of 32 agents."""
_SAID: Final = 8
"""Texts that are remembered: programs alternate between few."""

_Speaker = tuple[int, str, str, str]


# Smaller contexts are a few pages: they halve with a question that is shorter.
_LEAST: Final = 8000


class ContextSizes:
    """The size of the context of each speaker of a session, the newest 64.

    A context is compacted when the input tokens of one speaker (agent, node and model, within one
    trace) fall to half of the most that they were, twice in a row, from at least 8,000 on. Once is
    no sign: a short question aside is not the context.
    """

    __slots__ = ("_sizes",)

    def __init__(self) -> None:
        self._sizes: dict[_Speaker, tuple[int, bool]] = {}

    def compacted(self, step: Step, tokens: int) -> bool:
        """Takes a model call and its input tokens; True if its context was compacted."""
        speaker = _speaker(step)
        most, fell = self._sizes.get(speaker, (0, False))
        falls = most >= _LEAST and tokens <= most / 2
        over = falls and fell
        size = (tokens if over else max(most, tokens), falls and not over)
        keep(self._sizes, speaker, size, _SPEAKERS)
        return over

    def agent_ended(self, step: Step) -> None:
        """An agent's run ended: its next one begins with a context of its own."""
        names = ("", (step.name or "")[:NAMED])
        for speaker in tuple(self._sizes):
            if speaker[0] == step.trace_id and speaker[1] in names:
                del self._sizes[speaker]


def _speaker(step: Step) -> _Speaker:
    agent, node, model = step.agent or "", step.node or "", step.model or ""
    return step.trace_id, agent[:NAMED], node[:NAMED], model[:NAMED]


class Turns:
    """Tells a user's turns from runs within a turn. O(open runs) per run.

    A turn begins with a run of an agent after another one has ended, while none is open in the
    session: beside an open run it is a sub-agent. If no run called a tool, but tools were called
    between the runs, the loop is the user's own code, which asks its model through an agent, and a
    run is no turn. Nor is a run that gets, without a pause, a text that was given before: a program
    runs its agent once per step.

    A run may arrive after its calls, since spans are exported when they end. Its trace shows that
    they are its own, and that what is below it is no further turn.
    """

    __slots__ = (
        "_announced", "_between", "_came_late", "_newest", "_open", "_said", "_trace_id", "calls",
        "ended", "over",
    )  # fmt: skip

    def __init__(self) -> None:
        self.over = self._announced = self._came_late = False
        self._trace_id: int = 0
        # When the newest run ended, nanoseconds since the epoch; 0 where that is not known.
        self.ended: int = 0
        # Keys of what the newest runs were given.
        self._said: tuple[int, ...] = ()
        # Tool calls since the last run began: those made while one was open, and the others.
        self.calls: int = 0
        self._between: int = 0
        # The newest of the others: its trace, when it began, and how many of its trace there are.
        self._newest: tuple[int, int, int] = (0, 0, 0)
        self._open: tuple[int, ...] = ()

    def begins(  # noqa: PLR0913
        self, span_id: int, opened: Container[int], said: int | None = None, *,
        announced: bool = False, paused: bool = True, trace_id: int = 0, late_from: int = 0,
        root: bool = False, inner: bool = False,
    ) -> bool | None:  # fmt: skip
        """Starts a topmost run; returns whether it is a new turn, None if it is open already.

        Args:
            span_id: Its span.
            opened: The spans that are open.
            said: Key of what the run is given; None if that is not known.
            announced: Whether an adapter says so, before the span begins.
            paused: Whether a user had the time to say something.
            trace_id: Its trace; 0 where that is not known.
            late_from: When it began, if steps of its trace that began later came before it; else 0.
            root: Whether nothing is above it.
            inner: Whether a run may be above it that will come later.
        """
        if span_id in self._open and span_id in opened:
            return None
        still = tuple(one for one in self._open if one in opened)
        self.over = self.over or len(still) < len(self._open)
        self._open = (*still, span_id)[-_MOST:]
        if still:
            return None
        trace, began, count = self._newest
        own = count if late_from and trace == trace_id and began >= late_from else 0
        if (late_from or inner) and trace_id == self._trace_id:
            # The turn has begun with a step, or with another run, of its trace.
            self.calls, self._between = self.calls + own, self._between - own
            self._came_late = root and self.calls > 0
            return None
        self._came_late = root and own > 0
        # The run of this span is the one that an adapter just announced.
        same = self._announced and not announced and not self.calls
        again = said is not None and said in self._said and not paused
        if said is not None:
            self._said = (*self._said[1 - _SAID :], said)
        turn = self.over and not (same or again) and (self.calls > 0 or self._between == own)
        self.over, self._announced = False, announced
        self._trace_id, self.calls, self._between = trace_id, own, 0
        return turn

    def precedes(self, trace_id: int, start: int, pause: int) -> bool:
        """True if a step without its run belongs to the next turn, whose run will also come late.

        Args:
            trace_id: Its trace.
            start: When it began, nanoseconds since the epoch.
            pause: Nanoseconds in which no user says something.
        """
        if not (self._came_late and self.over and self.calls) or trace_id == self._trace_id:
            return False
        if start - self.ended < pause:
            return False  # what its run is given tells, once that is there
        self._trace_id, self.over = trace_id, False
        self.calls = self._between = 0
        return True

    def began(self) -> None:
        """Counts everything so far as a run whose start was not seen."""
        if not self._open:
            self.over, self._between = True, 0

    def ends(self, span_id: int, at: int = 0, *, run: bool) -> None:
        """Ends a run, or a span that was taken for one."""
        if span_id in self._open:
            self._open = tuple(one for one in self._open if one != span_id)
            self.over, self.ended = self.over or (run and not self._open), at

    def called(self, opened: Container[int], step: Step) -> None:
        """Counts a tool call."""
        if self._announced:
            self.calls += 1
            return
        for one in self._open:
            if one in opened:
                self.calls += 1
                return
        self._between += 1
        trace, _, count = self._newest
        count = count if self._between > 1 and trace == step.trace_id else 0
        self._newest = step.trace_id, step.start, count + 1
