"""From detections to actions: a ladder for each loop."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from otel_loopguard._util.values import dataclass
from otel_loopguard.core import Action, Detection, Severity

if TYPE_CHECKING:
    from otel_loopguard.settings import Settings

_LOOPS: Final = 32
_KEYS: Final = 256
_MILD: Final = (Action.HINT, Action.STEER, Action.ASK)
_RUNGS: Final = (*_MILD, Action.DENY, Action.PAUSE, Action.ABORT)
_WAYS: Final = {
    Action.HINT: _MILD[:1],
    Action.STEER: _MILD[:2],
    Action.ASK: _MILD,
    Action.DENY: (*_MILD, Action.DENY),
    Action.PAUSE: (*_MILD, Action.PAUSE),
    Action.ABORT: (*_MILD, Action.DENY, Action.ABORT),
}
"""The rungs that lead to the strongest action of a detection."""
_WARNINGS: Final = "warnings"
_LASTING: Final = (Action.ALLOW, Action.PAUSE, Action.ABORT)
"""Where a success changes nothing: before the hint, and where only a person lets it go on."""


@dataclass(slots=True)
class Loop:
    """One loop, as the ladder remembers it.

    Attributes:
        keys: Identities of its calls; grows as detectors see more of it.
        id: Its identity: the smallest key that it was first seen with.
        action: The rung that it stands on.
        confirmed: Rounds that showed it again after the hint, less those taken back.
        last: Number of the call that showed it last.
        moment: The round that showed it last.
        shown: Rounds that showed it since it came to its rung.
        since: When it came to its rung, nanoseconds since the epoch; 0 without times.
        descents: How often it went down a rung.
        decision: Id of the decision by which its rung is heard; empty where nobody is to hear it.
    """

    keys: frozenset[int]
    id: int
    action: Action
    confirmed: float
    last: int
    moment: int
    shown: int = 0
    since: int = 0
    descents: int = 0
    newest: float = 0.0
    rounds: int = 0
    decision: str = ""


@dataclass(frozen=True, slots=True)
class Hearing:
    """What the runtime of a session had heard when a call began.

    Attributes:
        heard: When decisions were heard first, by id, nanoseconds since the epoch; None where
            nobody asks: there a rung counts as soon as it is reached.
        standing: The decision that the flag stands for; empty for none.
        began: When the call began, nanoseconds since the epoch; 0 where that is not known.
    """

    heard: Mapping[str, int] | None = None
    standing: str = ""
    began: int = 0

    def counts(self, loop: Loop) -> bool:
        """Whether the call confirms a loop: it began after the loop's rung was heard."""
        if self.heard is None or not loop.decision:
            return True
        at = self.heard.get(loop.decision)
        return at is not None and (not self.began or self.began > at)

    def owes(self, loop: Loop) -> bool:
        """Whether a loop's rung was not heard, and cannot be any more: the flag was changed."""
        if self.heard is None or not loop.decision:
            return False
        return loop.decision != self.standing and loop.decision not in self.heard


UNASKED: Final = Hearing()


@dataclass(frozen=True, slots=True)
class Verdict:
    """An action that goes further than the last one about the loop."""

    action: Action
    detection: Detection
    loop: Loop


class Ladder:
    """hint, steer, ask, deny, pause, abort: a place of its own for each loop.

    A hint is spent on its loop: it is given once, says nothing about another loop, and every round
    that shows the loop again is a confirmation. A rung is reached after as many confirmations as
    its setting says (`deny_after`, `abort_after`, …), and not before `tuning.policy.cooldown_s` and
    `tuning.policy.cooldown_rounds` of the rung before are over; which rungs there are on the way
    depends on the strongest action that the detection allows. Parallel calls confirm once, for the
    agent can react between rounds only. Detections are not added up: the strongest one speaks, and
    what was not said is not spent. No abort comes without a deny before it.

    Where the runtime asks, a rung counts once it was heard: the ladder waits there until then, only
    a call that began after that confirms it, and what can no longer be heard is said again.

    A success that brings something new takes one confirmation of every loop back, and each goes
    down to the rung that it then stands on, at most `tuning.policy.descend_limit` times and never
    below the hint. A pause and an abort stay. A loop not seen for `tuning.policy.forget_after` (24)
    calls is forgotten.

    More loops than `warning_limit` that were warned of (hint, steer or ask) are a verdict of their
    own, an abort. By default there is no limit: a long healthy run may be warned of many different
    things, and length is never a sign.

    Attributes:
        loops: The loops that it remembers, in order of last sight.
        pending: The verdict that was decided last; None once it was given out.
    """

    __slots__ = ("_settings", "_strongest", "_warned", "loops", "pending")

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._strongest = Action(settings.max_action)
        self.loops: list[Loop] = []
        self.pending: Verdict | None = None
        self._warned: frozenset[tuple[str, int]] = frozenset()

    def judge(
        self, detections: Iterable[Detection], number: int, moment: int, time: int = 0,
        hearing: Hearing = UNASKED,
    ) -> Verdict | None:  # fmt: skip
        """Returns the verdict on the detections of one step; None if it is not a new one."""
        best: Verdict | None = None
        for detection in detections:
            loop = self._observe(detection, number, moment, hearing)
            counts = hearing.counts(loop)
            action = self._action(loop, detection, time) if counts else loop.action
            further = action.rank > loop.action.rank or hearing.owes(loop)
            if further and (best is None or action.rank > best.action.rank):
                best = Verdict(action, detection, loop)
        if best is not None:
            # Written down first: after an interrupt in between, the policy takes it from there.
            self.pending = best
            climb(best, time)
        return best

    def descend(self) -> None:
        """Takes one confirmation off every loop after a success with news."""
        for loop in self.loops:
            limit = self._settings.tuning.policy.descend_limit
            if loop.action in _LASTING or loop.descents >= limit or not loop.confirmed:
                continue
            loop.confirmed = max(loop.confirmed - 1, 0)
            if self._needs(loop.action) > loop.confirmed + 0.01:
                # The highest rung that its confirmations still reach.
                below = [rung for rung in _RUNGS if rung.rank < loop.action.rank]
                loop.action = max(
                    (rung for rung in below if self._needs(rung) <= loop.confirmed + 0.01),
                    key=_rank,
                )
                loop.descents += 1
                loop.shown = 0

    def hold(self, denied: Iterable[Loop]) -> None:
        """Remembers loops that were denied at once, so that their calls are refused."""
        for loop in denied:
            others = (one for one in self.loops if one.keys.isdisjoint(loop.keys))
            self.loops = [*others, loop][-_LOOPS:]

    def moved(self, call: int) -> None:
        """Ends a loop whose call got a new answer, as what it watches has changed."""
        self.loops = [
            loop for loop in self.loops if call not in loop.keys or loop.action in _LASTING
        ]

    def fade(self, number: int) -> None:
        """Forgets the loops that were not seen for `tuning.policy.forget_after` calls."""
        oldest = number - self._settings.tuning.policy.forget_after
        if self.loops and self.loops[0].last < oldest:
            self.loops = [loop for loop in self.loops if loop.last >= oldest]

    def user_turn(self) -> None:
        """Halves confirmations and resets warnings after a user's message."""
        self._warned = frozenset()
        for loop in self.loops:
            loop.confirmed /= 2

    def defied(
        self, call: int, tool: str, number: int, moment: int, hearing: Hearing = UNASKED
    ) -> Verdict | None:
        """Returns the verdict when a denied call is repeated without success.

        The refusal itself is no outcome that detectors could compare: it is a confirmation.
        """
        loop = next(loop for loop in self.loops if call in loop.keys and loop.action.stops)
        message = f"{tool!r} was called again, without success, after its loop was denied"
        return self.judge([_defiance(loop, message)], number, moment, hearing=hearing)

    def unheeded(
        self, turns: int, number: int, moment: int, hearing: Hearing = UNASKED
    ) -> Verdict | None:
        """Returns the verdict when a model is called on after a deny, and no call is seen.

        Where a framework refuses a call without a span, this is all there is to see of it; without
        it a deny would have no end.
        """
        loop = next((loop for loop in self.loops if loop.action is Action.DENY), None)
        if loop is None:
            return None
        loop.confirmed = max(loop.confirmed, self._settings.abort_after)
        message = f"the model was asked {turns} times after a deny, and no call was seen to run"
        return self.judge([_defiance(loop, message)], number, moment, hearing=hearing)

    def knows(self, call: int | None) -> bool:
        """Whether a call belongs to a loop that is remembered."""
        return call is not None and any(call in loop.keys for loop in self.loops)

    def denies(self, call: int) -> bool:
        """Whether a call belongs to a loop that is denied or worse."""
        return any(loop.action.stops and call in loop.keys for loop in self.loops)

    @property
    def stops(self) -> bool:
        """Whether any loop is denied or worse."""
        return any(loop.action.stops for loop in self.loops)

    def count_warning(self, verdict: Verdict) -> Detection | None:
        """Counts the loop of a verdict, once; a detection if it is one warning too many."""
        limit = self._settings.warning_limit
        loop = (verdict.detection.detector, verdict.loop.id)
        if not limit or verdict.action not in _MILD or loop in self._warned:
            return None
        self._warned |= {loop}
        count = len(self._warned)
        if count <= limit:
            return None
        self._warned = frozenset()
        return Detection(
            detector=_WARNINGS,
            reason="too_many_warnings",
            severity=Severity.FATAL,
            confidence=0.8,
            keys=verdict.loop.keys,
            count=count,
            threshold=limit + 1,
            message=f"{count} different warnings were given; the limit is {limit}. The last one: "
            f"{verdict.detection.message}",
            family=_WARNINGS,
            own=Action.ABORT,
        )

    def _observe(self, detection: Detection, number: int, moment: int, hearing: Hearing) -> Loop:
        """The loop of a detection; a round that shows it again confirms it, if it counts."""
        keys = _keys(detection)
        self.fade(number)
        for place, loop in enumerate(self.loops):
            if not loop.keys.isdisjoint(keys):
                if len(loop.keys) < _KEYS:
                    loop.keys |= keys
                # Kept in order of last sight, so that fading looks at the first only.
                self.loops.append(self.loops.pop(place))
                break
        else:
            loop = Loop(keys, min(keys), Action.ALLOW, 0, number, moment)
            self.loops.append(loop)
            del self.loops[:-_LOOPS]
        again = loop.moment != moment and hearing.counts(loop)
        # Of one round the strongest detection counts.
        before = 0.0 if again else loop.newest
        # What may only speak is counted apart: it adds nothing to a stop.
        weight = detection.weight if detection.max_action.stops and hearing.counts(loop) else 0.0
        loop.newest = max(weight, before)
        loop.confirmed += loop.newest - before
        loop.rounds += again
        loop.shown += again
        loop.last, loop.moment = number, moment
        return loop

    def _action(self, loop: Loop, detection: Detection, time: int) -> Action:
        if loop.action is Action.ALLOW:
            return min(Action.HINT, self._strongest, key=_rank)
        if self._cools(loop, time):
            return loop.action
        way = _WAYS[min(detection.max_action, self._strongest, key=_rank)]
        weight = loop.confirmed if detection.max_action.stops else loop.rounds
        reached = [action for action in way if weight + 0.01 >= self._needs(action)]
        furthest = max(reached, key=_rank)
        # What piled up under weak evidence, or in a cooldown, does not skip the refusal.
        skips = furthest is Action.ABORT and not loop.action.stops
        return Action.DENY if skips else furthest

    def _cools(self, loop: Loop, time: int) -> bool:
        """Whether the cooldown of the loop's rung still runs. Without times only rounds count."""
        tuning, level = self._settings.tuning.policy, loop.action.value
        if loop.shown <= tuning.cooldown_rounds.get(level, 0):
            return True
        wait = tuning.cooldown_s.get(level, 0.0)
        return bool(wait and time and loop.since) and time - loop.since < wait * 1e9

    def _needs(self, rung: Action) -> int:
        """Confirmations that a rung takes."""
        return 0 if rung is Action.HINT else getattr(self._settings, f"{rung.value}_after")


def at_once(detection: Detection, number: int, strongest: Action = Action.ABORT) -> Verdict:
    """The verdict of a detection that brings its own action: once, and no further."""
    own = Action.HINT if detection.own is None else detection.own
    action = min(own, strongest, key=_rank)
    keys = _keys(detection)
    loop = Loop(keys, min(keys), action, 0, number, 0)
    return Verdict(action, detection, loop)


def climb(verdict: Verdict, time: int) -> None:
    """Puts the loop of a verdict on its rung; what is counted after a hint begins with it."""
    loop = verdict.loop
    if loop.action is Action.ALLOW:
        loop.confirmed = loop.rounds = 0
    loop.action, loop.shown, loop.since = verdict.action, 0, time


def _keys(detection: Detection) -> frozenset[int]:
    """The keys of a detection; one that names none is known by its rule."""
    return detection.keys or frozenset({hash((detection.detector, detection.reason))})


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
