"""Counts what a session used (tokens, time, money), its milestones, and failing model calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from otel_loopguard import semconv
from otel_loopguard._util.bounded import keep
from otel_loopguard.core import Kind, Remaining, Step
from otel_loopguard.core.evidence import ErrorClass, ModelAttempt
from otel_loopguard.core.progress import AgentUsage, Progress, Usage
from otel_loopguard.evidence.calls import agent_key
from otel_loopguard.evidence.errors import error_class, error_line, error_shape
from otel_loopguard.evidence.normalize import AGENTS, NAMED, key_of, text_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from otel_loopguard.core.progress import MilestoneStatus
    from otel_loopguard.settings import Settings

_TOOL, _MODEL = Kind.TOOL, Kind.MODEL
_RUNS: Final = frozenset({Kind.AGENT, Kind.WORKFLOW})
_LEFT: Final = {
    "steps": "steps", "actions": "actions", "task_actions": "actions", "tokens": "tokens",
    "cost": "cost", "elapsed_s": "seconds",
}  # fmt: skip
"""The field of `Remaining` by the name of the limit."""


class UsageExtractor:
    """Totals of one session over all kinds of steps, in O(1).

    A task ends when the user speaks or the root span of a run ends; counts per task then start
    again. Tokens and cost are those of model calls, because an agent's span repeats them. With a
    limit on money, a call without a cost is priced by its tokens.

    Also sets `Progress.used`, the highest share of any budget; without a budget it stays 0.
    """

    __slots__ = (
        "_asked", "_began", "_budgets", "_ended", "_first_call", "_owns", "_prices", "_progress",
        "_spending", "_working",
    )  # fmt: skip

    def __init__(self, settings: Settings, progress: Progress) -> None:
        self._progress = progress
        self._budgets = settings.budgets
        self._owns = {name: AgentUsage() for name in settings.agent_limits}
        # Without a limit, and a detector that may ask for what was spent, nobody does; how many
        # tokens a model call took is asked for always.
        limits = settings.budgets, settings.agent_limits, settings.task_limits
        self._asked = any(limits) or settings.checkpoint_every > 0 or bool(settings.detectors)
        self._prices = settings.prices_file if settings.limits_money else None
        self._spending = Usage(task=progress.task)
        self._first_call = progress.calls
        self._began = self._ended = 0
        self._working: str | None = None

    def extract(self, step: Step) -> Usage | None:
        """Returns the totals with this step; the same object every time.

        None if no limit is set, except for model calls, which then only tell phases and tasks
        apart.
        """
        kind, asked = step.kind, self._asked or step.kind is _MODEL
        agent, start, end = step.agent, step.start, step.end or 0
        if agent is not None:
            self._phase(agent[:NAMED], start, end)
        if end > self._ended:  # noqa: PLR1730  # a tenth of the price of max()
            self._ended = end
        if not self._began:
            self._began = start
        if asked:
            self._spend(step)
        if kind is not _TOOL:
            # The root of a run (recorded lines have no span ids), or the user's word.
            root = kind in _RUNS and step.parent_id is None and step.span_id != 0
            if root or (kind is Kind.OTHER and step.name == "user"):
                self._next_task()
        if self._budgets:
            raised = self._progress.raised
            limits = ((one, raised.get(one.name, one.limit)) for one in self._budgets)
            shares = (getattr(self._spending, one.spent) / limit for one, limit in limits)
            self._progress.used = min(max(shares), 1.0)
        return self._spending if asked else None

    def _spend(self, step: Step) -> None:
        spending, progress, kind = self._spending, self._progress, step.kind
        spending.step_tokens, spending.raised = None, progress.raised
        spending.late = progress.late
        if kind is _TOOL and not step.refused:
            spending.errors = spending.errors + 1 if step.error else 0
        elif kind is _MODEL:
            self._model(step)
        spending.steps, spending.calls = progress.steps, progress.calls
        spending.actions = progress.calls - self._first_call
        # Spans of models seldom name the agent in whose run they are.
        agent = step.agent or step.within
        spending.agent = None if agent is None else agent[:NAMED]
        if self._began and step.end:
            spending.elapsed_s = max(self._ended - self._began, 0) / 1e9
        if self._owns:
            self._own(step)
        spending.task_type = progress.milestones.task_type

    def remaining(self, raised: Mapping[str, float], now: int) -> Remaining:
        """Returns what is left of the limits that are set.

        Args:
            raised: Limits that a person raised, by name.
            now: Nanoseconds since the epoch.
        """
        left: dict[str, float] = {}
        for one in self._budgets:
            name = _LEFT.get(one.name)
            if name is not None:
                used: float = getattr(self._spending, one.spent)
                if name == "seconds":
                    used = (now - self._began) / 1e9 if self._began else 0
                rest = max(raised.get(one.name, one.limit) - used, 0)
                left[name] = min(rest, left.get(name, rest))
        whole = {name: int(left[name]) for name in ("steps", "actions", "tokens") if name in left}
        return Remaining(**whole, cost=left.get("cost"), seconds=left.get("seconds"))

    def _model(self, step: Step) -> None:
        spending = self._spending
        spending.step_tokens = step.tokens
        spending.tokens_in += step.tokens_in or 0
        spending.tokens_out += step.tokens_out or 0
        spending.tokens = spending.tokens_in + spending.tokens_out
        cost = step.cost
        if cost is None and self._prices is not None:
            # Where money is limited, the guard loaded it when it began.
            from otel_loopguard.settings.prices import cost_of  # noqa: PLC0415

            cost = cost_of(step, self._prices)
            spending.unpriced += cost is None
        spending.step_cost = cost or 0.0
        spending.cost += spending.step_cost

    def _own(self, step: Step) -> None:
        """Usage of a step's agent, if it has limits of its own."""
        spending = self._spending
        own = spending.own = self._owns.get(spending.agent or "")
        if own is None or step.refused:
            return
        if step.kind is _TOOL:
            own.actions += 1
            own.errors = own.errors + 1 if step.error else 0
        elif step.kind is _MODEL:
            own.tokens += step.tokens or 0
            own.cost += spending.step_cost

    def _phase(self, agent: str, start: int, end: int) -> None:
        """Another agent goes on where all before it have ended: a new phase.

        Agents side by side are one phase, and so are the spans that enclose their work.
        """
        phases = self._progress.phases
        if agent != self._working and not (start and start < self._ended):
            self._working = agent
            self._spending.phases += 1
            phases.begin(agent, start)
        phases.work(start, end)

    def _next_task(self) -> None:
        spending, progress = self._spending, self._progress
        progress.task += 1
        progress.phases.end()
        spending.task, progress.late = progress.task, ""
        self._first_call = progress.calls
        self._began = self._ended = 0
        spending.actions = spending.errors = spending.phases = 0
        spending.elapsed_s = 0.0
        self._working = None


class MilestoneExtractor:
    """Reads the board of milestones at every step; says nothing while none was declared.

    What was declared in an earlier task does not count: it is the next one's business to say what
    it wants to reach.
    """

    __slots__ = ("_changed_at", "_progress", "_seen", "_since", "_task", "_time")
    needs_milestones: ClassVar = True

    def __init__(self, settings: Settings, progress: Progress) -> None:
        del settings
        self._progress = progress
        self._task = progress.task
        self._since = self._seen = self._changed_at = self._time = 0

    def extract(self, step: Step) -> MilestoneStatus | None:
        """The standing after this step; None without milestones in the task at hand."""
        del step
        progress = self._progress
        changes = progress.milestones.changes
        if progress.task != self._task:
            self._task = progress.task
            self._since = changes
        if changes == self._since:
            return None
        if changes != self._seen:
            self._seen, self._changed_at, self._time = changes, progress.steps, progress.time
        return progress.milestones.standing(
            self._since,
            progress.steps - self._changed_at,
            max(progress.time - self._time, 0) / 1e9 if self._time else 0.0,
            key_of(b"milestones %d" % changes),
        )


_FAILING: Final = 0x6D6F_6465_6C21
"""Tells the loop of an agent's failing model calls from the agent."""
_OURS: Final = frozenset((semconv.ERROR_ABORT, semconv.ERROR_DENY))


class ModelAttemptExtractor:
    """Failed model calls of one session, and the first that works after them.

    An error that is not captured is unknown: equal to nothing. What the guard itself ended is none.
    """

    __slots__ = ("_failing",)

    def __init__(self, settings: Settings, progress: Progress) -> None:
        del settings, progress
        self._failing: dict[int, None] = {}

    def extract(self, step: Step) -> ModelAttempt | None:
        """Evidence of a model call; None of one that works where none has failed."""
        if not step.error:
            if not self._failing:
                return None
            agent = agent_key(step.agent)
            if agent not in self._failing:
                return None
            del self._failing[agent]
            return _attempt(step, agent, None)
        line = error_line(step) or text_bytes(step.error_type or "")
        if not line or step.error_type in _OURS:
            return None
        agent = agent_key(step.agent)
        keep(self._failing, agent, None, AGENTS)
        return _attempt(step, agent, error_shape(line))


def _attempt(step: Step, agent: int, error: int | None) -> ModelAttempt:
    name = repr(step.agent[:NAMED]) if step.agent else "the model"
    of = ErrorClass.UNKNOWN if error is None else error_class(step)
    return ModelAttempt(agent ^ _FAILING, name, error, of, step.start, step.end or 0)
