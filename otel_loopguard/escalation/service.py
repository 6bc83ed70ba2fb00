"""Human in the loop of one live guard: escalations, the admin API, and the trail of changes."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from otel_loopguard import semconv
from otel_loopguard._control.flag import OBSERVERS, POLICY, Control, Flag
from otel_loopguard._util.errors import InternalErrors, swallow
from otel_loopguard._util.locks import held, later, new_lock
from otel_loopguard.core import Action, Decision
from otel_loopguard.core.decision import Annotation, outcome_of
from otel_loopguard.escalation.escalations import Escalations
from otel_loopguard.spans.sdk_views import ActiveSpanView

if TYPE_CHECKING:
    import threading

    from otel_loopguard._util.errors import Log
    from otel_loopguard.escalation.mailbox import MailboxServer
    from otel_loopguard.escalation.protocol import AdminHandlers, Find
    from otel_loopguard.escalation.unix import SocketServer
    from otel_loopguard.sessions import Session
    from otel_loopguard.sessions.active import ActiveSpans
    from otel_loopguard.sessions.registry import SessionRegistry
    from otel_loopguard.settings import Settings
    from otel_loopguard.stores import Writer

ChangeListener = Callable[[Mapping[str, str], str, "ActiveSpanView | None", bool], None]


class EscalationService:
    """Escalations, listeners for people, and the trail of their changes, of one guard.

    Nothing waits, or raises into a hook. A replay has none: what it shows is long over.

    Attributes:
        on_manual_change: Called with the attributes of each change of a flag that the policy did
            not make, a sentence, the open span, and whether this process made it; it must be quick.
    """

    def __init__(  # noqa: PLR0913
        self, settings: Settings, sessions: SessionRegistry, opens: ActiveSpans, *,
        lock: threading.RLock, faults: InternalErrors, writer: Writer | None, log: Log,
        find: Callable[[], Find | None], adopt: Callable[[], Callable[[str], object] | None],
    ) -> None:  # fmt: skip
        self._settings = settings
        self._find, self._adopt = find, adopt
        self._opens = opens
        self._sessions = sessions
        self._lock = lock
        self._faults = faults
        self._process = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(2)}"
        self.escalations = Escalations(
            settings, faults, sessions.find, process=self._process, writer=writer, log=log
        )
        self._log = log
        self.on_manual_change: ChangeListener | None = None
        OBSERVERS.add(self.changed)
        self._opening = new_lock()
        self._admin: AdminHandlers | None = None
        self._kinds: list[type[MailboxServer | SocketServer]] = []
        # Imported here rather than on the way of the first step.
        if settings.store_url:
            from otel_loopguard.escalation.mailbox import MailboxServer  # noqa: PLC0415

            self._kinds.append(MailboxServer)
        if settings.control_socket:
            from otel_loopguard.escalation.unix import SocketServer  # noqa: PLC0415

            self._kinds.append(SocketServer)
        self.listeners: list[MailboxServer | SocketServer] = []

    @property
    def admin(self) -> AdminHandlers:
        """Answers requests of people; loaded on first use."""
        from otel_loopguard.escalation.protocol import AdminHandlers  # noqa: PLC0415

        with self._opening:
            if self._admin is None:
                self._admin = AdminHandlers(
                    self._settings, self._sessions, self._lock, self.escalations, self._process,
                    self._find, self._adopt,
                )  # fmt: skip
            return self._admin

    def decided(self, session: Session, decision: Decision) -> None:
        """Escalates a decision that needs people, before anybody may ask again."""
        with swallow(self._faults, "escalation"):
            self.escalations.decided(session, decision)

    @property
    def listens(self) -> bool:
        """True if the settings name a store or a socket through which people reach the sessions."""
        return bool(self._kinds)

    def on_step(self, observation: object) -> None:
        """Opens the listeners at the first step. Waits for nothing."""
        del observation
        self.listen()

    def listen(self) -> None:
        """Opens the listeners, unless they are open. Waits for nothing."""
        if self.listeners:
            return
        with self._opening:
            if not self.listeners:
                self.listeners = [
                    kind(self._settings, self.admin, self._faults) for kind in self._kinds
                ]
                for each in self.listeners:
                    each.start()

    def flush(self, limit_s: float) -> bool:
        """Waits until the webhook took what is pending, at most `limit_s`; whether it did.

        Callbacks are not waited for: one may ask a person.
        """
        webhook = self.escalations.webhook
        return webhook is None or webhook.flush(limit_s)

    def close(self) -> None:
        """Closes the listeners; the next step opens them again."""
        listeners, self.listeners = self.listeners, []
        for each in listeners:
            each.close()

    def changed(self, flag: Flag) -> None:
        """Records who changed a flag, how and why; called on the thread that did.

        The policy's own changes are decisions, and told as those.
        """
        control = flag.control
        # A policy of another process has no decision here.
        here = control.by == POLICY and control.decision is not None
        if control.by is None or here or control.session is None:
            return
        # Asked first: every guard hears of every change, and all but one stop here.
        session = self._sessions.find(control.session)
        if session is None or session.flag is not flag:
            return
        with swallow(self._faults, "control"):
            if held():
                # A signal handler changes it within our own code.
                later(partial(self._note, flag, control, control.session, control.by))
            else:
                self._note(flag, control, control.session, control.by)

    def _note(self, flag: Flag, control: Control, key: str, by: str) -> None:
        with self._lock:
            session = self._sessions.find(key)
            if session is None or session.flag is not flag:
                return
            span = self._span_of(key)
        why = f": {control.reason}" if control.reason else ""
        fields: dict[str, str] = {
            semconv.SESSION_ID: key,
            semconv.DECISION_ACTION: control.action.value,
            semconv.CONTROL_BY: by,
        }
        with swallow(self._faults, "log"):
            msg = "control: session %s: %s set %s%s"
            self._log.info(msg, key, by, control.action, why, extra=fields)
        whole = {**fields, semconv.DECISION_MESSAGE: control.reason or ""}
        if self.on_manual_change is not None:
            here = control.source == "here"
            self.on_manual_change(whole, f"{by} set {control.action}{why}", span, here)
        if span is not None:
            brief = {name: fields[name] for name in (semconv.DECISION_ACTION, semconv.CONTROL_BY)}
            if control.action is Action.ABORT:
                brief[semconv.OUTCOME] = outcome_of(None, by).value
            span.annotate(Annotation(brief))
            if self._settings.span_events:
                span.add_event(Annotation(whole), semconv.EVENT_CONTROL)

    def _span_of(self, key: str) -> ActiveSpanView | None:
        """The innermost open run of an agent in a session, else its first open span."""
        first: ActiveSpanView | None = None
        run: ActiveSpanView | None = None
        for opened in self._opens:
            view = opened.view
            session = opened.session or self._sessions.of_trace(view.trace_id)
            if session is None or session.key != key or not isinstance(view, ActiveSpanView):
                continue
            first = first or view
            run = view if opened.runs else run
        return run or first
