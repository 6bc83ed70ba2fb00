"""Do model calls take more and more tokens, far beyond a growing conversation? (D11)"""

from __future__ import annotations

from collections import OrderedDict, deque
from itertools import islice
from typing import TYPE_CHECKING, Final

from otel_loopguard.core import Action, Detection, Severity, Spending
from otel_loopguard.detectors.budget.verdict import verdict

if TYPE_CHECKING:
    from otel_loopguard.settings import Settings

_GROUP: Final = 5
_AGENTS: Final = 16
_KEY: Final = 102


class TokenRate:
    """Compares the medians of the last three groups of five model calls of one agent.

    A rise is steep if each group uses `budget_rate_growth` (3) times as much as the one before it,
    and the last at least `budget_rate_tokens` (8,000) per call. A conversation that grows by the
    same amount at every step, from nothing, comes to 2.7 and then 1.6: growth in proportion to the
    number of steps never counts. One large answer lifts one group and not two; medians pass over
    single calls. Agents are counted apart, for each has a context of its own. Calls without tokens
    say nothing.

    Said once per session. It leads to a hint at most, and to that only where `budget_action` is a
    hint or stronger.

    Source: FEATURES D11.
    """

    name = "token_rate"
    family = "budget"
    takes = Spending
    __slots__ = ("_action", "_agents", "_floor", "_growth", "_said")

    def __init__(self, settings: Settings) -> None:
        self._growth = settings.budget_rate_growth
        self._floor = settings.budget_rate_tokens
        self._action = verdict(settings, settings.budget_action, Action.HINT)
        self._agents: OrderedDict[str | None, deque[int]] = OrderedDict()
        self._said = False

    def user_turn(self) -> None:
        """A user spoke: the next task may need another context."""
        self._agents.clear()

    def observe(self, spending: Spending) -> Detection | None:
        """Takes what was spent; gives a detection at the first steep rise."""
        if spending.step_tokens is None or self._said:
            return None
        calls = self._agents.pop(spending.agent, None) or deque(maxlen=3 * _GROUP)
        calls.append(spending.step_tokens)
        self._agents[spending.agent] = calls
        if len(self._agents) > _AGENTS:
            self._agents.popitem(last=False)
        if len(calls) < 3 * _GROUP or spending.step_tokens < self._floor:
            return None
        if spending.step_tokens < self._growth * calls[_GROUP]:
            return None  # saves the sorting; nearly every call ends here
        first, second, third = (_median(calls, place) for place in (0, _GROUP, 2 * _GROUP))
        steep = second >= self._growth * max(first, 1) and third >= self._growth * second
        if not steep or third < self._floor:
            return None
        self._said = True
        return self._detection(first, second, third)

    def _detection(self, first: int, second: int, third: int) -> Detection:
        growth = third / max(first, 1)
        return Detection(
            detector=self.name,
            reason="tokens_rise",
            severity=Severity.WARNING,
            confidence=0.6,
            keys=frozenset({_KEY}),
            count=round(growth, 2),
            threshold=round(self._growth**2, 2),
            message=f"model calls went from {first} to {second} to {third} tokens each "
            f"(medians of {_GROUP} calls)",
            max_action=self._action,
            own=self._action,
            advice="Work with a shorter context: summarise what is known, and read less at once.",
            intervention="compact",
        )


def _median(calls: deque[int], start: int) -> int:
    return sorted(islice(calls, start, start + _GROUP))[_GROUP // 2]
