"""What people may answer to an escalation, and what the model is told about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, cast

from otel_loopguard.errors import EscalationError

GUIDANCE: Final = 2000
"""Characters of guidance that are kept."""
_NAME: Final = 100


class Answer(str, Enum):
    """What a person answers to an escalation (C8)."""

    CONTINUE = "continue"
    ABORT = "abort"
    MODIFY_PLAN = "modify_plan"
    SKIP_TASK = "skip_task"

    __str__ = str.__str__


_SAID: Final = {
    Answer.MODIFY_PLAN: "A person looked at this run: change your plan before you go on.",
    Answer.SKIP_TASK: "A person looked at this run: leave the task that you are at, go on with "
    "the next one, and say in the end what was left out.",
}
_UNANSWERED: Final = (
    "Nobody answered in time: leave the task that you are at, go on with the next one, and say in "
    "the end what was left out."
)


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer, as somebody gave it.

    Attributes:
        answer: The answer; None where nobody answered and nothing was done.
        by: Name of who gave it.
        guidance: What the model is told, of at most 2,000 characters; empty for nothing beyond
            the answer.
        via: The way by which it came: `api`, `cli`, `webhook`, `callback`, `limit` (nobody
            answered in time) or `control` (the flag was changed past the escalation).
    """

    answer: Answer | None
    by: str
    guidance: str = ""
    via: str = "api"

    @property
    def hint(self) -> str | None:
        """What the model is told next; None for nothing, and where the run ends."""
        if self.answer is None or self.answer is Answer.ABORT:
            return None
        late = self.via == "limit" and self.answer is Answer.SKIP_TASK
        said = _UNANSWERED if late else _SAID.get(self.answer, "")
        if self.guidance and not said:
            said = "A person looked at this run and says:"
        return f"{said} {self.guidance}".strip() or None


def reply_of(answer: object, guidance: object, by: object, via: str) -> Reply:
    """An answer that was given from outside.

    Args:
        answer: Name of the answer; `-` and `_` are one.
        guidance: What the model is told; None for nothing.
        by: Name of who answers; None where it is not known.
        via: The way by which it came.

    Raises:
        EscalationError: There is no such answer, or something is no text.
    """
    for name, value in (("guidance", guidance), ("by", by)):
        if value is not None and not isinstance(value, str):
            msg = f"{name} of an answer must be a text, got {value!r:.100}"
            raise EscalationError(msg)
    who = str(by or "").strip()[:_NAME] or via
    return Reply(answer_of(answer), who, str(guidance or "").strip()[:GUIDANCE], via)


def answer_of(name: object) -> Answer:
    """An answer by its name.

    Raises:
        EscalationError: There is no such answer.
    """
    if isinstance(name, str):
        try:
            return Answer(name.strip().lower().replace("-", "_"))
        except ValueError:
            pass
    expected = ", ".join(answer.value for answer in Answer)
    msg = f"answer must be one of {expected}, got {name!r:.100}"
    raise EscalationError(msg)


def reply_in(said: object, via: str) -> Reply | None:
    """The answer that a channel gave back, if it gave one.

    Args:
        said: None, an `Answer` or its name, a `Reply`, or a map with `answer`, and perhaps
            `guidance` and `by`.
        via: Name of the channel.

    Raises:
        EscalationError: It is none of these, or the answer is none.
    """
    if said is None or isinstance(said, Reply):
        return said
    if isinstance(said, Mapping):
        given = cast("Mapping[str, object]", said)
        if given.get("answer") is None:
            return None
        return reply_of(given["answer"], given.get("guidance"), given.get("by"), via)
    return reply_of(said, None, None, via)
