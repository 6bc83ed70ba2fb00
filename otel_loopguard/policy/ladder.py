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
        confirmed: Steps that showed it again after the hint.
        last: Index of the step that showed it last.
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

    def judge(self, detections: list[Detection], index: int) -> Verdict | None:
        """What follows from the detections of one step; None if nothing new does.

        Args:
            detections: All detections of this step.
            index: Index of the step within its session.
        """
        best: Verdict | None = None
        stepped: list[Loop] = []
        for detection in detections:
            loop = self._loop(detection, index)
            if loop not in stepped:
                stepped.append(loop)
                loop.confirmed += loop.last != index
                loop.last = index
            action = self._action(loop, detection)
            if action.rank <= loop.action.rank:
                continue
            loop.action = action
            if best is None or action.rank > best.action.rank:
                best = Verdict(action, detection, loop)
        return best

    def fade(self, index: int) -> None:
        """Forgets the loops that were not seen for `forget_after` steps."""
        oldest = index - self._settings.forget_after
        if self._loops and self._loops[0].last < oldest:
            self._loops = [loop for loop in self._loops if loop.last >= oldest]

    def user_turn(self) -> None:
        """A user spoke: confirmations weigh half."""
        for loop in self._loops:
            loop.confirmed //= 2

    def defied(self, call: int, tool: str, index: int) -> Verdict | None:
        """What follows when a denied call comes again and does not succeed.

        The refusal itself is no outcome that detectors could compare: it is a confirmation.

        Args:
            call: Key of the call.
            tool: Name of its tool.
            index: Index of the step within its session.
        """
        loop = next(loop for loop in self._loops if call in loop.keys and loop.action.stops)
        times = loop.confirmed - self._settings.deny_after + 1
        detection = Detection(
            detector="exact_repeat",
            reason="denied_call",
            severity=Severity.CRITICAL,
            confidence=0.95,
            keys=loop.keys,
            count=max(times, 1),
            threshold=1,
            message=f"{tool!r} was called again, without success, after its loop was denied",
        )
        return self.judge([detection], index)

    def knows(self, call: int | None) -> bool:
        """Whether a call belongs to a loop that is remembered."""
        return call is not None and any(call in loop.keys for loop in self._loops)

    def denies(self, call: int) -> bool:
        """Whether a call belongs to a loop that is denied or worse."""
        return any(loop.action.stops and call in loop.keys for loop in self._loops)

    def _loop(self, detection: Detection, index: int) -> Loop:
        self.fade(index)
        for place, loop in enumerate(self._loops):
            if not loop.keys.isdisjoint(detection.keys):
                if len(loop.keys) < _KEYS:
                    loop.keys |= detection.keys
                # Kept in order of last sight, so that fading looks at the first only.
                self._loops.append(self._loops.pop(place))
                return loop
        loop = Loop(detection.keys, min(detection.keys), Action.ALLOW, 0, index)
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


def _rank(action: Action) -> int:
    return action.rank
