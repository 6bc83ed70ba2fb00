"""Calls that were made, as profiles see them."""

import time
from collections.abc import Sequence

from otel_loopguard.core import Kind, Step
from otel_loopguard.sessions.profiler import CallRecord

SECOND = 1_000_000_000
START = time.time_ns() - 3600 * SECOND
"""An hour ago: stores keep what is of the newest days."""


def call(
    number: int,
    ms: float,
    args: object = None,
    *,
    tool: str = "t",
    error: bool = False,
    kind: Kind = Kind.TOOL,
) -> Step:
    """A finished call; one starts every second."""
    start = START + number * SECOND
    return Step(kind, tool, start=start, end=start + round(ms * 1e6), args=args, error=error)


def record(number: int, ms: float, *, size: int | None = 10, success: bool = True) -> CallRecord:
    """What is kept of a call."""
    return CallRecord(START + number * SECOND, ms, size, "s", success)


def encoded(durations: Sequence[float]) -> list[bytes]:
    """What a store has of calls with these durations."""
    return [record(number, ms).encoded() for number, ms in enumerate(durations)]
