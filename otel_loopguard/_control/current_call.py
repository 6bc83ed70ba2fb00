"""The call that an adapter makes now."""

from __future__ import annotations

from contextvars import ContextVar
from typing import NamedTuple


class CurrentCall(NamedTuple):
    """A call of a tool that is under way; its arguments are a JSON value or text."""

    tool: str
    args: object


_now: ContextVar[CurrentCall | None] = ContextVar("loopguard-making", default=None)


def making() -> CurrentCall | None:
    """The call that is made in this context; None if no adapter said."""
    return _now.get()


def make(call: CurrentCall | None) -> CurrentCall | None:
    """Says which call is made from here on in this context."""
    before = _now.get()
    _now.set(call)
    return before
