"""Answers to escalations, and the message to the model about each."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

from otel_loopguard._control.flag import is_reserved
from otel_loopguard._control.pending import declare, plan_of
from otel_loopguard.core.escalation import Answer
from otel_loopguard.core.milestones import Milestones
from otel_loopguard.errors import EscalationError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_loopguard.core.escalation import Escalation
    from otel_loopguard.core.task import Task

# A page: more belongs in a file that the agent can read.
GUIDANCE: Final = 2000
"""Characters of guidance that are kept."""
# A line of a list of sessions has room for a few of them.
NAME: Final = 100
"""Characters of a person's name that are kept."""


_SAID: Final = {
    Answer.MODIFY_PLAN: "A person looked at this run: change your plan before you go on.",
    Answer.SKIP_TASK: "A person looked at this run: leave the task that you are at, go on with "
    "the next one, and say in the end what was left out.",
}
_CHANGED: Final = (
    "A person looked at this run and changed its plan. From now on these tasks, and no others:"
)
_UNANSWERED: Final = (
    "Nobody answered in time: leave the task that you are at, go on with the next one, and say in "
    "the end what was left out."
)


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer to an escalation."""

    answer: Answer | None  # None where nobody answered and nothing was done
    by: str
    guidance: str = ""  # message to the model, of at most 2,000 characters
    # `api`, `cli`, `webhook`, `callback`, `limit` (nobody answered in time), or `control` (the flag
    # was changed past the escalation).
    via: str = "api"
    plan: tuple[Task, ...] = ()  # with `modify_plan`: the tasks to be done from now on
    limit: float | None = None  # with `continue`: the new limit of the budget that was spent

    @property
    def hint(self) -> str | None:
        """The next message to the model; None without one, and if the run ends."""
        if self.answer is None or self.answer is Answer.ABORT:
            return None
        late = self.via == "limit" and self.answer is Answer.SKIP_TASK
        said = _UNANSWERED if late else _SAID.get(self.answer, "")
        if self.plan:
            said = f"{_CHANGED} {_listed(self.plan)}"
        if self.guidance and not said:
            said = "A person looked at this run and says:"
        return f"{said} {self.guidance}".strip() or None


def reply_of(said: Mapping[str, object], via: str) -> Reply:
    """Checks an answer from outside.

    Args:
        said: Its `answer`, and perhaps `guidance`, `by`, `plan` and `limit`.
        via: The way it came.

    Raises:
        EscalationError: A part of it is wrong.
        PlanError: Its plan is not sound.
    """
    for name in ("guidance", "by"):
        value = said.get(name)
        if value is not None and not isinstance(value, str):
            msg = f"{name} of an answer must be a text, got {value!r:.100}"
            raise EscalationError(msg)
    who = str(said.get("by") or "").strip()[:NAME] or via
    _check_name(who)
    taken, plan, limit = answer_of(said.get("answer")), said.get("plan"), said.get("limit")
    if plan is not None and taken is not Answer.MODIFY_PLAN:
        msg = f"a plan goes with the answer modify_plan, got {taken.value}"
        raise EscalationError(msg)
    if limit is not None and taken is not Answer.CONTINUE:
        msg = f"a limit goes with the answer continue, got {taken.value}"
        raise EscalationError(msg)
    most = None if limit is None else _limit_of(limit)
    tasks = () if plan is None else tuple(plan_of(plan))
    if tasks:
        # Refused now, and not when it takes effect.
        declare((Milestones(),), tasks)
    guidance = str(said.get("guidance") or "").strip()[:GUIDANCE]
    return Reply(taken, who, guidance, via, tasks, most)


def _limit_of(given: object) -> float:
    """The new limit of a budget, a number or its text."""
    try:
        number = float(given) if isinstance(given, (int, float, str)) else math.nan
    except (ValueError, OverflowError):
        number = math.nan
    if isinstance(given, bool) or not 0 < number < math.inf:
        msg = f"limit of an answer must be a number above 0, got {given!r:.100}"
        raise EscalationError(msg)
    return number


def check_limit(escalation: Escalation, reply: Reply) -> None:
    """Refuses a new limit where no budget is spent, and one that is spent already."""
    if reply.limit is None:
        return
    decision = escalation.decision
    if decision is None or decision.budget is None:
        msg = f"limit: escalation {escalation.id!r} is about no budget that is spent"
        raise EscalationError(msg)
    if reply.limit <= decision.count:
        msg = f"limit must be above the {decision.count:g} spent, got {reply.limit:g}"
        raise EscalationError(msg)


def answer_of(name: object) -> Answer:
    """An answer by its name."""
    if isinstance(name, str):
        try:
            return Answer(name.strip().lower().replace("-", "_"))
        except ValueError:
            pass
    expected = ", ".join(answer.value for answer in Answer)
    msg = f"answer must be one of {expected}, got {name!r:.100}"
    raise EscalationError(msg)


def reply_in(said: object, via: str) -> Reply | None:
    """The answer in what a channel returned; None if there is none."""
    if said is None:
        return None
    if isinstance(said, Reply):
        _check_name(said.by)
        return said
    if isinstance(said, Mapping):
        given = cast("Mapping[str, object]", said)
        return None if given.get("answer") is None else reply_of(given, via)
    return reply_of({"answer": said}, via)


def _check_name(who: str) -> None:
    if is_reserved(who):
        msg = f"by = {who!r}: the guard itself has that name; expected that of a person"
        raise EscalationError(msg)


def _listed(tasks: Sequence[Task]) -> str:
    """The tasks of a plan for the model, in at most 2,000 characters."""
    said = "; ".join(_worded(task) for task in tasks)
    return f"{said}." if len(said) <= GUIDANCE else f"{said[:GUIDANCE]}…"


def _worded(task: Task) -> str:
    what = f" ({task.description})" if task.description else ""
    after = f" after {', '.join(task.depends_on)}" if task.depends_on else ""
    return f"{task.id}{what}{after}"
