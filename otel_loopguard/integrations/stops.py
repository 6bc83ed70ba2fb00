"""Stops that a framework lets through to the caller."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from functools import cache

from otel_loopguard.errors import LoopGuardStop


@contextmanager
def let_through(framework: type[Exception]) -> Generator[None, None, None]:
    """Makes a stop that is raised inside one of a framework's own exceptions too.

    For frameworks that wrap what a hook raises, except for exceptions of their own.

    Args:
        framework: The exception class that the framework passes on as it is. It must be possible to
            construct it with a message alone.
    """
    try:
        yield
    except LoopGuardStop as stop:
        both = _both(type(stop), framework)
        raise both(str(stop), stop.session, stop.decision, stop.parts) from None


@cache
def _both(kind: type[LoopGuardStop], framework: type[Exception]) -> type[LoopGuardStop]:
    if issubclass(kind, framework):
        return kind
    return type(kind.__name__, (kind, framework), {"__module__": kind.__module__})
