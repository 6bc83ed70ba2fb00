"""Tokens, time and money that a session used, and its milestones."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from otel_loopguard.core import AgentUsage, Kind, Progress, Step, Usage
from otel_loopguard.evidence.normalize import key_of

if TYPE_CHECKING:
    from otel_loopguard.core import MilestoneStatus
    from otel_loopguard.settings import Settings

_RUNS: Final = frozenset({Kind.AGENT, Kind.WORKFLOW})
_MOST: Final = 1 << 40
_NAMED: Final = 200


class UsageExtractor:
    """What one session spent, of all kinds of steps, in O(1).

    A task ends when the user speaks, or with the root span of a run: what is counted per task
    starts again. Tokens and cost are those of model calls; an agent's span repeats them. Where
    money is limited, a call that does not say its cost has that of its tokens.

    Also keeps `Progress.used`: the highest share of any budget that somebody set. Without
    one it stays 0: the defaults are nobody's budget.
    """

    __slots__ = (
        "_began", "_budgets", "_ended", "_first_call", "_owns", "_prices", "_progress", "_spending",
        "_working",
    )  # fmt: skip

    def __init__(self, settings: Settings, progress: Progress) -> None:
        self._progress = progress
        self._budgets = settings.budgets(set_only=True)
        self._owns = {name: AgentUsage() for name in settings.agent_limits}
        self._prices = settings.prices_file if settings.limits_money else None
        self._spending = Usage(task=progress.task)
        self._first_call = progress.calls
        self._began = 0
        self._ended = 0
        self._working: str | None = None

    def extract(self, step: Step) -> Usage:
        """Everything spent so far, this step included; the same object every time."""
        spending, kind = self._spending, step.kind
        progress = self._progress
        spending.step_tokens, spending.raised = None, progress.raised
        if kind is Kind.TOOL and not step.refused:
            spending.errors = spending.errors + 1 if step.error else 0
        elif kind is Kind.MODEL:
            self._model(step)
        spending.steps, spending.calls = progress.steps, progress.calls
        spending.models = progress.models
        spending.actions = progress.calls - self._first_call
        agent, start, end = step.agent, step.start, step.end or 0
        spending.agent = None if agent is None else agent[:_NAMED]
        if agent is not None:
            self._phase(agent[:_NAMED], start, end)
        if end > self._ended:  # noqa: PLR1730  # a tenth of the price of max()
            self._ended = end
        self._began = self._began or start
        if self._began and end:
            elapsed = self._ended - self._began
            spending.elapsed_s = elapsed / 1e9 if elapsed > 0 else 0.0
        if self._owns:
            self._own(step)
        spending.task_type = progress.milestones.task_type
        # The user's word, or the root of a run (recorded lines have no span ids).
        if (
            step.name == "user"
            if kind is Kind.OTHER
            else kind in _RUNS and step.parent_id is None and step.span_id != 0
        ):
            self._next_task()
        if self._budgets:
            progress.used = self._used()
        return spending

    def _model(self, step: Step) -> None:
        spending = self._spending
        spending.step_tokens = None if step.tokens is None else _counted(step.tokens)
        spending.tokens_in += _counted(step.tokens_in)
        spending.tokens_out += _counted(step.tokens_out)
        spending.tokens = spending.tokens_in + spending.tokens_out
        cost = step.cost
        if cost is None and self._prices is not None:
            # Where money is limited, the guard loaded it when it began.
            from otel_loopguard.policy.prices import cost_of  # noqa: PLC0415

            cost = cost_of(step, self._prices)
            spending.unpriced += cost is None
        spending.step_cost = cost or 0.0
        spending.cost += spending.step_cost

    def _own(self, step: Step) -> None:
        """What the agent of a step used, where it has limits of its own."""
        spending = self._spending
        own = spending.own = self._owns.get(spending.agent or "")
        if own is None or step.refused:
            return
        if step.kind is Kind.TOOL:
            own.actions += 1
            own.errors = own.errors + 1 if step.error else 0
        elif step.kind is Kind.MODEL:
            own.tokens += _counted(step.tokens_in) + _counted(step.tokens_out)
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
        spending.task = progress.task
        self._first_call = progress.calls
        self._began = self._ended = 0
        spending.actions = spending.errors = spending.phases = 0
        spending.elapsed_s = 0.0
        self._working = None

    def _used(self) -> float:
        spending, raised = self._spending, self._progress.raised
        shares = (
            getattr(spending, one.spent) / raised.get(one.name, one.limit) for one in self._budgets
        )
        return min(1.0, max(shares))


def _counted(tokens: int | None) -> int:
    """Tokens as far as they can be: a span may say anything."""
    return 0 if tokens is None or tokens < 0 else min(tokens, _MOST)


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
        self._since = 0
        self._seen = 0
        self._changed_at = 0
        self._time = 0

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
