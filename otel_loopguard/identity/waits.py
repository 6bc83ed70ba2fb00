"""Whether a call made again was waiting: judged by the clock."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from otel_loopguard.core import Effect

if TYPE_CHECKING:
    from otel_loopguard.core import Step
    from otel_loopguard.identity.calls import Call
    from otel_loopguard.identity.outcomes import Outcome
    from otel_loopguard.settings import Settings

_REMEMBERED: Final = 64
_WORDINGS: Final = 4
_LONG_GAP: Final = 20_000_000_000
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
        pending: Whether it may be waiting, and no clock tells: its answer is pending by its own
            words, it polls after a pause in which a model may have thought, or it takes 20 s.
    """

    fresh: bool
    changed: bool
    gap: int | None
    waiting: bool
    pending: bool


_UNKNOWN: Final = Asked(False, False, None, False, False)
_FRESH: Final = Asked(True, False, None, False, False)


class Waits:
    """Remembers the answers of the newest 64 different calls of a session, and when it idled.

    An unchanged answer after `wait_gap_s` in which nothing ran is waiting if it says that it is
    pending, if the tool is declared to poll, or if its name or command says so (where the time that
    models took is known); 20 s are enough by themselves. So is one for which the call itself took
    that long, if it is pending or polls, and a command that sleeps that long. Source:
    `notes/evidence.md`, lesson 9.
    """

    __slots__ = ("_answers", "_end", "_gap", "_settings", "_thought")

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._gap = settings.wait_gap_s * 1e9
        self._answers: dict[int, tuple[int | None, ...]] = {}
        self._end = 0
        self._thought = -1

    def thought(self, took: int) -> None:
        """A model took nanoseconds: thinking is not waiting."""
        self._thought = max(self._thought, 0) + max(took, 0)

    def asked(self, step: Step, call: Call, outcome: Outcome, effect: Effect) -> Asked:
        """Notes a call, and says how it stands to the same call before."""
        idle = self._idle(step, pauses=effect is Effect.WAIT)
        if call.key is None:
            return _UNKNOWN
        known = self._answers.pop(call.key, ())
        self._answers[call.key] = (*known[1 - _WORDINGS :], outcome.key)
        if len(self._answers) > _REMEMBERED:
            del self._answers[next(iter(self._answers))]
        if not known:
            return _FRESH
        if outcome.key is None or outcome.key != known[-1]:
            changed = None not in known and outcome.key not in (None, *known)
            return Asked(False, changed, idle, False, False)
        pending = _PENDING.search(outcome.raw[:2000]) is not None
        if idle is None:
            return Asked(False, False, None, False, pending)
        waits = self._waits(step, call, idle, pending=pending)
        # Without the time that models took, what passed between two calls may be thinking.
        unsure = (
            self._thought < 0 and idle >= self._gap and _polls(step.name or "", call.sample)
        ) or (step.end or 0) - step.start >= _LONG_GAP
        return Asked(False, False, idle, waits, unsure and not waits)

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
        polls = (step.name or "") in self._settings.polling
        named = (self._thought >= 0 or took >= self._gap) and _polls(step.name or "", call.sample)
        return pending or polls or named or _sleeps(call.sample) > 0


def _polls(tool: str, sample: str) -> bool:
    return _POLLS.search(tool) is not None or _WATCHES.search(sample) is not None


def _sleeps(sample: str) -> float:
    """Seconds that a command sleeps, as far as it says."""
    found = _SLEEP.search(sample)
    if found is None:
        return 0.0
    return float(found[1]) * _UNITS.get(found[2].lower(), 1)
