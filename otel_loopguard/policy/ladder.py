"""From detections to actions: a ladder that remembers which loop it warned about."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from otel_loopguard.core import Action, Detection, Severity

if TYPE_CHECKING:
    from otel_loopguard.settings import Settings

_LOOPS: Final = 32
_KEYS: Final = 256


@dataclass(slots=True)
class Loop:
    """One loop, as the ladder remembers it.

    Attributes:
        keys: Identities of its calls; grows as detectors see more of it.
        id: Its identity: the smallest key that it was first seen with.
        action: The strongest action taken for it.
        confirmed: Calls that showed it again after the hint.
        last: Number of the call that showed it last.
    """

    keys: frozenset[int]
    id: int
    action: Action
    confirmed: int
    last: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """An action that goes further than what was done about the loop before."""

    action: Action
    detection: Detection
    loop: Loop


class Ladder:
    """hint, then deny, then abort, per loop.

    A hint is spent on its loop: it is given once, and every step that shows the loop again is a
    confirmation. `deny_after` (2) confirmations deny the calls of the loop, `abort_after` (3) abort
    the session, so that a deny is bounded and the agent has one call to react. A loop not seen for
    `forget_after` (24) steps is forgotten. Detections are not added up: the strongest one speaks.

    Source: `notes/evidence.md`, lesson 11 ("a ladder beats a higher line"); FEATURES C7.
    """

    __slots__ = ("_loops", "_settings", "_strongest")

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._strongest = Action(settings.max_action)
        self._loops: list[Loop] = []

    def judge(self, detections: list[Detection], number: int) -> Verdict | None:
        """What follows from the detections of one step; None if nothing new does.

        Args:
            detections: All detections of this step.
            number: Number of the call within its session, from 0.
        """
        best: Verdict | None = None
        stepped: list[Loop] = []
        for detection in detections:
            loop = self._loop(detection, number)
            if loop not in stepped:
                stepped.append(loop)
                loop.confirmed += loop.last != number
                loop.last = number
            action = self._action(loop, detection)
            if action.rank <= loop.action.rank:
                continue
            loop.action = action
            if best is None or action.rank > best.action.rank:
                best = Verdict(action, detection, loop)
        return best

    def fade(self, number: int) -> None:
        """Forgets the loops that were not seen for `forget_after` steps."""
        oldest = number - self._settings.forget_after
        if self._loops and self._loops[0].last < oldest:
            self._loops = [loop for loop in self._loops if loop.last >= oldest]

    def user_turn(self) -> None:
        """A user spoke: confirmations weigh half."""
        for loop in self._loops:
            loop.confirmed //= 2

    def defied(self, call: int, tool: str, number: int) -> Verdict | None:
        """What follows when a denied call comes again and does not succeed.

        The refusal itself is no outcome that detectors could compare: it is a confirmation.

        Args:
            call: Key of the call.
            tool: Name of its tool.
            number: Number of the call within its session, from 0.
        """
        loop = next(loop for loop in self._loops if call in loop.keys and loop.action.stops)
        message = f"{tool!r} was called again, without success, after its loop was denied"
        return self.judge([_defiance(loop, message)], number)

    def unheeded(self, turns: int, number: int) -> Verdict | None:
        """What follows when a model is asked on and on after a deny, and no call is seen.

        Where a framework refuses a call without a span, this is all there is to see of it; without
        it a deny would have no end.

        Args:
            turns: Model calls since the last tool call.
            number: Number that the next call within the session has.
        """
        loop = next((loop for loop in self._loops if loop.action is Action.DENY), None)
        if loop is None:
            return None
        loop.confirmed = max(loop.confirmed, self._settings.abort_after)
        message = f"the model was asked {turns} times after a deny, and no call was seen to run"
        return self.judge([_defiance(loop, message)], number)

    def knows(self, call: int | None) -> bool:
        """Whether a call belongs to a loop that is remembered."""
        return call is not None and any(call in loop.keys for loop in self._loops)

    def denies(self, call: int) -> bool:
        """Whether a call belongs to a loop that is denied or worse."""
        return any(loop.action.stops and call in loop.keys for loop in self._loops)

    def _loop(self, detection: Detection, number: int) -> Loop:
        self.fade(number)
        for place, loop in enumerate(self._loops):
            if not loop.keys.isdisjoint(detection.keys):
                if len(loop.keys) < _KEYS:
                    loop.keys |= detection.keys
                # Kept in order of last sight, so that fading looks at the first only.
                self._loops.append(self._loops.pop(place))
                return loop
        loop = Loop(detection.keys, min(detection.keys), Action.ALLOW, 0, number)
        self._loops.append(loop)
        del self._loops[:-_LOOPS]
        return loop

    def _action(self, loop: Loop, detection: Detection) -> Action:
        if loop.action is Action.ALLOW:
            action = Action.HINT
        elif loop.confirmed >= self._settings.abort_after:
            action = Action.ABORT
        elif loop.confirmed >= self._settings.deny_after:
            action = Action.DENY
        else:
            action = Action.HINT
        return min(action, detection.max_action, self._strongest, key=_rank)


def hint_once(detection: Detection, number: int) -> Verdict:
    """A hint for what stands on no ladder: it says what it says once, and leads nowhere further."""
    return Verdict(
        Action.HINT,
        detection,
        Loop(detection.keys, min(detection.keys), Action.HINT, 0, number),
    )


def _defiance(loop: Loop, message: str) -> Detection:
    return Detection(
        detector="exact_repeat",
        reason="denied_call",
        severity=Severity.CRITICAL,
        confidence=0.95,
        keys=loop.keys,
        count=1,
        threshold=1,
        message=message,
    )


def _rank(action: Action) -> int:
    return action.rank
