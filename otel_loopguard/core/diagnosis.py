"""What is known about an error: why it happens, what helps, and how to prevent it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Risk = Literal["low", "medium", "high"]
"""What a fix may break: `low` only looks or waits, `medium` can be taken back, `high` cannot."""


@dataclass(frozen=True, slots=True)
class Fix:
    """One thing that may help against an error.

    Attributes:
        text: What to do, as an instruction.
        risk: What it may break.
    """

    text: str
    risk: Risk = "low"


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What is known about errors of one kind (C13).

    Attributes:
        signature: Short code of the kind of error (`not_found`, `permission`, …).
        cause: Why such errors happen, in a sentence.
        fixes: What may help, the one to try first in front.
        prevention: What keeps it from happening again, in a sentence; may be empty.
    """

    signature: str
    cause: str
    fixes: tuple[Fix, ...] = ()
    prevention: str = ""
