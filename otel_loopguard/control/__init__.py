"""The control flag, for the agent's own loop: `control.check()`, `await control.gate()`."""

from otel_loopguard.control.context import Keeper, keep, named_session, session
from otel_loopguard.control.flag import Control, Flag
from otel_loopguard.control.gate import Gate, abort, check, current, gate, pause, resume

__all__ = [
    "Control",
    "Flag",
    "Gate",
    "Keeper",
    "abort",
    "check",
    "current",
    "gate",
    "keep",
    "named_session",
    "pause",
    "resume",
    "session",
]
