"""Which of several limits in time are passed or near, and when the next one will be."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from otel_loopguard.watch.deadlines import NEVER

if TYPE_CHECKING:
    from collections.abc import Iterable

    from otel_loopguard.detectors import Clock


class Look(NamedTuple):
    """What one look at the clocks showed.

    Attributes:
        found: Clocks that are to be spoken of, and whether they are only near their limit.
        next: When to look again, nanoseconds since the epoch; `NEVER` if nothing will come.
    """

    found: list[tuple[Clock, bool]]
    next: int


def look(clocks: Iterable[Clock], said: set[str], now: int, warning: float) -> Look:
    """Reads clocks; each says at most two things, near its limit and past it.

    Args:
        clocks: The limits.
        said: Codes of what was said; what is said now is added.
        now: Nanoseconds since the epoch.
        warning: Part of a limit that is near it.
    """
    found: list[tuple[Clock, bool]] = []
    then = NEVER
    for clock in clocks:
        near = f"{clock.reason}_near"
        if clock.reason in said:
            continue
        if clock.after() <= now:
            said.update((clock.reason, near))
            found.append((clock, False))
            continue
        then = min(then, clock.after())
        if not clock.warns or near in said:
            continue
        if clock.after(warning) <= now:
            said.add(near)
            found.append((clock, True))
        else:
            then = min(then, clock.after(warning))
    return Look(found, then)
