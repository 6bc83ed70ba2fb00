"""The call that an adapter makes now, for the span of it that somebody else is yet to start."""

from __future__ import annotations

from contextvars import ContextVar
from typing import NamedTuple


class Making(NamedTuple):
    """A call of a tool that is under way.

    Attributes:
        tool: Name of the tool.
        args: Its arguments, a JSON value or text.
    """

    tool: str
    args: object


_now: ContextVar[Making | None] = ContextVar("loopguard-making", default=None)


def making() -> Making | None:
    """The call that is made in this context; None if no adapter said."""
    return _now.get()


def make(call: Making | None) -> Making | None:
    """Says which call is made from here on in this context.

    Returns:
        What was said before, to be said again afterwards: a token would have to be given back in
        the same context, where a generator need not end.
    """
    before = _now.get()
    _now.set(call)
    return before
