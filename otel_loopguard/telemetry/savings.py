"""What a stop saves, as an estimate that says how it was made."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from otel_loopguard.core import Decision
    from otel_loopguard.reports import Spent


class Saved(NamedTuple):
    """What a stop is reckoned to save.

    Attributes:
        tokens: Tokens.
        seconds: Seconds.
    """

    tokens: float
    seconds: float


def saved(decision: Decision, spent: Spent) -> Saved:
    """What the rest of a loop would have cost: as long again as it was, at the session's own rate.

    A loop that was seen `count` times with a `period` of so many calls is reckoned to go on for as
    many calls as it had; each call costs what the calls of the session cost on average, model calls
    between them included. How long a loop would really have gone on nobody can know; of loops whose
    length has no scale half go on for longer. What is not known (tokens that no span says, times)
    saves nothing.

    Args:
        decision: The first deny, pause or abort of the loop.
        spent: What its session has spent so far.

    Source: FEATURES A10.
    """
    if spent.calls <= 0:
        return Saved(0, 0)
    calls = min(max(decision.count, 0) * max(decision.period, 1), spent.calls)
    share = calls / spent.calls
    return Saved(spent.tokens * share, spent.seconds * share)
