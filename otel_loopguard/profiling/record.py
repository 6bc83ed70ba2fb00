"""What is kept of one finished call."""

from __future__ import annotations

from typing import Final, NamedTuple, cast

import orjson

_FORM: Final = 1
_FIELDS: Final = 10


class CallRecord(NamedTuple):
    """One finished call of a tool (A1). Nothing of its arguments or its result is in it.

    Attributes:
        time: Its end, nanoseconds since the epoch.
        ms: How long it took, in milliseconds.
        size: Bytes of its arguments; None if they were not captured.
        session: Key of its session.
        success: Whether it went well.
        cached: Whether it looks answered from a cache: a repeat, much faster than usual.
        complexity: Complexity of its arguments, 0 to 1.
        cpu_percent: CPU in use when it ended, in %; None if it was not measured.
        io_wait_percent: Time spent waiting for input and output, in %; None if not measured.
        memory_mb: Memory of the process, in MB; None if it was not measured.
    """

    time: int
    ms: float
    size: int | None
    session: str
    success: bool
    cached: bool = False
    complexity: float = 0.0
    cpu_percent: float | None = None
    io_wait_percent: float | None = None
    memory_mb: float | None = None

    @property
    def timed(self) -> bool:
        """Whether estimates are made from it: it went well, and did the work."""
        return self.success and not self.cached

    def encoded(self) -> bytes:
        """A JSON list that starts with the time; about 80 bytes."""
        (time, ms, size, session, success, cached, complexity, cpu, io_wait, memory) = self
        return orjson.dumps(
            [
                time, _FORM, round(ms, 4), size, session, int(success) | int(cached) << 1,
                round(complexity, 4), cpu, io_wait, memory,
            ]
        )  # fmt: skip

    @classmethod
    def decoded(cls, raw: bytes) -> CallRecord | None:
        """The record that was `encoded`; None for bytes that are none, or of a later form."""
        try:
            value = orjson.loads(raw)
        except ValueError:
            return None
        fields = cast("list[object]", value) if isinstance(value, list) else []
        if len(fields) != _FIELDS or fields[1] != _FORM:
            return None
        time, _, ms, size, session, flags, complexity, cpu, io_wait, memory = fields
        numbers = [_number(each) for each in (ms, complexity, cpu, io_wait, memory)]
        whole = isinstance(time, int) and time > 0 and isinstance(flags, int)
        if not whole or numbers[0] is None or not isinstance(session, str):
            return None
        return cls(
            cast("int", time), numbers[0], size if isinstance(size, int) else None, session,
            bool(cast("int", flags) & 1), bool(cast("int", flags) & 2), numbers[1] or 0.0,
            *numbers[2:],
        )  # fmt: skip


def _number(value: object) -> float | None:
    """A number that is not negative and not infinite; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if 0 <= value < 1e15 else None
