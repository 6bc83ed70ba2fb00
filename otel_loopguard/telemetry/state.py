"""How a guard stands at a moment: sessions, store, exporter, breakers, machine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from otel_loopguard.telemetry.metrics import AGENT
from otel_loopguard.telemetry.names import UNKNOWN, Names

if TYPE_CHECKING:
    from otel_loopguard.admission.admissions import Admissions
    from otel_loopguard.control import Remedies
    from otel_loopguard.marks import Marks
    from otel_loopguard.opens import Open, Opens
    from otel_loopguard.reports import Ledger
    from otel_loopguard.sessions import Sessions
    from otel_loopguard.stores import Writer
    from otel_loopguard.telemetry.counts import Key

_Values = Mapping["Key", float]

_NOTHING: Final[_Values] = {}
_STATES: Final = {
    "healthy": "available",
    "slow": "degraded",
    "full": "degraded",
    "read_only": "degraded",
    "down": "unavailable",
}
_RESOURCES: Final = ("cpu", "memory", "io_wait")
_COMPONENT: Final = ("loopguard", "loopguard_span_exporter")


@dataclass(frozen=True)
class State:
    """What of a guard is looked at when metrics are collected, on the thread of their reader.

    Attributes:
        opens: Open spans.
        sessions: Sessions.
        ledger: What people said of decisions.
        marks: Decisions that wait for an exporter.
        admissions: What is answered before a call runs.
        remedies: Breakers, if there are any.
        writer: Writes to the store, if there is one.
        capacity: Writes that may wait for the store.
    """

    opens: Opens
    sessions: Sessions
    ledger: Ledger
    marks: Marks
    admissions: Admissions
    remedies: Remedies | None
    writer: Writer | None
    capacity: int

    def active(self, agents: Names) -> _Values:
        """Sessions with an open span, by agent; 0 for agents that have none."""
        return self._by_agent(agents, stalled=False)

    def stalled(self, agents: Names) -> _Values:
        """Sessions in which something runs past its limit, by agent; 0 for all other agents."""
        return self._by_agent(agents, stalled=True)

    def known(self) -> _Values:
        """Sessions in memory."""
        return {(): len(self.sessions)}

    def paused(self) -> _Values:
        """Sessions that are paused."""
        return {(): sum(session.flag.held for session in self.sessions.all)}

    def open(self) -> _Values:
        """Open spans."""
        return {(): len(self.opens)}

    def breakers(self, tools: Names, agents: Names) -> _Values:
        """Breakers: 1 where one is open."""
        if self.remedies is None:
            return _NOTHING
        found: dict[Key, float] = {}
        for name, of, is_open in self.remedies.breakers.all:
            key = (tools.of(name), "") if of == "tool" else ("", agents.of(name))
            found[key] = found.get(key, 0) + is_open
        return found

    def resources(self) -> _Values:
        """Mean and peak use of the machine, in percent."""
        use = self.admissions.resources.use()
        return {
            (name, statistic): getattr(use[name], statistic)
            for name in _RESOURCES
            if name in use
            for statistic in ("mean", "peak")
        }

    def hit_rate(self) -> _Values:
        """Share of the estimates that rest on past calls, in percent; nothing before the first."""
        estimates = self.admissions.tallies.estimates
        known = sum(estimates[source] for source in ("profile", "blend"))
        total = estimates.total()
        return {(): 100 * known / total} if total else _NOTHING

    def feedback(self) -> _Values:
        """What people said of decisions."""
        told = self.ledger.told
        return {("confirmed",): told[False], ("false_alarm",): told[True]}

    def store(self) -> _Values:
        """The state that the store is in."""
        if self.writer is None:
            return _NOTHING
        now = _STATES[self.writer.state]
        return {(state,): int(state == now) for state in dict.fromkeys(_STATES.values())}

    def store_queue(self) -> _Values:
        """Writes that wait."""
        return _NOTHING if self.writer is None else {(): self.writer.standing.waiting}

    def store_capacity(self) -> _Values:
        """Writes that may wait."""
        return _NOTHING if self.writer is None else {(): self.capacity}

    def exporter_queue(self) -> _Values:
        """Decisions that wait for an exporter."""
        return {_COMPONENT: self.marks.waiting} if self.marks.written else _NOTHING

    def exporter_capacity(self) -> _Values:
        """Decisions that may wait."""
        return {_COMPONENT: self.marks.capacity} if self.marks.written else _NOTHING

    def _by_agent(self, agents: Names, *, stalled: bool) -> _Values:
        found: dict[object, str | None] = {}
        for opened in list(self.opens):
            if stalled and not _is_stalled(opened):
                continue
            session = opened.session or self.sessions.of_trace(opened.view.trace_id)
            place = opened.view.trace_id if session is None else id(session)
            found[place] = found.get(place) or opened.agent or _named(opened)
        counts = Counter(agents.of(agent) for agent in found.values())
        return {(agent,): counts[agent] for agent in {UNKNOWN, *agents.all, *counts}}


def _is_stalled(opened: Open) -> bool:
    """Whether it, or the run that it begins, is past a limit; near one is not past it."""
    said = opened.said or ()
    run = opened.run
    if run is not None and run.opened is opened:
        # What waited for long and goes on is not idle any more.
        said = {*said, *(run.said - {"idle"} if run.busy else run.said)}
    return any(not code.endswith("_near") for code in said)


def _named(opened: Open) -> str | None:
    """The agent that a span names itself, where no span above it does."""
    name = opened.view.attributes.get(AGENT)
    return name if isinstance(name, str) else None
