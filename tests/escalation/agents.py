"""Agents that get stuck, for the tests of people in the loop."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from otel_loopguard import LoopGuard, Settings
from otel_loopguard.core import Kind, Step
from otel_loopguard.core.escalation import Escalation

_T = TypeVar("_T")


def watched(**settings: object) -> LoopGuard:
    """A live guard that pauses where it would stop."""
    return LoopGuard(Settings(**{"max_action": "pause", **settings}))


def stuck(guard: LoopGuard, session: str, calls: int = 4, tool: str = "search") -> None:
    """The same call again and again: the third is hinted at, the fourth pauses the session."""
    for _ in range(calls):
        step = Step(Kind.TOOL, tool, args={"q": "secret"}, outcome="No results.", agent="helper")
        guard.observe(step, session)


def asked(guard: LoopGuard) -> list[Escalation]:
    """What this guard, and no other of the process, put before people."""
    return guard.escalation().escalations.open_escalations()


def until(true: Callable[[], _T], limit_s: float = 300) -> _T:
    """Waits until something is true, and returns it, or fails."""
    end = time.monotonic() + limit_s
    while not (found := true()):
        assert time.monotonic() < end, "it did not come true in time"
        time.sleep(0.005)
    return found
