"""What people change about a session, written on its open spans and in the log."""

from __future__ import annotations

import threading
import weakref
from functools import partial
from typing import TYPE_CHECKING

from otel_loopguard import semconv
from otel_loopguard._control.flag import POLICY, WATCHERS
from otel_loopguard._util.errors import swallow
from otel_loopguard._util.locks import held, later
from otel_loopguard._util.logger import logger
from otel_loopguard.core import Annotation
from otel_loopguard.spans.sdk_views import ActiveSpanView

if TYPE_CHECKING:
    from otel_loopguard._control.flag import Control, Flag
    from otel_loopguard._util.errors import InternalErrors
    from otel_loopguard.sessions import SessionRegistry
    from otel_loopguard.sessions.active import ActiveSpans


class AuditTrail:
    """Notes every change of a flag that the policy did not make: who, what, why (C8)."""

    def __init__(
        self,
        opens: ActiveSpans,
        sessions: SessionRegistry,
        lock: threading.RLock,
        faults: InternalErrors,
    ) -> None:
        self._opens = opens
        self._sessions = sessions
        self._lock = lock
        self._faults = faults
        _watch(self, faults)

    def changed(self, flag: Flag) -> None:
        """A flag was changed; on the thread of whoever did."""
        control = flag.control
        # A policy of another process has no decision here.
        here = control.by == POLICY and control.decision is not None
        if control.by is None or here or control.session is None:
            return
        if held():
            # A signal handler changes it within our own code.
            later(partial(self._changed, flag, control, control.session, control.by))
        else:
            self._changed(flag, control, control.session, control.by)

    def _changed(self, flag: Flag, control: Control, key: str, by: str) -> None:
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
            told = "control: session %s: %s set %s%s"
            logger.info(told, key, by, control.action, why, extra=fields)
        if span is not None:
            brief = {name: fields[name] for name in (semconv.DECISION_ACTION, semconv.CONTROL_BY)}
            span.annotate(Annotation(brief), event=False)
            whole = {**fields, semconv.DECISION_MESSAGE: control.reason or ""}
            span.tell(Annotation(whole), semconv.EVENT_CONTROL)

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


def _watch(hands: AuditTrail, faults: InternalErrors) -> None:
    """Hears of changed flags, as long as the object lives."""
    reference = weakref.ref(hands)

    def changed(flag: Flag) -> None:
        found = reference()
        if found is not None:
            with swallow(faults, "control"):
                found.changed(flag)

    WATCHERS.add(changed)
    weakref.finalize(hands, WATCHERS.drop, changed).atexit = False
