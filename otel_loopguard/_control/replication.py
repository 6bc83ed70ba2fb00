"""Replicates the control of a guard's sessions to other processes."""

from __future__ import annotations

import base64
import hashlib
import time
import uuid
import weakref
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import quote_plus

import orjson

from otel_loopguard._control.flag import APPLICATION, OBSERVERS, POLICY, RESERVED, is_reserved
from otel_loopguard._util.bounded import BoundedDict, WeakList
from otel_loopguard._util.clock import AHEAD_NS
from otel_loopguard._util.errors import InternalErrors, logger, swallow
from otel_loopguard._util.locks import new_lock, reset_after_fork
from otel_loopguard._util.text import json_object
from otel_loopguard._util.worker import weak_callback
from otel_loopguard.core import Action
from otel_loopguard.policy.hints import hint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from otel_loopguard._control.flag import Control, Flag
    from otel_loopguard.settings import Settings
    from otel_loopguard.stores import PublishedValue, Writer
    from otel_loopguard.stores.redis import RedisStore
    from otel_loopguard.stores.redis_connection import RedisSubscription

# Names are part of keys and of baggage, which has little room: a UUID with a word before it fits.
_NAME_BYTES: Final = 48
_MARK: Final = "~"


def wire_name(key: str) -> str:
    """Returns the name of a session in other processes."""
    if len(quote_plus(key, errors="replace")) <= _NAME_BYTES and key.isprintable():
        return key
    digest = hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=16).digest()
    return _MARK + base64.urlsafe_b64encode(digest).decode().rstrip("=")


BAGGAGE: Final = "baggage"
"""Origin of a notice that came in baggage."""
MOST_BYTES: Final = 4096
"""Bytes that an encoded notice has at most; more is no notice."""

# Of the fields below; processes of another version skip the message.
_VERSION: Final = 1
# A sentence or two; the whole reason stays where the decision was made.
_TEXT_CHARS: Final = 500
_TEXT, _MAYBE_TEXT = (str,), (str, type(None))
_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "v": (int,), "id": _TEXT, "session": _TEXT, "action": _TEXT, "reason": _MAYBE_TEXT,
    "hint": _MAYBE_TEXT, "who": _TEXT, "decision_id": _MAYBE_TEXT, "at": (int,),
    "until": (int, type(None)), "guidance": _MAYBE_TEXT, "origin": _TEXT,
}  # fmt: skip
"""Types of the fields below as JSON has them; a truth is no number."""


@dataclass(frozen=True, slots=True)
class ControlMessage:
    """One change of a session's control; times in nanoseconds since the epoch."""

    id: str  # the same wherever it is heard
    session: str  # as of `wire_name`
    action: Action
    reason: str | None  # a sentence without content of the calls
    hint: str | None
    who: str  # `policy`, or the name of a person
    decision_id: str | None  # the decision behind it, or that a person answers
    at: int
    until: int | None  # when it ends by itself
    guidance: str | None
    origin: str = ""  # the guard that sent it; empty where none did, as from the command line

    def encode(self) -> bytes:
        """JSON of at most 4 KiB: of a longer text its first 500 characters."""
        values: dict[str, Any] = {"v": _VERSION}
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, str):
                # A lone surrogate, which JSON cannot hold, is replaced.
                value = value[:_TEXT_CHARS].encode("utf-8", "replace").decode()
            values[field.name] = value
        encoded = orjson.dumps(values)
        if len(encoded) <= MOST_BYTES:
            return encoded
        # Characters of several bytes, or escaped ones: an eighth of them always fits.
        shorter = {
            name: value[: _TEXT_CHARS // 8] if isinstance(value, str) else value
            for name, value in values.items()
        }
        return orjson.dumps(shorter)

    @classmethod
    def decode(cls, raw: bytes) -> ControlMessage | None:
        """A notice; None if it is not one, of another version or larger than 4 KiB.

        Nor is one that claims a name of the guard's own and no guard sent, or to be baggage.
        """
        found = json_object(raw, MOST_BYTES)
        return None if found is None else _read(found)


def _read(found: dict[str, Any]) -> ControlMessage | None:
    if found.keys() != _TYPES.keys() or found.pop("v") != _VERSION:
        return None
    if any(type(value) not in _TYPES[name] for name, value in found.items()):
        return None
    if found["action"] not in tuple(Action):
        return None
    times = [time for time in (found["at"], found["until"]) if time is not None]
    if not all((found["id"], found["session"], found["who"], *(0 < one < 2**63 for one in times))):
        return None
    who, origin = found["who"], found["origin"]
    if origin == BAGGAGE or (is_reserved(who) and not (origin and who in RESERVED)):
        return None
    values: Any = {**found, "action": Action(found["action"])}
    return ControlMessage(**values)


def takes_precedence(last: ControlMessage, new: ControlMessage) -> bool:
    """True if the last message takes precedence over a new one, whatever their order of arrival.

    The newer one wins, of two at the same time the stronger one, with three exceptions. A policy
    can strengthen but not lift a person's pause or abort. A person's pause or abort overrides a
    weaker policy even if that is newer. A policy lifts only what the same guard set.
    """
    if last.until is not None and last.until <= new.at:
        return False
    by_person, now_person = last.who != POLICY, new.who != POLICY
    weaker = new.action.rank <= last.action.rank
    if by_person and not now_person and last.action.stops:
        return weaker
    if now_person and not by_person:
        return weaker and new.at <= last.at
    if not now_person and new.action is Action.ALLOW:
        return last.action is Action.ALLOW or new.origin != last.origin or new.at <= last.at
    # Baggage has whole seconds: a deny and the abort that follows may be of the same one.
    return (new.at, new.action.rank) <= (last.at, last.action.rank)


KIND: Final = "control"
"""Kind of the values in the store, and topic on which they are published."""


def published(notice: ControlMessage, ttl_s: float, session: str = "") -> PublishedValue:
    """Returns a value for a writer to store, for late joiners, and to publish.

    A stop is listed by the key of its session, for people: a name may be a digest.
    """
    remaining = ttl_s if notice.until is None else (notice.until - time.time_ns()) / 1e9
    kept_s = max(0.001, min(remaining, ttl_s))
    from otel_loopguard.stores import PublishedValue  # noqa: PLC0415  # there is a store

    return PublishedValue(
        notice.encode(), kept_s, KIND, partial(_goes_before, notice),
        session or notice.session, notice.action.stops,
    )  # fmt: skip


def send(store: RedisStore, notice: ControlMessage, ttl_s: float) -> None:
    """Sends a change of control to all processes on a store, now. Blocks: not for a hook."""
    published(notice, ttl_s).do(store, KIND, notice.session)


def stopped(
    store: RedisStore, most: int, known: Callable[[str], object]
) -> Iterator[tuple[str, ControlMessage]]:
    """The stopped sessions of a store by their keys, the newest of them, but known ones. Blocks."""
    keys = [key for key in store.enlisted(KIND, most) if not known(key)]
    for session, raw in zip(keys, store.values(KIND, list(map(wire_name, keys))), strict=True):
        found = None if raw is None else ControlMessage.decode(raw)
        if found is not None and found.action.stops:
            yield session, found


def _goes_before(notice: ControlMessage, raw: bytes) -> bool:
    """True if the stored message takes precedence; an invalid one does not."""
    stored = ControlMessage.decode(raw)
    # One with a time in the future would never be replaced.
    if stored is None or stored.at > time.time_ns() + AHEAD_NS:
        return False
    return takes_precedence(stored, notice)


# Each is a question to a store that has just come back.
_REFRESHED: Final = 1000


class Home(Protocol):
    """The owner of the sessions: a guard."""

    settings: Settings
    faults: InternalErrors

    def flag_of(self, place: str) -> Flag | None: ...
    def flag_named(self, session: str) -> Flag: ...
    def concerns(self, session: str, at: int) -> bool: ...


class ControlReplication:
    """Replicates changes of control between processes.

    When a flag changes to deny, pause or abort, or is cleared, the writer stores and publishes the
    change, and retries until it succeeds. Messages of other processes update the flag of a session
    that is known here; a new session is looked up, on the writer's thread. Without a writer nothing
    is sent, and only baggage is received. Thread-safe; nothing here waits for the network.

    With `hints` every action is replicated, for guards behind a load balancer. Elsewhere each
    process would give the same hint to the model once more.
    """

    def __init__(self, home: Home, writer: Writer | None, *, hints: bool = False) -> None:
        self._home = weakref.ref(home)
        self._hints = hints
        self._settings = home.settings
        self.faults = home.faults
        self._writer = writer if home.settings.share_control else None
        self.unread = 0
        self._subscriptions: list[RedisSubscription] = []
        self._parents: list[RedisSubscription] = []
        self.forked()
        reset_after_fork(self)

    def start(self) -> None:
        """Hears of flags and of other processes from here on: the guard has its sessions."""
        OBSERVERS.add(self.changed)
        _replications.add(self)
        if key := self._settings.propagation_key.get_secret_value():
            from otel_loopguard._control import signing  # noqa: PLC0415  # with a key only

            signing.add(key)

    def forked(self) -> None:
        """Starts anew in the child of a fork, which has an origin and subscriptions of its own."""
        self.origin = uuid.uuid4().hex[:16]
        self._lock = new_lock()
        limit = self._settings.max_sessions
        self._last: BoundedDict[str, ControlMessage] = BoundedDict(limit)
        self._sent: BoundedDict[str, Control] = BoundedDict(limit)
        # The newest time of a message about a session, as its sender had it.
        self._newest: BoundedDict[str, int] = BoundedDict(limit)
        self._known: BoundedDict[str, str] = BoundedDict(limit)
        # The parent's subscriptions are kept and never used: their threads may hold their locks.
        self._parents += self._subscriptions
        self._subscriptions = []
        self._listens = False

    def begun(self, session: str) -> None:
        """Looks up a session that is new, or has its final key. Does not block."""
        with swallow(self.faults, "sharing"):
            if self._writer is None:
                return
            name = wire_name(session)
            with self._lock:
                self._known[name] = session
                # An earlier message was about a forgotten session of this name.
                self._last.pop(name, None)
                self._sent.pop(name, None)
            self._listen()
            self._look_up(name)
            home = self._home()
            renamed = None if home is None else home.flag_of(session)
            if renamed is not None and renamed.stops:
                self.changed(renamed)

    def adopt(self, session: str) -> bool:
        """Makes a session known here that has a control or a journal in the store; else False.

        Blocks, and raises `StoreError`.
        """
        home = self._home()
        if self._writer is None or home is None:
            return False
        store, name = self._writer.store, wire_name(session)
        raw = store.get(KIND, name)
        if raw is None and not store.has_journal(session):
            return False
        home.flag_named(session)
        with self._lock:
            # It may have been heard before its journal was read, which raised the flag again.
            self._last.pop(name, None)
        self._receive(raw, late=True)
        return True

    def when_looked_up(self, then: Callable[[], None]) -> None:
        """Calls back once what was looked up so far is answered."""
        if self._writer is None or not self._writer.ask(lambda _: None, lambda _: then(), then):
            then()

    def forget(self, session: str) -> None:
        """Forgets a session, and the messages about it."""
        if not (self._known or self._last):
            return
        name = wire_name(session)
        with self._lock:
            for table in (self._known, self._last, self._sent, self._newest):
                table.pop(name, None)

    def changed(self, flag: Flag) -> None:
        """Sends a change of a flag; on the changing thread, which may hold locks."""
        with swallow(self.faults, "sharing"):
            control, home = flag.control, self._home()
            # What came from elsewhere, sent again, would outlive the end that its own guard sends.
            if control.session is None or home is None or control.source != "here":
                return
            if home.flag_of(control.session) is not flag:
                return
            name = wire_name(control.session)
            with self._lock:
                # Of two changes at once both threads may see the second.
                if control is self._sent.get(name):
                    return
                last = self._before(name)
                notice = self._notice(name, control, last)
                if notice is None or (last is not None and takes_precedence(last, notice)):
                    return
                at, self._newest[name] = min(notice.at, time.time_ns()), notice.at
                self._last[name], self._sent[name] = replace(notice, at=at), control
            if self._writer is not None:
                ttl_s = self._settings.tuning.replication.control_ttl_s
                value = published(notice, ttl_s, control.session)
                self._writer.publish(KIND, name, value)

    def hear(self, notice: ControlMessage, *, late: bool = False) -> bool:
        """Applies a message of another process, if the session is known here."""
        home = self._home()
        if home is None or (notice.origin == self.origin and not late):
            return False
        sent_at = notice.at
        notice = replace(notice, at=min(sent_at, time.time_ns()))
        key = self._known.get(notice.session, notice.session)
        flag = home.flag_of(key)
        if flag is None and notice.origin == BAGGAGE and notice.action.stops:
            flag = home.flag_named(key)
        if flag is None or (late and notice.who == POLICY and not home.concerns(key, notice.at)):
            return False
        # A deny out of the journal may be lifted before the message about it was sent.
        lifts = notice.action is Action.ALLOW
        idle = lifts and notice.who == POLICY and flag.control.source != "journal"
        with self._lock:
            last = self._before(notice.session)
            if idle if last is None else takes_precedence(last, notice):
                return False
            self._last[notice.session] = notice
            self._newest[notice.session] = sent_at
        self._apply(flag, notice)
        return True

    def close(self) -> None:
        """Ends the subscriptions; the next new session renews them."""
        with self._lock:
            subscriptions, self._subscriptions = self._subscriptions, []
            self._listens = False
        for subscription in subscriptions:
            subscription.close()

    def _apply(self, flag: Flag, notice: ControlMessage) -> None:
        now = flag.control
        if notice.action is Action.ALLOW:
            _clear(flag, notice)
        elif _changes(now, notice) or (self._hints and now.source == "notice"):
            flag.set(
                notice.action,
                reason=notice.reason,
                hint=notice.hint,
                by=notice.who,
                until=notice.until,
                source="notice",
                remote_decision_id=notice.decision_id,
            )

    def _before(self, name: str) -> ControlMessage | None:
        """The last message about a session; as the oldest if it is from the future by now."""
        last = self._last.get(name)
        return replace(last, at=0) if last is not None and last.at > time.time_ns() else last

    def _notice(
        self, name: str, control: Control, last: ControlMessage | None
    ) -> ControlMessage | None:
        """The message about a change; None if it concerns no other process."""
        now = time.time_ns()
        person = control.by is not None and control.by != POLICY
        decision = control.decision
        shared = control.action.stops or (self._hints and decision is not None)
        who = control.by or POLICY
        if not shared and not person:
            over = last is None or (last.until is not None and last.until <= now)
            if last is None or over or last.action is Action.ALLOW:
                return None
            who = POLICY if last.who == POLICY else APPLICATION
        text = control.hint
        if control.decision is not None and self._writer is not None:
            # Without the session's context: content stays in the process.
            text = hint(control.decision)
        return ControlMessage(
            id=uuid.uuid4().hex[:16],
            session=name,
            action=control.action if shared else Action.ALLOW,
            reason=control.reason,
            hint=text if shared else None,
            who=who,
            decision_id=control.decision_id,
            # What was heard came before, whatever the clock of its sender says; a decision may be
            # older than its change.
            at=max(now, self._newest.get(name, 0) + 1)
            if decision is None
            else min(decision.time or now, now),
            until=control.until,
            guidance=None if shared else control.hint,
            origin=self.origin,
        )

    def _listen(self) -> None:
        if self._listens or self._writer is None:
            return
        with self._lock:
            if self._listens:
                return
            self._listens = True
        # Held weakly, as the store outlives a guard.
        receive, joined = weak_callback(self._receive), weak_callback(self._refresh)
        self._subscriptions.append(self._writer.store.subscribe(KIND, receive, joined))

    def _look_up(self, name: str) -> None:
        """Queues a lookup of the stored control."""
        if self._writer is not None:
            then = partial(weak_callback(self._receive), late=True)
            self._writer.ask(lambda store: store.get(KIND, name), then)

    def _receive(self, raw: bytes | None, *, late: bool = False) -> None:
        """Handles a published message, or the stored one (`late`) that was looked up, if any."""
        with swallow(self.faults, "sharing"):
            if raw is None:
                return
            notice = ControlMessage.decode(raw)
            if notice is not None:
                self.hear(notice, late=late)
                return
            # It is of another version, or damaged; its content does not belong in the log.
            self.unread += 1
            if self.unread == 1:
                logger.warning("a notice of another process cannot be read and was skipped")

    def _refresh(self) -> None:
        """Looks up the newest sessions again, as messages may have been missed."""
        with swallow(self.faults, "sharing"):
            with self._lock:
                names = list(self._known)[-_REFRESHED:]
            for name in names:
                self._look_up(name)


def _changes(control: Control, notice: ControlMessage) -> bool:
    """True if a message changes the control; a policy's only if it is stronger."""
    if notice.who == POLICY:
        return notice.action.rank > control.action.rank
    new = (notice.action, notice.who, notice.reason, notice.until)
    return (control.action, control.by, control.reason, control.until) != new


def _clear(flag: Flag, notice: ControlMessage) -> None:
    """Clears a flag: a person any, a policy only what a notice or the journal has set."""
    source = flag.control.source
    if notice.who != POLICY:
        if flag.raised or notice.guidance:
            hint, reason = notice.guidance, notice.reason
            flag.clear(by=notice.who, hint=hint, reason=reason, source="notice")
    elif source == "notice" and flag.raised:
        flag.lower("notice")
        if flag.raised:
            flag.clear(by=POLICY, source="notice")
    elif source == "journal":
        flag.lower()


_replications: Final[WeakList[ControlReplication]] = WeakList()


def hear_all(notice: ControlMessage) -> None:
    """Applies a message from baggage in every guard of this process."""
    for found in _replications:
        with swallow(found.faults, "sharing"):
            found.hear(notice)
