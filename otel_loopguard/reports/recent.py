"""What a session did last, for people: names, how each action ended, how long it took."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from otel_loopguard.core import Kind
from otel_loopguard.excerpts import excerpt

if TYPE_CHECKING:
    from otel_loopguard.core import Step

_NAMED: Final = 100
_CONTENT: Final = 200
_TOOL: Final = Kind.TOOL

_Noted = tuple[str, "str | None", bool, bool, "str | None", int, int, "str | None"]


@dataclass(frozen=True, slots=True)
class Act:
    """One tool call that is over.

    Attributes:
        name: Name of the tool.
        agent: Name of the agent that made it, if that is known.
        outcome: How it ended: `ok`, `failed`, or `unknown` where no outcome was captured.
        error_type: Type of its error; None without one.
        at: When it ended, nanoseconds since the epoch; 0 if that is not known.
        duration_s: Seconds that it took; None without times.
        content: Its arguments, 200 characters at most; None unless content is wanted.
    """

    name: str
    agent: str | None
    outcome: Literal["ok", "failed", "unknown"]
    error_type: str | None
    at: int
    duration_s: float | None
    content: str | None = None


class Recent:
    """The last tool calls of a session, and where it is now. O(1) per step.

    Not thread-safe: the guard's lock is held.

    Args:
        most: Calls that are kept.
        content: Whether a piece of their arguments is kept too.

    Attributes:
        step: Name of the newest tool, model, agent or node; empty before the first.
        agent: Name of the agent that was seen last, if one was.
        task: Id of the task of a plan that was worked on last, if one was named.

    Source: FEATURES C8 (last 5 actions).
    """

    __slots__ = ("_acts", "_content", "_most", "agent", "step", "task")

    def __init__(self, most: int, *, content: bool) -> None:
        # A list takes a tenth of what an empty deque does, and there are many sessions.
        self._acts: list[_Noted] = []
        self._most = most
        self._content = content
        self.step = ""
        self.agent: str | None = None
        self.task: str | None = None

    def note(self, step: Step) -> None:
        """Takes a canonical step."""
        name = step.name
        if name is not None:
            self.step = name
        if step.agent is not None:
            self.agent = step.agent
        if step.task is not None:
            self.task = step.task
        if step.kind is _TOOL:
            known = step.outcome is not None or step.error
            content = excerpt(step.args, _CONTENT) if self._content else None
            self._acts.append(
                (name or "", step.agent, step.error, known, step.error_type, step.start,
                 step.end or 0, content)
            )  # fmt: skip
            if len(self._acts) > self._most:
                del self._acts[0]

    def acts(self) -> tuple[Act, ...]:
        """The last calls, oldest first."""
        return tuple(_act(*noted) for noted in self._acts)


def _act(  # noqa: PLR0913, PLR0917  # what was noted of one call
    name: str, agent: str | None, failed: bool, known: bool, error_type: str | None,
    start: int, end: int, content: str | None,
) -> Act:  # fmt: skip
    took = (end - start) / 1e9 if start and end >= start else None
    return Act(
        name[:_NAMED],
        None if agent is None else agent[:_NAMED],
        "failed" if failed else "ok" if known else "unknown",
        None if error_type is None else error_type[:_NAMED],
        end,
        took,
        content,
    )


def act_row(act: Act) -> dict[str, object]:
    """An action as one JSON object; what is unknown is null."""
    return {
        "tool": act.name,
        "agent": act.agent,
        "outcome": act.outcome,
        "error_type": act.error_type,
        "at": act.at or None,
        "duration_s": act.duration_s,
        **({} if act.content is None else {"content": act.content}),
    }
