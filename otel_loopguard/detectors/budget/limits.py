"""Is a budget spent, or nearly? (D5, C10, E1)"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from otel_loopguard.core import Action, Detection, Severity, Spending
from otel_loopguard.detectors.budget.verdict import verdict

if TYPE_CHECKING:
    from otel_loopguard.settings import Settings
    from otel_loopguard.settings.budget import Budget

_PER_TASK: Final = frozenset({"task_actions", "errors", "elapsed_s", "phases"})


class SpendingLimit:
    """Holds what a session spent against its limits: steps, tokens, cost, calls, errors, time.

    Only limits that are set, and all of them where `budget_action` is. A warning at
    `budget_warning` (80 %) and a word at the limit, each once per session and limit; of limits per
    task once per task. It is no sign of a loop, stands on no ladder, and confirms
    none: length alone says nothing. It leads to `budget_action` (`allow`: noted only), a warning to
    a hint at most.

    Source: FEATURES D5, C10, E1; `notes/detectors.md`, "Budgets are a separate policy".
    """

    name = "spending_limit"
    family = "budget"
    takes = Spending
    __slots__ = ("_action", "_budgets", "_hint", "_left", "_task", "_warned", "_warning")

    def __init__(self, settings: Settings) -> None:
        self._budgets = tuple(
            (place, budget, budget.limit * settings.budget_warning)
            for place, budget in enumerate(settings.budgets(), 1)
        )
        self._left = list(self._budgets)
        self._warning = settings.budget_warning
        self._action = verdict(settings, settings.budget_action)
        self._hint = verdict(settings, settings.budget_action, Action.HINT)
        self._warned: set[str] = set()
        self._task = 0

    def user_turn(self) -> None:
        """A user spoke: what was spent stays spent; the evidence says that a new task begins."""

    def observe(self, spending: Spending) -> Detection | None:
        """Takes what was spent; gives a detection once for every budget that is (nearly) used."""
        if spending.task != self._task:
            self._next_task(spending.task)
        near: tuple[int, Budget, float] | None = None
        for entry in self._left:
            place, budget, mark = entry
            spent: float = getattr(spending, budget.spent)
            if spent < mark:
                continue
            if spent >= budget.limit:
                self._left.remove(entry)
                return self._detection(place, budget, spent, over=True)
            if near is None and budget.name not in self._warned:
                near = place, budget, spent
        return None if near is None else self._detection(*near, over=False)

    def _next_task(self, task: int) -> None:
        self._task = task
        self._warned -= _PER_TASK
        left = {budget.name for _, budget, _ in self._left} | _PER_TASK
        self._left = [entry for entry in self._budgets if entry[1].name in left]

    def _detection(self, place: int, budget: Budget, spent: float, *, over: bool) -> Detection:
        self._warned.add(budget.name)
        shown = f"{spent:.6g} of {budget.limit:g} {budget.unit}"
        action = self._action if over else self._hint
        return Detection(
            detector=self.name,
            reason=f"{budget.name}_{'limit' if over else 'near'}",
            severity=Severity.CRITICAL if over else Severity.WARNING,
            confidence=1.0,
            keys=frozenset({place}),
            count=round(spent, 6),
            threshold=budget.limit if over else round(budget.limit * self._warning, 6),
            message=f"{shown} are used" + ("" if over else ", which is near the limit"),
            max_action=action,
            own=action,
            advice="Finish with what you have, or say what is missing and how much more it takes.",
        )
