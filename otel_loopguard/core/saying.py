"""What a model wrote, as far as it can be compared without keeping it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Tail:
    """The end of one text, or a place inside of it, where it repeats itself.

    Attributes:
        key: Key of what is repeated.
        period: Its length, in characters.
        times: How often it stands there, one after the other; of a very long tail at least.
    """

    key: int
    period: int
    times: int


@dataclass(frozen=True, slots=True)
class Promise:
    """An action that a text announces.

    Attributes:
        words: Keys of the words that say which; none where it is nothing but "the task".
        begins: Whether it is to begin, or to go on with, something.
    """

    words: frozenset[int]
    begins: bool

    def is_like(self, other: Promise) -> bool:
        """Whether two announcements are of the same action.

        Half of their words are common; or both are to begin, and one does not say with what.
        """
        if self.begins and other.begins and not (self.words and other.words):
            return True
        common = len(self.words & other.words)
        return common > 0 and 2 * common >= len(self.words | other.words)


@dataclass(frozen=True, slots=True)
class Gain:
    """What the tool calls of a session had come to by some moment.

    Attributes:
        answers: Tool outcomes that were captured.
        unseen: Tool outcomes that were not.
        news: Sum of the novelty of those that were, each 0 to 1.
        epoch: How often the world was changed.
    """

    answers: int
    unseen: int
    news: float
    epoch: int

    def nothing_since(self, before: Gain, most_news: float) -> bool:
        """Whether nothing came of what was done since an earlier moment.

        Nothing was changed, and what the tools answered was hardly new. An answer that was not
        captured may all be new.

        Args:
            before: What the session had come to then.
            most_news: Mean novelty of the answers, 0 to 1, up to which they are hardly new.
        """
        if self.epoch != before.epoch or self.unseen != before.unseen:
            return False
        answers = self.answers - before.answers
        return self.news - before.news <= most_news * answers if answers else True


@dataclass(frozen=True, slots=True)
class Saying:
    """One text of a model, with what its session had come to by then.

    Attributes:
        speaker: Key of who wrote it: agent, node and model.
        name: What to call it in a message: the agent, or "the model".
        turn: Number of the turn; from one to the next a user may have spoken.
        key: Key of the text as it is.
        size: Characters of the text.
        words: Words of its sample.
        structured: Whether it is data rather than prose: JSON, a table, a block of code.
        alike: How much of its sample is common to the speaker's text before, 0 to 1; 0 for the
            first of a turn.
        renumbered: Whether nothing but numbers differs from the speaker's text before.
        beside: Whether it was begun before the speaker's text before had ended.
        hedges: Phrases of doubt in its sample.
        apologies: Phrases of apology in its sample.
        personal: Whether it speaks of itself: "I", "we", "let me".
        promise: The action that it announces; None if it announces none.
        tail: Its end, if that repeats itself; None otherwise.
        acts: How often the session had done something, or may have: tool calls, hand-offs, model
            calls without a text.
        calls: Tool calls of the session by then.
        gain: What the session had come to by then.
        chant: Sentences inside of it that are said over and over; None if there are none, and where
            its end repeats itself.
    """

    speaker: int
    name: str
    turn: int
    key: int
    size: int
    words: int
    structured: bool
    alike: float
    renumbered: bool
    beside: bool
    hedges: int
    apologies: int
    personal: bool
    promise: Promise | None
    tail: Tail | None
    acts: int
    calls: int
    gain: Gain
    chant: Tail | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """A list of tasks, as a model wrote it or handed it to a tool that keeps such lists.

    Attributes:
        speaker: Key of who wrote it.
        name: What to call it in a message: the agent, or "the model".
        items: Keys of the tasks, done or not.
        done: How many of them are marked as done.
        epoch: How often the world was changed by then, the keeping of the list itself aside.
    """

    speaker: int
    name: str
    items: frozenset[int]
    done: int
    epoch: int
