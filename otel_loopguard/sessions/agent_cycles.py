"""Cycles of agents in a session: what was done about them, and how they ended."""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from otel_loopguard._control.context import ESCALATIONS
from otel_loopguard.core import Action, Detection, Kind, Step
from otel_loopguard.core.decision import HUMAN, Severity, Source, rank
from otel_loopguard.core.report import AgentCycle
from otel_loopguard.evidence import agent_key
from otel_loopguard.evidence.normalize import NAMED, key_of
from otel_loopguard.spans.steps import as_handoff

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from otel_loopguard._control.flag import Control
    from otel_loopguard._util.errors import Log
    from otel_loopguard.policy import Verdict
    from otel_loopguard.settings import Settings


def receiver(tool: str, args: object) -> int:
    """Key of the agent that gets the work by a call: of a hand-off, or of an agent as a tool."""
    name = as_handoff(Step(Kind.TOOL, tool, args=args)).name or tool
    return agent_key(name[:NAMED])


def refused_to(agent: str | None) -> int | None:
    """Key of the agent that a refused hand-off would have gone to; None where no name is known."""
    return agent_key(agent[:NAMED]) if agent else None


def stops_handoffs(control: Control) -> bool:
    """True if the flag is a deny of a loop of agents, which no call can confirm or contradict."""
    decision = control.decision
    if control.action is not Action.DENY or decision is None:
        return False
    return decision.source is Source.GRAPH_LOOP


def _can_answer(settings: Settings) -> bool:
    """True if people have any way to resume a paused session.

    A webhook, a store, a socket or a callback; the application's own calls cannot be foreseen.
    """
    ways = (settings.webhook_url, settings.store_url, settings.control_socket)
    return any(ways) or bool(ESCALATIONS)


def attended(found: list[Detection], settings: Settings, *, live: bool) -> list[Detection]:
    """Removes pauses that nobody could end, because no channel to people is set up.

    A replay keeps a pause where a hint would take its place, to show what happens if somebody can
    answer. A verdict without a ladder, such as a budget's, has nothing to show there.
    """
    if _can_answer(settings):
        return found
    return [
        replace(one, max_action=one.unanswered, own=one.own and one.unanswered)
        if one.unanswered is not None
        and (one.own is not None or one.max_action is Action.PAUSE)
        and (live or one.own is not None or one.unanswered.stops)
        else one
        for one in found
    ]


_KEPT: Final = 32
"""Newest cycles of a session that are kept, enough for a report that people read."""
_LINES: Final = 64
"""Log lines that wait until the lock is released: two for each cycle."""
_AGENTS: Final = 64
"""Agents and keys of one cycle: teams are smaller, and what grows on has a bound."""
_OVER: Final = 100
"""Steps without a sign of a cycle after which it is over, as many as the detectors look back."""

_LOGGED: Final = {
    "found": (logging.INFO, ""),
    "intervened": (logging.WARNING, " intervention=%s"),
    "escalated": (logging.ERROR, " intervention=%s"),
    "resolved": (logging.INFO, " resolution=%s"),
}
"""The level of its line, and how the outcome is said."""


@dataclass(slots=True)
class CycleEntry:
    """One cycle of agents: an `AgentCycle` that goes on, and the identities of its agents."""

    id: int
    found: int
    last: int
    patterns: tuple[str, ...] = ()
    count: float = 0.0
    severity: Severity = Severity.WARNING
    keys: frozenset[int] = frozenset()
    agents: frozenset[str] = frozenset()
    topic: int | None = None
    begin: int = 0
    end: int = 0
    intervention: str | None = None
    escalated: bool = False
    resolution: str | None = None

    def extend(self, detection: Detection) -> None:
        """Adds what a detection says of it; names of agents are kept as many as keys."""
        if detection.reason not in self.patterns:
            self.patterns = (*self.patterns, detection.reason)
        self.count = max(self.count, detection.count)
        self.severity = max(self.severity, detection.severity, key=rank)
        among = detection.among
        if len(self.keys) < _AGENTS:
            self.keys |= detection.keys
            self.agents |= set(among.agents if among else ())
        if among is not None:
            if self.topic is None and among.words:
                self.topic = key_of(among.words)
            self.begin = min(self.begin or among.begin, among.begin)
            self.end = max(self.end, among.end)

    def cycle(self, digest: Callable[[int], str]) -> AgentCycle:
        """The cycle as it is now, with the digest of its topic."""
        return AgentCycle(
            self.id, self.patterns, self.count, self.found, self.last, self.intervention,
            self.escalated, self.resolution, tuple(sorted(self.agents)),
            None if self.topic is None else digest(self.topic), self.severity,
            (self.end - self.begin) / 1e9 if self.begin else 0.0,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class CycleNews:
    """Change of a cycle of agents."""

    state: str  # `found`, `intervened`, `escalated` or `resolved`
    cycle: AgentCycle
    outcome: str | None  # the intervention called for, or how it ended


class CycleLog:
    """The newest 32 cycles of a session. Not thread-safe: the session's lock is held.

    A cycle of agents is what was detected with an intervention. One log line is written when it is
    found (INFO), when a decision calls for another intervention (WARNING) or for a human (ERROR),
    and when it is over (INFO). Lines wait until `publish`, which is called without the lock.
    """

    __slots__ = ("_number", "entries", "lines")

    def __init__(self) -> None:
        self._number = 0
        self.lines: deque[tuple[str, CycleEntry, str | None]] = deque(maxlen=_LINES)
        self.entries: deque[CycleEntry] = deque(maxlen=_KEPT)

    def observe(self, found: Iterable[Detection], verdicts: Iterable[Verdict], step: int) -> None:
        """Takes what was detected at a step, and what follows."""
        for detection in found:
            if is_cycle(detection):
                self._see(detection, step)
        for verdict in verdicts:
            if is_cycle(verdict.detection) and verdict.detection.intervention is not None:
                self._intervene(verdict.detection, verdict.detection.intervention)

    def pass_by(self, step: int) -> None:
        """A step was taken: cycles that were not seen for long are over."""
        for entry in self.entries:
            if entry.resolution is None and step - entry.last > _OVER:
                self._end(entry, "faded")

    def end(self, resolution: str) -> None:
        """All cycles are over."""
        for entry in self.entries:
            if entry.resolution is None:
                self._end(entry, resolution)

    def now(self, digest: Callable[[int], str]) -> tuple[AgentCycle, ...]:
        """The cycles as they stand, oldest first."""
        return tuple(one.cycle(digest) for one in self.entries)

    def publish(self, session: str, digest: Callable[[int], str], log: Log) -> list[CycleNews]:
        """Writes the lines that wait, each once."""
        told: list[CycleNews] = []
        while self.lines:
            state, entry, outcome = self.lines.popleft()
            one = entry.cycle(digest)
            told.append(CycleNews(state, one, outcome))
            level, more = _LOGGED[state]
            msg = (
                "cycle %s: session=%s id=%d patterns=%s agents=%s topic=%s severity=%s count=%g "
                f"seconds=%.1f{more}"
            )
            log.log(
                level, msg, state, session, one.id, ",".join(one.patterns), ",".join(one.agents),
                one.topic, one.severity, one.count, one.seconds, *([outcome] if outcome else []),
            )  # fmt: skip
        return told

    def _see(self, detection: Detection, step: int) -> None:
        known = self._open(detection)
        if known is not None:
            known.last = step
            known.extend(detection)
            return
        self._number += 1
        entry = CycleEntry(self._number, found=step, last=step)
        self.entries.append(entry)
        entry.extend(detection)
        self._line("found", entry)

    def _intervene(self, detection: Detection, intervention: str) -> None:
        entry = self._open(detection)
        if entry is None or entry.intervention == intervention:
            return
        entry.intervention = intervention
        entry.escalated = entry.escalated or intervention == HUMAN
        state = "escalated" if intervention == HUMAN else "intervened"
        self._line(state, entry, intervention)

    def _end(self, entry: CycleEntry, resolution: str) -> None:
        entry.resolution = resolution
        self._line("resolved", entry, resolution)

    def _open(self, detection: Detection) -> CycleEntry | None:
        """The cycle that goes on and shares an agent with a detection."""
        for entry in reversed(self.entries):
            if entry.resolution is None and not entry.keys.isdisjoint(detection.keys):
                return entry
        return None

    def _line(self, state: str, entry: CycleEntry, outcome: str | None = None) -> None:
        self.lines.append((state, replace(entry), outcome))


def is_cycle(detection: Detection) -> bool:
    """True for a detection of a cycle that climbs the ladder, rather than a verdict of its own."""
    return detection.intervention is not None and detection.own is None
