"""Totals, phases and usage of a session."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from otel_loopguard.core.evidence import Evidence, Waited
from otel_loopguard.core.milestones import Milestones

_KEPT: Final = 48
"""Phases of a report, and of what a session keeps: a page of names."""
_SECOND: Final = 1e9
"""Nanoseconds."""


class Phase(NamedTuple):
    """One stretch of work: the agent that began it, and how long it took, if that is known."""

    name: str
    seconds: float | None


class Phases:
    """The newest 48 phases of one session; `over` are those that ended with the newest step."""

    __slots__ = ("_began", "_ended", "_name", "_past", "over")

    def __init__(self) -> None:
        self.over: tuple[Phase, ...] = ()
        self._past: tuple[Phase, ...] = ()
        self._name: str | None = None
        self._began = self._ended = 0

    def begin(self, name: str, start: int) -> None:
        """A phase begins, and the one before is over."""
        self.end()
        self._name, self._began, self._ended = name, start, 0

    def work(self, start: int, end: int) -> None:
        """A step of an agent is over; one that began before the phase is no part of it."""
        if start >= self._began and end > self._ended:
            self._ended = end

    def end(self) -> None:
        """Ends the current phase, if there is one."""
        if self._name is not None:
            over = Phase(self._name, self._seconds())
            self._name = None
            self._past = (*self._past, over)[-_KEPT:]
            self.over = (*self.over, over)

    def now(self) -> tuple[Phase, ...]:
        """The newest phases, oldest first; one that goes on is the last."""
        going_on = () if self._name is None else (Phase(self._name, self._seconds()),)
        return (*self._past, *going_on)[-_KEPT:]

    def _seconds(self) -> float | None:
        known = self._began > 0 and self._ended >= self._began
        return (self._ended - self._began) / _SECOND if known else None


@dataclass(slots=True)
class Progress:
    """Running totals of one session."""

    steps: int = 0
    # Finished tool calls. Windows and fading count these, so that it does not matter how many other
    # spans a framework writes in between.
    calls: int = 0
    refused: int = 0  # calls that the guard refused: the model asked for them, nothing was made
    models: int = 0
    answers: int = 0  # tool outcomes that were captured
    unseen: int = 0  # those that were not
    news: float = 0.0  # sum of the novelty of the answers, each 0 to 1
    repeats: int = 0  # answers that the same call had had before
    epoch: int = 0  # how often the world was changed, as far as can be told
    edits: int = 0  # and how often that was a file
    time: int = 0  # end of the newest step, nanoseconds since the epoch; 0 without times
    task: int = 0  # number of the user's task
    turn: int = 0  # number of the user's turn; unlike a task it has no end
    raised: Mapping[str, float] = field(
        default_factory=dict[str, float]
    )  # limits of budgets that a person raised, by name
    used: float = 0.0  # highest share used of any budget, 0 to 1
    late: str = ""  # what the timer said of the time limit of the task at hand: `near` or `limit`
    milestones: Milestones = field(default_factory=Milestones)
    phases: Phases = field(default_factory=Phases)
    call: Evidence | None = None  # of the newest tool call
    wait: Waited | None = None  # the one that goes on; None once something came of a call
    waited: Waited = field(default_factory=Waited)  # all of them


@dataclass(slots=True)
class AgentUsage:
    """Usage of one agent in a session: running totals, do not keep a reference."""

    actions: int = 0  # finished tool calls
    errors: int = 0  # those that failed, in a row
    tokens: int = 0
    cost: float = 0.0  # USD


class Remaining(NamedTuple):
    """What is left of the limits of a session that were set; None where there is none.

    Of several limits of one thing, such as tool calls of the session and of the task at hand, it
    is the one with the least left.

    Attributes:
        steps: Steps.
        actions: Tool calls.
        tokens: Tokens.
        cost: Money, in USD.
        seconds: Time.
    """

    steps: int | None = None
    actions: int | None = None
    tokens: int | None = None
    cost: float | None = None
    seconds: float | None = None


@dataclass(slots=True)
class Usage:
    """Running totals of what one session spent. One object per session, counted on: never keep it.

    What was not captured is not counted: a model call without tokens adds none, so that every
    total reads "at least".
    """

    task: int = 0  # the user's word and the end of a run begin the next one
    steps: int = 0
    calls: int = 0
    actions: int = 0  # finished tool calls of the task at hand
    models: int = 0
    tokens_in: int = 0
    tokens_out: int = 0  # also where a source has one number for both
    tokens: int = 0
    step_tokens: int | None = None  # of this step; None if it is no model call, or they are unknown
    cost: float = 0.0  # USD, as far as spans or prices say it
    step_cost: float = 0.0  # of this step
    unpriced: int = 0  # model calls without a cost, where a budget of money asks for one
    raised: Mapping[str, float] = field(default_factory=dict[str, float])
    elapsed_s: float = 0.0  # from the start of the task's first step to the newest end
    late: str = ""  # see `Progress.late`
    phases: int = 0  # of the task at hand
    errors: int = 0  # failed tool calls in a row within the task at hand
    agent: str | None = None  # that did this step
    own: AgentUsage | None = None  # of that agent; None where it has no limits of its own
    task_type: str | None = None

    @property
    def tells_tokens(self) -> bool:
        """True if this step is a model call that says its tokens."""
        return self.step_tokens is not None
