"""Whether something else writes the spans of a framework."""

from __future__ import annotations

import sys
from collections.abc import Callable


def instrumented_by(*instrumentors: str) -> Callable[[], bool]:
    """Says whether any of some instrumentors is at work; imports nothing.

    Args:
        *instrumentors: Each as `module:Class`, a `BaseInstrumentor`.
    """
    return lambda: any(_at_work(place) for place in instrumentors)


def either(*answers: Callable[[], bool]) -> Callable[[], bool]:
    """Says whether any of several says yes."""
    return lambda: any(answer() for answer in answers)


def _at_work(place: str) -> bool:
    module, _, name = place.partition(":")
    found = getattr(sys.modules.get(module), name, None)
    return found is not None and bool(found().is_instrumented_by_opentelemetry)
