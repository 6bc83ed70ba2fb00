"""From detections to decisions: the policy of one session, a ladder per loop, hints, diagnoses."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from otel_loopguard._util.bounded import keep
from otel_loopguard.core import Action, Detection
from otel_loopguard.core.decision import HUMAN, FollowUp, Severity, Source, rank
from otel_loopguard.policy.hints import (
    DIAGNOSES,
    STRATEGIES,
    Diagnose,
    Diagnoser,
    alternatives,
    diagnose,
    diagnoser,
)
from otel_loopguard.policy.ladder import (
    IGNORED,
    LASTING,
    MILD,
    ROUNDING,
    RUNGS,
    UNASKED,
    Hearing,
    Loop,
    Repeat,
    Verdict,
    keys_of,
    needs,
    reached,
)

if TYPE_CHECKING:
    from otel_loopguard.core.evidence import Evidence
    from otel_loopguard.settings import Settings

__all__ = [
    "AGAIN", "DIAGNOSES", "RUNGS", "STRATEGIES", "UNASKED", "Diagnose", "Diagnoser", "Hearing",
    "Loop", "Policy", "Repeat", "Verdict", "alternatives", "certainty_of", "diagnose", "diagnoser",
    "follow_ups_of", "only_refused", "source_of",
]  # fmt: skip

_SOURCES: Final = {
    "graph": Source.GRAPH_LOOP,
    "exchange": Source.GRAPH_LOOP,
    "budget": Source.RESOURCES,
}
# Confidence of a stop, and of milder actions: an order among several guards, not a measurement.
_CERTAINTY: Final = {
    Source.GRAPH_LOOP: (0.98, 0.90),
    Source.TOOL_LOOP: (0.95, 0.85),
    Source.RESOURCES: (0.8, 0.8),
}
_GOES_ON: Final = (FollowUp.EXECUTE_IMMEDIATELY, FollowUp.TRACK_EXECUTION)
_FOLLOW_UPS: Final = {
    Action.ALLOW: _GOES_ON,
    Action.HINT: _GOES_ON,
    Action.STEER: _GOES_ON,
    Action.ASK: (FollowUp.WAIT_FOR_USER_INPUT, FollowUp.TRACK_EXECUTION),
    Action.DENY: (FollowUp.NOTIFY_USER, FollowUp.TRACK_EXECUTION),
    Action.PAUSE: (FollowUp.PAUSE_EXECUTION, FollowUp.REQUEST_HUMAN_INTERVENTION),
    Action.ABORT: (FollowUp.ABORT_EXECUTION, FollowUp.NOTIFY_USER),
}


def source_of(detection: Detection) -> Source:
    """The source of a detection, by the family of its detector.

    Nodes of a graph and agents that pass work on are one; whatever has no place of its own is a
    loop of one agent's calls.
    """
    return _SOURCES.get(detection.family, Source.TOOL_LOOP)


def certainty_of(source: Source, action: Action, own: float) -> float:
    """Certainty of a decision for the order of answers, 0 to 1: a stop is surer than a hint."""
    fixed = _CERTAINTY.get(source)
    return own if fixed is None else fixed[not action.stops]


def follow_ups_of(action: Action, intervention: str | None) -> tuple[FollowUp, ...]:
    """Follow-ups for a runtime, in this order."""
    steps = _FOLLOW_UPS[action]
    if intervention == HUMAN and FollowUp.REQUEST_HUMAN_INTERVENTION not in steps:
        return (*steps, FollowUp.REQUEST_HUMAN_INTERVENTION)
    return steps


# Loops of one session that are remembered, and keys of one loop: more than any recorded run has at
# a time (9 and 61), and a bound on memory.
_LOOPS: Final = 32
_KEYS: Final = 256
# Calls made again whose counts can be explained: those of the newest work.
_REPEATS: Final = 16
# Rungs that a loop goes down: something new beside a loop does not keep it alive for ever.
_DESCENTS: Final = 3
# In place of that number: a loop that was denied at once. What its calls do is to be done once,
# whatever succeeds beside it, and however long the run is.
_ONCE: Final = 0xFFFF
_WARNINGS: Final = "warnings"
AGAIN: Final = "exact_repeat"
"""The detector in whose name a refused call counts that is asked for again."""
DENIED_CALL: Final = "denied_call"
"""The reason of its decisions."""


class Policy:
    """The ladder of each loop, verdicts that stand on none, and the end.

    A hint is spent on its loop: it is given once, says nothing about another loop, and what rounds
    that show the loop again weigh is added up. A rung is reached at the sum that its setting says
    (`RUNGS`), and not before `tuning.policy.cooldown_s` and `tuning.policy.cooldown_rounds` of the
    rung before are over. Parallel calls confirm once, for the agent can react between rounds only.
    Detections are not added up: the strongest one speaks, and what was not said is not spent. No
    abort comes without a deny before it.

    A question that changed nothing is put again once the loop went on for another `wait_budget_s`.

    With `hint_climbs_after`, a hint that was heard and ignored for so many rounds climbs to the
    next rung, whatever the evidence weighs, and never by itself to an abort.

    Where the runtime asks, a rung counts once it was heard: the ladder waits there until then, only
    a call that began after that confirms it, and what can no longer be heard is said again.

    A success that brings something new takes one confirmation of every loop back, and each goes
    down to the rung that it then stands on, at most three times and never
    below the hint. A pause and an abort stay. A loop not seen for `tuning.policy.forget_after` (24)
    calls is forgotten.

    More loops than `warning_limit` that were warned of (hint, steer or ask) are a verdict of their
    own, an abort. After an abort nothing further is said of the session, until somebody lets it go
    on or the next run of its conversation begins.

    A verdict counts once it is carried out, when the flag is raised: what an interrupt prevents is
    given again when the loop shows again.

    Attributes:
        loops: The loops that it remembers, in order of last sight.
        repeats: The newest 16 calls that were made again, by key.
        ended: Whether an abort was given.
    """

    __slots__ = ("_settings", "_strongest", "_warned", "ended", "loops", "repeats")

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._strongest = Action(settings.max_action)
        self.start_over()

    def start_over(self) -> None:
        """Resets all loops after the session was resumed."""
        self.ended = False
        self.loops: list[Loop] = []
        self.repeats: dict[int, Repeat] = {}
        self._warned: frozenset[tuple[str, int]] = frozenset()

    def user_turn(self) -> None:
        """Halves confirmations and resets warnings after a user's message."""
        self._warned = frozenset()
        for loop in self.loops:
            loop.confirmed /= 2

    def made_again(self, seen: Evidence) -> None:
        """Counts a repeated call, to explain why nothing was said."""
        if seen.call is not None:
            repeat = Repeat.of(seen, self.repeats.get(seen.call))
            if seen.tool in self._settings.exempt:
                repeat = repeat._replace(because=("its tool is exempt", *repeat.because))
            keep(self.repeats, seen.call, repeat, _REPEATS)

    def reasons(self, loop: Loop) -> tuple[str, ...]:
        """Returns why the newest repeat of a call of a loop weighs what it does."""
        repeats = reversed(self.repeats.items())
        return next((one.because for call, one in repeats if call in loop.keys), ())

    def tools(self, loop: Loop) -> tuple[str, ...]:
        """Returns the tools of the repeated calls of a loop, by name."""
        return tuple(sorted({one.tool for call, one in self.repeats.items() if call in loop.keys}))

    def judge(  # noqa: PLR0913, PLR0917
        self, found: Iterable[Detection], number: int, moment: int, time: int = 0,
        hearing: Hearing = UNASKED, seen: Evidence | None = None,
    ) -> list[Verdict]:  # fmt: skip
        """Everything new that follows from the detections of one step, the weakest first."""
        if self.ended:
            return []
        # Between two equally strong ones the first source takes precedence.
        found = sorted(found, key=_place)
        verdicts = [
            _at_once(one, number, moment, self._strongest) for one in found if one.own is not None
        ]
        for one in verdicts:
            if one.action is Action.DENY:
                # Its calls are refused from now on.
                others = (loop for loop in self.loops if loop.keys.isdisjoint(one.loop.keys))
                self.loops = [*others, one.loop][-_LOOPS:]
        best: Verdict | None = None
        for detection in found:
            if detection.own is not None:
                continue
            loop = self._observe(detection, number, moment, hearing, seen)
            heard = hearing.counts(loop)
            action = self._rung(loop, detection, time, seen) if heard else loop.action
            further = action.rank > loop.action.rank or hearing.owes(loop)
            if action is loop.action is Action.ASK:
                further = further or (heard and self._asks_again(loop, time, seen))
            if further and (best is None or action.rank > best.action.rank):
                best = Verdict(action, detection, loop, time)
        if best is not None:
            verdicts.append(best)
        over = self._one_too_many(verdicts)
        if over is not None:
            verdicts.append(_at_once(over, number, moment, self._strongest))
        # The strongest last, which a span keeps; of equals the one that takes precedence.
        return sorted(verdicts, key=lambda one: (one.action.rank, -_place(one.detection)))

    def carry_out(self, verdict: Verdict) -> None:
        """Puts a loop on its rung; what is counted after a hint begins with it."""
        loop = verdict.loop
        if loop.action is Action.ALLOW:
            loop.confirmed = loop.rounds = 0
        loop.action, loop.shown, loop.since = verdict.action, 0, verdict.time
        if verdict.action is Action.ABORT:
            self.ended, self._warned = True, frozenset()
        elif self._settings.warning_limit and verdict.action in MILD:
            self._warned |= {(verdict.detection.detector, loop.id)}

    def defied(
        self, call: int, tool: str, number: int, moment: int, hearing: Hearing = UNASKED
    ) -> list[Verdict]:
        """Returns the verdict when a denied call is repeated without success.

        The refusal itself is no outcome that detectors could compare: it is a confirmation.
        """
        loop = next(loop for loop in self.loops if call in loop.keys and loop.action.stops)
        message = f"{tool!r} was called again, without success, after its loop was denied"
        return self.judge([_defiance(loop, message)], number, moment, hearing=hearing)

    def unheeded(
        self, turns: int, number: int, moment: int, hearing: Hearing = UNASKED
    ) -> list[Verdict]:
        """Returns the verdict when a model is called on after a deny, and no call is seen.

        Where a framework refuses a call without a span, this is all there is to see of it; without
        it a deny would have no end.
        """
        loop = next((loop for loop in self.loops if loop.action is Action.DENY), None)
        if loop is None:
            return []
        loop.confirmed = max(loop.confirmed, self._settings.abort_after)
        message = f"the model was asked {turns} times after a deny, and no call was seen to run"
        return self.judge([_defiance(loop, message)], number, moment, hearing=hearing)

    def calm(self, number: int, *, succeeded: bool) -> bool:
        """A call that shows no loop. Whether no loop is denied or worse after it."""
        if not self.ended:
            # Else the loops stay, so that `explain` can say why the session ended.
            self._fade(number)
        if succeeded:
            self.descend()
        return succeeded and not any(loop.action.stops for loop in self.loops)

    def descend(self) -> None:
        """Takes one confirmation off every loop after a success with news."""
        settings, patience = self._settings, self._settings.hint_climbs_after
        for loop in self.loops:
            if loop.action in LASTING or loop.descents == _DESCENTS:
                continue
            if patience:
                loop.rounds = max(loop.rounds - 1, 0)
            elif not loop.confirmed:
                continue
            loop.confirmed = max(loop.confirmed - 1, 0)
            if loop.descents == _ONCE:
                continue
            # The highest rung that its confirmations still reach.
            stays = [
                rung.action
                for rung in RUNGS
                if rung.action.rank <= loop.action.rank
                and needs(settings, rung) <= loop.confirmed + ROUNDING
            ]
            if patience:
                stays.append(max(stays[-1], _by_patience(loop, patience), key=rank))
            if stays[-1].rank < loop.action.rank:
                loop.action = stays[-1]
                loop.descents += 1
                loop.shown = 0

    def moved(self, call: int) -> set[tuple[str, Action]]:
        """Ends the loops of a call that got a new answer; the decisions about them, by id."""
        over = [one for one in self.loops if call in one.keys and one.action not in LASTING]
        for loop in over:
            self.loops.remove(loop)
        # Of a loop that something stronger speaks for, the id is that of another decision.
        return {(loop.decision, loop.action) for loop in over}

    def add_key(self, call: int, other: int) -> None:
        """Adds another identity of a call to its loops."""
        for loop in self.loops:
            if call in loop.keys and len(loop.keys) < _KEYS:
                loop.keys |= {other}

    def knows(self, call: int | None) -> bool:
        """True if a call belongs to a remembered loop."""
        return call is not None and any(call in loop.keys for loop in self.loops)

    def denies(self, call: int) -> bool:
        """True if a call belongs to a loop that is denied or worse."""
        return any(loop.action.stops and call in loop.keys for loop in self.loops)

    def denial(self, call: int) -> str:
        """Id of the decision by which a denied call is known to be denied; empty if none is."""
        loops = (loop for loop in self.loops if loop.action.stops and call in loop.keys)
        return next((loop.decision for loop in loops if loop.decision), "")

    def overruns(self, call: int) -> bool:
        """True if a denied call went on for as long as ends a run, also where none may end."""
        return any(
            loop.action.stops
            and call in loop.keys
            and reached(self._settings, Action.ABORT, loop.confirmed) is Action.ABORT
            for loop in self.loops
        )

    @property
    def stops(self) -> bool:
        """True if the session is aborted, or any loop is denied or worse."""
        return self.ended or any(loop.action.stops for loop in self.loops)

    @property
    def stopped(self) -> set[int]:
        """The calls of the loops that are denied, paused or aborted."""
        return {key for loop in self.loops if loop.action.stops for key in loop.keys}

    def shown(self, moment: int) -> list[Loop]:
        """Returns the loops that were shown at a moment, with their present state."""
        return [loop for loop in self.loops if loop.moment == moment]

    def recall(self, loop: Loop) -> None:
        """Puts a loop back as a journal has it; what was known of it before is over."""
        others: list[Loop] = []
        for one in self.loops:
            if one.id != loop.id:
                others.append(one)
                continue
            loop.found = one.found
            if one.action is loop.action:
                loop.decision = one.decision
        self.loops = [*others, loop]

    def follow(self, past: Policy) -> None:
        """Takes over the loops and the end of a policy that was rebuilt from a journal."""
        self.loops, self.ended = past.loops, past.ended

    def _one_too_many(self, verdicts: Iterable[Verdict]) -> Detection | None:
        """The detection that a session was warned of more loops than `warning_limit`."""
        limit, warned = self._settings.warning_limit, self._warned
        for verdict in verdicts if limit else ():
            if verdict.action in MILD:
                warned |= {(verdict.detection.detector, verdict.loop.id)}
                if len(warned) > limit:
                    return _one_too_many(verdict, len(warned), limit)
        return None

    def _observe(
        self, detection: Detection, number: int, moment: int, hearing: Hearing,
        seen: Evidence | None,
    ) -> Loop:  # fmt: skip
        """The loop of a detection; a round that shows it again confirms it, if it counts."""
        keys = keys_of(detection)
        self._fade(number)
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
        counts = hearing.counts(loop)
        again = loop.moment != moment and counts
        # The strongest detection of a round counts.
        before = 0.0 if again else loop.newest
        # What may only speak is counted apart: it adds nothing to a stop.
        weight = detection.weight if detection.max_action.stops and counts else 0.0
        loop.newest = max(weight, before)
        loop.confirmed += loop.newest - before
        # Who waits does what the hint says.
        waits = seen is not None and seen.waits and detection.max_action is Action.HINT
        loop.rounds += again and not waits
        loop.shown += again
        loop.last, loop.moment, loop.found = number, moment, detection
        return loop

    def _rung(self, loop: Loop, detection: Detection, time: int, seen: Evidence | None) -> Action:
        """The rung that a loop has come to."""
        settings = self._settings
        if loop.action is Action.ALLOW:
            return min(Action.HINT, self._strongest, key=rank)
        if self._cools(loop, time):
            return loop.action
        strongest = min(detection.max_action, self._strongest, key=rank)
        weight = loop.confirmed if detection.max_action.stops else loop.rounds
        action = reached(settings, strongest, weight)
        if action is Action.ABORT and not loop.action.stops:
            # What piled up under weak evidence, or in a cooldown, does not skip the refusal.
            action = Action.DENY
        if settings.hint_climbs_after and not (seen is not None and seen.waits):
            action = max(action, self._ignored(loop, seen), key=rank)
        return action

    def _ignored(self, loop: Loop, seen: Evidence | None) -> Action:
        """The rung of a loop by the rounds that its hint was ignored for, at most a deny."""
        ignored = _by_patience(loop, self._settings.hint_climbs_after)
        action = min(ignored, self._strongest, key=rank)
        if action is Action.DENY and (seen is None or seen.call not in loop.keys):
            # There is no call that could be refused.
            return Action.ASK
        return action

    def _cools(self, loop: Loop, time: int) -> bool:
        """True while the cooldown of the loop's rung runs. Without times only rounds count."""
        tuning, level = self._settings.tuning.policy, loop.action.value
        if loop.shown <= tuning.cooldown_rounds.get(level, 0):
            return True
        wait = tuning.cooldown_s.get(level, 0.0)
        # A clock that was set back by more holds no rung.
        return bool(wait and time and loop.since) and abs(time - loop.since) < wait * 1e9

    def _asks_again(self, loop: Loop, time: int, seen: Evidence | None) -> bool:
        """True if the loop went on, after its question, for as long as one may wait unasked."""
        own = self._settings.of("" if seen is None else seen.tool)
        return bool(time and loop.since) and time - loop.since >= own.wait_budget_s * 1e9

    def _fade(self, number: int) -> None:
        """Forgets the loops that were not seen for `tuning.policy.forget_after` calls."""
        oldest = number - self._settings.tuning.policy.forget_after
        if self.loops and self.loops[0].last < oldest:
            self.loops = [
                loop for loop in self.loops if loop.last >= oldest or loop.descents == _ONCE
            ]


def _by_patience(loop: Loop, rounds: int) -> Action:
    """The rung of a loop whose hint may be ignored for so many rounds at most."""
    return IGNORED[min(loop.rounds // rounds, len(IGNORED) - 1)]


def _at_once(detection: Detection, number: int, moment: int, strongest: Action) -> Verdict:
    """The verdict of a detection that brings its own action: once, and no further."""
    action = min(detection.own or Action.HINT, strongest, key=rank)
    keys = keys_of(detection)
    loop = Loop(keys, min(keys), action, 0, number, moment, descents=_ONCE, found=detection)
    return Verdict(action, detection, loop)


def _defiance(loop: Loop, message: str) -> Detection:
    # The model was told not to: as sure as something that is not computed can be.
    return Detection(
        AGAIN, DENIED_CALL, Severity.CRITICAL, 0.95, loop.keys, count=1, threshold=1,
        message=message,
    )  # fmt: skip


def only_refused(keys: frozenset[int], tool: str, turns: int, threshold: int) -> Detection:
    """The detection that a model asks for nothing but calls that are refused."""
    message = (
        f"the model was asked {turns} times, and each time its call was refused: the last one of "
        f"{tool!r}"
    )
    return Detection(AGAIN, DENIED_CALL, Severity.WARNING, 0.8, keys, turns, threshold, message)


def _one_too_many(verdict: Verdict, count: int, limit: int) -> Detection:
    message = (
        f"{count} different warnings were given; the limit is {limit}. The last one: "
        f"{verdict.detection.message}"
    )
    # The user's own limit is reached for sure; whether each warning was right is not.
    return Detection(
        _WARNINGS, "too_many_warnings", Severity.FATAL, 0.8, verdict.loop.keys, count, limit + 1,
        message, family=_WARNINGS, own=Action.ABORT,
    )  # fmt: skip


def _place(detection: Detection) -> int:
    return source_of(detection).rank
