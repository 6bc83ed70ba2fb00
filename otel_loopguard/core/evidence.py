"""What is computed once per step and read by all detectors."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class ErrorClass(str, Enum):
    """Whether trying the same again can help."""

    TRANSIENT = "transient"
    DETERMINISTIC = "deterministic"
    UNKNOWN = "unknown"

    __str__ = str.__str__


class Effect(str, Enum):
    """Whether a call changes the world."""

    READ = "read"
    WRITE = "write"
    WAIT = "wait"
    UNKNOWN = "unknown"

    __str__ = str.__str__


@dataclass(slots=True)
class Evidence:
    """The identity of one tool call and its outcome, as integers that compare in O(1).

    A key of None is *unknown*: equal to nothing, not even to another None.

    Attributes:
        number: Number of the call within its session, from 0. Windows and fading count calls, so
            that it does not matter how many other spans a framework writes in between.
        tool: Name of the tool.
        call: Key of agent, tool and masked arguments.
        call_exact: Key of tool and arguments as they are.
        guessed: Whether the key rests on an argument that was taken for a nonce by its look, or on
            arguments that were cut, or the outcome was.
        fresh: Whether the call was not made before, as far back as the session remembers.
        changed: Whether the same call was made before, and never had this outcome.
        pending: Whether it may be waiting, and no clock tells a wait from a loop.
        outcome: Key of the masked outcome (or error).
        outcome_exact: Key of the outcome (or error) as it is.
        outcome_size: Characters of the outcome.
        novelty: Part of the outcome that was not seen before in the session, 0 to 1; None if the
            outcome is not known.
        echo: Whether half or more of the outcome stood in the call's own arguments.
        nothing: Whether the outcome says that nothing was found.
        rejects: Whether the outcome turns down what was tried: a test that did not pass.
        failing: Whether the call failed, or its outcome reports a failure.
        error: Whether the call failed.
        error_class: Whether trying again can help; UNKNOWN for a call that did not fail.
        error_line: Key of the line that names the error, numbers and volatile values masked; None
            without a text.
        error_shape: Key of that line without what it quotes from the arguments.
        call_error: Whether the error is about the call itself: unknown tool, wrong arguments. Not
            of a tool that runs what the agent wrote: there it is an error of that.
        effect: Whether the call changes the world.
        runs_code: Whether the tool runs what the agent wrote: a shell, an interpreter, a database.
        sample: The first 256 characters of the arguments. Content: it never leaves the process.
        place: Identity of all arguments but the one that pages, and its value; None if none does.
        epoch: How often the world was changed before this call, as far as can be told.
        gap: Nanoseconds before this one in which nothing ran, neither a call nor a model; None for
            the first of its kind, or without times.
        waiting: Whether it is a wait, or asks again, after a pause, for an answer that is pending.
        time: End of the call, nanoseconds since the epoch.
        round: Number of the round; calls that ran in parallel share one, and calls that
            one message of a model asked for.
        ease: What a threshold is multiplied by for this call: above 1 it takes more repeats than
            usual (a tool whose repeats pay off), below 1 fewer (a budget nearly used).
        agent: Key of the agent that made it; 0 if that is not known.
        refused: Whether the call was not understood: wrong usage, wrong syntax, no such command.
        idle: Whether it is a command that does nothing.
        failure: Key of the line that names the error, as it is but for volatile values, also where
            only the outcome says that the call failed; None where no line does.
        polls: Whether its answer says that it is pending, its tool is declared to poll, or
            something else was pending since it was made last.
        spaced: Whether the session rested for five minutes or more since it was made last.
        bare: Whether its outcome only acknowledges the call: ok, done, true, nothing at all.
        acts: Whether it presses, clicks, scrolls, types or moves, or is declared to write: equal
            calls of that kind are work.
        item: Whether it asks the same of another item than the call of its tool before.
        absent: Whether it failed because that item, asked for the first time, is not there.
        file: Key of the name of the file that it writes to; None if it writes to none, or runs
            what the agent wrote.
        score: Key of the name of the number that its outcome measures (score, accuracy, loss,
            failures, …), and the number; None if it measures nothing.
        revises: Whether its arguments and outcome, both long, are nearly those of the call of its
            tool before.
    """

    number: int
    tool: str
    call: int | None
    call_exact: int | None
    guessed: bool
    fresh: bool
    changed: bool
    pending: bool
    outcome: int | None
    outcome_exact: int | None
    outcome_size: int
    novelty: float | None
    echo: bool
    nothing: bool
    rejects: bool
    failing: bool
    error: bool
    error_class: ErrorClass
    error_line: int | None
    error_shape: int | None
    call_error: bool
    effect: Effect
    runs_code: bool
    sample: str
    place: tuple[int, float] | None
    epoch: int
    gap: int | None
    waiting: bool
    time: int
    round: int
    ease: float = 1.0
    agent: int = 0
    refused: bool = False
    idle: bool = False
    failure: int | None = None
    polls: bool = False
    spaced: bool = False
    bare: bool = False
    acts: bool = False
    item: bool = False
    absent: bool = False
    file: int | None = None
    score: tuple[int, float] | None = None
    revises: bool = False

    @property
    def waits(self) -> bool:
        """Whether it is a wait, or a look again at what may change by itself."""
        return self.waiting or self.spaced or (self.polls and not self.fresh)

    def needs(self, threshold: float) -> float:
        """How much it takes for this call where a threshold stands; never less than two calls."""
        return max(threshold * self.ease, 2.0)

    def shown(self, threshold: float) -> float:
        """The same as a decision says it: the threshold that is in force for this call."""
        return round(self.needs(threshold), 2)
