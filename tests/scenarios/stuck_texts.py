"""Families of runs whose model does not come to the end of a text."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.scenarios.tape import Tape


def chanted_sentence(tape: Tape) -> None:
    """In the middle of an answer one sentence is written over and over, then it ends."""
    sentence = f"I have to look at the {tape.word()} of the {tape.word()} again to be sure of it. "
    times = tape.dice.randrange(7, 30)
    tape.model(f"{tape.prose(30)}. {sentence * times}{tape.prose(20)}.")


def chanted_paragraph(tape: Tape) -> None:
    """A paragraph of a few sentences is written over and over."""
    verse = "".join(f"{tape.prose(12)}.\n" for _ in range(tape.dice.randrange(2, 5)))
    tape.model(f"{tape.prose(40)}.\n\n" + (verse + "\n") * tape.dice.randrange(6, 12) + "So much.")
