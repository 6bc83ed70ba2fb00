"""What a judge is asked, and what it answers."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Glance:
    """One step, in short. It has content of calls, which is given to the judge only.

    Attributes:
        number: Number of the step within the session, from 0.
        kind: What it is: `tool`, `model`, `handoff`, …
        name: Name of the tool, model or agent; empty if it is not known.
        said: Arguments of a call, text of a model, instruction of a hand-off; at most 300
            characters, empty if it was not captured.
        answer: Outcome or error text of a call; at most 300 characters.
        error: Whether it failed.
    """

    number: int
    kind: str
    name: str
    said: str
    answer: str
    error: bool

    @property
    def line(self) -> str:
        """The step as one line."""
        mark = " failed:" if self.error else " ->" if self.answer else ""
        parts = (f"{self.number} {self.kind} {self.name}", self.said, f"{mark} {self.answer}")
        return " ".join(part.strip() for part in parts if part.strip())


@dataclass(frozen=True, slots=True)
class Question:
    """What is known of a session that shows weak signs of being stuck.

    Attributes:
        step: Number of the newest step within the session.
        signs: What was noticed, as sentences with counts.
        steps: The newest 20 steps, the oldest first.
    """

    step: int
    signs: tuple[str, ...]
    steps: tuple[Glance, ...]

    @property
    def text(self) -> str:
        """All of it as plain text for a model: at most about 14,000 characters."""
        signs = "\n".join(f"- {sign}" for sign in self.signs)
        lines = "\n".join(step.line for step in self.steps)
        return (
            "These are the newest steps of an agent's run. Is it stuck, so that going on like this "
            "gets it nowhere? Different items of one list being worked off, and waiting for "
            f"something that changes, are no loops.\n\nNoticed:\n{signs}\n\nSteps:\n{lines}"
        )


@dataclass(frozen=True, slots=True)
class Opinion:
    """What a judge answers.

    Attributes:
        confidence: How sure it is that the run is stuck, 0 to 1.
        advice: What to tell the model, if anything; it stays in the process.

    Raises:
        ValueError: The confidence is no number from 0 to 1.
    """

    confidence: float
    advice: str = ""

    def __post_init__(self) -> None:
        if not math.isfinite(self.confidence) or not 0 <= self.confidence <= 1:
            msg = f"confidence of a judge must be a number from 0 to 1, got {self.confidence!r}"
            raise ValueError(msg)


Answer = Opinion | float | None
"""An opinion, a bare confidence, or None for "I cannot tell"."""

Judge = Callable[[Question], Answer | Awaitable[Answer]]
"""A callable of the user's, plain or async; it may take its time, and ask a model."""


def opinion(answer: object) -> Opinion | None:
    """The opinion in an answer.

    Raises:
        TypeError: The answer is none of `Opinion`, number, None.
        ValueError: It is a number that is no confidence.
    """
    if answer is None or isinstance(answer, Opinion):
        return answer
    if isinstance(answer, (int, float)):
        return Opinion(float(answer))
    msg = f"a judge answers with an Opinion, a number or None, got {type(answer).__name__}"
    raise TypeError(msg)
