"""Families of runs whose models write what repeats itself for a reason."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.scenarios.tape import Tape


def song_with_a_refrain(tape: Tape) -> None:
    """Verses that differ, and a refrain between them that does not."""
    refrain = f"{tape.prose(7)}\n{tape.prose(8)}\n"
    verses = (f"{tape.prose(8)}\n{tape.prose(7)}\n" for _ in range(tape.dice.randrange(4, 10)))
    tape.model("".join(f"{verse}\n{refrain}{refrain}\n" for verse in verses))


def form_filled_in(tape: Tape) -> None:
    """Many records with the same words around what differs."""
    names = [f"{tape.word()} {number}" for number in range(tape.dice.randrange(10, 40))]
    tape.model(
        "".join(f"Name: {name}.\nThe record is complete.\nNothing is missing.\n" for name in names)
    )


def rows_and_records(tape: Tape) -> None:
    """A table, a block of code and JSON whose lines are the same."""
    cell = tape.prose(6)
    tape.model("Here it is.\n\n" + f"| {cell} | {cell} |\n" * 30 + f"\n{tape.prose(40)}.")
    tape.model("So:\n```python\n" + f"print('{cell}')\n" * 40 + f"```\n{tape.prose(30)}.")
    tape.model(json.dumps([{"text": cell}] * 40))
