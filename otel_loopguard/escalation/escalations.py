"""Escalates sessions to people, and applies their answers."""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

from otel_loopguard._control.context import BACKENDS, ESCALATIONS, sessions_at
from otel_loopguard._control.flag import APPLICATION, OBSERVERS, TIME_LIMIT, Flag, declare
from otel_loopguard._util.bounded import BoundedDict
from otel_loopguard._util.clock import now as clock
from otel_loopguard._util.clock import ticks
from otel_loopguard._util.errors import InternalErrors, swallow
from otel_loopguard._util.locks import new_lock
from otel_loopguard._util.text import encoded, truncate
from otel_loopguard._util.worker import BackgroundThread, weak_callback
from otel_loopguard.core import Action, Decision
from otel_loopguard.core.decision import HUMAN, Severity
from otel_loopguard.core.report import Answer, Escalation
from otel_loopguard.errors import EscalationError, PlanError
from otel_loopguard.escalation import cases
from otel_loopguard.escalation.cases import Case, Reply
from otel_loopguard.settings import Settings, needing

if TYPE_CHECKING:
    from otel_loopguard._util.errors import Log
    from otel_loopguard.escalation.webhook import Webhook
    from otel_loopguard.sessions import Session
    from otel_loopguard.stores import Writer

# How long before its gate's time-out an escalation ends, so that the gate gets the fallback; of
# short limits a tenth.
_EARLIER_S: Final = 1.0
# Between two looks at the clock: a fallback is at most this late after a jump of it.
_LOOK_S: Final = 5.0
# As many as sessions are known by default: each may wait for an answer.
_MOST_OPEN: Final = 10_000
# A late answer is refused with how the escalation ended: a day of them, at 40 an hour.
_MOST_OVER: Final = 1000

KIND: Final = "escalation"
"""Kind of the value of an escalation in a store."""
# A day: an escalation of the evening is there in the morning.
_KEPT_S: Final = 86_400.0

Listener = Callable[[Escalation, str | None, str | None], object]
"""Takes an escalation, the name of its ender (None while it is open), and an answer if any."""


class EscalationRegistry:
    """The open escalations of one guard, 10,000 at most, and the newest 1000 that are over.

    Thread-safe, with a lock under which nothing else is done.
    """

    def __init__(self, cooldown_s: float) -> None:
        self._cooldown = int(cooldown_s * 1e9)
        self._open: dict[str, Case] = {}
        self._over: BoundedDict[str, Case] = BoundedDict(_MOST_OVER)
        # By session: the newest case, and the newest that people were sent a message about.
        self._newest: BoundedDict[str, Case] = BoundedDict(_MOST_OPEN)
        self._sent: BoundedDict[str, Case] = BoundedDict(_MOST_OPEN)
        self._lock = new_lock()

    @property
    def due(self) -> int | None:
        """The end of the next open escalation, nanoseconds since the epoch; None without one."""
        with self._lock:
            return min((case.escalation.until for case in self._open.values()), default=None)

    def is_cooling(self, session: str, now: int, *, holds: bool) -> bool:
        """True if people were notified of a session recently, so that no message is sent again.

        A message that says that the session waits is sent all the same where the one before did
        not say so, or where somebody answered it.
        """
        if not self._sent:
            return False
        with self._lock:
            sent = self._sent.get(session)
            if sent is None or now - sent.escalation.at >= self._cooldown:
                return False
            unheard = sent.reply is None or sent.reply.via == "limit"
            return not holds or (sent.escalation.held and unheard)

    def open(self, case: Case, *, sent: bool) -> bool:
        """Adds an escalation; people get a message if `sent`. False if there is no room."""
        found, flag = case.escalation, case.flag
        with self._lock:
            if len(self._open) >= _MOST_OPEN:
                return False
            self._open[found.id] = self._newest[found.session] = case
            if sent:
                self._sent[found.session] = case
            if flag is not None:
                flag.escalations += found.held
            return True

    def end(self, case: Case, reply: Reply, now: int) -> Flag | None:
        """Ends an escalation; the flag of its session, or None if it was over already."""
        found = case.escalation
        with self._lock:
            flag = case.flag
            if flag is not None:
                del self._open[found.id]
                flag.escalations -= found.held
                case.reply, case.over, case.flag = reply, now, None
                self._over[found.id] = case
            return flag

    def late(self, now: int) -> list[Case]:
        """The open escalations whose time is over."""
        return [case for case in self.cases() if case.escalation.until <= now]

    def of_flag(self, flag: Flag) -> list[Case]:
        """The open escalations of the session of a flag."""
        if not self._open:
            return []  # no lock, for nearly every change of a flag ends here
        return [case for case in self.cases() if case.flag is flag]

    def find(self, escalation_id: str) -> Case | None:
        """An escalation by its id, open or over; None if it is not known."""
        with self._lock:
            return self._open.get(escalation_id) or self._over.get(escalation_id)

    def newest_of(self, session: str) -> Case | None:
        """The newest escalation of a session, open or over; None if there is none."""
        with self._lock:
            return self._newest.get(session)

    def forget(self, session: str) -> None:
        """Forgets a session; open escalations stay open, and sent ones cool down."""
        if self._newest:
            with self._lock:
                self._newest.pop(session, None)

    def cases(self) -> list[Case]:
        """The open escalations, oldest first."""
        with self._lock:
            return list(self._open.values())


class Escalations:
    """The escalations of one guard. May be called from any thread.

    Nothing here waits for a channel, a store or a person.
    """

    def __init__(  # noqa: PLR0913
        self, settings: Settings, faults: InternalErrors, find: Callable[[str], Session | None], *,
        process: str, writer: Writer | None, log: Log,
    ) -> None:  # fmt: skip
        self._settings = settings
        self._faults = faults
        self._find = find
        self._unpublished: deque[Case] = deque()
        self._listeners: tuple[Listener, ...] = ()
        worse = (each.rank for each in Severity if each.value in settings.escalate_on)
        self._least = min(worse, default=None)
        self._process = process
        self.register = EscalationRegistry(settings.tuning.escalation.cooldown_s)
        self._writer = writer
        self._log = log
        # Channels that wait for an answer do not keep the guard alive.
        self._take = weak_callback(self._answered)
        self.webhook: Webhook | None = None
        if settings.webhook_url:
            with needing("webhook_url (LOOPGUARD_WEBHOOK_URL)", "webhook", "httpx"):
                from otel_loopguard.escalation.webhook import Webhook  # noqa: PLC0415  # an extra

            self.webhook = Webhook(settings, faults, partial(self._take, "webhook"))
        # Spans are not suppressed: listeners and loggers are the application's.
        self._timeouts = BackgroundThread(
            "escalations", self._turn, faults, idle_s=0, suppress=False
        )
        OBSERVERS.add(self.changed)
        ticks(self)
        BACKENDS.add(self)

    def listen(self, listener: Listener) -> None:
        """Adds a callback for each escalation, when it opens and when it ends; it must be quick."""
        self._listeners = (*self._listeners, listener)

    def decided(self, session: Session, decision: Decision) -> None:
        """Escalates a decision that took effect, if the settings ask for it."""
        cause = self._cause(decision)
        if cause is not None:
            self._raise(session, cause, decision.message, decision)

    def escalate(self, session: str, reason: str, *, hold: bool) -> str | None:
        """Escalates a session for the application; see `control.escalate`."""
        found = self._find(session)
        if found is None:
            return None
        reason = truncate(reason, cases.GUIDANCE)
        if hold:
            found.flag.set(Action.PAUSE, reason=reason, by=APPLICATION)
        return self._raise(found, "application", reason, None)

    def answer(self, escalation_id: str, said: Mapping[str, object]) -> bool:
        """Applies an answer; False if the escalation is not known here. See `control.answer`."""
        return self.reply(escalation_id, cases.reply_of(said, "api"))

    def reply(self, escalation_id: str, reply: Reply) -> bool:
        """As `answer`, with a reply; raises `EscalationError` if the escalation is over."""
        found = self.register.find(escalation_id)
        if found is None:
            return False
        cases.check_limit(found.escalation, reply)
        flag = self.register.end(found, reply, clock())
        if flag is None:
            raise found.error()
        self._apply(found, flag, reply)
        self._publish(found)
        return True

    def open_escalations(self) -> list[Escalation]:
        """The open escalations, oldest first."""
        return [case.escalation for case in self.register.cases()]

    def changed(self, flag: Flag) -> None:
        """Ends the escalations of a session that was changed otherwise. Any lock may be held."""
        own = self.register.of_flag(flag)
        if not own:
            return
        with swallow(self._faults, "escalation"):
            control = flag.control
            aborted = control.action is Action.ABORT
            for case in own:
                if aborted or (case.escalation.held and control.action is not Action.PAUSE):
                    answer = Answer.ABORT if aborted else Answer.CONTINUE
                    reply = Reply(answer, control.by or TIME_LIMIT, via="control")
                    if self.register.end(case, reply, clock()) is not None:
                        self._unpublished.append(case)
            if self._unpublished:
                self._timeouts.wake()

    def tick(self) -> None:
        """Ends overdue escalations on the calling thread, for tests that move the clock."""
        with swallow(self._faults, "escalation"):
            self._end_overdue(clock())

    def _turn(self) -> float | None:
        self.tick()
        if self._unpublished:
            return 0
        due = self.register.due
        # Re-read the wall clock soon: it may jump, and stops while the machine sleeps.
        return None if due is None else min(max((due - clock()) / 1e9, 0.001), _LOOK_S)

    def _end_overdue(self, now: int) -> None:
        """Publishes escalations that a change ended, and ends those not answered in time."""
        while self._unpublished:
            self._publish(self._unpublished.popleft())
        for case in self.register.late(now):
            taken = case.escalation.fallback if case.escalation.held else "wait"
            reply = Reply(None if taken == "wait" else Answer(taken), TIME_LIMIT, via="limit")
            flag = self.register.end(case, reply, now)
            if flag is not None:
                if case.escalation.held:
                    self._apply(case, flag, reply)
                self._publish(case)

    def _cause(self, decision: Decision) -> str | None:
        """Why a decision is escalated; None if it is not."""
        action, wanted = decision.action, self._settings.escalate_on
        if decision.shadow or action is Action.ALLOW:
            return None
        if action is not Action.ABORT and decision.intervention == HUMAN and "cycle" in wanted:
            return "cycle"
        if action in (Action.PAUSE, Action.ASK) and action.value in wanted:
            return action.value
        severe = self._least is not None and decision.severity.rank >= self._least
        return "severity" if severe else None

    def _raise(
        self, session: Session, cause: str, reason: str, decision: Decision | None
    ) -> str | None:
        now = clock()
        holds = decision is None or decision.action is Action.PAUSE
        if not holds and self.register.is_cooling(session.key, now, holds=False):
            return None
        with session.lock:
            found = self._package(session, cause, reason, decision, now)
        case = Case(found, session.flag)
        # An escalation that holds a session always opens; only its message cools down.
        send = decision is None or not self.register.is_cooling(session.key, now, holds=found.held)
        if not self.register.open(case, sent=send):
            return None
        self._timeouts.wake()
        self._publish(case)
        if send:
            with swallow(self._faults, "escalation"):
                if self.webhook is not None:
                    self.webhook.put(found)
                taken = partial(self._take, "callback", "on_escalation", found)
                ESCALATIONS.notify(found, self._faults, taken)
        return found.id

    def _answered(self, via: str, where: str, found: Escalation, said: object) -> None:
        """Applies what a channel returned, if it is an answer; logs a wrong or late one."""
        try:
            reply = cases.reply_in(said, via)
            if reply is not None:
                self.reply(found.id, reply)
        except (EscalationError, PlanError) as error:
            self._log.warning("%s: its answer was not taken: %s", where, error)

    def _package(
        self, session: Session, cause: str, reason: str, decision: Decision | None, now: int
    ) -> Escalation:
        limit_s = session.flag.limit_s
        # The gate that waits must get the fallback, not its own time-out.
        limit_s -= min(_EARLIER_S, limit_s / 10)
        record = session.state.record
        return Escalation(
            id=secrets.token_hex(8),
            session=session.key,
            cause=cause,
            reason=reason,
            at=now,
            until=now + round(limit_s * 1e9),
            fallback=self._settings.escalation_fallback,
            held=session.flag.held,
            decision=decision,
            agent=record.agent,
            task=record.task,
            acts=record.acts(),
            suggestions=cases.suggestions(decision),
            report=session.report(),
            process=self._process,
            question=None if decision is None else decision.question,
            context=record.memory.context(),
            shows_content=self._settings.escalation_content,
        )

    def _apply(self, case: Case, own: Flag, reply: Reply) -> None:
        if reply.answer is None:
            return
        said = f": {reply.guidance}" if reply.guidance else ""
        why = f"{reply.by} answered {reply.answer}{said}"
        key = own.control.session or case.escalation.session
        # The session may be forgotten while somebody still waits on its flag.
        for flag in {own, *(found.flag for found in sessions_at(key))}:
            if reply.answer is Answer.ABORT:
                flag.set(Action.ABORT, reason=why, by=reply.by)
            else:
                if reply.plan:
                    declare(flag.milestones, reply.plan, by_person=True)
                    flag.plan = reply.plan
                decision = case.escalation.decision
                budget = None if decision is None else decision.budget
                if reply.limit is not None and budget is not None:
                    flag.raised_budgets = {**flag.raised_budgets, budget: reply.limit}
                flag.clear(by=reply.by, hint=reply.hint, reason=why)

    def _publish(self, case: Case) -> None:
        """Logs the state of a case, and notifies listeners and the store."""
        level, text, fields = case.log_record()
        reply = case.reply
        by = None if reply is None else reply.by
        answer = None if reply is None or reply.answer is None else str(reply.answer)
        with swallow(self._faults, "log"):
            self._log.log(level, "%s", text, extra=fields)
        for listener in self._listeners:
            with swallow(self._faults, "escalation_listener"):
                listener(case.escalation, by, answer)
        if self._writer is not None:
            with swallow(self._faults, "escalation"):
                self._writer.put(KIND, case.escalation.id, encoded(case.row()), _KEPT_S)
