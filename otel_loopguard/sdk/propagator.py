"""Session and action across processes: two signed entries of W3C baggage."""

from __future__ import annotations

import re
import time
import uuid
from collections import Counter
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import unquote_plus

from opentelemetry import baggage, trace
from opentelemetry import context as otel_context
from opentelemetry.baggage.propagation import W3CBaggagePropagator
from opentelemetry.propagators.textmap import (
    CarrierT,
    Getter,
    Setter,
    TextMapPropagator,
    default_getter,
    default_setter,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from otel_loopguard import semconv
from otel_loopguard._control import signing as keyring
from otel_loopguard._control.context import flag_at, named_session, naming
from otel_loopguard._control.flag import POLICY
from otel_loopguard._control.replication import BAGGAGE, ControlMessage, hear_all, wire_name
from otel_loopguard._control.signing import Entries, Seal, opened, sealed
from otel_loopguard._util.errors import InternalErrors, attempt, logger, swallow, warn_blind
from otel_loopguard._util.locks import new_lock
from otel_loopguard.core import Action
from otel_loopguard.settings import Settings

_OURS: Final = (semconv.BAGGAGE_SESSION, semconv.BAGGAGE_CONTROL)
_HEADER: Final = "baggage"
_DETACHED: Final = otel_context.create_key("loopguard-detached")
_MOST_HEADER: Final = 8192
"""Bytes of a header that is read: W3C Baggage asks nobody to pass on more."""
_MOST_VALUE: Final = 128
"""Characters of an encoded value: an action, a time and a signature have fewer."""
_OUR_ENTRY: Final = re.compile(r"\A[ \t]*loopguard\.(session|control)[ \t]*=([^;]*)")
_REASONS: Final = {
    Action.DENY: "the caller's session is denied",
    Action.PAUSE: "the caller's session is paused",
    Action.ABORT: "the caller's session is aborted",
}


class LoopGuardPropagator(TextMapPropagator):
    """Carries the session and its action to the processes that are called.

    ::

        OTEL_PROPAGATORS=tracecontext,baggage,loopguard

    It stands behind the propagator of baggage, whose header it writes again with ours added. What
    is sent is signed, and what is not signed by the same key, in the same trace and within
    `tuning.replication.baggage_ttl_s`, is ignored and counted; so nothing is sent where no key is
    known. What is believed names the session of the context, and a deny, a pause or an abort counts
    for that session in every guard of this process. Never raises.

    Args:
        **settings: Settings by name, of which `propagation_key` counts; from the environment by
            default. Keys of the guards in this process count too.

    Attributes:
        ignored: Incoming entries that were not believed, counted by why: `unsigned`, `forged`,
            `expired`, `garbage`, `oversized`, `no_key`.
        faults: Faults that were swallowed, counted by kind.

    Raises:
        LoopGuardSettingsError: A setting cannot be used. What the environment has wrong is only
            counted: OpenTelemetry makes propagators when it is imported.
    """

    def __init__(self, **settings: Any) -> None:
        self.faults = InternalErrors()
        self.ignored: Counter[str] = Counter()
        self._lock = new_lock()
        self._w3c = W3CBaggagePropagator()
        self._ttl_s = 0.0
        given = Settings(**settings) if settings else None
        if given is None:
            given = attempt(self.faults, "settings", lambda _: Settings(), None)
        if given is not None:
            self._ttl_s = given.tuning.replication.baggage_ttl_s
            keyring.add(given.propagation_key.get_secret_value())

    @property
    def fields(self) -> set[str]:
        """The header that it writes."""
        return {_HEADER}

    def inject(
        self,
        carrier: CarrierT,
        context: otel_context.Context | None = None,
        setter: Setter[CarrierT] = default_setter,
    ) -> None:
        """Writes the baggage of a context, with our two entries in place of those that are there.

        Args:
            carrier: Where it is written to.
            context: The context; the current one by default.
            setter: Writes.
        """
        with swallow(self.faults, "inject"):
            context = otel_context.get_current() if context is None else context
            entries = self._entries(context)
            if not entries:
                return
            for name, value in entries.items():
                context = baggage.set_baggage(name, value, context)
            self._w3c.inject(carrier, context, setter)

    def extract(
        self,
        carrier: CarrierT,
        context: otel_context.Context | None = None,
        getter: Getter[CarrierT] = default_getter,
    ) -> otel_context.Context:
        """The context with the session that our entries name, if they are to be believed.

        Args:
            carrier: Where they are read from.
            context: The context; the current one by default.
            getter: Reads.

        Returns:
            The context, without our entries in its baggage: they are written anew for each call.
        """
        before = otel_context.get_current() if context is None else context
        with swallow(self.faults, "extract"):
            return self._read(carrier, before, getter)
        return before

    def _entries(self, context: otel_context.Context) -> Mapping[str, str | None]:
        if otel_context.get_value(_DETACHED, context):
            return {}
        trace_id = trace.get_current_span(context).get_span_context().trace_id
        session = named_session(context)
        flag = flag_at(trace_id if session is None else session)
        control = None if flag is None else flag.control
        session = session or (None if control is None else control.session)
        if session is None:
            return {}
        keys = keyring.keys()
        if not keys:
            warn_blind("no_propagation_key")
            return {}
        # What travels of a control is what stops.
        action = control.action if control is not None and control.action.stops else Action.ALLOW
        seal = Seal(wire_name(session), action, int(time.time()))
        return dict(zip(_OURS, sealed(seal, keys[0], trace_id), strict=True))

    def _read(
        self, carrier: CarrierT, context: otel_context.Context, getter: Getter[CarrierT]
    ) -> otel_context.Context:
        incoming = _incoming(getter.get(carrier, _HEADER) or [])
        context = _without(context)
        if incoming == ("", ""):
            return context
        seal = self._opened(incoming, _came_in(carrier, getter), context)
        if seal is None:
            return context
        hear_all(_notice(seal, self._ttl_s))
        return naming(seal.session, context)

    def _opened(
        self, incoming: Entries, came_in: int, context: otel_context.Context
    ) -> Seal | None:
        """The seal that incoming entries carry, if they are to be believed.

        Args:
            incoming: The entries.
            came_in: Trace that came along with them; 0 if none did.
            context: The context in which they are read.
        """
        keys = keyring.keys()
        now, here = int(time.time()), trace.get_current_span(context).get_span_context().trace_id
        found = opened(incoming, keys, came_in or here, now, self._ttl_s)
        if found == "forged" and (came_in or here):
            loose = opened(incoming, keys, 0, now, self._ttl_s)
            if isinstance(loose, Seal) and _is_of(loose.session, came_in, here, context):
                found = loose
        return found if isinstance(found, Seal) else self._ignore(found)

    def _ignore(self, why: str) -> None:
        with self._lock:
            self.ignored[why] += 1
            first = self.ignored[why] == 1
        if first:
            with swallow(self.faults, "log"):
                logger.warning("incoming baggage of a session was ignored: %s", why)


@contextmanager
def detach_baggage() -> Generator[None, None, None]:
    """Removes the guard's baggage from calls made in the block, as those to third parties.

    ::

        with detach_baggage():
            httpx.get("https://api.example.com/search")

    Other entries of baggage, and the trace, go along as ever. It lives in the OTel context: asyncio
    tasks and `copy_context()` inherit it, a bare thread does not.
    """
    context = otel_context.set_value(_DETACHED, True, _without(otel_context.get_current()))
    token = otel_context.attach(context)
    try:
        yield
    finally:
        otel_context.detach(token)


def _notice(seal: Seal, ttl_s: float) -> ControlMessage:
    at = seal.at * 10**9
    # Nobody can say across baggage that a pause is over, unless they call again.
    until = at + round(ttl_s * 1e9) if seal.action is Action.PAUSE else None
    return ControlMessage(
        id=uuid.uuid4().hex[:16],
        session=seal.session,
        action=seal.action,
        reason=_REASONS.get(seal.action),
        hint=None,
        who=POLICY,
        decision_id=None,
        at=at,
        until=until,
        guidance=None,
        origin=BAGGAGE,
    )


def _incoming(headers: list[str]) -> Entries:
    """Our entries in headers of baggage, wherever the propagator of baggage stands."""
    found: dict[str, str | None] = {"session": "", "control": ""}
    for header in headers:
        if "loopguard." not in header:
            continue
        if len(header) > _MOST_HEADER:
            return Entries(None, None)
        for entry in header.split(","):
            ours = _OUR_ENTRY.match(entry)
            if ours is None:
                continue
            name, value = ours[1], unquote_plus(ours[2].strip(" \t"))
            # Two different values make both worthless; the same value twice is harmless.
            fits = len(ours[2]) <= _MOST_VALUE and found[name] in ("", value)
            found[name] = value if fits else None
    return Entries(found["session"], found["control"])


def _came_in(carrier: CarrierT, getter: Getter[CarrierT]) -> int:
    """The trace that came along, whether or not its propagator stands before ours; 0 for none."""
    own = TraceContextTextMapPropagator().extract(carrier, otel_context.Context(), getter)
    return trace.get_current_span(own).get_span_context().trace_id


def _is_of(session: str, came_in: int, here: int, context: otel_context.Context) -> bool:
    """True if a seal from outside of any trace may count in one: it is bound to its session.

    In a trace that came along it counts where that is known to be the session's: else a copy of
    it would draw the run of somebody else into the session. A trace that a server began by itself,
    for a request that had none, may be of no session yet.
    """
    named = named_session(context)
    if named is not None:
        return wire_name(named) == session
    flag = flag_at(came_in or here)
    known = None if flag is None else flag.control.session
    return wire_name(known) == session if known is not None else not came_in


def _without(context: otel_context.Context) -> otel_context.Context:
    """A context without our entries of baggage."""
    known = baggage.get_all(context)
    for name in _OURS:
        if name in known:
            context = baggage.remove_baggage(name, context)
    return context
