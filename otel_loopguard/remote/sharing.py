"""Shares the control of one guard's sessions with other processes."""

from __future__ import annotations

import threading
import time
import uuid
import weakref
from collections import OrderedDict
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from otel_loopguard.control.flag import APPLICATION, POLICY
from otel_loopguard.core import Action
from otel_loopguard.faults import swallow
from otel_loopguard.forks import renew_after_fork
from otel_loopguard.hints import hint
from otel_loopguard.locks import new_lock
from otel_loopguard.remote import hearing, keyring
from otel_loopguard.remote.names import wire_name
from otel_loopguard.remote.notice import BAGGAGE, Notice
from otel_loopguard.remote.order import stands
from otel_loopguard.remote.sending import KIND, told
from otel_loopguard.stores import Channel

if TYPE_CHECKING:
    from otel_loopguard.control import Control, Flag
    from otel_loopguard.faults import Faults
    from otel_loopguard.settings import Settings
    from otel_loopguard.stores import Subscription, Writer

_LOOKED_AT_AGAIN: Final = 1000

_Value = TypeVar("_Value")


class Home(Protocol):
    """Who has the sessions: a guard."""

    settings: Settings
    faults: Faults

    def flag_of(self, session: str) -> Flag | None:
        """The flag of a session by its key; None if it is not known."""
        ...

    def flag_named(self, session: str) -> Flag:
        """The flag of a session by its final key, which is made known if need be."""
        ...

    def concerns(self, session: str, at: int) -> bool:
        """Whether what the policy said at a time concerns the run that a session is at."""
        ...


class Sharing:
    """Tells other processes of changes of control, and does what they tell (O5).

    Where a session's flag says deny, pause or abort, or goes on again, that is put into the store
    and published; the writer does it, and tries until it went well. What is heard of others is
    done to the flag of the session if that is known here, and a session that is seen for the first
    time is looked up, on the writer's thread. Without a writer nothing is told, and only baggage
    is heard. Thread-safe; nothing here waits for the network.

    Args:
        home: The guard; held weakly.
        writer: Writer of its store; None for no store.
        live: Whether its steps happen now; what is long over concerns nobody.

    Attributes:
        origin: Which guard this is, in what it sends; another one after a fork.
        faults: Where faults are counted.
    """

    def __init__(self, home: Home, writer: Writer | None, *, live: bool = True) -> None:
        self._home = weakref.ref(home)
        self._settings = home.settings
        self.faults = home.faults
        self._keys_in = writer if home.settings.propagation_trust == "store" else None
        shares = writer is not None and isinstance(writer.store, Channel)
        self._writer = writer if shares and home.settings.share_control else None
        self._subscriptions: list[Subscription] = []
        self._parents: list[Subscription] = []
        self.forked()
        renew_after_fork(self)
        if live:
            hearing.join(self)
            self._share_keys()

    def forked(self) -> None:
        """Starts anew in the child of a fork: its thread is not here, its lock may be held."""
        self.origin = uuid.uuid4().hex[:16]
        # Re-entrant: a finalizer may end a span while it is held.
        self._lock = new_lock()
        self._here = threading.local()
        self._last: OrderedDict[str, Notice] = OrderedDict()
        self._done: OrderedDict[str, Control] = OrderedDict()
        self._known: OrderedDict[str, str] = OrderedDict()
        # What the parent listens with is kept, and never touched: its thread may hold its lock.
        self._parents += self._subscriptions
        self._subscriptions = []
        self._listens = False

    def begun(self, session: str) -> None:
        """A session is seen for the first time, or has got its final key. Does not wait.

        Args:
            session: Its key.
        """
        with swallow(self.faults, "sharing"):
            self._begin(session)

    def _begin(self, session: str) -> None:
        if not keyring.keys():
            self._share_keys()
        if self._writer is None:
            return
        name = wire_name(session)
        with self._lock:
            _keep(self._known, name, session, self._settings.max_sessions)
            # Whatever was heard of it was of a session that is forgotten.
            self._last.pop(name, None)
        self._listen()
        self._look(name)
        home = self._home()
        renamed = None if home is None else home.flag_of(session)
        if renamed is not None and renamed.stops:
            self.changed(renamed)

    def forget(self, session: str) -> None:
        """A session is known no more here: what was heard of it is forgotten too.

        Args:
            session: Its key.
        """
        if not (self._known or self._last):
            return
        name = wire_name(session)
        with self._lock:
            for table in (self._known, self._last, self._done):
                table.pop(name, None)

    def changed(self, flag: Flag) -> None:
        """A flag was changed in this process; on the thread of whoever did, who may hold locks."""
        control, home = flag.control, self._home()
        if control.session is None or home is None or getattr(self._here, "hearing", False):
            return
        if home.flag_of(control.session) is not flag:
            return
        name = wire_name(control.session)
        with self._lock:
            last = self._last.get(name)
            notice = self._notice(name, control, last)
            if notice is None or (last is not None and stands(last, notice)):
                return
            _keep(self._last, name, notice, self._settings.max_sessions)
        if self._writer is not None:
            self._writer.tell(KIND, name, told(notice, self._settings.control_ttl_s))

    def hear(self, notice: Notice, *, late: bool = False) -> bool:
        """Does what another process tells, if the session is known here.

        Args:
            notice: What it tells.
            late: Whether it was looked up: it may be about a run that is long over.

        Returns:
            Whether it counts here, whatever it changed.
        """
        home = self._home()
        if home is None or (notice.origin == self.origin and not late):
            return False
        notice = replace(notice, at=min(notice.at, time.time_ns()))
        key = self._known.get(notice.session, notice.session)
        flag = home.flag_of(key)
        if flag is None and notice.origin == BAGGAGE and notice.action.stops:
            flag = home.flag_named(key)
        if flag is None or (late and notice.who == POLICY and not home.concerns(key, notice.at)):
            return False
        with self._lock:
            last = self._last.get(notice.session)
            idle = notice.who == POLICY and notice.action is Action.ALLOW
            if idle if last is None else stands(last, notice):
                return False
            _keep(self._last, notice.session, notice, self._settings.max_sessions)
        self._do(flag, notice)
        return True

    def close(self) -> None:
        """Ends the listening. It may be used further: the next new session starts it again."""
        with self._lock:
            left, self._subscriptions = self._subscriptions, []
            self._listens = False
        for one in left:
            one.close()

    def _do(self, flag: Flag, notice: Notice) -> None:
        self._here.hearing = True
        try:
            if notice.action is Action.ALLOW:
                self._let_go(flag, notice)
            elif _changes(flag.control, notice):
                flag.set(
                    notice.action,
                    reason=notice.reason,
                    hint=notice.hint,
                    by=notice.who,
                    until=notice.until,
                )
        finally:
            self._here.hearing = False
        # Read before: to read a control may take the lock of all flags.
        now = flag.control
        with self._lock:
            _keep(self._done, notice.session, now, self._settings.max_sessions)

    def _let_go(self, flag: Flag, notice: Notice) -> None:
        """What a person says goes; a policy takes down only what another guard put here."""
        mine = flag.control is self._done.get(notice.session)
        if notice.who == POLICY and mine and flag.raised:
            flag.clear(by=POLICY)
        elif notice.who != POLICY and (flag.raised or notice.guidance):
            flag.clear(by=notice.who, hint=notice.guidance, reason=notice.reason)

    def _notice(self, name: str, control: Control, last: Notice | None) -> Notice | None:
        """What is told of a change; None if it concerns nobody else."""
        now = time.time_ns()
        person = control.by is not None and control.by != POLICY
        stops, decision = control.action.stops, control.decision
        who = control.by or POLICY
        if not stops and not person:
            over = last is None or (last.until is not None and last.until <= now)
            if last is None or over or last.action is Action.ALLOW:
                return None
            who = POLICY if last.who == POLICY else APPLICATION
        return Notice(
            id=uuid.uuid4().hex[:16],
            session=name,
            action=control.action if stops else Action.ALLOW,
            reason=control.reason,
            # Without what the session's context adds to it: content stays in the process.
            hint=_said(control) if stops else None,
            who=who,
            decision_id=control.decision_id,
            # A decision that the journal brought in is as old as it says.
            at=now if decision is None else min(decision.time or now, now),
            until=control.until,
            guidance=None if stops else control.hint,
            origin=self.origin,
        )

    def _listen(self) -> None:
        if self._listens or self._writer is None:
            return
        with self._lock:
            if self._listens:
                return
            self._listens = True
        store, me = self._writer.store, hearing.weakly(self)
        if isinstance(store, Channel):
            self._subscriptions.append(
                store.subscribe(KIND, partial(hearing.heard, me), partial(hearing.joined, me))
            )

    def _look(self, name: str) -> None:
        """Has the control that stands in the store looked up, soon."""
        if self._writer is not None:
            me = hearing.weakly(self)
            self._writer.ask(lambda store: store.get(KIND, name), partial(hearing.found, me))

    def look_again(self) -> None:
        """Has the newest sessions looked up: what was published meanwhile was not heard."""
        with self._lock:
            names = list(self._known)[-_LOOKED_AT_AGAIN:]
        for name in names:
            self._look(name)
        self._share_keys()

    def _share_keys(self) -> None:
        key = self._settings.propagation_key.get_secret_value()
        if self._settings.propagation_trust == "signed" and key:
            keyring.add(key.encode("utf-8", "surrogatepass"))
        elif self._keys_in is not None:
            self._keys_in.ask(keyring.key_of, keyring.add)
            self._listen()


def _said(control: Control) -> str | None:
    return control.hint if control.decision is None else hint(control.decision)


def _changes(control: Control, notice: Notice) -> bool:
    """Whether a stop says anything new; of a policy only what is stronger."""
    if notice.who == POLICY:
        return notice.action.rank > control.action.rank
    said = (notice.action, notice.who, notice.reason, notice.until)
    return (control.action, control.by, control.reason, control.until) != said


def _keep(table: OrderedDict[str, _Value], name: str, value: _Value, most: int) -> None:
    table[name] = value
    table.move_to_end(name)
    if len(table) > most:
        table.popitem(last=False)
