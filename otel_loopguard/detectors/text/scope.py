"""Does the plan keep growing, while none of it is done?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from otel_loopguard.core import Action, Detection, Plan, Severity
from otel_loopguard.detectors.text.speakers import Speakers

if TYPE_CHECKING:
    from otel_loopguard.settings import Settings

_SAME: Final = 0.7
_LOOP: Final = 0x73636F70


class _Growth(NamedTuple):
    plan: Plan
    first: int
    times: int


class ScopeCreep:
    """Counts how often in a row a plan grows, while none of it is done.

    It is the same plan if 0.7 of the tasks before are still on it; it grows if it has more tasks
    than before. A detection from `text_scope_turns` (4) on. It starts again when a task more is
    marked as done, when the plan shrinks, and when anything is changed in the world: then the plan
    is worked on, marked or not. It hints at most.

    Source: FEATURES D7.
    """

    name = "scope_creep"
    family = "text"
    takes = Plan
    __slots__ = ("_growths", "_times")

    def __init__(self, settings: Settings) -> None:
        self._times = settings.text_scope_turns
        self._growths: Speakers[_Growth] = Speakers()

    def user_turn(self) -> None:
        """A user spoke: there may be more to do."""
        self._growths.clear()

    def observe(self, plan: Plan) -> Detection | None:
        """Takes one plan; gives a detection if it has grown too often."""
        growth = _grown(self._growths.take(plan.speaker), plan)
        self._growths.put(plan.speaker, growth)
        if growth.times < self._times:
            return None
        return Detection(
            detector=self.name,
            reason="plan_only_grows",
            severity=Severity.WARNING,
            confidence=min(0.75, 0.5 + 0.05 * growth.times),
            keys=frozenset({plan.speaker ^ _LOOP}),
            count=growth.times,
            threshold=self._times,
            message=f"the plan of {plan.name} grew {growth.times} times in a row, from "
            f"{growth.first} to {len(plan.items)} tasks, and no further task was done",
            max_action=Action.HINT,
            advice="Do the first task of the plan before the next one is added.",
        )


def _grown(before: _Growth | None, plan: Plan) -> _Growth:
    anew = _Growth(plan, len(plan.items), 0)
    if before is None or not _continues(before.plan, plan):
        return anew
    more = len(plan.items) - len(before.plan.items)
    return anew if more < 0 else _Growth(plan, before.first, before.times + (more > 0))


def _continues(before: Plan, now: Plan) -> bool:
    """Whether it is the same plan, and none of it was done in between."""
    if now.done > before.done or now.epoch != before.epoch:
        return False
    return len(before.items & now.items) >= _SAME * len(before.items)
