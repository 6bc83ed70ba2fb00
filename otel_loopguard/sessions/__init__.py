"""Sessions: the steps of one conversation or run, and which step belongs to which."""

from __future__ import annotations

from typing import TYPE_CHECKING

from otel_loopguard._util.lazy import lazy

if TYPE_CHECKING:
    from otel_loopguard._control.replication import ControlMessage, send, wire_name
    from otel_loopguard._control.session_info import cycles, feedback, recall, remember, report
    from otel_loopguard.sessions.session import Session

__all__ = [
    "ControlMessage", "Session", "cycles", "feedback", "recall", "remember", "report", "send",
    "wire_name",
]  # fmt: skip

__getattr__ = lazy(
    "otel_loopguard",
    {
        "_control.replication": "ControlMessage send wire_name",
        "_control.session_info": "cycles feedback recall remember report",
        "sessions.session": "Session",
    },
)
