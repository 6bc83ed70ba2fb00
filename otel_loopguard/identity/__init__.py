"""Step -> evidence: canonical and masked forms, error classes, effects, epochs."""

from __future__ import annotations

from otel_loopguard.core import Kind
from otel_loopguard.identity.canonical import parsed
from otel_loopguard.identity.effects import is_runner
from otel_loopguard.identity.errors import error_class
from otel_loopguard.identity.exchanges import Exchanges, agent_key
from otel_loopguard.identity.observer import Observer
from otel_loopguard.identity.plans import Plans
from otel_loopguard.identity.preparing import prepare
from otel_loopguard.identity.rounds import Rounds
from otel_loopguard.identity.sayings import Sayings
from otel_loopguard.identity.senses import Factory, Sense, Senses
from otel_loopguard.identity.signatures import signature_of
from otel_loopguard.identity.spendings import Spendings
from otel_loopguard.identity.standings import Standings
from otel_loopguard.identity.tasks import Tasks
from otel_loopguard.identity.visits import Visits

SENSES: dict[Kind, tuple[Factory, ...]] = {
    Kind.TOOL: (Observer, Sayings, Plans, Visits),
    Kind.MODEL: (Observer, Exchanges, Sayings, Plans, Visits),
    Kind.HANDOFF: (Exchanges, Sayings, Visits),
    Kind.NODE: (Visits,),
    Kind.AGENT: (Exchanges, Visits),
    Kind.WORKFLOW: (Visits,),
    Kind.OTHER: (Visits,),
}
"""What looks at which kind of step, in this order; one line registers one."""

# These look at every kind, and last: they read what the others counted.
SENSES.update({kind: (*SENSES.get(kind, ()), Spendings, Tasks, Standings) for kind in Kind})

__all__ = [
    "SENSES",
    "Factory",
    "Observer",
    "Rounds",
    "Sense",
    "Senses",
    "Spendings",
    "Standings",
    "agent_key",
    "error_class",
    "is_runner",
    "parsed",
    "prepare",
    "signature_of",
]
