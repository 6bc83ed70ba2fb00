"""Agents that get stuck, for the tests of people in the loop."""

from otel_loopguard import LoopGuard, Settings
from otel_loopguard.core import Kind, Step
from otel_loopguard.core.report import Escalation
from tests.stores.servers import wait_for as until  # noqa: F401  # what all of them wait by


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
