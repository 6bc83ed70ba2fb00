"""Questions that applications ask a guard and its sessions."""

# A handle is a part of its guard.
# ruff: noqa: SLF001
# pyright: reportPrivateUsage=false

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from otel_loopguard._control.flag import Control, Flag
from otel_loopguard._util.clock import now
from otel_loopguard.core.task import Task
from otel_loopguard.evidence import as_data, parsed
from otel_loopguard.policy import Hearing
from otel_loopguard.sessions.requested_calls import RequestedCalls, WaitingRound
from otel_loopguard.sessions.session import SavedSession, Session

if TYPE_CHECKING:
    from otel_loopguard._util.backlog import Backlog
    from otel_loopguard._util.errors import InternalErrors
    from otel_loopguard.core import Remaining
    from otel_loopguard.core.admission import Admission, Objection
    from otel_loopguard.core.report import AgentCycle, Context, Happening, Report, Topic
    from otel_loopguard.escalation.service import EscalationService
    from otel_loopguard.execution.admission import Admissions
    from otel_loopguard.policy.explain import Explanation
    from otel_loopguard.resilience import ResilienceRegistry
    from otel_loopguard.sessions.active import ActiveSpan, ActiveSpans
    from otel_loopguard.sessions.decisions import Decisions
    from otel_loopguard.sessions.profiler import Profiler
    from otel_loopguard.sessions.registry import DecisionIndex, SessionRegistry
    from otel_loopguard.sessions.resolver import SessionResolver
    from otel_loopguard.sessions.watchdog import Watchdog
    from otel_loopguard.settings import Settings
    from otel_loopguard.telemetry import Telemetry


def is_resilience_used() -> bool:
    """True if anything here may ask for breakers or checks: it has imported them."""
    return "otel_loopguard.resilience" in sys.modules


class SessionQueries:
    """The part of a guard that applications ask; what is about one session has a `SessionHandle`.

    Every method may be called from any thread.
    """

    settings: Settings
    faults: InternalErrors
    telemetry: Telemetry
    backlog: Backlog
    _lock: threading.RLock
    _sessions: SessionRegistry
    _index: DecisionIndex
    _decisions: Decisions
    active: ActiveSpans
    _resolver: SessionResolver
    _admissions: Admissions | None
    _watchdog: Watchdog
    profiler: Profiler

    def _clock(self, known: int | None = None) -> int:
        """Returns the time, nanoseconds since the epoch."""
        raise NotImplementedError

    @property
    def admissions(self) -> Admissions:
        """Returns the answers about calls before they run."""
        raise NotImplementedError

    @property
    def resilience(self) -> ResilienceRegistry:
        """Returns its breakers, recoveries and checks."""
        raise NotImplementedError

    def _opened(self, span_id: int) -> ActiveSpan | None:
        """Returns the open span with an id, and starts following it if it was deferred."""
        raise NotImplementedError

    def escalation(self) -> EscalationService:
        """Returns the service that escalates to people."""
        raise NotImplementedError

    def _agent(self, span_id: int) -> str | None:
        """Returns the agent that an open span belongs to; None if it is not known."""
        opened = self._opened(span_id)
        return None if opened is None else opened.agent

    def _settled(self) -> threading.RLock:
        """Judges what waits, and returns the lock: `with self._settled():`."""
        self.backlog.settle()
        return self._lock

    def find(self, place: str | int) -> SessionHandle | None:
        """Returns a session by its key, or by the id of one of its traces; None if not known."""
        self.backlog.settle()
        found = self._session_at(place)
        return None if found is None else SessionHandle(self, found)

    def _session_at(self, place: str | int) -> Session | None:
        sessions = self._sessions
        return sessions.find(place) if isinstance(place, str) else sessions.of_trace(place)

    @property
    def sees_steps(self) -> bool:
        """True if it knows a session, follows an open span, or was switched off."""
        self.backlog.settle()
        return bool(self._sessions or len(self.active)) or not self.settings.enabled

    @property
    def sees_calls(self) -> bool:
        """True if a session that it knows has made a tool call, or if it was switched off."""
        self.backlog.settle()
        made = any(session.state.progress.calls for session in self._sessions.all)
        return made or not self.settings.enabled

    def flag_of(self, place: str | int) -> Flag | None:
        """Returns the flag of a session by its key, or by the id of one of its traces."""
        self.backlog.settle()
        found = self._session_at(place)
        return None if found is None else found.flag

    def flag_named(self, session: str) -> Flag:
        """Returns the flag of a session by its final key; creates the session if needed."""
        with self._settled():
            return self._sessions.named(session, now()).flag

    def read(self, session: str, *, shown: bool = True) -> Control:
        """Returns the control of a session to its runtime, which has heard it then.

        Args:
            session: Its key; that it was asked for is known once the session is.
            shown: Whether its text reaches the runtime.
        """
        flag = self.flag_of(session)
        if flag is None:
            with self._settled():
                flag = self.flag_of(session)
                if flag is None:
                    self._sessions.awaited[session] = None
                    return Control(session)
        return flag.read() if shown else flag.look()

    def report(self, session: str) -> Report | None:
        """Returns the report of a session by its key, or None if the session is not known."""
        found = self.find(session)
        return None if found is None else found.report()

    def explain(self, session: str) -> Explanation | None:
        """Returns why a session was stopped or not, or None if the session is not known."""
        found = self.find(session)
        return None if found is None else found.explain()

    def concerns(self, session: str, at: int) -> bool:
        """True if a decision of the policy at a time applies to the current run of a session.

        The next turn of a conversation starts a new run, whatever stopped the last one.

        Args:
            session: Key of the session.
            at: When, nanoseconds since the epoch.
        """
        with self._settled():
            found = self._sessions.find(session)
            if found is None or not found.run:
                return found is not None
            run = self.active.by_id.get(found.run)
            return run is not None and run.since <= at

    def happened(self, what: Happening, times: int = 1) -> None:
        """Counts something the application did outside of any session, in the metrics only.

        Args:
            what: A field of `RunMetrics`.
            times: How often.
        """
        self.telemetry.numbers.happened(what, times)

    def feedback(self, decision_id: str, *, false_alarm: bool) -> bool:
        """Counts in the report whether a decision was right; nothing else changes.

        Args:
            decision_id: `Decision.id`; the newest 4096 are known.
            false_alarm: True if it was wrong; the last call wins.

        Returns:
            False if the decision or its session is no longer known.
        """
        with self._settled():
            asked = self._admissions
            about = decision_id if asked is None else asked.decision_of(decision_id)
            return self._index.feedback(about, false_alarm=false_alarm)

    def admit(
        self,
        tasks: Sequence[Task],
        *,
        session: str | None = None,
        span_id: int = 0,
        user: str = "",
        parallel: bool | None = None,
    ) -> Admission:
        """Returns how to execute calls that are about to run, or an objection to them.

        Args:
            tasks: The calls; at least one.
            session: Key of their session; None if it is not known.
            span_id: The current span, which identifies the calling agent.
            user: The user whose preferences apply.
            parallel: True if a batch has to run in parallel, False if not; None leaves it open.
        """
        self.backlog.settle()
        found = None if session is None else self._sessions.find(session)
        agent = self._agent(span_id)
        return self.admissions.admit(tasks, found, user=user, agent=agent, parallel=parallel)

    def objection(
        self, tool: str, args: object, *, session: str | None = None, span_id: int = 0
    ) -> Objection | None:
        """Returns the objection of a breaker or a check to a call that is about to run.

        Args:
            tool: Name of the tool.
            args: Its arguments; None if they are not known.
            session: Key of its session; None if it is not known.
            span_id: The current span, which identifies the calling agent.

        Returns:
            None without an objection, and in a guard that may not deny.
        """
        self.backlog.settle()
        if not is_resilience_used():
            return None
        task = Task("0", tool, args=args, agent=self._agent(span_id))
        return self.admissions.forbidding(task, session)

    def limit_s(self, tool: str, args: object) -> float:
        """Returns how many seconds a call of a tool may take; 600 without an estimate."""
        self.backlog.settle()
        return self.profiler.time_limit(tool, args)

    def tell(self, span_id: int, args: object, outcome: object) -> None:
        """Attaches arguments and result to a call whose open span does not carry them.

        Args:
            span_id: The span of the call.
            args: Its arguments, a JSON value or text; None if they are not known.
            outcome: Its result, in the same form.
        """
        with self._settled():
            opened = self._opened(span_id)
            if opened is not None:
                opened.captured = (args, outcome)

    def next_run(self, session: str | None, trace_id: int, span_id: int) -> None:
        """Starts a run of an agent, the user's next turn, on behalf of an adapter.

        It lifts what the policy stopped in the run before. Below an open tool call, or beside an
        open run of the session, it is a sub-agent. A run that also has a span counts once.

        Args:
            session: Key of its session; None for that of its trace.
            trace_id: Its trace.
            span_id: The current span at its start; any unused number where there is none.
        """
        self.backlog.settle()
        self._resolver.look(self._opened(span_id), trace_id)
        with self._lock:
            self._resolver.next_run(session, trace_id, span_id)


class SessionHandle:
    """One session of a guard, as the application sees it: its flag, and what it came to.

    Every question judges first what ended by now. May be used from any thread; made where it is
    needed, and not kept: it keeps its guard alive.

    Attributes:
        guard: The guard.
        flag: The flag of the session; reading it takes no lock.
    """

    __slots__ = ("_session", "flag", "guard")

    def __init__(self, guard: SessionQueries, session: Session) -> None:
        self.guard = guard
        self.flag = session.flag
        self._session = session

    @property
    def key(self) -> str:
        """Its key; of a session that no span has named yet, a trace id in hex."""
        return self._session.key

    @property
    def steps(self) -> int:
        """Number of steps seen."""
        return self._session.state.progress.steps

    @property
    def stops_a_loop(self) -> bool:
        """True if a loop that is known here is denied or worse."""
        with self.guard._settled():
            return self._session.state.policy.stops

    def report(self) -> Report:
        """Returns what the session did, and what was decided about it."""
        with self.guard._settled():
            asked = self.guard._admissions
            accepted = asked and asked.acceptance(self._session)
            return replace(self._session.report(), execution=accepted)

    def wait_advice(self) -> float:
        """Returns the seconds to wait before the next look, 0 if nothing is waited for."""
        with self.guard._settled():
            return self._session.wait_advice()

    def remaining(self) -> Remaining:
        """Returns what is left of the limits of the session."""
        guard = self.guard
        with guard._settled():
            at = guard._clock()
            left, seconds = self._session.remaining(at), guard._watchdog.left_s(self._session, at)
        known = [one for one in (left.seconds, seconds) if one is not None]
        return left._replace(seconds=min(known, default=None))

    def explain(self) -> Explanation:
        """Returns what was counted of the session, and what comes next."""
        from otel_loopguard.policy.explain import Explanation, LoopState  # noqa: PLC0415  # seldom

        with self.guard._settled():
            session, settings = self._session, self.guard.settings
            flag, policy = session.flag, session.state.policy
            control, allowed = flag.control, session.allowed
            hearing = Hearing(flag.heard if flag.asked else None)
            return Explanation(
                session.key, control.action, control.by,
                shadow=settings.mode == "shadow" or allowed is None,
                allowed=len(allowed or ()),
                decisions=session.report().alerts,
                loops=tuple(
                    LoopState.of(
                        loop, settings, self.guard._decisions.digest(loop.id), policy.reasons(loop),
                        policy.tools(loop),
                        heard=hearing.counts(loop),
                        allowed=bool(loop.keys & (allowed or frozenset())),
                    )
                    for loop in policy.loops
                ),
                repeats=tuple(
                    repeat for key, repeat in policy.repeats.items() if not policy.knows(key)
                ),
                repeat_threshold=settings.repeat_threshold / settings.sensitivity,
            )  # fmt: skip

    def escalate(self, reason: str, *, hold: bool) -> str | None:
        """Puts the session before people, as `control.escalate` does.

        Args:
            reason: Why, in a sentence for people.
            hold: Whether it is paused until it is answered.

        Returns:
            Id of the escalation; None if the guard has forgotten the session by now.
        """
        return self.guard.escalation().escalations.escalate(self.key, reason, hold=hold)

    def allow(self, scope: Literal["call", "session"], by: str) -> str:
        """Lets a false alarm through: the session goes on, and is not stopped for it again.

        Args:
            scope: The stopped loop (`call`), or whatever the session does.
            by: Who says so.

        Returns:
            The setting that does so for good, empty where nothing was stopped.
        """
        with self.guard._settled():
            setting = self._session.allow(scope)
        what = "what was stopped" if scope == "call" else "whatever it does"
        # Without the lock: a change that is made under it is noted only later, and may be never.
        self.flag.clear(by=by, reason=f"{what} is allowed")
        return setting

    @property
    def allowed(self) -> frozenset[int] | None:
        """The calls that a person allowed; None for all of them. Another process may restore it."""
        with self.guard._settled():
            return self._session.allowed

    @allowed.setter
    def allowed(self, calls: frozenset[int] | None) -> None:
        with self.guard._settled():
            self._session.allowed = calls

    def denied_by(
        self, tool: str, args: object, *, span_id: int = 0, agent: str | None = None
    ) -> str | None:
        """Id of the decision by which a call that is about to run is denied; None if it is not.

        Args:
            tool: Name of the tool.
            args: Its arguments; None if they are not known.
            span_id: The current span, which identifies the calling agent.
            agent: The calling agent, where its name is known that its steps have.

        Returns:
            The id; empty where it is not known which decision denied the loop.
        """
        guard = self.guard
        args = as_data(args)
        if isinstance(args, str) and len(args) <= guard.settings.tuning.calls.value_chars:
            args = parsed(args)
        with guard._settled():
            opened = guard._opened(span_id)
            if opened is None:
                return self._session.denied_by(tool, args, agent)
            lanes = opened.lane, opened.inner
            return self._session.denied_by(tool, args, agent, within=opened.agent, lanes=lanes)

    def cycles(self) -> tuple[AgentCycle, ...]:
        """Returns the newest 32 agent cycles, oldest first."""
        with self.guard._settled():
            cycles = self._session.cycles
            return () if cycles is None else cycles.now(self.guard._decisions.digest)

    def context(self) -> Context:
        """Returns the long-term context."""
        with self.guard._settled():
            return self._session.state.record.memory.context()

    def remember(self, topic: Topic, text: str) -> None:
        """Adds to the long-term context.

        Args:
            topic: `insight`, `file`, `pattern` or `avoided`.
            text: What to keep; of longer text the first 200 characters.

        Raises:
            ValueError: There is no such topic.
        """
        with self.guard._settled():
            self._session.state.record.memory.note(topic, text)

    def compacted(self) -> None:
        """Halves the counts of the session, as its context was compacted."""
        with self.guard._settled():
            self._session.compacted()
        self.guard.happened("compactions")

    def happened(self, what: Happening, times: int = 1) -> None:
        """Counts something the application did in the run that no span reports.

        Args:
            what: A field of `RunMetrics`.
            times: How often.
        """
        with self.guard._settled():
            self._session.state.record.happened(what, times)
        self.guard.happened(what, times)

    def saved(self) -> SavedSession:
        """Returns the current counts, for a checkpoint."""
        with self.guard._settled():
            return self._session.saved()

    def restore(self, saved: object) -> None:
        """Resets the session, whose application went back to a checkpoint.

        Args:
            saved: The return value of `saved` at the checkpoint. None, or one of another session,
                clears all counts.
        """
        with self.guard._settled():
            session, own = self._session, saved if isinstance(saved, SavedSession) else None
            if own is not None and own.key != session.key and own.flag() is not session.flag:
                own = None
            session.restore(own)
            self.guard._sessions.wrote(session)

    def requested(self) -> list[WaitingRound]:
        """Returns the calls that messages requested and whose results are pending."""
        with self.guard._settled():
            requested = self._session.requested
            return [] if requested is None else requested.waiting()

    def resume_requested(self, rounds: Sequence[WaitingRound]) -> None:
        """Continues waiting for results of calls that another process saw requested.

        Args:
            rounds: The return value of `requested` there.
        """
        with self.guard._settled():
            if self._session.requested is None and rounds:
                self._session.requested = RequestedCalls()
                self._session.requested.resume(rounds)
