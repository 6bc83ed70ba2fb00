"""Is a limit of one agent, or of a type of task, used up, or nearly? (C20)"""

from __future__ import annotations

from typing import TYPE_CHECKING

from otel_loopguard.core import Action, Detection, Severity, Spending
from otel_loopguard.detectors.budget.verdict import verdict
from otel_loopguard.settings.limits import LIMITED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from otel_loopguard.settings import Settings
    from otel_loopguard.settings.limits import AgentLimits


class OwnLimit:
    """Holds what an agent used, and what a task of one type used, against limits of their own.

    As `SpendingLimit` it is no sign of a loop: a warning at `budget_warning` (80 %) and a word at
    the limit, each once per agent or type, and stands on no ladder.

    Args:
        settings: Settings of the guard.

    Source: FEATURES C20.
    """

    name = "own_limit"
    family = "budget"
    takes = Spending
    __slots__ = ("_said", "_settings", "_task")

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._said: set[tuple[str, str, bool]] = set()
        self._task = 0

    def user_turn(self) -> None:
        """A user spoke: what was used stays used."""

    def observe(self, spending: Spending) -> Detection | None:
        """Takes what was spent; gives a detection once for every limit that is (nearly) used."""
        settings = self._settings
        if spending.task != self._task:
            # Counted between two words of the user: said of each task anew.
            self._task = spending.task
            self._said = {one for one in self._said if one[1] not in ("errors", "elapsed_s")}
        for owner, limits, used in self._owners(spending):
            for name, limit in limits.limits():
                over = used[name] >= limit
                if not over and used[name] < limit * settings.budget_warning:
                    continue
                if (owner, name, over) in self._said or (owner, name, True) in self._said:
                    continue
                self._said.add((owner, name, over))
                return self._detection(owner, limits, name, used[name], limit, over=over)
        return None

    def _owners(self, spending: Spending) -> Iterator[tuple[str, AgentLimits, dict[str, float]]]:
        """Whose limits concern this step, and what was used of each."""
        agent = None if spending.agent is None else self._settings.agent_limits.get(spending.agent)
        if agent is not None and spending.own is not None:
            own = spending.own
            yield f"agent {spending.agent!r}", agent, {
                "actions": own.actions, "errors": own.errors, "tokens": own.tokens,
                "cost": own.cost,
            }  # fmt: skip
        kind = spending.task_type
        task = None if kind is None else self._settings.task_limits.get(kind)
        if task is not None:
            yield f"task of type {kind!r}", task, {
                "actions": spending.calls, "errors": spending.errors, "tokens": spending.tokens,
                "cost": spending.cost, "steps": spending.steps, "elapsed_s": spending.elapsed_s,
            }  # fmt: skip

    def _detection(  # noqa: PLR0913
        self, owner: str, limits: AgentLimits, name: str, used: float, limit: float, *, over: bool
    ) -> Detection:
        settings = self._settings
        wanted = limits.action or settings.budget_action
        action = verdict(settings, wanted, *(() if over else (Action.HINT,)))
        whose = "agent" if owner.startswith("agent") else "task"
        return Detection(
            detector=self.name,
            reason=f"{whose}_{name}_{'limit' if over else 'near'}",
            severity=Severity.CRITICAL if over else Severity.WARNING,
            confidence=1.0,
            keys=frozenset({hash((self.name, owner, name))}),
            count=round(used, 6),
            threshold=limit if over else round(limit * settings.budget_warning, 6),
            message=f"{owner[:200]} used {used:.6g} of {limit:g} {LIMITED[name]}"
            + ("" if over else ", which is near the limit"),
            max_action=action,
            own=action,
            advice="Finish with what you have, or say what is missing and how much more it takes.",
        )
