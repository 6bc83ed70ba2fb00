"""Answers requests about the sessions of this process."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, cast

import orjson

from otel_loopguard._control.context import flags_at
from otel_loopguard._control.flag import BY_HAND, is_reserved
from otel_loopguard._util.backlog import settle_all
from otel_loopguard._util.clock import now
from otel_loopguard._util.errors import swallow
from otel_loopguard.core import Action
from otel_loopguard.core.escalation import totals
from otel_loopguard.core.report import act_row
from otel_loopguard.errors import EscalationError, PlanError
from otel_loopguard.escalation.answers import GUIDANCE, reply_of
from otel_loopguard.escalation.channels import case_row
from otel_loopguard.escalation.payload import encoded

if TYPE_CHECKING:
    from otel_loopguard._control.flag import Flag
    from otel_loopguard._util.errors import InternalErrors
    from otel_loopguard.core import Decision
    from otel_loopguard.escalation.escalations import Escalations
    from otel_loopguard.escalation.registry import Case
    from otel_loopguard.policy.explain import Explanation
    from otel_loopguard.sessions import Session, SessionRegistry
    from otel_loopguard.settings import Settings

MOST_REQUEST: Final = 16_384
"""Bytes of a request."""
MOST_REPLY: Final = 4 * 1024 * 1024
"""Bytes of a reply: a thousand sessions take about half a megabyte."""

Message = dict[str, Any]
Explain = Callable[[str], "Explanation | None"]
"""Why a session of a guard was stopped, or not."""


def decoded(data: bytes, most: int) -> Message | None:
    """The message of a line; None if it is too long, or no JSON object."""
    if len(data) > most:
        return None
    try:
        found: Any = orjson.loads(data)
    except orjson.JSONDecodeError:
        return None
    return cast("Message", found) if isinstance(found, dict) else None


def refusal(code: str, why: str) -> Message:
    """The reply to what cannot be done."""
    return {"ok": False, "error": code, "message": why}


_LONGEST: Final = 200


def session_row(session: Session, process: str, case: Case | None) -> dict[str, Any]:
    """A session as one JSON object; times in nanoseconds since the epoch. Its lock is held."""
    report, control = session.report(), session.flag.control
    record = session.record
    waits = case is not None and case.reply is None
    return {
        "session": session.key,
        "process": process,
        "agent": _cut(record.agent),
        "step": _cut(record.newest),
        "steps": report.steps,
        "action": control.action.value,
        "by": _cut(control.by),
        "reason": _cut(control.reason),
        "detector": report.alerts[-1].detector if report.alerts else None,
        "tokens": report.tokens,
        "since": session.last_used - round((report.duration_s or 0) * 1e9),
        "last": session.last_used,
        "escalation": case.escalation.id if case is not None and waits else None,
    }


def session_view(session: Session, process: str, case: Case | None) -> dict[str, Any]:
    """All that there is to show of a session. Its lock is held."""
    report = session.report()
    return {
        **session_row(session, process, case),
        "totals": totals(report),
        "actions": [act_row(act) for act in session.record.acts()],
        "decisions": [_decision(decision) for decision in report.alerts],
        "package": None if case is None else case_row(case),
    }


def _decision(decision: Decision) -> dict[str, Any]:
    return {
        "id": decision.id,
        "step": decision.step,
        "at": decision.time or None,
        "action": decision.action.value,
        "detector": decision.detector,
        "rule": decision.reason,
        "message": decision.message,
    }


def _cut(text: str | None) -> str | None:
    return None if text is None else text[:_LONGEST]


_NAME: Final = 100


class AdminHandlers:
    """Answers what people ask about the sessions of one guard. May be called from any thread.

    A request is a map with `op`: `sessions`, `show`, `explain`, `pause`, `resume`, `abort`,
    `answer` or `allow`, and what that takes. A reply has `ok`; where it is false, `error` and
    `message`.
    """

    def __init__(  # noqa: PLR0913, PLR0917
        self, settings: Settings, sessions: SessionRegistry, lock: threading.RLock,
        escalations: Escalations, process: str, explain: Callable[[], Explain | None],
    ) -> None:  # fmt: skip
        # Weak: its guard is not to live on for it.
        self._explainer = explain
        self._sessions = sessions
        self._lock = lock
        self._escalations = escalations
        self._most = settings.tuning.admin.sessions
        self._idle = int(settings.tuning.admin.idle_s * 1e9)
        self.process = process

    def answer(self, line: bytes, faults: InternalErrors) -> bytes:
        """The reply to a request as it came over any transport; JSON on one line."""
        request = decoded(line, MOST_REQUEST)
        if len(line) > MOST_REQUEST:
            found = refusal("too_long", f"a request has at most {MOST_REQUEST} bytes")
        elif request is None:
            found = refusal("unknown_request", "a request is one JSON object on one line")
        else:
            found = refusal("failed", "the process could not do it; its log says why")
            with swallow(faults, "admin"):
                found = self.reply(request)
        data = encoded(found)
        too_large = refusal("too_large", "the reply is too large")
        return data if len(data) <= MOST_REPLY else encoded(too_large)

    def reply(self, request: Message) -> Message:
        """Does what a request says; whatever it holds, nothing is raised for it."""
        settle_all()
        known: dict[object, Callable[[Message], Message]] = {
            "sessions": self._list,
            "show": self._show,
            "pause": self._pause,
            "resume": self._resume,
            "abort": self._abort,
            "answer": self._answer,
            "allow": self._allow,
            "explain": self._explain,
        }
        op = request.get("op")
        if not isinstance(op, str) or op not in known:
            return refusal("unknown_request", f"there is no request {op!r:.100}")
        for name in ("session", "reason", "by", "guidance", "escalation", "answer", "plan"):
            if not isinstance(request.get(name, ""), str):
                return refusal("refused", f"{name} must be a text")
        if is_reserved(request.get("by", "")):
            return refusal(
                "refused", f"by = {request['by']!r:.100}: the guard itself has that name"
            )
        return known[op](request)

    def rows(self) -> list[dict[str, Any]]:
        """The sessions that are listed: the newest in use, and those that are stopped."""
        with self._lock:
            found = self._sessions.newest(self._most)
        oldest = now() - self._idle
        rows: list[dict[str, Any]] = []
        for session in found:
            if session.last_used < oldest and not session.flag.stops:
                continue
            # One at a time: agents that end a span wait for this lock.
            with self._lock:
                rows.append(session_row(session, self.process, self._case(session)))
        return rows

    def _case(self, session: Session) -> Case | None:
        return self._escalations.register.newest_of(session.key)

    def _list(self, request: Message) -> Message:
        del request
        with self._lock:
            omitted = max(len(self._sessions) - self._most, 0)
        return {
            "ok": True, "process": self.process, "sessions": self.rows(), "omitted": omitted,
        }  # fmt: skip

    def _show(self, request: Message) -> Message:
        with self._lock:
            found = self._sessions.find(request.get("session", ""))
            if found is None:
                return self._unknown(request)
            view = session_view(found, self.process, self._case(found))
        return {"ok": True, "session": view}

    def _pause(self, request: Message) -> Message:
        why = request.get("reason", "")[:GUIDANCE] or "paused by hand"
        return self._done(request, lambda flag: flag.set(Action.PAUSE, reason=why, by=_by(request)))

    def _resume(self, request: Message) -> Message:
        guidance = request.get("guidance", "")[:GUIDANCE] or None
        said = guidance and "told by a person"
        return self._done(
            request, lambda flag: flag.clear(by=_by(request), hint=guidance, reason=said)
        )

    def _abort(self, request: Message) -> Message:
        why = request.get("reason", "")[:GUIDANCE] or "aborted by hand"
        return self._done(request, lambda flag: flag.set(Action.ABORT, reason=why, by=_by(request)))

    def _allow(self, request: Message) -> Message:
        scope = request.get("scope", "call")
        if scope not in ("call", "session"):
            return refusal("refused", f"scope must be call or session, got {scope!r:.100}")
        with self._lock:
            found = self._sessions.find(request.get("session", ""))
            if found is None:
                return self._unknown(request)
            setting = found.allow(scope, _by(request))
        action = found.flag.control.action.value
        return {"ok": True, "process": self.process, "action": action, "setting": setting}

    def _explain(self, request: Message) -> Message:
        explain = self._explainer()
        found = None if explain is None else explain(request.get("session", ""))
        if found is None:
            return self._unknown(request)
        return {"ok": True, "explanation": found.to_dict(), "text": str(found)}

    def _answer(self, request: Message) -> Message:
        escalation = request.get("escalation") or self._waiting(request.get("session", ""))
        try:
            plan = request.get("plan")
            said = reply_of(
                request.get("answer"), request.get("guidance"), request.get("by"), "cli",
                None if plan is None else orjson.loads(plan), limit=request.get("limit"),
            )  # fmt: skip
            taken = self._escalations.reply(escalation, said)
        except orjson.JSONDecodeError as error:
            return refusal("refused", f"plan must be a JSON list of tasks: {error}")
        except (EscalationError, PlanError) as error:
            return refusal("refused", str(error))
        if not taken:
            return refusal("unknown_escalation", f"there is no escalation {escalation!r:.100}")
        return {"ok": True, "process": self.process, "escalation": escalation}

    def _waiting(self, session: str) -> str:
        """The id of the escalation of a session that waits for an answer; empty if none does."""
        case = self._escalations.register.newest_of(session)
        return "" if case is None or case.reply is not None else case.escalation.id

    def _done(self, request: Message, do: Callable[[Flag], object]) -> Message:
        """Does something to a session, in all guards of the process, if it is known to this one."""
        with self._lock:
            found = self._sessions.find(request.get("session", ""))
        if found is None:
            return self._unknown(request)
        for flag in {found.flag, *flags_at(found.key)}:
            do(flag)
        action = found.flag.control.action.value
        return {"ok": True, "process": self.process, "action": action}

    @staticmethod
    def _unknown(request: Message) -> Message:
        return refusal("unknown_session", f"there is no session {request.get('session')!r:.200}")


def _by(request: Message) -> str:
    return request.get("by", "").strip()[:_NAME] or BY_HAND
