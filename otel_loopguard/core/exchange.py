"""One exchange between agents: work that goes from one to another."""

from __future__ import annotations

from array import array
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Exchange:
    """A hand-off, or the run of a sub-agent that nothing announced, as keys that compare fast.

    Of its text only keys are kept: 4 bytes for each of at most 64 words.

    Attributes:
        number: Number of the exchange within its session, from 0.
        source: Name of the agent that gives the work; None if it is not known.
        agent: Name of the agent that gets it.
        source_key: Key of the giver's name; None if it is not known.
        key: Key of the receiver's name, as part of the identity of a loop.
        words: Keys of the different words of what was said, volatile values masked, in order; of
            more than 64 the 64 smallest. Empty if nothing is known of it.
        numbers: Keys of the words with a digit in them, 16 at most.
        names: Keys of the words that look like names, 16 at most.
        size: Characters of what was said.
        silent: Whether it was passed on without a word and without a call, as far as is known for
            certain: its topic is that of the exchange before.
        step: Number of its step within the session, of any kind.
        time: Its end, nanoseconds since the epoch; 0 without times.
        answers: How many answers of tools and of asked agents the session had seen by then.
        unseen: How many answers were not captured by then.
        news: Sum of the novelty of the answers, each 0 to 1.
    """

    number: int
    source: str | None
    agent: str
    source_key: int | None
    key: int
    words: array[int]
    numbers: frozenset[int]
    names: frozenset[int]
    size: int
    silent: bool
    step: int
    time: int
    answers: int
    unseen: int
    news: float
