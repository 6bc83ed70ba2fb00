"""Time-outs of open spans and runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from otel_loopguard._util.errors import InternalErrors, swallow
from otel_loopguard.core import Detection, Kind, Step
from otel_loopguard.detectors.budget import StallDetector, agent_clocks, model_clocks, step_clocks
from otel_loopguard.sessions.active import NEVER, ActiveSpan, Deadlines, Run, Runs, first_look
from otel_loopguard.sessions.active import look as look_at

if TYPE_CHECKING:
    import threading

    from otel_loopguard._util.bounded import BoundedDict
    from otel_loopguard.detectors.budget import Clock
    from otel_loopguard.sessions.active import ActiveSpans, Ticket
    from otel_loopguard.sessions.profiler import Profiler
    from otel_loopguard.sessions.registry import SessionRegistry
    from otel_loopguard.sessions.session import Session
    from otel_loopguard.settings import Settings
    from otel_loopguard.spans.reader import Reader
    from otel_loopguard.spans.views import SpanView


class InconsistentState(RuntimeError):  # noqa: N818  # it is noted, never raised
    """An inconsistency in a guard's state, repaired as far as possible."""


_TOOL: Final = Kind.TOOL
_OWN: Final = frozenset({Kind.MODEL, Kind.AGENT, Kind.TOOL})
_LONGEST: Final = 512
"""Characters of a span's name that identify its tool; longer names contain content."""


class Stall(NamedTuple):
    """Something that runs for too long.

    Attributes:
        opened: Its open span.
        step: What runs, as far as it can be read by now.
        detection: The detection.
        time: When it was found, nanoseconds since the epoch.
    """

    opened: ActiveSpan
    step: Step
    detection: Detection
    time: int


class Watchdog:
    """Watches the open spans of one guard: tool and model calls, agents, and runs as a whole.

    Nothing is looked at before it is due. In `live` a look says how long a thing runs by now; on
    another clock every look is made at its own time, so that a replay says what was said live.

    Attributes:
        deadlines: When what is to be looked at.
    """

    def __init__(  # noqa: PLR0913
        self, settings: Settings, reader: Reader, active: ActiveSpans, sessions: SessionRegistry, *,
        lock: threading.RLock, faults: InternalErrors, live: bool, limits: Profiler,
        tools: BoundedDict[str, str],
    ) -> None:  # fmt: skip
        self._settings = settings
        self._reader = reader
        self._active = active
        self._sessions = sessions
        self._lock = lock
        self._faults = faults
        self._live = live
        self._limits = limits
        # By name of a span the tool that it called: some conventions name it only at the end.
        self._tools = tools
        self._runs = Runs(settings)
        self._checks = live and settings.tuning.stalls.health_s > 0
        self._checking: Ticket | None = None
        self.deadlines: Deadlines[object] = Deadlines()
        self._off = "stall" in settings.switched_off
        self._first = first_look(settings)

    def on_start(self, opened: ActiveSpan) -> None:
        """A span started. The lock is held; O(log open spans)."""
        if self._off:
            return
        run = opened.run
        if run is not None:
            if opened.since > run.last:  # noqa: PLR1730
                run.last = opened.since
            # A call may name an agent of its own, which is read when it ends.
            if not opened.runs:
                run.busy += 1
            elif opened.agent is not None and run.enters(opened.agent, opened.since):
                self._look_by(run, self._runs.phase_due(run))
        elif opened.runs:
            self.add_run(opened)
        opened.ticket = self.deadlines.add(max(opened.since + self._first, opened.grace), opened)
        if self._checks and self._checking is None:
            self._check_after(opened.since)

    def add_run(self, opened: ActiveSpan) -> None:
        """Adds an agent's run, possibly identified after its start. The lock is held."""
        if self._off or opened.run is not None:
            return
        run = opened.run = Run(opened)
        if opened.agent is not None:
            run.enters(opened.agent, opened.since)
        self._look_again(run, self._runs.look(run, self._key(opened), opened.since).next)

    def on_end(self, opened: ActiveSpan, step: Step | None, now: int, name: str = "") -> None:
        """A span ended, by its name at last, or was forgotten. The lock is held."""
        opened.ended = True
        if opened.ticket is not None:
            self.deadlines.drop(opened.ticket)
        tool = step.name if step is not None and step.kind is _TOOL else None
        if tool is not None and name not in self._tools and len(name) < _LONGEST:
            self._tools[name] = tool
        run = opened.run
        if run is None:
            return
        if run.opened is opened:
            self.deadlines.drop(run.ticket)
            self._runs.ended(run, self._key(opened), now)
            return
        if now > run.last:  # noqa: PLR1730  # a tenth of the price of max()
            run.last = now
        if not opened.runs:
            if opened.followed:
                run.busy -= 1
            agent = opened.agent if step is None else step.agent or opened.agent
            if agent is not None and agent != run.phase and run.enters(agent, now):
                self._look_by(run, self._runs.phase_due(run))
        if not run.busy and (due := self._runs.idle_due(run)) is not None:
            self._look_by(run, due)

    def left_s(self, session: Session, now: int) -> float | None:
        """Seconds left of the time limits of a session's runs; None without. The lock is held."""
        opened = self._active.by_id.get(session.run)
        return self._runs.left_s(None if opened is None else opened.run, session.key, now)

    def forget(self, session: str) -> None:
        """Forgets a session. The lock is held."""
        self._runs.forget(session)

    def due(self, now: int) -> Iterator[Stall]:
        """Everything that runs for too long by now, each thing once, in order of time.

        What cannot be looked at is a fault, once, and does not keep the others from it.
        """
        while True:
            with self._lock:
                entry = self.deadlines.pop(now)
            if entry is None:
                return
            due, subject = entry
            found: list[Stall] | None = None
            with swallow(self._faults, "stall"):
                found = self.look(subject, now if self._live else due)
            if found is None:
                self.give_up(subject)
            else:
                yield from found

    def set_back(self, now: int, by: int) -> None:
        """Keeps the age of what began before a clock was set back. The lock is held.

        What is older than `by` began in the past of both clocks, and is told of as much later.
        """
        for opened in self._active:
            if opened.since > now:
                opened.since -= by
                opened.grace -= by
                self._look_now(opened, now)
            run = opened.run
            if run is not None and run.opened is opened:
                run.last -= by * (run.last > now)
                run.phase_since -= by * (run.phase_since > now)
                self._look_now(run, now)

    def _look_now(self, subject: ActiveSpan | Run, now: int) -> None:
        if subject.ticket is not None and subject.ticket[2] is not None:
            self.deadlines.drop(subject.ticket)
            subject.ticket = self.deadlines.add(now, subject)

    def give_up(self, subject: object) -> None:
        """Stops watching a span that cannot be read, so that its fault counts once."""
        opened = subject.opened if isinstance(subject, Run) else subject
        if not isinstance(opened, ActiveSpan):
            return
        with self._lock:
            opened.unreadable = True
            self.deadlines.drop(opened.ticket)
            if opened.run is not None and opened.run.opened is opened:
                self.deadlines.drop(opened.run.ticket)

    def look(self, subject: object, now: int) -> list[Stall]:
        """Looks at an open span, an open run, or the state of the guard."""
        if isinstance(subject, ActiveSpan):
            return self._look_at_span(subject, now)
        if isinstance(subject, Run):
            return self._look_at_run(subject, now)
        self._check(now)
        return []

    def health(self) -> list[str]:
        """Impossible states of the guard, a sentence each; O(open spans).

        Checked every `tuning.stalls.health_s` (300 s) while spans are open: an ended span among the
        open ones, a session that was dropped while its span is open, and a run whose count of open
        steps is wrong (which is corrected).
        """
        with self._lock:
            spans = list(self._active)
            ended = sum(opened.ended for opened in spans)
            used = [one.session for one in spans if one.session is not None]
            lost = sum(self._sessions.find(session.key) is not session for session in used)
            wrong: list[str] = []
            if ended:
                wrong.append(f"{ended} ended spans are kept as open ones")
            if lost:
                wrong.append(f"{lost} open spans belong to sessions that are not kept any more")
            busy = Counter(one.run for one in spans if not one.runs and not one.ended)
            for run in {one.run for one in spans}:
                if run is not None and not run.opened.ended and run.busy != busy[run]:
                    wrong.append(f"a run counts {run.busy} open steps and has {busy[run]}")
                    run.busy = busy[run]
            return wrong

    def _look_at_span(self, opened: ActiveSpan, now: int) -> list[Stall]:
        span, settings = opened.view, self._settings
        step = self._reader.read(span)
        kind = Kind.TOOL if step is None or step.kind not in _OWN else step.kind
        tool = self._tool(span, step)
        clocks = self._clocks(kind, tool, step, opened.since)
        speaks = kind is not _TOOL or (tool is not None and tool not in settings.exempt)
        # What is not known as a call yet may be told to be one before its limit.
        said = opened.said = opened.said or set()
        found = look_at(clocks, said if speaks else set(said), now, settings.tuning.stalls.warning)
        with self._lock:
            if self._active.has(opened) and found.next != NEVER:
                opened.ticket = self.deadlines.add(max(found.next, now + 1), opened)
        if not speaks:
            return []
        read = step or Step(Kind.TOOL, tool)
        read.trace_id, read.span_id = span.trace_id, span.span_id
        name = tool or read.name or read.kind.value
        return [self._stall(opened, read, clock, name, now, near=near) for clock, near in found[0]]

    def _clocks(self, kind: Kind, tool: str | None, step: Step | None, since: int) -> list[Clock]:
        if kind is Kind.MODEL:
            return model_clocks(self._settings, since)
        if kind is Kind.AGENT:
            name = step.name if step is not None else None
            return agent_clocks(self._settings, since, self._limits.agent_limit(name or ""))
        limit_s = None
        if tool is not None:
            limit_s = self._limits.limit_for(tool, None if step is None else step.args)
        return step_clocks(self._settings, tool, since, limit_s)

    def _look_at_run(self, run: Run, now: int) -> list[Stall]:
        with self._lock:
            if not self._active.has(run.opened):
                return []
            found = self._runs.look(run, self._key(run.opened), now)
            self._look_again(run, max(found.next, now + 1))
        if not found.found:
            return []
        span = run.opened.view
        step = self._reader.read(span) or Step(Kind.AGENT)
        step.trace_id, step.span_id = span.trace_id, span.span_id
        name = step.name or "the run"
        return [
            self._stall(
                run.opened, step, clock,
                (run.phase if clock.reason == "same_phase" else None) or name, now, near=near,
            )
            for clock, near in found.found
        ]  # fmt: skip

    def _stall(  # noqa: PLR0913
        self, opened: ActiveSpan, step: Step, clock: Clock, name: str, now: int, *, near: bool
    ) -> Stall:
        own = self._settings.of(name) if step.kind is _TOOL else self._settings
        found = StallDetector(own).late(clock, name, opened.view.span_id, now, near=near)
        return Stall(opened, step, found, now)

    def _look_by(self, run: Run, due: int | None) -> None:
        """A run is looked at no later than `due`."""
        if run.opened.ended or due is None:
            return
        if run.ticket is None or due < run.ticket[0]:
            self.deadlines.drop(run.ticket)
            self._look_again(run, due)

    def _look_again(self, run: Run, due: int) -> None:
        idle = due == NEVER or run.opened.unreadable
        run.ticket = None if idle else self.deadlines.add(max(due, run.opened.grace), run)

    def _check(self, now: int) -> None:
        wrong = self.health()
        with self._lock:
            self._checking = None
            if self._active.by_id:
                self._check_after(now)
        for sentence in wrong:
            self._faults.note("health", InconsistentState(sentence))

    def _check_after(self, now: int) -> None:
        due = now + round(self._settings.tuning.stalls.health_s * 1e9)
        self._checking = self.deadlines.add(due, "health")

    def _key(self, opened: ActiveSpan) -> str | None:
        session = opened.session or self._sessions.of_trace(opened.view.trace_id)
        return None if session is None else session.key

    def _tool(self, span: SpanView, step: Step | None) -> str | None:
        if step is not None and step.kind is not _TOOL:
            return None
        return (None if step is None else step.name) or self._tools.get(span.name)
