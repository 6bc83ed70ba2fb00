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
        guessed: Whether the key rests on an argument that was taken for a nonce by its look.
        fresh: Whether the call was not made before, as far back as the session remembers.
        outcome: Key of the masked outcome (or error).
        outcome_exact: Key of the outcome (or error) as it is.
        outcome_size: Characters of the outcome.
        error: Whether the call failed.
        error_class: Whether trying again can help; UNKNOWN for a call that did not fail.
        error_shape: Key of the masked line that names the error; None without a text.
        call_error: Whether the error is about the call itself: unknown tool, wrong arguments.
        effect: Whether the call changes the world.
        epoch: How often the world was changed before this call, as far as can be told.
        gap: Nanoseconds between the end of the same call before and this one, without the time that
            models took; None for the first, or without times.
        waiting: Whether it is a wait, or asks again, after a pause, for an answer that is pending.
        time: End of the call, nanoseconds since the epoch.
        round: Number of the round; calls that ran in parallel share one.
    """

    number: int
    tool: str
    call: int | None
    call_exact: int | None
    guessed: bool
    fresh: bool
    outcome: int | None
    outcome_exact: int | None
    outcome_size: int
    error: bool
    error_class: ErrorClass
    error_shape: int | None
    call_error: bool
    effect: Effect
    epoch: int
    gap: int | None
    waiting: bool
    time: int
    round: int


@dataclass(frozen=True, slots=True)
class Handoff:
    """One hand-off of work to an agent, with what its session had learned by then.

    Attributes:
        agent: Name of the agent that the work goes to.
        key: Key of that name, as the identity of a loop.
        words: Keys of the different words of the instruction.
        size: Characters of the instruction.
        answers: How many tool outcomes the session had seen by then.
        unseen: How many tool outcomes were not captured by then.
        news: Sum of their novelty, each 0 to 1.
    """

    agent: str
    key: int
    words: frozenset[int]
    size: int
    answers: int
    unseen: int
    news: float
