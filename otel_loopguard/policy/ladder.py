"""The rungs that a loop may stand on, and what is kept of one loop, and of one repeated call."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from otel_loopguard._util.tables import read_texts
from otel_loopguard.core import Action, Detection
from otel_loopguard.core.evidence import Effect, ErrorClass, Evidence

if TYPE_CHECKING:
    from otel_loopguard.settings import Settings


class Rung(NamedTuple):
    """One row of the table.

    Attributes:
        action: What the rung means.
        after: Setting with the sum of weights since the hint from which the rung is reached; empty
            for the hint itself, which is reached with the detection.
        leads_to: The strongest actions of detections on whose way it lies.
        lasts: Whether only a person, or the user's next turn, takes a loop off it.
    """

    action: Action
    after: str
    leads_to: tuple[Action, ...]
    lasts: bool = False


HINT, STEER, ASK = Action.HINT, Action.STEER, Action.ASK
DENY, PAUSE, ABORT = Action.DENY, Action.PAUSE, Action.ABORT

# Who may be stopped is not asked to steer first: two more rounds of a loop that is sure cost more
# than they help. By default a deny takes one full repeat after the hint, an abort four: with fewer,
# 8 of 11 recorded runs that were solved in the end were aborted right after their deny.
RUNGS: Final = (
    Rung(HINT, "", (HINT, STEER, ASK, DENY, PAUSE, ABORT)),
    Rung(STEER, "steer_after", (STEER, ASK, DENY, PAUSE, ABORT)),
    Rung(ASK, "ask_after", (ASK, DENY, PAUSE, ABORT)),
    Rung(DENY, "deny_after", (DENY, ABORT)),
    Rung(PAUSE, "pause_after", (PAUSE,), lasts=True),
    Rung(ABORT, "abort_after", (ABORT,), lasts=True),
)
"""The ladder, the mildest rung first."""
MILD: Final = (HINT, STEER, ASK)
"""Rungs that only say something."""
IGNORED: Final = (HINT, STEER, ASK, DENY)
"""The hint, and the rungs after `hint_climbs_after` rounds ignored it once, twice, thrice."""
LASTING: Final = (Action.ALLOW, *(rung.action for rung in RUNGS if rung.lasts))
"""Rungs that a success leaves alone: before the hint, and where only a person lets it go on."""
ROUNDING: Final = 0.01
"""Tolerance for sums of weights, which are floats: ten times 0.1 must count as one."""


def needs(settings: Settings, rung: Rung) -> float:
    """The sum of weights that a rung takes, counted from the hint."""
    return getattr(settings, rung.after) if rung.after else 0


def reached(settings: Settings, strongest: Action, weight: float) -> Action:
    """The highest rung on the way to a strongest action that a sum of weights reaches."""
    enough = weight + ROUNDING
    return [
        rung.action
        for rung in RUNGS
        if strongest in rung.leads_to and enough >= needs(settings, rung)
    ][-1]


@dataclass(slots=True)
class Loop:
    """One loop, as the ladder remembers it.

    Attributes:
        keys: Identities of its calls; grows as detectors see more of it.
        id: Its identity: the smallest key that it was first seen with.
        action: The rung that it stands on.
        confirmed: Weights of the rounds that showed it after the hint, less those taken back.
        last: Number of the call that showed it last.
        moment: The round that showed it last.
        shown: Rounds that showed it since it came to its rung.
        since: When it came to its rung, nanoseconds since the epoch; 0 without times.
        descents: How often it went down a rung.
        newest: What its newest round weighs.
        rounds: Rounds that showed it after the hint, whatever they weigh; no looks of who waits.
        decision: Id of the decision by which its rung is heard; empty where nobody is to hear it.
        found: What showed it last; None where a journal has it.
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
    found: Detection | None = None


@dataclass(frozen=True, slots=True)
class Hearing:
    """The decisions that a session's runtime had heard when a call began.

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
        """True if the call confirms a loop: it began after the loop's rung was heard."""
        if self.heard is None or not loop.decision:
            return True
        at = self.heard.get(loop.decision)
        return at is not None and (not self.began or self.began > at)

    def owes(self, loop: Loop) -> bool:
        """True if a loop's rung was not heard and no longer can be: the flag was changed."""
        if self.heard is None or not loop.decision:
            return False
        return loop.decision != self.standing and loop.decision not in self.heard


UNASKED: Final = Hearing()


@dataclass(frozen=True, slots=True)
class Verdict:
    """An action that goes further than the last one about the loop, and when it was found."""

    action: Action
    detection: Detection
    loop: Loop
    time: int = 0


def keys_of(detection: Detection) -> frozenset[int]:
    """The keys of a detection; one that names none is known by its rule."""
    return detection.keys or frozenset({hash((detection.detector, detection.reason))})


# Below this many characters (a line) an equal answer weighs less: see `evidence.weight`.
_TELLING: Final = 100
# A smaller share of a rest is not mentioned, as sentences show no digits of it.
_RESTED: Final = 0.005
_REASONS: Final = read_texts(__name__, "reasons.txt")


class Repeat(NamedTuple):
    """A call that was made again, and what its repeats add up to.

    Attributes:
        tool: Name of the tool.
        times: How often it was made, as far as that is remembered.
        equal: Calls in a row with an equal answer, while nothing was changed in between.
        towards_hint: What these count towards a hint; a first call is 1.
        towards_stop: The sum of what their repeats weigh towards a stop.
        hint_weight: What the last one counts towards a hint, 0 to 1.
        stop_weight: What the last one weighs towards a stop, 0 to 1.
        because: Why it weighs that much.
        epoch: How often the world was changed before it.
    """

    tool: str
    times: int
    equal: int
    towards_hint: float
    towards_stop: float
    hint_weight: float
    stop_weight: float
    because: tuple[str, ...]
    epoch: int

    @classmethod
    def of(cls, seen: Evidence, before: Repeat | None) -> Repeat:
        """The repeats of a call with the newest one."""
        times = 2 if before is None else before.times + 1
        equal, hints, stops = 1, 1.0, 0.0
        if not seen.changed and (before is None or before.epoch == seen.epoch):
            known = (1, 1.0, 0.0) if before is None else before[2:5]
            equal = known[0] + 1
            hints, stops = known[1] + seen.hint_weight, known[2] + seen.stop_weight
        return cls(
            seen.tool[:200], times, equal, hints, stops, seen.hint_weight, seen.stop_weight,
            tuple(_reasons(seen)), seen.epoch,
        )  # fmt: skip


def _reasons(seen: Evidence) -> Iterator[str]:
    """Why a repeat weighs as much as it does."""
    yield from (text for name, text in _REASONS.items() if getattr(seen, name, False))
    if seen.outcome is None:
        yield "its answer is not captured"
    elif seen.error and seen.error_class is ErrorClass.UNKNOWN:
        yield "its error is of an unknown kind"
    elif not (seen.failing or seen.rejects or seen.nothing or seen.own):
        if seen.outcome_size < _TELLING:
            yield f"its answer has {seen.outcome_size} characters only"
        if seen.effect is not Effect.READ:
            yield _REASONS[f"effect {seen.effect.value}"]
    if seen.rested > _RESTED:
        yield f"{seen.rested:.0%} of a rest came before it"
