"""Budgets that are spent, and milestones that are missed."""

from __future__ import annotations

from collections import OrderedDict, deque
from itertools import islice
from typing import TYPE_CHECKING, Final

from otel_loopguard.core import Action, Detection, Kind, MilestoneStatus, Severity, Step, Usage
from otel_loopguard.settings import LIMITED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from otel_loopguard.settings import AgentLimits, Budget, Settings


def verdict(settings: Settings, wanted: str, most: Action = Action.ABORT) -> Action:
    """The action that is wanted, but nothing stronger than `most` and the setting `max_action`."""
    allowed = (Action(wanted), most, Action(settings.max_action))
    return min(allowed, key=lambda action: action.rank)


_KEY: Final = 101


class CheckpointAdvice:
    """Advises a checkpoint every `tuning.budget.checkpoint_every` (25) tool calls.

    Only where that or `budget_action` is set. It says nothing about the run. It leads to a hint at
    most, and to that only where `budget_action` is a hint or stronger.

    Source: FEATURES C10.
    """

    name = "checkpoint_advice"
    family = "budget"
    takes = Usage
    __slots__ = ("_action", "_every", "_given")

    def __init__(self, settings: Settings) -> None:
        self._every = settings.checkpoint_every
        self._action = verdict(settings, settings.budget_action, Action.HINT)
        self._given = 0

    def user_turn(self) -> None:
        """A user spoke: calls go on being counted."""

    def observe(self, spending: Usage) -> Detection | None:
        """Takes what was spent; gives a detection at every 25th call."""
        if not self._every or spending.calls // self._every == self._given:
            return None
        self._given = spending.calls // self._every
        return Detection(
            detector=self.name,
            reason="checkpoint_due",
            severity=Severity.WARNING,
            confidence=1.0,
            keys=frozenset({_KEY}),
            count=spending.calls,
            threshold=self._given * self._every,
            message=f"{spending.calls} tool calls were made: a good moment for a checkpoint",
            max_action=self._action,
            own=self._action,
            advice="Save what was reached so far, so that work can go on from there.",
            intervention="checkpoint",
        )


_CONTEXT_KEY: Final = 102
_MOST: Final = 1 << 40


class ContextSize:
    """Advises to compact the context: every five completed agents, and from 100,000 input tokens.

    Agents are those that ended inside of another run (`tuning.stalls.compact_agents`); tokens are
    the input of one model call (`tuning.stalls.compact_tokens`), said once until it is below half
    of that again. It leads to a hint at most, and to that only where `stall_action` is a hint or
    stronger.

    Source: FEATURES E13.
    """

    name = "context_size"
    family = "budget"
    takes = Step
    __slots__ = ("_action", "_agents", "_every", "_full", "_tokens")

    def __init__(self, settings: Settings) -> None:
        self._every = settings.tuning.stalls.compact_agents
        self._tokens = settings.tuning.stalls.compact_tokens
        self._action = verdict(settings, settings.stall_action, Action.HINT)
        self._agents = 0
        self._full = False

    def user_turn(self) -> None:
        """A user spoke: the context is as large as before."""

    def observe(self, step: Step) -> Detection | None:
        """Takes a step; gives a detection at every fifth agent, and when the context is large."""
        if step.kind is Kind.MODEL and self._tokens:
            return self._model(step.tokens_in)
        if step.kind is not Kind.AGENT or not self._every or step.parent_id is None:
            return None
        self._agents += 1
        if self._agents % self._every:
            return None
        counted = f"{self._agents} agents have completed their work"
        return self._detection("compact_agents", self._agents, self._agents, counted)

    def _model(self, tokens: int | None) -> Detection | None:
        if tokens is None:
            return None
        tokens = min(max(tokens, 0), _MOST)
        if self._full or tokens < self._tokens:
            self._full = self._full and tokens * 2 >= self._tokens
            return None
        self._full = True
        counted = f"a model call had {tokens} input tokens"
        return self._detection("compact_tokens", tokens, self._tokens, counted)

    def _detection(self, reason: str, count: int, threshold: int, counted: str) -> Detection:
        return Detection(
            detector=self.name,
            reason=reason,
            severity=Severity.WARNING,
            confidence=1.0,
            keys=frozenset({_CONTEXT_KEY}),
            count=count,
            threshold=threshold,
            message=f"{counted}: a good moment to compact the context",
            max_action=self._action,
            own=self._action,
            advice="Sum up what was reached and go on with that; say so with control.compacted().",
            intervention="compact_context",
        )


_PER_TASK: Final = frozenset({"task_actions", "errors", "elapsed_s", "phases"})


class SpendingLimit:
    """Holds what a session spent against its limits: steps, tokens, cost, calls, errors, time.

    Only limits that are set, and all of them where `budget_action` is. A warning at
    `tuning.budget.warning` (80 %) and a word at the limit, each once per session and limit; of
    limits per task once per task. It is no sign of a loop, stands on no ladder, and confirms
    none: length alone says nothing. It leads to `budget_action` (`allow`: noted only), a warning to
    a hint at most.

    Source: FEATURES D5, C10, E1; `notes/detectors.md`, "Budgets are a separate policy".
    """

    name = "spending_limit"
    family = "budget"
    takes = Usage
    __slots__ = ("_action", "_budgets", "_hint", "_left", "_task", "_warned", "_warning")

    def __init__(self, settings: Settings) -> None:
        self._budgets = tuple(
            (place, budget, budget.limit * settings.tuning.budget.warning)
            for place, budget in enumerate(settings.budgets(), 1)
        )
        self._left = list(self._budgets)
        self._warning = settings.tuning.budget.warning
        self._action = verdict(settings, settings.budget_action)
        self._hint = verdict(settings, settings.budget_action, Action.HINT)
        self._warned: set[str] = set()
        self._task = 0

    def user_turn(self) -> None:
        """A user spoke: what was spent stays spent; the evidence says that a new task begins."""

    def observe(self, spending: Usage) -> Detection | None:
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


_FEW: Final = 2


class MilestoneStall:
    """Notices that no milestone was reached for 10 steps (`milestones.steps`) or a minute.

    Only while a milestone that was declared is still open: without one nobody said that there is
    more to come. Seconds count from the second step on, for one slow call is no stall. Any change
    of a milestone, a failure too, starts the count anew. It leads to a hint at most.

    Source: FEATURES D2.
    """

    name = "milestone_stall"
    family = "milestones"
    takes = MilestoneStatus
    __slots__ = ("_seconds", "_steps")

    def __init__(self, settings: Settings) -> None:
        self._steps = settings.tuning.milestones.steps
        self._seconds = settings.tuning.milestones.elapsed_s

    def user_turn(self) -> None:
        """A user spoke: the evidence leaves out what was declared before."""

    def observe(self, standing: MilestoneStatus) -> Detection | None:
        """Takes a standing; gives a detection while it stalls."""
        late = standing.seconds >= self._seconds and standing.steps >= _FEW
        due = standing.paced and standing.open
        if not due or not (late or standing.steps >= self._steps):
            return None
        total = standing.done + standing.failed + standing.open
        return Detection(
            detector=self.name,
            reason="no_milestone",
            severity=Severity.WARNING,
            confidence=0.5,
            keys=frozenset({standing.key}),
            count=standing.steps,
            threshold=self._steps,
            message=f"no milestone changed for {standing.steps} steps and {standing.seconds:.0f} "
            f"s; {standing.done} of {total} are done ({standing.percent:g} %)",
            max_action=Action.HINT,
            advice="Say which milestone you are working on and what keeps you from it, or change "
            "the plan.",
        )


class CannotSucceed:
    """Notices that a required milestone failed while none is open that could still succeed.

    A verdict of its own: `tuning.milestones.failed_action` (`pause`), once per failure. Only
    milestones declared with `control.milestones(...)` are required, for only there the plan is
    complete, and the tasks of a plan. A task that waits for one that failed cannot succeed.

    Source: FEATURES E10.
    """

    name = "cannot_succeed"
    family = "milestones"
    takes = MilestoneStatus
    __slots__ = ("_action", "_said")

    def __init__(self, settings: Settings) -> None:
        self._action = verdict(settings, settings.tuning.milestones.failed_action)
        self._said: int | None = None

    def user_turn(self) -> None:
        """A user spoke: the evidence leaves out what was declared before."""

    def observe(self, standing: MilestoneStatus) -> Detection | None:
        """Takes a standing; gives a detection once if the task cannot succeed any more."""
        if standing.hopeless is None or standing.key == self._said:
            return None
        self._said = standing.key
        return Detection(
            detector=self.name,
            reason="cannot_succeed",
            severity=Severity.CRITICAL,
            confidence=0.9,
            keys=frozenset({standing.key}),
            count=standing.failed,
            threshold=1,
            message=_told(standing),
            max_action=self._action,
            own=self._action,
            advice="Say what failed and hand over what was reached; do not go on.",
            intervention="end_early",
        )


def _told(standing: MilestoneStatus) -> str:
    done = f"{standing.done} are done ({standing.percent:g} %)"
    if standing.paced:
        return f"the required milestone {standing.hopeless!r} failed and no other is open; {done}"
    waiting = f", and {standing.blocked} that wait for it cannot start" if standing.blocked else ""
    return f"the task {standing.hopeless!r} failed{waiting}; no other is open; {done}"


class OwnLimit:
    """Holds what an agent used, and what a task of one type used, against limits of their own.

    As `SpendingLimit` it is no sign of a loop: a warning at `tuning.budget.warning` (80 %) and a
    word at the limit, each once per agent or type, and stands on no ladder.

    Source: FEATURES C20.
    """

    name = "own_limit"
    family = "budget"
    takes = Usage
    __slots__ = ("_said", "_settings", "_task")

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._said: set[tuple[str, str, bool]] = set()
        self._task = 0

    def user_turn(self) -> None:
        """A user spoke: what was used stays used."""

    def observe(self, spending: Usage) -> Detection | None:
        """Takes what was spent; gives a detection once for every limit that is (nearly) used."""
        settings = self._settings
        if spending.task != self._task:
            # Counted between two words of the user: said of each task anew.
            self._task = spending.task
            self._said = {one for one in self._said if one[1] not in ("errors", "elapsed_s")}
        for owner, limits, used in self._owners(spending):
            for name, limit in limits.limits():
                over = used[name] >= limit
                if not over and used[name] < limit * settings.tuning.budget.warning:
                    continue
                if (owner, name, over) in self._said or (owner, name, True) in self._said:
                    continue
                self._said.add((owner, name, over))
                return self._detection(owner, limits, name, used[name], limit, over=over)
        return None

    def _owners(self, spending: Usage) -> Iterator[tuple[str, AgentLimits, dict[str, float]]]:
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
            threshold=limit if over else round(limit * settings.tuning.budget.warning, 6),
            message=f"{owner[:200]} used {used:.6g} of {limit:g} {LIMITED[name]}"
            + ("" if over else ", which is near the limit"),
            max_action=action,
            own=action,
            advice="Finish with what you have, or say what is missing and how much more it takes.",
        )


_GROUP: Final = 5
_AGENTS: Final = 16
_RATE_KEY: Final = 102


class TokenRate:
    """Compares the medians of the last three groups of five model calls of one agent.

    A rise is steep if each group uses `tuning.budget.rate_growth` (3) times as much as the one
    before it, and the last at least `tuning.budget.rate_tokens` (8,000) per call. A conversation
    that grows by the same amount at every step, from nothing, comes to 2.7 and then 1.6: growth in
    proportion to the number of steps never counts. One large answer lifts one group and not two;
    medians pass over single calls. Agents are counted apart, for each has a context of its own.
    Calls without tokens say nothing.

    Said once per session. It leads to a hint at most, and to that only where `budget_action` is a
    hint or stronger.

    Source: FEATURES D11.
    """

    name = "token_rate"
    family = "budget"
    takes = Usage
    __slots__ = ("_action", "_agents", "_floor", "_growth", "_said")

    def __init__(self, settings: Settings) -> None:
        self._growth = settings.tuning.budget.rate_growth
        self._floor = settings.tuning.budget.rate_tokens
        self._action = verdict(settings, settings.budget_action, Action.HINT)
        self._agents: OrderedDict[str | None, deque[int]] = OrderedDict()
        self._said = False

    def user_turn(self) -> None:
        """A user spoke: the next task may need another context."""
        self._agents.clear()

    def observe(self, spending: Usage) -> Detection | None:
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
            keys=frozenset({_RATE_KEY}),
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
