"""What is watched while it runs: deadlines, open runs, the guard's own state."""

from otel_loopguard.watch.clocks import Look, look
from otel_loopguard.watch.deadlines import NEVER, Deadlines, Ticket
from otel_loopguard.watch.health import Health, InconsistentState
from otel_loopguard.watch.limits import Limits, first_look
from otel_loopguard.watch.runs import Run, Runs

__all__ = [
    "NEVER",
    "Deadlines",
    "Health",
    "InconsistentState",
    "Limits",
    "Look",
    "Run",
    "Runs",
    "Ticket",
    "first_look",
    "look",
]
