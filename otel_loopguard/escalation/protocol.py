"""Requests of people about the sessions of a process, and the replies: the same over any transport.

A request is one JSON object with `op`, and what that takes; with anything else it is refused:

    sessions                                       the sessions, one row each
    show, explain        session                   all about one session; why it was stopped, or not
    pause, abort         session, reason, by
    resume               session, guidance, by
    allow                session, scope, by
    answer               escalation (or session), answer, guidance, plan, limit, by

A reply is one JSON object with `ok`; where that is false, with `error` and `message`.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

import orjson

from otel_loopguard._control.context import SessionHandle, sessions_at
from otel_loopguard._control.flag import BY_HAND, Flag, is_reserved
from otel_loopguard._util.backlog import settle_all
from otel_loopguard._util.clock import now
from otel_loopguard._util.errors import InternalErrors, swallow
from otel_loopguard._util.fields import is_map, sequence
from otel_loopguard._util.text import encoded, json_object
from otel_loopguard.core import Action
from otel_loopguard.core.report import act_row, decision_row, totals
from otel_loopguard.errors import EscalationError, LoopGuardError, PlanError, StoreError
from otel_loopguard.escalation.cases import GUIDANCE, NAME, reply_of

if TYPE_CHECKING:
    from otel_loopguard.escalation.escalations import Escalations
    from otel_loopguard.sessions import Session
    from otel_loopguard.sessions.registry import SessionRegistry
    from otel_loopguard.settings import Settings

# A plan of a few hundred tasks fits, with which an escalation is answered.
MOST_REQUEST: Final = 65_536
"""Bytes of a request."""
# A thousand sessions take about half a megabyte.
MOST_REPLY: Final = 4 * 1024 * 1024
"""Bytes of a reply."""
# A process whose interpreter is busy for longer has other troubles; people wait for this.
REPLY_S: Final = 5.0
"""Seconds in which a process gives its reply."""
SILENT: Final = "no_reply"
"""The error of a process that gave none."""
UNREACHED: Final = "unreached"
"""The error where the store, or a process that may know the session, gave no reply."""
# Of other texts that a list shows: a sentence.
_LISTED: Final = 200
_BY_HAND: Final = {Action.PAUSE: "paused by hand", Action.ABORT: "aborted by hand"}
_TAKES: Final = {
    "sessions": (),
    "show": ("session",),
    "explain": ("session",),
    "pause": ("session", "reason", "by"),
    "abort": ("session", "reason", "by"),
    "resume": ("session", "guidance", "by"),
    "allow": ("session", "scope", "by"),
    "answer": ("session", "escalation", "answer", "guidance", "plan", "limit", "by"),
}
_OF_JUDGE: Final = ("show", "explain", "allow", "pause", "resume", "abort")
"""Requests that are left to the process that judges a session: what is done by one is one event."""
_DECISION: Final = ("id", "step", "at", "action", "detector", "rule", "message")
_RELIED_ON: Final = ("session", "process", "action")
_TEXTS: Final = ("session", "reason", "by", "guidance", "escalation", "answer", "plan", "via")

Message = dict[str, Any]
Handler = Callable[[Message], Message]
"""Handles a request for one guard."""
Find = Callable[[str], "SessionHandle | None"]
"""Finds a session of a guard by its key."""


def answer(data: bytes, guards: Iterable[Handler], faults: InternalErrors) -> bytes:
    """The reply to the bytes of a request, whatever they are; JSON on one line.

    Args:
        data: The request.
        guards: The guards of the process, of which the first that knows what it is about replies;
            they list their sessions together.
        faults: Counts what fails.
    """
    request = json_object(data, MOST_REQUEST)
    if len(data) > MOST_REQUEST:
        found = refusal("too_long", f"a request has at most {MOST_REQUEST} bytes")
    elif request is None:
        found = refusal("unknown_request", "a request is one JSON object on one line")
    else:
        found = refusal("failed", "the process could not do it; its log says why")
        with swallow(faults, "admin"):
            found = joined([handle(request) for handle in guards])
    written = encoded(found)
    too_large = refusal("too_large", "the reply is too large")
    return written if len(written) <= MOST_REPLY else encoded(too_large)


def refusal(code: str, why: str) -> Message:
    """The reply to a request that is not carried out."""
    return {"ok": False, "error": code, "message": why}


def _unknown(request: Message) -> Message:
    return refusal("unknown_session", f"there is no session {request.get('session', '')!r:.200}")


def is_unknown(reply: Message) -> bool:
    """True if a guard or process does not know what it was asked about."""
    return reply.get("error") in ("unknown_session", "unknown_escalation")


def judged(rows: list[Message]) -> list[Message]:
    """Drops rows of processes that saw no step of a session, but one where none saw any."""
    stands = {row["session"]: row for row in reversed(rows)}
    stands |= {row["session"]: row for row in rows if row.get("steps")}
    return [row for row in rows if row.get("steps") or row is stands[row["session"]]]


def joined(replies: list[Message]) -> Message:
    """One reply for all guards that were asked."""
    listed = [reply for reply in replies if "sessions" in reply]
    if listed:
        rows = [row for reply in listed for row in reply["sessions"]]
        return {**listed[0], "sessions": rows, "omitted": sum(one["omitted"] for one in listed)}
    return min(replies, key=lambda reply: (not reply["ok"], is_unknown(reply)))


class AdminHandlers:
    """Answers what people ask about the sessions of one guard. May be called from any thread.

    Attributes:
        process: Its name.
        others_judge: Whether other processes judge the sessions of which this one has the flag
            alone.
    """

    def __init__(  # noqa: PLR0913, PLR0917
        self, settings: Settings, sessions: SessionRegistry, lock: threading.RLock,
        escalations: Escalations, process: str, find: Callable[[], Find | None],
        adopt: Callable[[], Callable[[str], object] | None],
    ) -> None:  # fmt: skip
        self._find, self._adopt = find, adopt  # weak: its guard is not to live on for them
        self._sessions = sessions
        self._lock = lock
        self._escalations = escalations
        self._newest = escalations.register.newest_of
        self._most = settings.tuning.admin.sessions
        self._idle = int(settings.tuning.admin.idle_s * 1e9)
        self.process = process
        self.others_judge = False

    def answer(self, data: bytes, faults: InternalErrors) -> bytes:
        """The reply to the bytes of a request; see `answer`.

        Requests that need the judge of a session are left to the process that judges it; one that
        is `stored` is about a session that only the store knows.
        """
        return answer(data, [self._handle], faults)

    def _handle(self, request: Message) -> Message:
        if request.pop("stored", None) is not True:
            return self._reply_if_judged(request) if self.others_judge else self.reply(request)
        adopt = self._adopt()
        if adopt is not None and _refused(request) is None:
            try:
                adopt(request.get("session", ""))
            except StoreError:
                return refusal(UNREACHED, "the store does not answer")
        return self.reply(request)

    def _reply_if_judged(self, request: Message) -> Message:
        if request.get("op") in _OF_JUDGE and _refused(request) is None:
            with self._lock:
                session = self._sessions.find(request.get("session", ""))
                if session is None or not session.state.progress.steps:
                    return _unknown(request)
        return self.reply(request)

    def reply(self, request: Message) -> Message:
        """Handles a request; never raises for what it holds."""
        settle_all()
        refused = _refused(request)
        if refused is not None:
            return refused
        match op := request["op"]:
            case "sessions":
                return self._list()
            case "answer":
                return self._answer(request)
            case "show":
                return self._show(request)
            case _:
                return self._on_one(op, request)

    def _show(self, request: Message) -> Message:
        with self._lock:
            session = self._sessions.find(request.get("session", ""))
            if session is None:
                return _unknown(request)
            return {"ok": True, "session": self._view(session)}

    def _on_one(self, op: str, request: Message) -> Message:
        """Does what is asked of one session, or explains it."""
        find = self._find()
        session = None if find is None else find(request.get("session", ""))
        if session is None:
            return _unknown(request)
        by = request.get("by", "").strip()[:NAME] or BY_HAND
        done: Message = {"ok": True, "process": self.process}
        match op:
            case "explain":
                found = session.explain()
                return {"ok": True, "explanation": found.to_dict(), "text": str(found)}
            case "allow":
                scope = request.get("scope", "call")
                if scope not in ("call", "session"):
                    return refusal("refused", f"scope must be call or session, got {scope!r:.100}")
                stopped, before = session.flag.stops, session.allowed
                done["setting"] = session.allow(scope, by)
                done["stopped"] = stopped or session.allowed != before
            case "resume":
                for flag in _flags(session):
                    flag.resume(by, request.get("guidance", "")[:GUIDANCE])
            case _:
                action, reason = Action(op), request.get("reason", "")[:GUIDANCE]
                for flag in _flags(session):
                    flag.set(action, reason=reason or _BY_HAND[action], by=by)
                if session.flag.control.action is not action:
                    why = f"session {session.key!r:.200} is aborted: resume it first"
                    return refusal("refused", why)
        return {**done, "action": session.flag.control.action.value}

    def _list(self) -> Message:
        """The stopped sessions, then the newest ones in use."""
        oldest = now() - self._idle
        with self._lock:
            known = self._sessions.all[::-1]
            stopped = [one for one in known if one.flag.stops]
            in_use = [one for one in known if not one.flag.stops and one.last_used >= oldest]
        rows: list[Message] = []
        for session in (*stopped, *in_use)[: self._most]:
            # One at a time: agents that end a span wait for this lock.
            with self._lock:
                rows.append(self._row(session))
        omitted = max(len(known) - self._most, 0)
        return {"ok": True, "process": self.process, "sessions": rows, "omitted": omitted}

    def _row(self, session: Session) -> Message:
        """A session as one JSON object; times in nanoseconds since the epoch. Its lock is held."""
        report, control = session.report(), session.flag.control
        record = session.state.record
        return {
            "session": session.key,
            "process": self.process,
            "agent": cut(record.agent),
            "step": cut(record.newest),
            "steps": report.steps,
            "action": control.action.value,
            "by": cut(control.by),
            "reason": cut(control.reason),
            "detector": report.alerts[-1].detector if report.alerts else None,
            "tokens": report.tokens,
            "since": session.last_used - round((report.duration_s or 0) * 1e9),
            "last": session.last_used,
            "escalation": self._waiting(session.key) or None,
        }

    def _view(self, session: Session) -> Message:
        """All about a session. Its lock is held."""
        report, case = session.report(), self._newest(session.key)
        return {
            **self._row(session),
            "totals": totals(report),
            "actions": [act_row(act) for act in session.state.record.acts()],
            "decisions": [decision_row(decision, *_DECISION) for decision in report.alerts],
            "package": None if case is None else case.row(),
        }

    def _answer(self, request: Message) -> Message:
        session = request.get("session", "")
        escalation = request.get("escalation") or self._waiting(session)
        if session and not self._is_of(escalation, session):
            why = f"escalation {escalation!r:.100} is of another session than {session!r:.200}"
            return refusal("refused", why)
        try:
            plan = orjson.loads(request["plan"]) if "plan" in request else None
            said = reply_of({**request, "plan": plan}, request.get("via") or "cli")
            taken = self._escalations.reply(escalation, said)
        except orjson.JSONDecodeError as error:
            return refusal("refused", f"plan must be a JSON list of tasks: {error}")
        except (EscalationError, PlanError) as error:
            return refusal("refused", str(error))
        if not taken:
            asked = f"session {session!r:.100} waits for no answer"
            unknown = f"there is no escalation {escalation!r:.100}"
            return refusal("unknown_escalation", unknown if escalation else asked)
        return {"ok": True, "process": self.process, "escalation": escalation}

    def _is_of(self, escalation: str, session: str) -> bool:
        """False if an escalation is of another session; a session may have had another key."""
        case = self._escalations.register.find(escalation)
        if case is None or case.escalation.session == session:
            return True
        find = self._find()
        found = None if find is None else find(session)
        return found is not None and found.flag is case.flag

    def _waiting(self, session: str) -> str:
        """The id of the escalation of a session that waits for an answer; empty if none does."""
        case = self._newest(session)
        return "" if case is None or case.reply is not None else case.escalation.id


def _refused(request: Message) -> Message | None:
    """The reply to a request that is not valid, whatever it is about; None for a valid one."""
    op, by = request.get("op"), request.get("by", "")
    if not isinstance(op, str) or op not in _TAKES:
        return refusal("unknown_request", f"there is no request {op!r:.100}")
    for name in _TEXTS:
        if not isinstance(request.get(name, ""), str):
            return refusal("refused", f"{name} must be a string")
    if is_reserved(by):
        return refusal("refused", f"by = {by!r:.100}: the guard itself has that name")
    if unknown := request.keys() - {"op", "via", *_TAKES[op]}:
        # Misspelt, it would do nothing, and nobody would know.
        takes = ", ".join(_TAKES[op]) or "nothing else"
        return refusal("refused", f"there is no {min(unknown)!r:.100}: {op} takes {takes}")
    return None


def _flags(session: SessionHandle) -> set[Flag]:
    """The flags of a session in all guards of the process."""
    return {session.flag, *(found.flag for found in sessions_at(session.key))}


def cut(text: str | None) -> str | None:
    """A text as a list shows it."""
    return None if text is None else text[:_LISTED]


class Transport(ABC):
    """Asks live processes."""

    nobody: str
    """Message if no process is reached."""

    @abstractmethod
    def replies(self, request: Message) -> list[Message]:
        """The replies of all processes to a request; a refusal for those that gave none in time."""

    def ask(self, request: Message) -> list[Message]:
        """The replies of the processes that know what a request is about.

        Raises:
            LoopGuardError: None does, and one that might gave no reply.
        """
        known = [reply for reply in self.replies(request) if not is_unknown(reply)]
        heard = [reply for reply in known if reply.get("error") != SILENT]
        if known and not heard:
            raise LoopGuardError(known[0]["message"])
        return heard

    def sessions(self) -> tuple[list[Message], str]:
        """The rows of the sessions of all processes, and what to say where some are missing."""
        replies = self.replies({"op": "sessions"})
        rows = judged([row for reply in replies for row in rows_of(reply)])
        silent = [reply["message"] for reply in replies if reply.get("error") == SILENT]
        if silent or rows:
            return rows, "; ".join(silent)
        if not replies:
            return rows, self.nobody
        who = "1 process was reached, and it has"
        if len(replies) > 1:
            who = f"{len(replies)} processes were reached, and they have"
        return rows, f"{who} no session now; one begins with the first tool, model or agent span"


def rows_of(reply: Message) -> list[Message]:
    """The rows of a list of sessions."""
    rows = filter(is_map, sequence(reply.get("sessions")))
    return [row for row in rows if all(isinstance(row.get(name), str) for name in _RELIED_ON)]
