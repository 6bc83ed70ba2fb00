"""Escalations as cases: their text for people, how they end, and what an answer may say."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Final, cast

from otel_loopguard import semconv
from otel_loopguard._control.flag import Flag, declare, is_reserved, plan_of
from otel_loopguard._util.tables import read_texts
from otel_loopguard._util.text import truncate
from otel_loopguard.core.progress import Milestones
from otel_loopguard.core.report import Answer, Escalation, Suggestion
from otel_loopguard.errors import EscalationError

if TYPE_CHECKING:
    from otel_loopguard.core import Decision
    from otel_loopguard.core.report import Act, Report
    from otel_loopguard.core.task import Task

# A page: more belongs in a file that the agent can read.
GUIDANCE: Final = 2000
"""Characters of guidance that are kept."""
# A line of a list of sessions has room for a few of them.
NAME: Final = 100
"""Characters of a person's name that are kept."""
_TEXTS: Final = read_texts(__name__, "texts.txt")


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer to an escalation."""

    answer: Answer | None  # None where nobody answered and nothing was done
    by: str
    guidance: str = ""  # message to the model, of at most 2,000 characters
    # `api`, `cli`, `http`, `webhook`, `callback`, `limit` (nobody answered in time), or `control`
    # (the flag was changed past the escalation).
    via: str = "api"
    plan: tuple[Task, ...] = ()  # with `modify_plan`: the tasks to be done from now on
    limit: float | None = None  # with `continue`: the new limit of the budget that was spent

    @property
    def hint(self) -> str | None:
        """The next message to the model; None without one, and if the run ends."""
        if self.answer is None or self.answer is Answer.ABORT:
            return None
        late = self.via == "limit" and self.answer is Answer.SKIP_TASK
        said = _TEXTS["unanswered"] if late else _TEXTS.get(self.answer.value, "")
        if self.plan:
            said = f"{_TEXTS['changed']} {_listed(self.plan)}"
        if self.guidance and not said:
            said = _TEXTS["said"]
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
            raise EscalationError(f"{name} of an answer must be a string, got {value!r:.100}")
    who = str(said.get("by") or "").strip()[:NAME] or via
    _check_name(who)
    taken, plan, limit = answer_of(said.get("answer")), said.get("plan"), said.get("limit")
    if plan is not None and taken is not Answer.MODIFY_PLAN:
        raise EscalationError(f"a plan goes with the answer modify_plan, got {taken.value}")
    if limit is not None and taken is not Answer.CONTINUE:
        raise EscalationError(f"a limit goes with the answer continue, got {taken.value}")
    most = None if limit is None else _limit_of(limit)
    tasks = () if plan is None else tuple(plan_of(plan))
    if tasks:
        # Refused now, and not when it takes effect.
        declare(Milestones(), tasks)
    guidance = str(said.get("guidance") or "").strip()[:GUIDANCE]
    return Reply(taken, who, guidance, via, tasks, most)


def _limit_of(given: object) -> float:
    """The new limit of a budget, a number or its text."""
    try:
        number = float(given) if isinstance(given, (int, float, str)) else math.nan
    except (ValueError, OverflowError):
        number = math.nan
    if isinstance(given, bool) or not 0 < number < math.inf:
        raise EscalationError(f"limit of an answer must be a number above 0, got {given!r:.100}")
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
    raise EscalationError(f"answer must be one of {expected}, got {name!r:.100}")


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


# People read the first two or three.
_SUGGESTED: Final = 3


def suggestions(decision: Decision | None) -> tuple[Suggestion, ...]:
    """Suggested answers to a decision, the best first."""
    found: list[Suggestion] = []
    if decision is not None and decision.diagnosis is not None:
        found += (
            Suggestion(Answer.CONTINUE, f"after this: {fix.text} (risk: {fix.risk})")
            for fix in decision.diagnosis.fixes[:_SUGGESTED]
        )
    if decision is not None and decision.budget is not None:
        found.append(Suggestion(Answer.CONTINUE, "raise the budget: say its new `limit`"))
    ways = () if decision is None else decision.alternatives
    found += (Suggestion(Answer.MODIFY_PLAN, way) for way in ways[:_SUGGESTED])
    if not ways:
        other = "go on in another way: say which, or give the tasks that are to be done instead"
        found.append(Suggestion(Answer.MODIFY_PLAN, other))
    return (
        *found,
        Suggestion(Answer.SKIP_TASK, "leave this task out and go on with the next one"),
        Suggestion(Answer.CONTINUE, "go on as before, with a word of yours to the model"),
        Suggestion(Answer.ABORT, "end the run"),
    )


# A chat shows some lines of a message.
_LONGEST: Final = 500


def message(escalation: Escalation) -> str:
    """Renders the escalation as text: what, why, what happened last, what to answer.

    Args:
        escalation: The escalation.
    """
    # A name or a reason with line ends in it must not look like lines of ours.
    lines = ((line[:1] == " ", truncate(line, _LONGEST)) for line in _lines(escalation))
    return "\n".join(f"  {line}" if indented else line for indented, line in lines)


class Case:
    """An escalation, and how it ended."""

    def __init__(self, escalation: Escalation, flag: Flag) -> None:
        self.escalation = escalation
        self.flag: Flag | None = flag  # None once it is over
        self.reply: Reply | None = None  # None while it is open
        self.over = 0  # when it ended, nanoseconds since the epoch

    def row(self) -> dict[str, object]:
        """Returns it as one JSON object; `ended` is null while it is open."""
        reply = self.reply
        ended = None
        if reply is not None:
            ended = {
                "answer": None if reply.answer is None else reply.answer.value,
                "by": reply.by,
                "via": reply.via,
                "guidance": reply.guidance or None,
                "plan": [task.id for task in reply.plan] or None,
                "limit": reply.limit,
                "at": self.over,
            }
        return {**self.escalation.row(), "ended": ended, "written": time.time_ns()}

    def log_record(self) -> tuple[int, str, dict[str, object]]:
        """Returns level, text and fields of its log record."""
        found, reply = self.escalation, self.reply
        fields: dict[str, object] = {
            semconv.SESSION_ID: found.session,
            semconv.ESCALATION_ID: found.id,
            semconv.ESCALATION_CAUSE: found.cause,
        }
        if found.decision is not None:
            fields[semconv.DECISION_ID] = found.decision.id
            fields[semconv.DETECTOR_NAME] = found.decision.detector
        which = f"escalation {found.id}: session {found.session}"
        if reply is None:
            return logging.WARNING, f"{which}: {found.cause}: {found.reason}", fields
        fields[semconv.CONTROL_BY] = reply.by
        if reply.answer is not None:
            fields[semconv.ESCALATION_ANSWER] = reply.answer.value
        level = logging.WARNING if reply.via == "limit" else logging.INFO
        said = f": {reply.guidance}" if reply.guidance else ""
        return level, f"{which}: over, {self._end(reply)}{said}", fields

    @staticmethod
    def _end(reply: Reply) -> str:
        """Its ending, in words."""
        if reply.via == "control":
            return f"the session was changed by {reply.by}"
        if reply.via == "limit":
            taken = "nothing was changed" if reply.answer is None else f"{reply.answer} was taken"
            return f"nobody answered in time, and {taken}"
        way = "" if reply.by == reply.via else f" by {reply.via}"
        return f"{reply.by} answered {reply.answer}{way}"

    def error(self) -> EscalationError:
        """Returns the error for a second answer."""
        found, reply = self.escalation, self.reply
        how = "" if reply is None else self._end(reply)
        return EscalationError(
            f"escalation {found.id!r} of session {found.session!r} is over: {how}"
        )


def _lines(found: Escalation) -> Iterator[str]:
    cause = _TEXTS.get(f"cause {found.cause}", _TEXTS["cause application"])
    if found.held and found.cause != "pause":
        cause += ", and waits"
    yield f"Session {found.session} {cause} (escalation {found.id})."
    yield f"Why: {found.reason}"
    yield from _about(found)
    if found.acts:
        yield "Last actions:"
        yield from (f"  {_action(act)}" for act in found.acts)
    if found.context is not None and found.shows_content:
        yield from found.context.lines()
    yield "You may answer:"
    yield from (f"  {one.answer.value}: {one.text}" for one in found.suggestions)
    limit = datetime.fromtimestamp(found.until / 1e9, timezone.utc)
    yield f"Without an answer by {limit:%Y-%m-%d %H:%M:%S} UTC: {_fallback(found)}."


def _about(found: Escalation) -> Iterator[str]:
    if found.decision is not None:
        seen = found.decision
        about = f"Seen by {seen.detector} ({seen.reason}), {seen.severity.value}"
        yield f"{about}; decision {seen.id}, trace {found.trace_id or 'unknown'}."
        if seen.diagnosis is not None:
            yield f"Likely cause: {seen.diagnosis.cause}"
    places = (("agent", found.agent), ("task", found.task), ("process", found.process))
    where = ", ".join(f"{name} {value}" for name, value in places if value)
    if where:
        yield f"Where: {where}."
    if found.report is not None:
        yield f"So far: {_totals(found.report)}."


def _totals(report: Report) -> str:
    parts = [
        f"{report.steps} steps",
        f"{report.actions} tool calls ({report.failures} failed)",
        f"{report.model_calls} model calls",
    ]
    if report.tokens is not None:
        parts.append(f"{report.tokens} tokens")
    if report.duration_s is not None:
        parts.append(f"{report.duration_s:.0f} s")
    return ", ".join(parts)


def _action(act: Act) -> str:
    took = "" if act.duration_s is None else f" in {act.duration_s:.2f} s"
    ended = f"failed ({act.error_type})" if act.outcome == "failed" and act.error_type else None
    by = f" by {act.agent}" if act.agent else ""
    content = f" {act.content}" if act.content else ""
    return f"{act.name}{by}: {ended or act.outcome}{took}{content}"


def _fallback(found: Escalation) -> str:
    if not found.held:
        return "nothing changes"
    if found.fallback == "wait":
        return "it stays paused"
    return f"{found.fallback} is taken"
