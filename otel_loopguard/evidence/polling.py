"""Whether a repeated call was waiting, judged by its answer and the clock."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from otel_loopguard._util.bounded import keep
from otel_loopguard._util.values import NamedTuple
from otel_loopguard.core import Effect, ErrorClass
from otel_loopguard.evidence.errors import error_class
from otel_loopguard.evidence.outcomes import has_failed, is_pending

if TYPE_CHECKING:
    from otel_loopguard.core import Step
    from otel_loopguard.evidence.calls import Call
    from otel_loopguard.evidence.outcomes import Outcome
    from otel_loopguard.settings import Settings

_TRACKED: Final = 64
_LEARNED: Final = 4.0
_PAYS: Final = 0.5
_EASE: Final = 1.5
_FADE: Final = 0.95


class RepeatBaseline:
    """Learns, per tool, how often an equal call got another answer than before.

    From four repeats on, of which half or more brought another answer, it takes half as many again
    of this tool's repeats before they count as a loop: whatever is watched through it moves.
    """

    __slots__ = ("_tools",)

    def __init__(self) -> None:
        self._tools: dict[str, tuple[float, float]] = {}

    def ease(self, tool: str, *, again: bool, changed: bool) -> float:
        """Notes a call and gives what the thresholds of its tool are multiplied by."""
        repeats, paid = self._tools.get(tool, (0.0, 0.0))
        if again:
            repeats, paid = repeats * _FADE + 1.0, paid * _FADE + changed
            keep(self._tools, tool, (repeats, paid), _TRACKED)
        return _EASE if repeats >= _LEARNED - 0.5 and paid >= _PAYS * repeats else 1.0


_REMEMBERED: Final = 64
_WORDINGS: Final = 4
_LONG_GAP: Final = 20_000_000_000
_REST: Final = 60_000_000_000
_SCHEDULE: Final = 300_000_000_000
_PENDING: Final = re.compile(
    rb"(?i)(?:\b|_)(?:pending|in[ _-]?progress|queued|running|waiting|processing|not (?:yet )?"
    rb"(?:ready|finished|done|complete)|no (?:new )?output|no new (?:messages?|events?|data)|still|"
    rb"starting|scheduled|provisioning|initiali[sz]ing|(?:database|file|table|state) is locked|"
    rb"(?:get|acquir(?:e|ing)|obtain) (?:an? |the )?(?:\w{1,20} )?lock|(?:held|locked|used) by"
    rb"(?: another)? process|resource (?:busy|temporarily unavailable))(?:\b|_)"
)
_SLEEP: Final = re.compile(r"\bsleep\s{1,4}(\d{1,5}(?:\.\d{1,3})?)\s?([smhSMH]?)")
_UNITS: Final = {"m": 60, "h": 3600}
_WATCHES: Final = re.compile(
    r"\b(?:tail|watch|status|squeue|qstat|journalctl|kubectl (?:get|rollout|logs|wait)|"
    r"gh (?:run|pr)|docker (?:ps|logs|inspect)|jobs|pgrep|ps)\b"
)
_POLLS: Final = re.compile(
    r"(?i)poll|status|wait|check|progress|watch|monitor|tail|receive|listen|consume|stream"
)


class Asked(NamedTuple):
    """How a call stands to the same call before it; see `Evidence`."""

    fresh: bool
    changed: bool = False
    gap: int | None = None
    waiting: bool = False
    pending: bool = False
    polls: bool = False
    spaced: bool = False


_FIRST: Final = Asked(True)
_FIRST_PENDING: Final = Asked(True, polls=True)

_Known = tuple[tuple["int | None", ...], int, int, int, int, int]
"""Answers and end of a call as it was made last; how often the session had rested, slept, polled,
and for how long it had idled.

A plain tuple, which the garbage collector need not look at.
"""


class Polling:
    """Remembers the answers of the newest 64 different calls of a session, and when it idled.

    A pending answer, or one of a tool that is declared to poll, is waiting if half of
    `tuning.calls.wait_gap_s` passed since it was asked for last, whatever ran meanwhile, or a call
    that does nothing but wait. Any other unchanged answer is waiting after
    `tuning.calls.wait_gap_s` in which nothing ran if it speaks of something pending anywhere, if it
    was another one among the last four, or if the name or command of its call says so (where the
    time that models took is known); 20 s are enough by themselves. So is one for which the call
    itself took that long, if it polls, and a command that sleeps that long. After a pause of
    `tuning.calls.wait_gap_s`, or where a command sleeps at all, it may be one in any case; so it
    may after half of that, in one pause or several, if its name says that it polls.

    Whatever else is asked again while something is pending, unchanged, is part of the wait.

    A look after a rest is spaced: five minutes and more in which nothing ran, in stretches of a
    minute and more. That is a schedule.
    """

    __slots__ = (
        "_answers", "_end", "_gap", "_idled", "_polled", "_rested", "_settings", "_slept",
        "_thought",
    )  # fmt: skip

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._gap = settings.tuning.calls.wait_gap_s * 1e9
        self._answers: dict[int, _Known] = {}
        self._end = 0
        self._thought = -1
        self._rested = 0
        self._idled = 0
        self._slept = 0
        self._polled = 0

    def thought(self, took: int) -> None:
        """A model took nanoseconds: thinking is not waiting."""
        self._thought = max(self._thought, 0) + max(took, 0)

    def asked(self, step: Step, call: Call, outcome: Outcome, effect: Effect) -> Asked:
        """Notes a call, and says how it stands to the same call before."""
        tool, end = step.name or "", step.end or 0
        # Nanoseconds since the newest call ended, without models' time; None without times.
        idle = None
        if self._end and step.start:
            idle = max(step.start - self._end - max(self._thought, 0), 0)
        if effect is Effect.WAIT:
            # A call that does nothing but wait is idling too.
            self._slept += 1
        else:
            self._end = max(self._end, end)
            self._thought = min(self._thought, 0)
            if idle is not None:
                self._idled += idle
                self._rested += idle if idle >= _REST else 0
        declared = tool in self._settings.polling
        # A transient error has a budget of its own.
        pending = is_pending(outcome, tool) and (
            not step.error or error_class(step) is not ErrorClass.TRANSIENT
        )
        self._polled += declared or pending
        if call.key is None:
            return Asked(False, polls=declared or pending)
        known = self._answers.get(call.key)
        before: tuple[int | None, ...] = () if known is None else known[0]
        answers = (*before[1 - _WORDINGS :], outcome.key)
        now = answers, end, self._rested, self._slept, self._polled, self._idled
        keep(self._answers, call.key, now, _REMEMBERED)
        if known is None:
            return _FIRST_PENDING if pending else _FIRST
        spaced = self._rested - known[2] >= _SCHEDULE
        if outcome.key != known[0][-1] or (outcome.key is None and not declared):
            changed = None not in before and outcome.key not in (None, *before)
            # Two answers by turns, each after a pause: it looks at something that moves.
            paused = idle is not None and idle >= self._gap and self._thought >= 0
            moves = paused and outcome.key in before and not has_failed(outcome)
            return Asked(False, changed, idle, pending=moves, polls=pending, spaced=spaced)
        return self._again(step, call, outcome, known, idle, spaced, declared or pending)

    def _again(  # noqa: PLR0913, PLR0917
        self, step: Step, call: Call, outcome: Outcome, known: _Known, idle: int | None,
        spaced: bool, polls: bool,
    ) -> Asked:  # fmt: skip
        """The same call with the answer that it had before."""
        _, ended, _, slept, polled, idled = known
        # Whoever waits for one thing looks at others meanwhile.
        if polls or self._polled > polled:
            apart = step.end - ended if step.end and ended else 0
            waited = self._slept != slept or 2 * apart >= self._gap
            waits = idle is not None and (waited or self._waits(step, call, idle, pending=True))
            return Asked(False, False, idle, waits, idle is None, True, spaced)
        words = _PENDING.search(outcome.raw[:2000]) is not None
        if idle is None:
            return Asked(False, pending=words)
        # What moved before, while nothing was done about it, may move again.
        moves = len(set(known[0])) > 1
        waits = self._waits(step, call, idle, pending=words or moves)
        if waits and has_failed(outcome):
            # Nothing more comes of it, unless somebody else starts it again meanwhile.
            return Asked(False, False, idle, False, True, False, spaced)
        # Without the time that models took, what passed between two calls may be thinking.
        polls = _polls(step.name or "", call.sample)
        seen = self._thought >= 0
        paused = idle >= self._gap and (not has_failed(outcome) if seen else polls)
        # Who looks at several things in turn pauses once for all of them.
        paused = paused or (seen and polls and 2 * (self._idled - idled) >= self._gap)
        took = (step.end or 0) - step.start
        slept_between = self._slept != slept and not has_failed(outcome)
        unsure = paused or slept_between or took >= _LONG_GAP or _sleeps(call.sample) >= 1
        return Asked(False, False, idle, waits, unsure and not waits, False, spaced)

    def _waits(self, step: Step, call: Call, idle: int, *, pending: bool) -> bool:
        if idle >= _LONG_GAP:
            return True
        took = max((step.end or 0) - step.start, 0)
        if max(idle, took, _sleeps(call.sample) * 1_000_000_000) < self._gap:
            return False
        named = (self._thought >= 0 or took >= self._gap) and _polls(step.name or "", call.sample)
        return pending or named or _sleeps(call.sample) > 0


def _polls(tool: str, sample: str) -> bool:
    return _POLLS.search(tool) is not None or _WATCHES.search(sample) is not None


def _sleeps(sample: str) -> float:
    """Seconds that a command sleeps, as far as it says."""
    found = _SLEEP.search(sample)
    if found is None:
        return 0.0
    return float(found[1]) * _UNITS.get(found[2].lower(), 1)
