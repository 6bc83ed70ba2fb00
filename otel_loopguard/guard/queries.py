"""Queries and commands on the sessions of a guard."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from otel_loopguard._control.flag import Control
from otel_loopguard._util.clock import now
from otel_loopguard.core.task import Task
from otel_loopguard.evidence import parsed
from otel_loopguard.policy import Hearing
from otel_loopguard.sessions.requested_calls import RequestedCalls
from otel_loopguard.sessions.session import SavedSession

if TYPE_CHECKING:
    from otel_loopguard._control.flag import Flag
    from otel_loopguard._util.backlog import Backlog
    from otel_loopguard.core import Acceptance, Admission, Choice, Objection, Remaining
    from otel_loopguard.core.admission import ResourceUse
    from otel_loopguard.core.report import AgentCycle, Context, Happening, Report, Topic
    from otel_loopguard.execution.admission import Admissions
    from otel_loopguard.policy.explain import Explanation
    from otel_loopguard.sessions.active import ActiveSpan, ActiveSpans
    from otel_loopguard.sessions.decisions import Decisions
    from otel_loopguard.sessions.registry import DecisionIndex, SessionRegistry
    from otel_loopguard.sessions.requested_calls import WaitingRound
    from otel_loopguard.sessions.resolver import SessionResolver
    from otel_loopguard.sessions.watchdog import Watchdog
    from otel_loopguard.settings import Settings
    from otel_loopguard.settings.preferences import Preferences
    from otel_loopguard.telemetry import Telemetry


class SessionQueries:
    """The part of a guard that `otel_loopguard.control` calls, with sessions by key.

    Every method may be called from any thread.
    """

    settings: Settings
    telemetry: Telemetry
    backlog: Backlog
    _lock: threading.RLock
    _sessions: SessionRegistry
    _index: DecisionIndex
    _decisions: Decisions
    active: ActiveSpans
    _resolver: SessionResolver
    _admissions: Admissions
    _watchdog: Watchdog

    def _clock(self, known: int | None = None) -> int:
        """Returns the time, nanoseconds since the epoch."""
        raise NotImplementedError

    def _opened(self, span_id: int) -> ActiveSpan | None:
        """Returns the open span with an id, and starts following it if it was deferred."""
        raise NotImplementedError

    def _settled(self) -> threading.RLock:
        """Judges what waits, and returns the lock: `with self._settled():`."""
        self.backlog.settle()
        return self._lock

    @property
    def sees_steps(self) -> bool:
        """Whether it knows a session or follows an open span, or was switched off."""
        self.backlog.settle()
        return bool(self._sessions or len(self.active)) or not self.settings.enabled

    def flag_of(self, session: str) -> Flag | None:
        """Returns the flag of a session, or None if the session is not known."""
        self.backlog.settle()
        found = self._sessions.find(session)
        return None if found is None else found.flag

    def read(self, session: str) -> Control:
        """Returns the control of a session to its runtime, which has heard it then.

        Args:
            session: Its key; that it was asked for is known once the session is.
        """
        self.backlog.settle()
        found = self._sessions.find(session)
        if found is None:
            with self._settled():
                found = self._sessions.find(session)
                if found is None:
                    self._sessions.awaited[session] = None
        return Control(session) if found is None else found.flag.read()

    def flag_named(self, session: str) -> Flag:
        """Returns the flag of a session by its final key; creates the session if needed."""
        with self._settled():
            return self._sessions.named(session, now()).flag

    def requested(self, session: str) -> list[WaitingRound]:
        """Returns the calls that messages requested and whose results are pending.

        Args:
            session: Key of the session.
        """
        with self._settled():
            found = self._sessions.find(session)
            return [] if found is None or found.requested is None else found.requested.waiting()

    def resume_requested(self, session: str, rounds: Sequence[WaitingRound]) -> None:
        """Continues waiting for results of calls that another process saw requested.

        Args:
            session: Key of the session.
            rounds: The return value of `requested` there.
        """
        with self._settled():
            found = self._sessions.find(session)
            if found is not None and found.requested is None and rounds:
                found.requested = RequestedCalls()
                found.requested.resume(rounds)

    def concerns(self, session: str, at: int) -> bool:
        """Whether a policy decision made at a time applies to the current run of a session.

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

    def flag_in(self, trace_id: int) -> Flag | None:
        """Returns the flag of the session of a trace, or None if it is not known."""
        self.backlog.settle()
        found = self._sessions.of_trace(trace_id)
        return None if found is None else found.flag

    def report(self, session: str) -> Report | None:
        """Returns the report of a session, or None if the session is not known.

        Args:
            session: Key of the session.
        """
        with self._settled():
            found = self._sessions.find(session)
            if found is None:
                return None
            return replace(found.report(), execution=self._admissions.acceptance(found))

    def wait_advice(self, session: str) -> float:
        """Returns the seconds to wait before the next look, 0 if nothing is waited for.

        Args:
            session: Key of the session.
        """
        with self._settled():
            found = self._sessions.find(session)
            return 0.0 if found is None else found.wait_advice()

    def remaining(self, session: str) -> Remaining | None:
        """Returns what is left of the limits of a session, or None if it is not known.

        Args:
            session: Key of the session.
        """
        with self._settled():
            found = self._sessions.find(session)
            if found is None:
                return None
            at = self._clock()
            left, seconds = found.remaining(at), self._watchdog.left_s(found, at)
        known = [one for one in (left.seconds, seconds) if one is not None]
        return left._replace(seconds=min(known, default=None))

    def explain(self, session: str) -> Explanation | None:
        """Returns what was counted of a session and what comes next; None if it is not known.

        Args:
            session: Key of the session.
        """
        from otel_loopguard.policy.explain import Explanation, LoopState  # noqa: PLC0415  # seldom

        with self._settled():
            found = self._sessions.find(session)
            if found is None:
                return None
            flag, policy, settings = found.flag, found.state.policy, self.settings
            control, allowed = flag.control, found.allowed
            hearing = Hearing(flag.heard if flag.asked else None)
            return Explanation(
                found.key, control.action, control.by,
                shadow=settings.mode == "shadow" or allowed is None,
                allowed=len(allowed or ()),
                decisions=found.report().alerts,
                loops=tuple(
                    LoopState.of(
                        loop, settings, self._decisions.digest(loop.id), policy.reasons(loop),
                        heard=hearing.counts(loop),
                    )
                    for loop in policy.loops
                ),
                repeats=tuple(
                    repeat for key, repeat in policy.repeats.items() if not policy.knows(key)
                ),
                repeat_threshold=settings.repeat_threshold / settings.sensitivity,
            )  # fmt: skip

    def allow(self, session: str, scope: Literal["call", "session"], by: str) -> str | None:
        """Lets a false alarm through: the session goes on, and is not stopped for it again.

        Args:
            session: Key of the session.
            scope: The stopped loop (`call`), or whatever the session does.
            by: Who says so.

        Returns:
            The setting that does so for good, empty where nothing was stopped; None if the session
            is not known.
        """
        with self._settled():
            found = self._sessions.find(session)
            return None if found is None else found.allow(scope, by)

    def cycles(self, session: str) -> tuple[AgentCycle, ...] | None:
        """Returns the newest 32 agent cycles of a session, oldest first, or None.

        Args:
            session: Key of the session.
        """
        with self._settled():
            found = self._sessions.find(session)
            if found is None:
                return None
            return () if found.cycles is None else found.cycles.now(self._decisions.digest)

    def context(self, session: str) -> Context | None:
        """Returns the long-term context of a session, or None if it is not known.

        Args:
            session: Key of the session.
        """
        with self._settled():
            found = self._sessions.find(session)
            return None if found is None else found.state.record.memory.context()

    def remember(self, session: str, topic: Topic, text: str) -> bool:
        """Adds to the long-term context of a session; False if the session is not known.

        Args:
            session: Key of the session.
            topic: `insight`, `file`, `pattern` or `avoided`.
            text: What to keep; of longer text the first 200 characters.

        Raises:
            ValueError: There is no such topic.
        """
        with self._settled():
            found = self._sessions.find(session)
            if found is not None:
                found.state.record.memory.note(topic, text)
            return found is not None

    def compacted(self, session: str) -> bool:
        """Halves the counts of a session whose context was compacted.

        Args:
            session: Key of the session.

        Returns:
            False if it is not known.
        """
        with self._settled():
            found = self._sessions.find(session)
            if found is not None:
                found.compacted()
        if found is not None:
            self.telemetry.numbers.happened("compactions")
        return found is not None

    def happened(self, session: str | None, what: Happening, times: int = 1) -> None:
        """Counts something the application did in a run that no span reports.

        Args:
            session: Key of the session; None if unknown, then it appears in no report.
            what: A field of `RunMetrics`.
            times: How often.
        """
        with self._settled():
            found = None if session is None else self._sessions.find(session)
            if found is not None:
                found.state.record.happened(what, times)
        self.telemetry.numbers.happened(what, times)

    def saved(self, session: str) -> SavedSession | None:
        """Returns the current counts of a session for a checkpoint, or None.

        Args:
            session: Key of the session.
        """
        with self._settled():
            found = self._sessions.find(session)
            return None if found is None else found.saved()

    def restored(self, session: str, saved: object) -> bool:
        """Resets a session whose application went back to a checkpoint.

        Args:
            session: Key of the session.
            saved: The return value of `saved` at the checkpoint. None, or one of another session,
                clears all counts.

        Returns:
            False if the session is not known.
        """
        with self._settled():
            found = self._sessions.find(session)
            if found is not None:
                own = saved if isinstance(saved, SavedSession) else None
                if own is not None and own.key != found.key and own.flag() is not found.flag:
                    own = None
                found.restore(own)
                self._sessions.wrote(found)
            return found is not None

    def feedback(self, decision_id: str, *, false_alarm: bool) -> bool:
        """Counts in the report whether a decision was right; nothing else changes.

        Args:
            decision_id: `Decision.id`; the newest 4096 are known.
            false_alarm: Whether it was wrong; the last call wins.

        Returns:
            False if the decision or its session is no longer known.
        """
        with self._settled():
            about = self._admissions.decision_of(decision_id)
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
            parallel: Whether a batch has to run in parallel; None leaves it open.
        """
        self.backlog.settle()
        found = None if session is None else self._sessions.find(session)
        opened = self._opened(span_id)
        agent = None if opened is None else opened.agent
        return self._admissions.admit(tasks, found, user=user, agent=agent, parallel=parallel)

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

    def denies(
        self, session: str, tool: str, args: object, *, span_id: int = 0, agent: str | None = None
    ) -> bool:
        """Whether a call that is about to run belongs to a denied loop.

        Args:
            session: Key of its session.
            tool: Name of the tool.
            args: Its arguments; None if they are not known.
            span_id: The current span, which identifies the calling agent.
            agent: The calling agent, where no span identifies it.
        """
        if isinstance(args, str) and len(args) <= self.settings.tuning.calls.value_chars:
            args = parsed(args)
        with self._settled():
            found = self._sessions.find(session)
            if found is None:
                return False
            opened = self._opened(span_id)
            return found.denies(tool, args, agent if opened is None else opened.agent)

    def allowed(self, session: str) -> frozenset[int] | None:
        """Returns the calls of a session that a person allowed; None for all of them.

        Args:
            session: Its key.
        """
        with self._settled():
            found = self._sessions.find(session)
            return frozenset() if found is None else found.allowed

    def recall_allowed(self, session: str, calls: frozenset[int] | None) -> None:
        """Restores what `allowed` returned in another process, if the session is known.

        Args:
            session: Its key.
            calls: The allowed calls.
        """
        with self._settled():
            found = self._sessions.find(session)
            if found is not None:
                found.allowed = calls

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
        opened = self._opened(span_id)
        agent = None if opened is None else opened.agent
        task = Task("0", tool, args=args, agent=agent)
        return self._admissions.forbidding(task, session)

    def answered(self, admission_id: str, choice: Choice) -> bool:
        """Records a user's choice about calls; False if they are no longer known."""
        return self._admissions.answered(admission_id, choice)

    def preferences(self, user: str) -> Preferences:
        """Returns the execution preferences of a user."""
        return self._admissions.users.preferences(user)

    def prefer(self, user: str, changes: Mapping[str, object]) -> Preferences:
        """Changes the execution preferences of a user.

        Raises:
            ValueError: A name is unknown or a value invalid; the message has both.
        """
        return self._admissions.users.prefer(user, changes)

    def acceptance(self, session: str | None) -> Acceptance | None:
        """Returns how users took execution choices; None if there were no requests."""
        if session is None:
            return self._admissions.acceptance()
        found = self._sessions.find(session)
        return None if found is None else self._admissions.acceptance(found)

    def resource_use(self) -> Mapping[str, ResourceUse]:
        """Returns mean and peak use of the machine over the newest samples."""
        return self._admissions.resources.use()

    @property
    def admissions(self) -> Admissions:
        """The admission control."""
        return self._admissions
