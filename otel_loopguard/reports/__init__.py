"""What a session has come to, for people: counted as it goes, in bounded memory.

`Record` counts one session, `Report` is what it gives, `Memory` is the session's long-term context,
`Ledger` knows which decision was about which session.
"""

from otel_loopguard.reports.context import Context, Memory, Topic
from otel_loopguard.reports.cycles import AgentCycle
from otel_loopguard.reports.ledger import Ledger
from otel_loopguard.reports.news import Meaning, Spent, Turn
from otel_loopguard.reports.recent import Act, act_row
from otel_loopguard.reports.record import Record
from otel_loopguard.reports.report import Report, ToolReport
from otel_loopguard.reports.run import Happening, RunMetrics

__all__ = [
    "Act",
    "AgentCycle",
    "Context",
    "Happening",
    "Ledger",
    "Meaning",
    "Memory",
    "Record",
    "Report",
    "RunMetrics",
    "Spent",
    "ToolReport",
    "Topic",
    "Turn",
    "act_row",
]
