"""One thing that `doctor` looked at."""

from __future__ import annotations

from typing import Literal, NamedTuple

State = Literal["ok", "missing", "note"]


class Finding(NamedTuple):
    """One thing that was looked at.

    Attributes:
        about: What it is of, such as `settings`, or the name of a recording.
        state: `missing`: the guard cannot do what it is there for; `note`: it may be on purpose.
        found: What was found; never the value of a secret, an argument or a result.
        add: The line that adds what is missing; empty if there is nothing to add.
    """

    about: str
    state: State
    found: str
    add: str = ""
