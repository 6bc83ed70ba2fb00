"""The policy of one session: verdicts on detections."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from otel_loopguard.core import Action, FollowUp, Source
from otel_loopguard.policy.ladder import (
    UNASKED,
    Hearing,
    Ladder,
    Loop,
    Verdict,
    at_once,
    climb,
)

if TYPE_CHECKING:
    from otel_loopguard.core import Detection
    from otel_loopguard.settings import Settings

ORDER: Final = tuple(Source)
"""Sources of decisions, in order of precedence."""

_SOURCES: Final = {
    "graph": Source.GRAPH_LOOP,
    "exchange": Source.GRAPH_LOOP,
    "budget": Source.RESOURCES,
}
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
_HUMAN: Final = "escalate_human"


def source_of(detection: Detection) -> Source:
    """What a detection comes from, by the family of its detector.

    Nodes of a graph and agents that pass work on are one; whatever has no place of its own is a
    loop of one agent's calls.
    """
    return _SOURCES.get(detection.family, Source.TOOL_LOOP)


def place_of(source: Source) -> int:
    """Place in the order; 0 takes precedence."""
    return ORDER.index(source)


def certainty_of(source: Source, action: Action, own: float) -> float:
    """How sure the order makes a decision, 0 to 1: a stop is surer than a word."""
    fixed = _CERTAINTY.get(source)
    return own if fixed is None else fixed[not action.stops]


def follow_ups_of(action: Action, intervention: str | None) -> tuple[FollowUp, ...]:
    """What a runtime does next, in this order."""
    steps = _FOLLOW_UPS[action]
    if intervention == _HUMAN and FollowUp.REQUEST_HUMAN_INTERVENTION not in steps:
        return (*steps, FollowUp.REQUEST_HUMAN_INTERVENTION)
    return steps


_OWED: Final = 8
_TRIES: Final = 3


class Policy:
    """The ladder of the loops, the verdicts that stand on none, and the end.

    After an abort nothing further is said of the session, until somebody lets it go on or the next
    run of its conversation begins.

    Attributes:
        ended: Whether an abort was given.
        owed: Verdicts that were given and have not taken effect yet; the newest 8.
    """

    __slots__ = ("_ladder", "_settings", "_strongest", "_tries", "ended", "owed")

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._strongest = Action(settings.max_action)
        self.start_over()

    def start_over(self) -> None:
        """Resets all loops after the session was resumed."""
        self.ended = False
        self.owed: list[Verdict] = []
        self._tries = 0
        self._ladder = Ladder(self._settings)

    @property
    def stopped(self) -> set[int]:
        """The calls of the loops that are denied, paused or aborted."""
        return {key for loop in self._ladder.loops if loop.action.stops for key in loop.keys}

    def user_turn(self) -> None:
        """Halves confirmations and resets warnings after a user's message."""
        self.ruled()
        self._ladder.user_turn()

    def ruled(self) -> None:
        """Marks every verdict as having taken effect, or as void."""
        self.owed, self._ladder.pending, self._tries = [], None, 0

    def left(self) -> list[Verdict]:
        """Verdicts that an interrupt or a fault kept from taking effect; each is tried thrice."""
        pending = self._ladder.pending
        if pending is not None:
            # It came before they were given out: the loop may not stand on its rung yet.
            climb(pending, pending.loop.since)
            self._give([pending], pending.loop.last)
        if self.owed:
            self.ended = self.ended or any(one.action is Action.ABORT for one in self.owed)
            self._tries += 1
            if self._tries > _TRIES:
                self.ruled()
        return self.owed

    def judge(
        self, found: list[Detection], number: int, moment: int, time: int = 0,
        hearing: Hearing = UNASKED,
    ) -> list[Verdict]:  # fmt: skip
        """Everything new that follows from the detections of one step, the weakest first."""
        if self.ended:
            return []
        # Of two that go equally far, the first source takes precedence.
        found = sorted(found, key=_place)
        verdicts = [at_once(one, number, self._strongest) for one in found if one.own is not None]
        self._ladder.hold(one.loop for one in verdicts if one.action is Action.DENY)
        climbed = self._ladder.judge(
            (one for one in found if one.own is None), number, moment, time, hearing
        )
        return self._give(verdicts if climbed is None else [*verdicts, climbed], number)

    def defied(
        self, call: int, tool: str, number: int, moment: int, hearing: Hearing = UNASKED
    ) -> list[Verdict]:
        """As `Ladder.defied`; nothing after an abort."""
        return self._climbed(self._ladder.defied(call, tool, number, moment, hearing))

    def unheeded(
        self, turns: int, number: int, moment: int, hearing: Hearing = UNASKED
    ) -> list[Verdict]:
        """As `Ladder.unheeded`; nothing after an abort."""
        return self._climbed(self._ladder.unheeded(turns, number, moment, hearing))

    def calm(self, number: int, *, succeeded: bool) -> bool:
        """A call that shows no loop. Whether no loop is denied or worse after it."""
        self._ladder.fade(number)
        if succeeded:
            self._ladder.descend()
        return succeeded and not self._ladder.stops

    def moved(self, call: int) -> None:
        """As `Ladder.moved`."""
        self._ladder.moved(call)

    def knows(self, call: int | None) -> bool:
        """Whether a call belongs to a loop that is remembered."""
        return self._ladder.knows(call)

    def denies(self, call: int) -> bool:
        """Whether a call belongs to a loop that is denied or worse."""
        return self._ladder.denies(call)

    @property
    def stops(self) -> bool:
        """Whether an abort was given, or any loop is denied or worse."""
        return self.ended or self._ladder.stops

    def shown(self, moment: int) -> list[Loop]:
        """Returns the loops that were shown at a moment, with their present state."""
        return [loop for loop in self._ladder.loops if loop.moment == moment]

    def recall(self, loop: Loop) -> None:
        """Puts a loop back as a journal has it; what was known of it before is over."""
        others: list[Loop] = []
        for one in self._ladder.loops:
            if one.id != loop.id:
                others.append(one)
            elif one.action is loop.action:
                loop.decision = one.decision
        self._ladder.loops = [*others, loop]

    def follow(self, past: Policy) -> None:
        """Takes over the loops and the end of a policy that was rebuilt from a journal."""
        self._ladder.loops, self.ended = past._ladder.loops, past.ended

    def _climbed(self, verdict: Verdict | None) -> list[Verdict]:
        if verdict is None or self.ended:
            return []
        return self._give([verdict], verdict.loop.last)

    def _give(self, verdicts: list[Verdict], number: int) -> list[Verdict]:
        """The verdicts as they are given out, with the stop that too many warnings lead to."""
        over = [self._ladder.count_warning(verdict) for verdict in verdicts]
        stops = [at_once(one, number, self._strongest) for one in over if one is not None]
        # The strongest last, which a span keeps; of equals the one that takes precedence.
        given = sorted(
            [*verdicts, *stops[:1]], key=lambda one: (one.action.rank, -_place(one.detection))
        )
        # In this order, for an interrupt may come in between.
        self.owed = [*self.owed, *given][-_OWED:]
        self._ladder.pending = None
        self.ended = self.ended or any(verdict.action is Action.ABORT for verdict in given)
        return given


def _place(detection: Detection) -> int:
    return place_of(source_of(detection))
