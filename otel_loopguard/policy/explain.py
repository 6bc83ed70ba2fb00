"""Why a session was stopped, or not: what was counted, what it weighs, and what comes next."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Any, Final, cast

from otel_loopguard._util.fields import is_map
from otel_loopguard._util.text import printable
from otel_loopguard.core import Action, Decision
from otel_loopguard.core.decision import rank
from otel_loopguard.core.report import decision_line
from otel_loopguard.policy.ladder import IGNORED, ROUNDING, RUNGS, Loop, Repeat, needs

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from otel_loopguard.settings import Settings

# Shown with two digits, these are nothing.
_NOTHING: Final = 0.005
_ALLOWED: Final = "nothing: a person let it through"
NOTHING_FOUND: Final = "nothing was found: no call is known to have been made again"


@dataclass(frozen=True, slots=True)
class LoopState:
    """The place of a loop on the ladder.

    Attributes:
        loop: Its keyed digest, as `Decision.loop`.
        detector: What saw it last; empty where only a journal has it.
        rule: Short code of the rule.
        measured: What was measured, in a sentence without content.
        action: The rung that it stands on; `allow` if nothing was said about it.
        counted: Sum of the weights since its hint, less what was taken back; of a loop that cannot
            be stopped, its rounds.
        weight: What its last round weighs, 0 to 1; None where only a journal has it.
        strongest: The strongest action that it may lead to.
        next: The next rung; None if there is none, or if only a journal has it.
        missing: How much more that takes; 0 without a next rung.
        because: Why a repeat weighs that much.
        tools: Tools of its repeated calls; those of several are one loop where they came in turn,
            or gave the same.
        why: What comes next or why nothing does, in a sentence.
    """

    loop: str
    detector: str
    rule: str
    measured: str
    action: Action
    counted: float
    weight: float | None
    strongest: Action
    next: Action | None
    missing: float
    because: tuple[str, ...]
    tools: tuple[str, ...]
    why: str

    @classmethod
    def of(  # noqa: PLR0913
        cls, loop: Loop, settings: Settings, digest: str, because: tuple[str, ...],
        tools: tuple[str, ...], *, heard: bool, allowed: bool,
    ) -> LoopState:  # fmt: skip
        """The state of a loop.

        Args:
            loop: The loop.
            settings: Those of its guard.
            digest: Its keyed digest.
            because: Why its newest call weighs what it does.
            tools: Those of its repeated calls.
            heard: Whether its rung was.
            allowed: Whether a person let it through.
        """
        found, most = loop.found, Action(settings.max_action)
        if found is None:
            # A journal has where it stands, and not what showed it.
            why = _ALLOWED if allowed else "not known here before its next round"
            return cls(
                digest, "", "", "known from a journal", loop.action, loop.confirmed, None, most,
                None, 0.0, because, tools, why,
            )  # fmt: skip
        strongest, stops = min(found.max_action, most, key=rank), found.max_action.stops
        counted, weight = (loop.confirmed, found.weight) if stops else (float(loop.rounds), 1.0)
        # Among rungs with the same threshold the highest one is reached.
        ahead = min(
            (
                (needs(settings, rung), -rung.action.rank, rung.action)
                for rung in RUNGS
                if strongest in rung.leads_to and rung.action.rank > loop.action.rank
            ),
            default=None,
        )
        missing = 0.0 if ahead is None else max(ahead[0] - counted, 0.0)
        why = _outlook(loop, settings, ahead and ahead[2], missing, weight)
        if allowed:
            ahead, missing, why = None, 0.0, _ALLOWED
        elif not heard:
            why = f"waits until the {loop.action} was heard: no round before that counts"
        return cls(
            digest, found.detector, found.reason, found.message, loop.action, counted, weight,
            strongest, None if ahead is None else ahead[2], missing, because, tools, why,
        )  # fmt: skip


def _outlook(
    loop: Loop, settings: Settings, ahead: Action | None, missing: float, weight: float
) -> str:
    """Says in a sentence what comes next for a loop, or why nothing does."""
    if loop.action is Action.ALLOW:
        return "nothing was said of it: another loop went further at that step"
    said = "this is as far as it goes"
    if ahead is not None and weight < _NOTHING:
        said = f"stays at {loop.action}: such a round weighs nothing"
    elif ahead is not None:
        rounds = ceil((missing - ROUNDING) / weight) or 1
        said = f"{ahead} at {missing:.2g} more, in {rounds} such round{'s' * (rounds > 1)}"
    patience = settings.hint_climbs_after
    if patience and loop.action in IGNORED[:-1]:
        place = IGNORED.index(loop.action) + 1
        left = max(patience * place - loop.rounds, 1)
        said += f"; {IGNORED[place]} after {left} more that ignore it (hint_climbs_after)"
    return said


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a session was stopped, or why not. It has no content of calls.

    `str()` has it as lines for people, `to_dict()` as JSON values.

    Attributes:
        session: Key of the session.
        action: What its flag says now.
        by: Who set the flag: `policy`, or a person; None for `allow`.
        shadow: Whether decisions are only noted: mode `shadow`, or a person allowed the session.
        allowed: How many calls a person allowed.
        decisions: The newest decisions, at most 10.
        loops: The loops that are remembered, the newest last.
        repeats: Calls that were made again and are part of no loop, the newest 16.
        repeat_threshold: What repeats count up to until they are a loop.
    """

    session: str
    action: Action
    by: str | None
    shadow: bool
    allowed: int
    decisions: tuple[Decision, ...]
    loops: tuple[LoopState, ...]
    repeats: tuple[Repeat, ...]
    repeat_threshold: float

    def to_dict(self) -> dict[str, Any]:
        """All of it as JSON values; numbers of steps are indices, from 0."""
        names = ("step", "action", "detector", "reason", "message", "loop", "count", "threshold")
        rows = [{name: getattr(one, name) for name in names} for one in self.decisions]
        found = {name: getattr(self, name) for name in type(self).__slots__}
        parts = {
            "decisions": rows,
            "loops": [{name: getattr(one, name) for name in one.__slots__} for one in self.loops],
            "repeats": [one._asdict() for one in self.repeats],
        }
        return _plain({**found, **parts})

    @property
    def found(self) -> bool:
        """True if anything was decided or counted."""
        return bool(self.decisions or self.loops or self.repeats)

    def __str__(self) -> str:
        return "\n".join(map(printable, self._lines()))

    def _lines(self) -> Iterator[str]:
        """Lines for people, for whom steps count from 1."""
        yield f"session {self.session}: the flag is {self.action}" + (
            f" (by {self.by})" if self.by else ""
        )
        if self.shadow:
            yield "  decisions are only noted"
        if self.allowed:
            yield f"  a person allowed {self.allowed} call{'s' * (self.allowed > 1)}"
        yield from map(decision_line, self.decisions)
        for loop in self.loops:
            yield f"  loop {loop.loop[:8]} on {loop.action}: {loop.measured}"
            if len(loop.tools) > 1:
                yield f"    in turn, or with the same answer: {', '.join(map(repr, loop.tools))}"
            last = "" if loop.weight is None else f"; the last round weighs {loop.weight:.2g}"
            yield f"    counted {loop.counted:.2g} since its hint{last}{_because(loop.because)}"
            yield f"    next: {loop.why}"
        for call in self.repeats:
            yield (
                f"  no loop: {call.tool!r} {call.times} times, {call.equal} in a row with an equal "
                f"answer: {call.towards_hint:.2g} of {self.repeat_threshold:g} for a hint"
            )
            yield f"    the last one counts {call.hint_weight:.2g}{_because(call.because)}"
        if not self.found:
            yield f"  {NOTHING_FOUND}"


def _because(reasons: tuple[str, ...]) -> str:
    return f": {'; '.join(reasons)}" if reasons else ""


def _plain(value: Any) -> Any:
    if isinstance(value, Action):
        return value.value
    if is_map(value):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in cast("Sequence[Any]", value)]
    return round(value, 3) if isinstance(value, float) else value
