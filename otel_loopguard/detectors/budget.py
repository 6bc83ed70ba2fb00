"""Limits: budgets that are spent, milestones that are missed, and what runs for too long."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

from xxhash import xxh3_64_intdigest as key_of

from otel_loopguard._util.bounded import keep
from otel_loopguard.core import Action, Kind, Step
from otel_loopguard.core.decision import Severity, rank
from otel_loopguard.core.progress import MilestoneStatus, Usage
from otel_loopguard.detectors.base import BaseDetector, critical_if
from otel_loopguard.settings import UNITS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from otel_loopguard.core import Detection
    from otel_loopguard.core.evidence import Evidence, Waited
    from otel_loopguard.settings import Settings


def at_once(
    settings: Settings, wanted: str, most: Action = Action.ABORT, unanswered: Action | None = None
) -> dict[str, Any]:
    """Fields of a detection past the ladder, which leads to an action and to nothing beyond.

    The action is what is wanted, but nothing stronger than `most` and the setting `max_action`.
    """
    allowed = min((most, Action(settings.max_action)), key=rank)
    own = min(allowed, Action(wanted), key=rank)
    unanswered = unanswered and min(allowed, unanswered, key=rank)
    return {"max_action": own, "own": own, "unanswered": unanswered}


def at_limit(settings: Settings, *, over: bool, wanted: str | None = None) -> dict[str, Any]:
    """As above, at or near a limit that a user set.

    Unless an action is set it stops the run: by a pause if somebody can answer, else by an abort.
    """
    wanted = wanted or settings.budget_action
    if not over:
        return at_once(settings, wanted or Action.HINT, Action.HINT)
    if wanted:
        return at_once(settings, wanted)
    return at_once(settings, Action.PAUSE, unanswered=Action.ABORT)


def advised(settings: Settings) -> dict[str, Any]:
    """As above for advice: a hint if the standard limits were asked for, else a note."""
    return at_once(settings, Action.HINT if settings.standard else Action.ALLOW)


class _OwnVerdict(BaseDetector):
    """A detector with a verdict of its own, past the ladder: length alone is no sign of a loop.

    A user's turn takes nothing back: what was spent is spent.
    """

    takes = Usage
    __slots__ = ()

    def user_turn(self) -> None:
        pass


class CheckpointAdvice(_OwnVerdict):
    """Is it time to save what was achieved?

    Counts: tool calls; told at every multiple of the setting (0: never).
    Leaves alone: everything else.
    Cannot see: whether anything was achieved.
    """

    name = "checkpoint_advice"
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
        fields = at_once(self._settings, Action.HINT)
        return self.found("checkpoint_due", usage.calls, self._given * every, 101, **fields)


class ContextSize(_OwnVerdict):
    """Is it time to compact the context?

    Counts: agents that completed their work since the last compaction or user turn; input tokens
    of one model call.
    Leaves alone: everything below; hints with `limits="standard"` only.
    Cannot see: compactions that nobody tells.
    """

    name = "context_size"
    takes = Step
    kinds = (Kind.MODEL, Kind.AGENT)
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
            tokens = step.tokens_in
            if not tuning.compact_tokens or tokens is None:
                return None
            if self._full or tokens < tuning.compact_tokens:
                self._full = self._full and tokens * 2 >= tuning.compact_tokens
                return None
            self._full = True
            return self._advise("compact_tokens", tokens, tuning.compact_tokens)
        if not tuning.compact_agents or step.parent_id is None:
            return None
        self._agents += 1
        if self._agents != tuning.compact_agents:
            return None
        return self._advise("compact_agents", self._agents, self._agents)

    def _advise(self, rule: str, count: int, threshold: int) -> Detection:
        return self.found(rule, count, threshold, 102, **advised(self._settings))


class _Used(NamedTuple):
    """A limit and what was used of it; `said` fills in the words of its rule."""

    owner: str
    name: str
    used: float
    limit: float
    key: int
    said: dict[str, Any]


class _LimitDetector(_OwnVerdict):
    """Compares usage with limits, and reports once near and once at each of them.

    Limits per task (`per_task`) count from one user turn to the next, and are reported for each
    task.
    """

    digits = 6
    per_task: ClassVar[frozenset[str]]
    __slots__ = ("_task", "_told")

    def reset(self) -> None:
        self._task = 0
        # By owner and name of a limit: whether it was told as reached, or as near only.
        self._told: dict[tuple[str, str], bool] = {}

    def limits(self, usage: Usage) -> Iterator[_Used]:
        """The limits that concern this step."""
        raise NotImplementedError

    def observe(self, usage: Usage) -> Detection | None:
        if usage.task != self._task:
            self._task, told = usage.task, self._told
            self._told = {at: over for at, over in told.items() if at[1] not in self.per_task}
        found: _Used | None = None
        for one in self.limits(usage):
            over, told = one.used >= one.limit, self._told.get(one[:2])
            near = one.used >= one.limit * self._settings.tuning.budget.warning
            if near and not told and told is not over and (over or found is None):
                found = one
                if over:
                    break
        return found and self._tell(found)

    def _tell(self, found: _Used) -> Detection:
        """A detection of a limit that is reached, or near."""
        owner, name, used, limit, key, said = found
        over = self._told[owner, name] = used >= limit
        near = round(limit * self._settings.tuning.budget.warning, 6)
        code, wanted = said.pop("code", ""), said.pop("wanted", None)
        more = said.pop("more", "") + ("" if over else ", which is near the limit")
        key = key or key_of(f"{self.name} {owner} {name}".encode("utf-8", "surrogatepass"))
        return self.found(
            f"{code}{name}_limit", used, limit if over else near, key, limit=limit,
            **at_limit(self._settings, over=over, wanted=wanted), owner=owner[:200],
            reason=f"{code}{name}_{'limit' if over else 'near'}", severity=critical_if(over),
            more=more, **said,
        )  # fmt: skip


class SpendingLimit(_LimitDetector):
    """Is a budget used up, or nearly?

    Counts: what a session, or a task, spent.
    Leaves alone: what no setting limits.
    Cannot see: tokens and cost that no span carries: totals are lower bounds.
    """

    name = "spending_limit"
    per_task = frozenset({"task_actions", "errors", "elapsed_s", "phases"})
    __slots__ = ("_raised",)

    @classmethod
    def wanted(cls, settings: Settings) -> bool:
        return bool(settings.budgets)

    def reset(self) -> None:
        super().reset()
        self._raised: Mapping[str, float] = {}

    def limits(self, usage: Usage) -> Iterator[_Used]:
        if usage.raised != self._raised:
            # One that a person raised is a new limit.
            for name, limit in usage.raised.items():
                if self._raised.get(name) != limit:
                    self._told.pop(("", name), None)
            self._raised = dict(usage.raised)
        for place, budget in enumerate(self._settings.budgets, 1):
            limit = self._raised.get(budget.name, budget.limit)
            spent: float = getattr(usage, budget.spent)
            # The timer, which needs no step, may have said it first.
            late = usage.late == "limit" or (usage.late == "near" and spent < limit)
            if late and budget.name == "elapsed_s" and budget.name not in self._raised:
                continue
            more = ""
            if budget.name == "cost" and usage.unpriced:
                more = f", not counting {usage.unpriced} model calls of unknown cost"
            said = {"unit": budget.unit, "more": more}
            yield _Used("", budget.name, spent, limit, place, said)


class OwnLimit(_LimitDetector):
    """Is a limit of one agent, or of one type of task, used up, or nearly?

    Counts: what the agent used in a session; what a task of that type used.
    Leaves alone: agents and tasks without an entry.
    Cannot see: agents that spans do not name.
    """

    name = "own_limit"
    per_task = frozenset({"errors", "elapsed_s"})
    __slots__ = ()

    @classmethod
    def wanted(cls, settings: Settings) -> bool:
        return bool(settings.agent_limits or settings.task_limits)

    def limits(self, usage: Usage) -> Iterator[_Used]:
        settings = self._settings
        for of, who, own, source in (
            ("agent", usage.agent, settings.agent_limits, usage.own),
            ("task", usage.task_type, settings.task_limits, usage),
        ):
            limits = None if who is None else own.get(who)
            if limits is None or source is None:
                continue
            owner = f"{'task of type' if of == 'task' else of} {who!r}"
            for name, limit in limits.limits():
                # A limit of a type of task is one of the session.
                at = "calls" if source is usage and name == "actions" else name
                used: float = getattr(source, at)
                said = {"unit": UNITS[name], "code": f"{of}_", "wanted": limits.action}
                yield _Used(owner, name, used, limit, 0, said)


# The median of five passes over two calls that are unlike the others.
_GROUP: Final = 5
# A conversation that grows by the same amount at every step, from nothing, comes to 2.7 from the
# first group to the second, and then to 1.6: growth in proportion to the steps is never steep.
_STEEP: Final = 3.0
# Below it, a context is a few pages, and may triple for good reasons.
_LEAST_TOKENS: Final = 8000


class TokenRate(_OwnVerdict):
    """Do model calls take more and more tokens, far beyond a growing conversation?

    Counts: medians of five model calls of one agent that tripled twice, to 8,000 tokens or more.
    Leaves alone: steady growth; single large calls.
    Cannot see: what no span carries.
    """

    name = "token_rate"
    signs = ("tells_tokens",)
    intervention = "compact"
    __slots__ = ("_agents", "_found")

    def reset(self) -> None:
        self._agents: dict[str | None, deque[int]] = {}
        self._found = False

    def user_turn(self) -> None:
        """The next task may need another context."""
        self._agents.clear()

    def observe(self, usage: Usage) -> Detection | None:
        tokens = usage.step_tokens
        if tokens is None or self._found:
            return None
        calls = self._agents.get(usage.agent) or deque(maxlen=3 * _GROUP)
        calls.append(tokens)
        keep(self._agents, usage.agent, calls, 16)
        if len(calls) < 3 * _GROUP or tokens < max(_LEAST_TOKENS, _STEEP * calls[_GROUP]):
            return None  # saves the sorting; nearly every call ends here
        first, second, third = (
            sorted(islice(calls, start, start + _GROUP))[_GROUP // 2]
            for start in (0, _GROUP, 2 * _GROUP)
        )
        if second < _STEEP * max(first, 1) or third < max(_STEEP * second, _LEAST_TOKENS):
            return None
        self._found = True
        return self.found(
            "tokens_rise", third / max(first, 1), _STEEP**2, 102, **advised(self._settings),
            first=first, second=second, third=third, calls=_GROUP,
        )  # fmt: skip


# Providers keep what they cached of a context for five minutes: a look each is the dearest pace.
_LOOK_EVERY_S: Final = 300.0
# Tokens below which a wait is cheap: a fifth of what one long context costs at list prices.
_CHEAP: Final = 200_000


class PriceOfWaiting(BaseDetector):
    """Do looks at what is not ready cost more than a longer wait would?

    Counts: tokens of model calls that asked for looks: 200,000, and three times what two looks, or
    one every five minutes, would have cost; again at four times the price.
    Leaves alone: looks that bring news, or between which other work was done.
    Cannot see: tokens that no span carries.
    """

    name = "price_of_waiting"
    signs = ("wait",)
    __slots__ = ("_spent", "_told")

    def reset(self) -> None:
        self._spent = self._told = 0

    def observe(self, evidence: Evidence) -> Detection | None:
        wait = evidence.wait
        if wait is None or not wait.seconds:
            return None
        # Over all waits: a run that waits for one build after the other has heard it.
        self._spent = max(self._spent + evidence.asked, wait.tokens)
        # Whoever waits looks twice at least: once too soon, and once when it is ready.
        fewer = max(wait.seconds / _LOOK_EVERY_S, 2.0)
        spared = round(wait.tokens / wait.looks * fewer)
        if wait.tokens < max(_CHEAP, 3 * spared) or self._spent < 4 * self._told:
            return None
        self._told = self._spent
        return self.found(
            "looks_cost", wait.tokens, max(_CHEAP, 3 * spared), _WAITING, looks=wait.looks,
            cost=f" ({wait.cost:.2f} USD)" if wait.cost else "", every=_LOOK_EVERY_S,
            spared=spared, longer=longer_wait(wait), **at_once(self._settings, Action.HINT),
        )  # fmt: skip


_WAITING: Final = 0x7761_6974
"""The key of a wait, which is about no single call: the letters of `wait`."""
# Nothing that is worth a look is over sooner.
_SHORTEST_WAIT_S: Final = 10.0


def longer_wait(wait: Waited) -> float:
    """Seconds to wait before the next look: a third of the wait so far, from 10 s to 5 minutes."""
    return min(max(wait.seconds / 3, _SHORTEST_WAIT_S), _LOOK_EVERY_S)


class MilestoneStall(_OwnVerdict):
    """Does the run still reach its milestones?

    Counts: steps, or seconds from the second step on, since a milestone changed.
    Leaves alone: sessions in which none was declared, or none is open.
    Cannot see: progress that nobody reports.
    """

    name = "milestone_stall"
    family = "milestones"
    takes = MilestoneStatus
    __slots__ = ()

    def observe(self, status: MilestoneStatus) -> Detection | None:
        tuning = self._settings.tuning.milestones
        late = status.seconds >= tuning.elapsed_s and status.steps >= 2  # one slow call is no stall
        if not (status.paced and status.open) or not (late or status.steps >= tuning.steps):
            return None
        return self.found(
            "no_milestone", status.steps, tuning.steps, status.key, seconds=status.seconds,
            done=status.done, total=status.done + status.failed + status.open,
            percent=status.percent,
        )  # fmt: skip


class CannotSucceed(_OwnVerdict):
    """Can the run still succeed?

    Counts: a required milestone, or a task of a plan, that failed while no other is open.
    Leaves alone: optional ones; what is reached after all.
    Cannot see: failures that nobody reports.
    """

    name = "cannot_succeed"
    family = "milestones"
    takes = MilestoneStatus
    intervention = "end_early"
    __slots__ = ("_seen",)

    def reset(self) -> None:
        self._seen: int | None = None

    def observe(self, status: MilestoneStatus) -> Detection | None:
        if status.hopeless is None or status.key == self._seen:
            return None
        self._seen = status.key
        wording = (
            ".milestone" if status.paced else ".starved" if status.starved
            else ".blocking" if status.blocked else ""
        )  # fmt: skip
        return self.found(
            "cannot_succeed" + wording, status.failed, 1, status.key, task=status.hopeless,
            blocked=status.blocked, done=status.done, percent=status.percent,
            severity=Severity.CRITICAL,
            **at_once(self._settings, self._settings.tuning.milestones.failed_action),
        )  # fmt: skip


NAME: Final = "stall"
OPERATION: Final = "operation_limit"
"""The rule of `budget_elapsed_s`, which steps are held against, too."""


@dataclass(frozen=True, slots=True)
class Clock:
    """A limit in time, and since when it counts.

    Attributes:
        reason: Code of the rule; `_near` is added near the limit.
        since: When it began to count, nanoseconds since the epoch.
        limit_s: Seconds that it allows.
        warns: Whether there is a detection near it, too.
        mild: What follows where it is no limit that was set: a hint, or a note; None: it is one.
    """

    reason: str
    since: int
    limit_s: float
    warns: bool = True
    mild: Action | None = Action.HINT

    def after(self, part: float = 1) -> int:
        """When a part of the limit is used, nanoseconds since the epoch."""
        return self.since + round(self.limit_s * part * 1e9)


def step_clocks(
    settings: Settings, tool: str | None, since: int, limit_s: float | None
) -> list[Clock]:
    """The limits of a tool call: `step_timeout_s`, and `limit_s`, three times its estimate.

    A tool that is known to take longer than `step_timeout_s` may do so, unless it is given one of
    its own.
    """
    declared = None if tool is None else settings.declared.get(tool)
    own_s = None if declared is None else declared.step_timeout_s
    if own_s is not None:
        return [Clock("step_timeout", since, own_s)]
    most = settings.step_timeout_s
    if limit_s is None or limit_s >= most:
        return [Clock("step_timeout", since, most if limit_s is None else limit_s)]
    return [
        Clock("over_estimate", since, limit_s, warns=False),
        Clock("step_timeout", since, most),
    ]


def model_clocks(settings: Settings, since: int) -> list[Clock]:
    """When a model call is noted; the agent cannot do anything about a slow model."""
    return _set(Clock("model_timeout", since, settings.tuning.stalls.model_s, mild=Action.ALLOW))


def agent_clocks(settings: Settings, since: int, limit_s: float) -> list[Clock]:
    """When an agent's run is late: five times its estimate, within 30 to 600 s."""
    mild = None if settings.standard else Action.ALLOW
    return [Clock("agent_limit", since, limit_s, mild=mild)]


def run_clocks(settings: Settings, began: int, spent: int) -> list[Clock]:
    """The limits of a run, of all runs of its session (`spent` nanoseconds before), of a task."""
    overall_s, task_s = settings.stall_overall_s, settings.budget_elapsed_s
    return _set(
        Clock("run_limit", began, settings.stall_run_s, mild=None),
        Clock("overall_limit", began - spent, overall_s, mild=None),
        Clock(OPERATION, began, task_s, mild=None),
    )


def idle_clocks(settings: Settings, since: int) -> list[Clock]:
    """The limit of doing nothing while a run is open."""
    return _set(Clock("idle", since, settings.stall_idle_s, mild=None))


def phase_clocks(settings: Settings, since: int) -> list[Clock]:
    """When one phase of several is noted."""
    limit_s = settings.tuning.stalls.phase_s
    return _set(Clock("same_phase", since, limit_s, warns=False, mild=Action.ALLOW))


class StallDetector(BaseDetector):
    """Does something run longer than it may?

    Counts: seconds of open spans; told once, and near a limit.
    Leaves alone: time without an open run; tools known to be slow.
    Cannot see: whether it is slow or stuck: only limits that you set stop anything.
    """

    name = family = NAME
    digits = 3
    __slots__ = ()

    def late(self, clock: Clock, name: str, key: int, now: int, *, near: bool) -> Detection:
        """The detection of something that is late, or nearly.

        Without a limit that a user set it leads to a hint at most: a slow build is not stuck, and
        nobody can tell from outside.
        """
        settings, passed = self._settings, (now - clock.since) / 1e9
        fields = at_limit(settings, over=not near)
        if clock.mild is not None:
            fields.update(max_action=clock.mild, own=clock.mild, unanswered=None)
        limit = round(clock.limit_s * (settings.tuning.stalls.warning if near else 1), 6)
        return self.found(
            clock.reason, passed, limit, key, name=name[:200], limit=clock.limit_s,
            reason=f"{clock.reason}_near" if near else clock.reason,
            # Time says little of what is stuck: a guess, and half of one before the limit.
            confidence=0.4 if near else 0.6, severity=critical_if(not near), **fields,
        )  # fmt: skip


def _set(*clocks: Clock) -> list[Clock]:
    return [clock for clock in clocks if clock.limit_s > 0]
