"""Is the same work handed over again, in other words, although little new came of it?"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import TYPE_CHECKING, Final

from otel_loopguard.core import Action, Detection, Severity

if TYPE_CHECKING:
    from otel_loopguard.core import Handoff

_ALIKE: Final = 0.45
_NOTICED: Final = 2.0
_EARLIER: Final = 12
_AGENTS: Final = 32
_FEW: Final = 3


class HandoffRepeat:
    """Counts earlier hand-offs to the same agent that say the same, by what came of them.

    Two instructions say the same if 0.45 of their different words are common to both. Each earlier
    one counts 1 less the mean novelty of what the tools answered since: work that brings news is no
    loop, however it is worded. A detection from 2.0. An instruction that only grows shorter is a
    list being worked off, and does not count. Without the text of the instruction nothing counts.
    It leads to a hint at most.

    Source: `notes/evidence.md`, lesson 6 (Magentic-One runs); FEATURES B1, B4 in part.
    """

    name = "handoff_repeat"
    __slots__ = ("_earlier",)

    def __init__(self) -> None:
        self._earlier: OrderedDict[str, deque[Handoff]] = OrderedDict()

    def user_turn(self) -> None:
        """A user spoke: what was asked before was asked for something else."""
        self._earlier.clear()

    def observe(self, handoff: Handoff) -> Detection | None:
        """Takes one hand-off; gives a detection if it shows a loop."""
        if len(handoff.words) < _FEW:
            return None
        earlier = self._earlier.pop(handoff.agent, None) or deque(maxlen=_EARLIER)
        count, alike = 0.0, 0
        for before in earlier:
            if _says_the_same(before, handoff):
                alike += 1
                count += 1.0 - _news_between(before, handoff)
        earlier.append(handoff)
        self._earlier[handoff.agent] = earlier
        if len(self._earlier) > _AGENTS:
            self._earlier.popitem(last=False)
        return self._detection(handoff, count, alike) if count >= _NOTICED else None

    def _detection(self, handoff: Handoff, count: float, alike: int) -> Detection:
        return Detection(
            detector=self.name,
            reason="same_instruction",
            severity=Severity.WARNING,
            confidence=min(0.85, 0.55 + 0.05 * count),
            keys=frozenset({handoff.key}),
            count=round(count, 2),
            threshold=_NOTICED,
            message=f"{handoff.agent!r} was given nearly the same instruction {alike + 1} times, "
            "and little new came of it",
            max_action=Action.HINT,
        )


def _says_the_same(before: Handoff, now: Handoff) -> bool:
    common = len(before.words & now.words)
    if common < _ALIKE * len(before.words | now.words):
        return False
    return not (now.words < before.words and now.size < before.size)


def _news_between(before: Handoff, now: Handoff) -> float:
    """Mean novelty of what the tools answered between two hand-offs.

    0 if no tool was called; 1 if tools answered and none of it was captured: it may all be new.
    """
    answers = now.answers - before.answers
    if answers:
        return (now.news - before.news) / answers
    return 1.0 if now.unseen > before.unseen else 0.0
