"""Budgets that are spent, and milestones that are missed."""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Final

from otel_loopguard._util.bounded import keep
from otel_loopguard._util.values import NamedTuple
from otel_loopguard.core import Action, Kind, MilestoneStatus, Step, Usage
from otel_loopguard.detectors.base import BaseDetector, critical_if
from otel_loopguard.settings import LIMITED

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from otel_loopguard.core import Detection
    from otel_loopguard.settings import AgentLimits, Budget, Settings

_FINISH: Final = "Finish with what you have, or say what is missing and how much more it takes."


class Own(NamedTuple):
    """What a verdict past the ladder leads to.

    Attributes:
        action: The action.
        unanswered: In its place, where nobody can be asked; None: the same.
    """

    action: Action
    unanswered: Action | None = None


def own_action(settings: Settings, wanted: str, most: Action = Action.ABORT) -> Action:
    """The action that is wanted, but nothing stronger than `most` and the setting `max_action`."""
    allowed = (Action(wanted), most, Action(settings.max_action))
    return min(allowed, key=lambda action: action.rank)


def at_limit(settings: Settings, *, over: bool, wanted: str | None = None) -> Own:
    """What follows at a limit that was set, or near it.

    It stops unless an action is set: by a pause where somebody can answer, else by an abort.
    """
    wanted = wanted or settings.budget_action
    if not over:
        return Own(own_action(settings, wanted or Action.HINT, Action.HINT))
    if wanted:
        return Own(own_action(settings, wanted))
    return Own(own_action(settings, Action.PAUSE), own_action(settings, Action.ABORT))


def advised(settings: Settings) -> Own:
    """What advice leads to: a hint where the standard limits were asked for, else a note."""
    return Own(own_action(settings, Action.HINT if settings.standard else Action.ALLOW))


class _OwnVerdict(BaseDetector):
    """A detector with a verdict of its own, past the ladder: length alone is no sign of a loop.

    A user's turn takes nothing back: what was spent is spent.
    """

    family = "budget"
    takes = Usage
    __slots__ = ()

    def user_turn(self) -> None:
        pass

    def verdict(  # noqa: PLR0913
        self, message: str, count: float, threshold: float, keys: int, own: Own,
        *, reason: str = "", critical: bool = False,
    ) -> Detection:  # fmt: skip
        """A detection that leads to an action at once, and to nothing beyond."""
        return self.found(
            message, count, threshold, keys, reason=reason, severity=critical_if(critical),
            max_action=own.action, own=own.action, unanswered=own.unanswered,
        )  # fmt: skip

    def used(  # noqa: PLR0913
        self, code: str, message: str, used: float, limit: float, *, keys: int, over: bool,
        wanted: str | None = None,
    ) -> Detection:  # fmt: skip
        """A detection of a limit that is reached, or near."""
        near = round(limit * self._settings.tuning.budget.warning, 6)
        message += "" if over else ", which is near the limit"
        return self.verdict(
            message, used, limit if over else near, keys,
            at_limit(self._settings, over=over, wanted=wanted),
            reason=f"{code}_{'limit' if over else 'near'}", critical=over,
        )  # fmt: skip


class CheckpointAdvice(_OwnVerdict):
    """Advises a checkpoint every so many tool calls, where that was asked for."""

    name = "checkpoint_advice"
    reason = "checkpoint_due"
    advice = "Save what was reached so far, so that work can go on from there."
    intervention = "checkpoint"
    __slots__ = ("_given",)

    @classmethod
    def wanted(cls, settings: Settings) -> bool:
        return settings.checkpoint_every > 0

    def reset(self) -> None:
        self._given = 0

    def observe(self, usage: Usage) -> Detection | None:
        every = self._settings.checkpoint_every
        if usage.calls // every == self._given:
            return None
        self._given = usage.calls // every
        message = f"{usage.calls} tool calls were made: a good moment for a checkpoint"
        own = Own(own_action(self._settings, Action.HINT))
        return self.verdict(message, usage.calls, self._given * every, 101, own)


_MOST_TOKENS: Final = 1 << 40


class ContextSize(_OwnVerdict):
    """Advises to compact the context: after five completed agents, and from 100,000 input tokens.

    Agents count since the last compaction or turn of the user, and it is said once. Tokens are
    those of one model call, and it is said once until they are below half of that again.
    """

    name = "context_size"
    takes = Step
    kinds = (Kind.MODEL, Kind.AGENT)
    advice = "Sum up what was reached and go on with that; say so with control.compacted()."
    intervention = "compact_context"
    __slots__ = ("_agents", "_full")

    def reset(self) -> None:
        self._agents = 0
        self._full = False

    def user_turn(self) -> None:
        self._agents = 0

    def observe(self, step: Step) -> Detection | None:
        tuning = self._settings.tuning.stalls
        if step.kind is Kind.MODEL:
            if not tuning.compact_tokens or step.tokens_in is None:
                return None
            tokens = min(max(step.tokens_in, 0), _MOST_TOKENS)
            if self._full or tokens < tuning.compact_tokens:
                self._full = self._full and tokens * 2 >= tuning.compact_tokens
                return None
            self._full = True
            counted = f"a model call had {tokens} input tokens"
            return self._detection("compact_tokens", tokens, tuning.compact_tokens, counted)
        if not tuning.compact_agents or step.parent_id is None:
            return None
        self._agents += 1
        if self._agents != tuning.compact_agents:
            return None
        counted = f"{self._agents} agents have completed their work"
        return self._detection("compact_agents", self._agents, self._agents, counted)

    def _detection(self, reason: str, count: int, threshold: int, counted: str) -> Detection:
        message = f"{counted}: a good moment to compact the context"
        return self.verdict(message, count, threshold, 102, advised(self._settings), reason=reason)


_PER_TASK: Final = frozenset({"task_actions", "errors", "elapsed_s", "phases"})


class SpendingLimit(_OwnVerdict):
    """Compares what a session spent with its limits; those per task begin again with each task.

    Once near and once at each limit that is set. One that a person raised is a new limit.
    """

    name = "spending_limit"
    digits = 6
    advice = _FINISH
    __slots__ = ("_left", "_raised", "_task", "_warned")

    @classmethod
    def wanted(cls, settings: Settings) -> bool:
        return bool(settings.budgets)

    def reset(self) -> None:
        self._raised: Mapping[str, float] = {}
        self._left = self._budgets()
        self._warned: set[str] = set()
        self._task = 0

    def observe(self, usage: Usage) -> Detection | None:
        if usage.raised != self._raised:
            self._raise(usage.raised)
        if usage.task != self._task:
            self._task = usage.task
            self._warned -= _PER_TASK
            left = {budget.name for _, budget in self._left} | _PER_TASK
            self._left = [entry for entry in self._budgets() if entry[1].name in left]
        warning = self._settings.tuning.budget.warning
        near: tuple[int, Budget, float] | None = None
        for entry in self._left:
            place, budget = entry
            spent: float = getattr(usage, budget.spent)
            if spent < budget.limit * warning or self._is_told(budget, spent, usage.late):
                continue
            if spent >= budget.limit:
                self._left.remove(entry)
                return self._detection(place, budget, spent, usage, over=True)
            if near is None and budget.name not in self._warned:
                near = place, budget, spent
        return None if near is None else self._detection(*near, usage, over=False)

    def _budgets(self) -> list[tuple[int, Budget]]:
        """The limits that hold, with their places; those that were raised as they are now."""
        raised = self._raised
        return [
            (place, one._replace(limit=raised.get(one.name, one.limit)))
            for place, one in enumerate(self._settings.budgets, 1)
        ]

    def _is_told(self, budget: Budget, spent: float, late: str) -> bool:
        """Whether the timer, which needs no step, said it first."""
        if budget.name != "elapsed_s" or budget.name in self._raised:
            return False
        return late == "limit" or (late == "near" and spent < budget.limit)

    def _raise(self, raised: Mapping[str, float]) -> None:
        new = {name for name, limit in raised.items() if self._raised.get(name) != limit}
        self._raised = dict(raised)
        left = {budget.name for _, budget in self._left} | new
        self._warned -= new
        self._left = [entry for entry in self._budgets() if entry[1].name in left]

    def _detection(
        self, place: int, budget: Budget, spent: float, usage: Usage, *, over: bool
    ) -> Detection:
        self._warned.add(budget.name)
        message = f"{spent:.6g} of {budget.limit:g} {budget.unit} are used"
        if budget.name == "cost" and usage.unpriced:
            message += f", not counting {usage.unpriced} model calls of unknown cost"
        return self.used(budget.name, message, spent, budget.limit, keys=place, over=over)


class OwnLimit(_OwnVerdict):
    """Compares what an agent used, and what a task of one type used, with limits of their own."""

    name = "own_limit"
    digits = 6
    advice = _FINISH
    __slots__ = ("_seen", "_task")

    @classmethod
    def wanted(cls, settings: Settings) -> bool:
        return bool(settings.agent_limits or settings.task_limits)

    def reset(self) -> None:
        self._seen: set[tuple[str, str, bool]] = set()
        self._task = 0

    def observe(self, usage: Usage) -> Detection | None:
        if usage.task != self._task:
            # Counted from one turn of the user to the next: reported of each task again.
            self._task = usage.task
            self._seen = {one for one in self._seen if one[1] not in ("errors", "elapsed_s")}
        warning = self._settings.tuning.budget.warning
        for owner, limits, used in self._owners(usage):
            for name, limit in limits.limits():
                over = used[name] >= limit
                if not over and used[name] < limit * warning:
                    continue
                if (owner, name, over) in self._seen or (owner, name, True) in self._seen:
                    continue
                self._seen.add((owner, name, over))
                whose = "agent" if owner.startswith("agent") else "task"
                says = f"{owner[:200]} used {used[name]:.6g} of {limit:g} {LIMITED[name]}"
                return self.used(
                    f"{whose}_{name}", says, used[name], limit,
                    keys=hash((self.name, owner, name)),
                    over=over, wanted=limits.action,
                )  # fmt: skip
        return None

    def _owners(self, usage: Usage) -> Iterator[tuple[str, AgentLimits, dict[str, float]]]:
        """Whose limits concern this step, and what was used of each."""
        settings = self._settings
        agent = None if usage.agent is None else settings.agent_limits.get(usage.agent)
        own = usage.own
        if agent is not None and own is not None:
            yield f"agent {usage.agent!r}", agent, {
                "actions": own.actions, "errors": own.errors, "tokens": own.tokens,
                "cost": own.cost,
            }  # fmt: skip
        kind = usage.task_type
        task = None if kind is None else settings.task_limits.get(kind)
        if task is not None:
            yield f"task of type {kind!r}", task, {
                "actions": usage.calls, "errors": usage.errors, "tokens": usage.tokens,
                "cost": usage.cost, "steps": usage.steps, "elapsed_s": usage.elapsed_s,
            }  # fmt: skip


_GROUP: Final = 5


class TokenRate(_OwnVerdict):
    """Compares the medians of the last three groups of five model calls of one agent, once.

    Steep is a rise by three times from group to group. A conversation that grows by the same amount
    at every step, from nothing, comes to 2.7 and then 1.6: growth in proportion to the number of
    steps never counts. One large answer lifts one group and not two; medians pass over single
    calls.
    """

    name = "token_rate"
    signs = ("tells_tokens",)
    sure = (0.6, 0.6, 0)
    reason = "tokens_rise"
    advice = "Work with a shorter context: summarise what is known, and read less at once."
    intervention = "compact"
    __slots__ = ("_agents", "_found")

    def reset(self) -> None:
        self._agents: dict[str | None, deque[int]] = {}
        self._found = False

    def user_turn(self) -> None:
        """The next task may need another context."""
        self._agents.clear()

    def observe(self, usage: Usage) -> Detection | None:
        if usage.step_tokens is None or self._found:
            return None
        calls = self._agents.get(usage.agent) or deque(maxlen=3 * _GROUP)
        calls.append(usage.step_tokens)
        keep(self._agents, usage.agent, calls, 16)
        tuning = self._settings.tuning.budget
        if len(calls) < 3 * _GROUP or usage.step_tokens < tuning.rate_tokens:
            return None
        if usage.step_tokens < tuning.rate_growth * calls[_GROUP]:
            return None  # saves the sorting; nearly every call ends here
        first, second, third = (
            sorted(islice(calls, start, start + _GROUP))[_GROUP // 2]
            for start in (0, _GROUP, 2 * _GROUP)
        )
        growth = tuning.rate_growth
        steep = second >= growth * max(first, 1) and third >= growth * second
        if not steep or third < tuning.rate_tokens:
            return None
        self._found = True
        message = (
            f"model calls went from {first} to {second} to {third} tokens each (medians of "
            f"{_GROUP} calls)"
        )
        rise = third / max(first, 1)
        return self.verdict(message, rise, round(growth**2, 2), 102, advised(self._settings))


class MilestoneStall(_OwnVerdict):
    """Notices that no milestone changed for some steps or seconds while one is still open.

    Without an open one nobody said that there is more to come. Seconds count from the second step
    on, for one slow call is no stall.
    """

    name = "milestone_stall"
    family = "milestones"
    takes = MilestoneStatus
    sure = (0.5, 0.5, 0)
    reason = "no_milestone"
    advice = (
        "Say which milestone you are working on and what keeps you from it, or change the plan."
    )
    __slots__ = ()

    def observe(self, status: MilestoneStatus) -> Detection | None:
        tuning = self._settings.tuning.milestones
        late = status.seconds >= tuning.elapsed_s and status.steps >= 2
        if not (status.paced and status.open) or not (late or status.steps >= tuning.steps):
            return None
        total = status.done + status.failed + status.open
        message = (
            f"no milestone changed for {status.steps} steps and {status.seconds:.0f} "
            f"s; {status.done} of {total} are done ({status.percent:g} %)"
        )
        return self.found(message, status.steps, tuning.steps, status.key)


class CannotSucceed(_OwnVerdict):
    """Notices once that a required milestone failed while none is open that could still succeed.

    Only milestones declared with `control.milestones(...)` are required, for only there the plan is
    complete, and the tasks of a plan. A task that waits for one that failed cannot succeed.
    """

    name = "cannot_succeed"
    family = "milestones"
    takes = MilestoneStatus
    sure = (0.9, 0.9, 0)
    reason = "cannot_succeed"
    advice = "Say what failed and hand over what was reached; do not go on."
    intervention = "end_early"
    __slots__ = ("_seen",)

    def reset(self) -> None:
        self._seen: int | None = None

    def observe(self, status: MilestoneStatus) -> Detection | None:
        if status.hopeless is None or status.key == self._seen:
            return None
        self._seen = status.key
        done = f"{status.done} are done ({status.percent:g} %)"
        waiting = f", and {status.blocked} that wait for it cannot start" if status.blocked else ""
        failed = f"failed{waiting}"
        if status.starved:
            failed = "cannot start, as everything that it needs failed"
        message = f"the task {status.hopeless!r} {failed}; no other is open; {done}"
        if status.paced:
            message = (
                f"the required milestone {status.hopeless!r} failed and no other is open; {done}"
            )
        own = Own(own_action(self._settings, self._settings.tuning.milestones.failed_action))
        return self.verdict(message, status.failed, 1, status.key, own, critical=True)
