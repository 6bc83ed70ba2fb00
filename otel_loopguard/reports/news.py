"""What is new in a session by one step or one decision, for whoever counts over all sessions."""

from __future__ import annotations

from typing import Final, NamedTuple


class Turn(NamedTuple):
    """What a tool call changed (C15).

    Attributes:
        recovered: It succeeded, and the call of the tool before had failed.
        switched: It is of another tool, after a failure or an alert.
    """

    recovered: bool = False
    switched: bool = False


SAME: Final = Turn()


class Meaning(NamedTuple):
    """What a decision is the first of (A10, C15).

    Attributes:
        found: Whether its loop was not known before.
        prevented: Whether its loop is stopped for the first time.
        escalated: Whether it calls for a person.
    """

    found: bool = False
    prevented: bool = False
    escalated: bool = False


class Spent(NamedTuple):
    """What a session has spent so far.

    Attributes:
        calls: Finished tool calls.
        tokens: Input and output tokens of its model calls; 0 where none says it.
        seconds: From its first start to its last end; 0 without times.
    """

    calls: int
    tokens: int
    seconds: float
