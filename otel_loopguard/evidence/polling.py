"""Whether a repeated call was waiting, judged by its answer and the clock."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from otel_loopguard._util.bounded import BoundedDict
from otel_loopguard.core import Effect, ErrorClass
from otel_loopguard.evidence.errors import error_class
from otel_loopguard.evidence.outcomes import is_pending

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
        self._tools: BoundedDict[str, tuple[float, float]] = BoundedDict(_TRACKED)

    def ease(self, tool: str, *, again: bool, changed: bool) -> float:
        """Notes a call and gives what the thresholds of its tool are multiplied by."""
        repeats, paid = self._tools.get(tool, (0.0, 0.0))
        if again:
            repeats, paid = repeats * _FADE + 1.0, paid * _FADE + changed
            self._tools[tool] = (repeats, paid)
        return _EASE if repeats >= _LEARNED - 0.5 and paid >= _PAYS * repeats else 1.0


_REMEMBERED: Final = 64
_WORDINGS: Final = 4
_LONG_GAP: Final = 20_000_000_000
_REST: Final = 60_000_000_000
_SCHEDULE: Final = 300_000_000_000
_PENDING: Final = re.compile(
    rb"(?i)\b(?:pending|in[ _-]?progress|queued|running|waiting|processing|not (?:yet )?(?:ready|"
    rb"finished|done|complete)|no (?:new )?output|still|starting|scheduled|provisioning|"
    rb"initiali[sz]ing)\b"
)
_SLEEP: Final = re.compile(r"\bsleep\s{1,4}(\d{1,5}(?:\.\d{1,3})?)\s?([smhSMH]?)")
_UNITS: Final = {"m": 60, "h": 3600}
_WATCHES: Final = re.compile(
    r"\b(?:tail|watch|status|squeue|qstat|journalctl|kubectl (?:get|rollout|logs|wait)|"
    r"gh (?:run|pr)|docker (?:ps|logs|inspect)|jobs|pgrep|ps)\b"
)
_POLLS: Final = re.compile(r"(?i)poll|status|wait|check|progress|watch|monitor|tail")


class Asked(NamedTuple):
    """How a call stands to the same call before it.

    Attributes:
        fresh: Whether it was not made before, as far back as is remembered.
        changed: Whether its answer is none of the last four that it had; False for a fresh one.
        gap: Nanoseconds in which nothing ran before it, neither a call nor a model; None for a
            fresh one, or without times.
        waiting: Whether it asks again, after or with a pause, for an answer that is pending.
        pending: Whether it may be waiting, and nothing tells: it polls after a pause in which a
            model may have thought, or it takes 20 s.
        polls: Whether its answer is pending by its own words, its tool is declared to poll, or
            something else was pending since it was made last.
        spaced: Whether the session rested for minutes since it was made last.
    """

    fresh: bool
    changed: bool
    gap: int | None
    waiting: bool
    pending: bool
    polls: bool = False
    spaced: bool = False


class _Known(NamedTuple):
    """A call as it was made last, and what had passed in the session until then."""

    answers: tuple[int | None, ...]
    end: int
    rested: int
    slept: int
    polled: int


class Polling:
    """Remembers the answers of the newest 64 different calls of a session, and when it idled.

    A pending answer, or one of a tool that is declared to poll, is waiting if half of
    `tuning.calls.wait_gap_s` passed since it was asked for last, whatever ran meanwhile, or a call
    that does nothing but wait. Any other unchanged answer is waiting after
    `tuning.calls.wait_gap_s` in which nothing ran if it speaks of something pending anywhere, or if
    the name or command of its call says so (where the time that models took is known); 20 s are
    enough by themselves. So is one for which the call itself took that long, if it polls, and a
    command that sleeps that long.

    Whatever else is asked again while something is pending, unchanged, is part of the wait.

    A look after a rest is spaced: five minutes and more in which nothing ran, in stretches of a
    minute and more. That is a schedule.
    """

    __slots__ = (
        "_answers", "_end", "_gap", "_polled", "_rested", "_settings", "_slept", "_thought",
    )  # fmt: skip

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._gap = settings.tuning.calls.wait_gap_s * 1e9
        self._answers: BoundedDict[int, _Known] = BoundedDict(_REMEMBERED)
        self._end = 0
        self._thought = -1
        self._rested = 0
        self._slept = 0
        self._polled = 0

    def thought(self, took: int) -> None:
        """A model took nanoseconds: thinking is not waiting."""
        self._thought = max(self._thought, 0) + max(took, 0)

    def asked(self, step: Step, call: Call, outcome: Outcome, effect: Effect) -> Asked:
        """Notes a call, and says how it stands to the same call before."""
        pauses = effect is Effect.WAIT
        idle = self._idle(step, pauses=pauses)
        if pauses:
            self._slept += 1
        elif idle is not None and idle >= _REST:
            self._rested += idle
        declared = (step.name or "") in self._settings.polling
        pending = self._is_pending(step, outcome)
        self._polled += declared or pending
        if call.key is None:
            return Asked(False, False, None, False, False, declared or pending)
        known = self._answers.get(call.key)
        before: tuple[int | None, ...] = () if known is None else known.answers
        self._answers[call.key] = _Known(
            (*before[1 - _WORDINGS :], outcome.key),
            step.end or 0, self._rested, self._slept, self._polled,
        )  # fmt: skip
        if known is None:
            return Asked(True, False, None, False, False, pending)
        spaced = self._rested - known.rested >= _SCHEDULE
        if outcome.key != known.answers[-1] or (outcome.key is None and not declared):
            changed = None not in before and outcome.key not in (None, *before)
            return Asked(False, changed, idle, False, False, pending, spaced)
        return self._again(step, call, outcome, known, idle, spaced, declared or pending)

    def _again(  # noqa: PLR0913, PLR0917
        self, step: Step, call: Call, outcome: Outcome, known: _Known, idle: int | None,
        spaced: bool, polls: bool,
    ) -> Asked:  # fmt: skip
        """The same call with the answer that it had before."""
        # Whoever waits for one thing looks at others meanwhile.
        beside = self._polled > known.polled
        if polls or beside:
            apart = (step.end or 0) - known.end if step.end and known.end else 0
            waited = self._slept != known.slept or 2 * apart >= self._gap
            waits = idle is not None and (waited or self._waits(step, call, idle, pending=True))
            return Asked(False, False, idle, waits, idle is None, True, spaced)
        words = _PENDING.search(outcome.raw[:2000]) is not None
        if idle is None:
            return Asked(False, False, None, False, words)
        waits = self._waits(step, call, idle, pending=words)
        # Without the time that models took, what passed between two calls may be thinking.
        unsure = (
            self._thought < 0 and idle >= self._gap and _polls(step.name or "", call.sample)
        ) or (step.end or 0) - step.start >= _LONG_GAP
        return Asked(False, False, idle, waits, unsure and not waits, False, spaced)

    def _is_pending(self, step: Step, outcome: Outcome) -> bool:
        """Whether an answer is pending; a transient error has a budget of its own."""
        if not is_pending(outcome, step.name or ""):
            return False
        return not step.error or error_class(step) is not ErrorClass.TRANSIENT

    def _idle(self, step: Step, *, pauses: bool) -> int | None:
        """Nanoseconds since the newest call ended, without models' time; None without times.

        A call that does nothing but wait is idling too.
        """
        before, thought = self._end, self._thought
        if not pauses:
            self._end, self._thought = max(before, step.end or 0), min(thought, 0)
        if not before or not step.start:
            return None
        return max(step.start - before - max(thought, 0), 0)

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
