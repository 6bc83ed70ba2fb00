"""Breakers per tool and agent: what fails in a row is left alone for a while, by all runs (E5)."""

from __future__ import annotations

import time
from collections import OrderedDict
from typing import TYPE_CHECKING, Final, Literal

from otel_loopguard.control.breaker import Breaker, BreakerState, Record, Standing
from otel_loopguard.control.sharing import Sharing
from otel_loopguard.core import ErrorClass
from otel_loopguard.errors import BreakerOpenError
from otel_loopguard.failures import exception_class
from otel_loopguard.faults import Faults
from otel_loopguard.forks import renew_after_fork
from otel_loopguard.locks import new_lock
from otel_loopguard.logger import logger

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from otel_loopguard.settings import Settings
    from otel_loopguard.stores import Store

Of = Literal["tool", "agent"]

_MOST: Final = 1024
_NAMED: Final = 200
_NOTHING: Final = Standing()


class Breakers:
    """The breakers of a process, of all its runs. Any thread may call it.

    A breaker opens after `breaker_failures` (3) failures in a row that count, for `breaker_open_s`
    (300) seconds. Then one call is let through, of all threads and, with a store, of all
    processes: it closes the breaker or opens it again. Which errors count says `breaker_errors`:
    by default only those where trying again may help, for three calls with wrong arguments say
    nothing about a tool that other runs use. Such an error is an answer: it starts the count anew.
    An error of unknown kind neither counts nor starts anew.

    The newest 1024 that have failed are kept. In mode `shadow` they are counted and let all pass.

    Args:
        settings: Settings of the guard.
        store: Where breakers are shared; None: only in this process.
        faults: Where faults of its thread are counted.
        clock: Nanoseconds since the epoch.
    """

    def __init__(
        self,
        settings: Settings,
        store: Store | None = None,
        faults: Faults | None = None,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._open_ns = int(settings.breaker_open_s * 1e9)
        self._trial_s = settings.breaker_trial_s
        self._shadow = settings.mode == "shadow"
        self._breakers: OrderedDict[str, Breaker] = OrderedDict()
        self._by_hand: OrderedDict[str, None] = OrderedDict()
        self._sharing: Sharing | None = None
        self.forked()
        if store is not None:
            keep_s = 2 * settings.breaker_open_s + settings.breaker_trial_s
            every_s = settings.breaker_sync_s
            self._sharing = Sharing(store, faults or Faults(), self._learn, every_s, keep_s)
        renew_after_fork(self)

    def forked(self) -> None:
        """In the child of a fork: another thread may have held the lock."""
        # Re-entrant: a finalizer may end a span while it is held.
        self._lock = new_lock()

    def standing(self, name: str, of: Of = "tool") -> Standing:
        """How a breaker stands, from memory. Waits for nothing and begins no trial.

        Args:
            name: Name of the tool or agent.
            of: `tool` or `agent`.
        """
        key = _key(name, of)
        self._look(key)
        breaker = self._breakers.get(key)
        if breaker is None:
            return _NOTHING
        return Standing(breaker.state(self._clock()), breaker.failures, breaker.until)

    @property
    def all(self) -> list[tuple[str, Of, bool]]:
        """Name, kind, and whether it is open, of every breaker that has failed; from memory."""
        now = self._clock()
        with self._lock:
            known = list(self._breakers.items())
        return [
            (name, "agent" if of == "agent" else "tool", breaker.state(now) is BreakerState.OPEN)
            for key, breaker in known
            for of, _, name in [key.partition(":")]
        ]

    def allow(self, name: str, of: Of = "tool") -> bool:
        """Whether a call may be made now. For one that is half-open, this begins the trial.

        With a store it is asked for the trial, which may take as long as the store does.

        Args:
            name: Name of the tool or agent.
            of: `tool` or `agent`.
        """
        key, now = _key(name, of), self._clock()
        self._look(key)
        with self._lock:
            breaker = self._breakers.get(key)
            if breaker is None or self._shadow:
                return True
            state = breaker.state(now)
            if state is not BreakerState.HALF_OPEN or now < breaker.trial:
                return state is BreakerState.CLOSED
            breaker.trial = now + int(self._trial_s * 1e9)
            opened = breaker.changed
        return self._sharing is None or self._may_try(self._sharing, key, breaker, opened)

    def check(self, name: str, of: Of = "tool") -> None:
        """As `allow`, and raises.

        Raises:
            BreakerOpenError: No call may be made now; the message says for how long.
        """
        if self.allow(name, of):
            return
        standing = self.standing(name, of)
        left = (standing.until - self._clock()) / 1e9
        wait = f"for another {left:.0f} s" if left > 0 else "until the trial has an outcome"
        failed = f"after {standing.failures} failures in a row"
        msg = f"breaker of {of} {name!r} is {standing.state} {failed}: no call passes {wait}"
        raise BreakerOpenError(msg)

    def guarding(self, name: str, of: Of = "tool") -> Guarding:
        """A `with` block that runs if its breaker lets it, and that counts by how it ends.

        From then on spans of that tool do not count here: the block does.

        Args:
            name: Name of the tool or agent.
            of: `tool` or `agent`.
        """
        return Guarding(self, name, of)

    def ended(self, name: str, of: Of, error: BaseException | None) -> None:
        """Counts how a call ended that is counted by hand. Waits for nothing.

        Args:
            name: Name of the tool or agent.
            of: `tool` or `agent`.
            error: What it raised; one that is no `Exception` (a cancelled task) says nothing of
                the tool, and gives a trial back.
        """
        key = _key(name, of)
        if error is None or isinstance(error, Exception):
            self._ended(key, None if error is None else exception_class(error))
            return
        with self._lock:
            if key in self._breakers:
                self._breakers[key].trial = 0

    def count_by_hand(self, name: str, of: Of = "tool") -> None:
        """Says that calls are counted by `ended`, so that their spans do not count as well."""
        key = _key(name, of)
        if key not in self._by_hand:
            with self._lock:
                self._by_hand[key] = None
                if len(self._by_hand) > _MOST:
                    self._by_hand.popitem(last=False)

    def finished(
        self, tool: str | None, agent: str | None, error: bool, error_class: ErrorClass
    ) -> None:
        """Counts a call that ended, as a span tells it. Waits for nothing.

        Args:
            tool: Name of the tool; None for a run of an agent.
            agent: Name of the agent. Beside a tool it only made the call, and is not counted.
            error: Whether it failed.
            error_class: What kind of error it was.
        """
        name = tool or agent
        if not name or name in self._settings.exempt:
            return
        key = _key(name, "tool" if tool else "agent")
        self._look(key)
        if (error or key in self._breakers) and key not in self._by_hand:
            self._ended(key, error_class if error else None)

    def reset(self, name: str, of: Of = "tool") -> None:
        """Closes a breaker by hand, in all processes."""
        self._ended(_key(name, of), None)

    def sync(self) -> None:
        """Exchanges with the store now, on the caller's thread."""
        if self._sharing is not None:
            self._sharing.sync()

    def close(self) -> None:
        """Tells the store what is left to be told, and ends the thread."""
        if self._sharing is not None:
            self._sharing.stop()

    def _ended(self, key: str, error: ErrorClass | None) -> None:
        now, counts = self._clock(), self._counts(error)
        with self._lock:
            breaker = self._breakers.get(key)
            if breaker is None:
                if not counts:
                    return
                breaker = self._add(key)
            if counts:
                changed = breaker.failed(now, self._settings.breaker_failures, self._open_ns)
            elif error is None or self._answers(error, breaker.state(now)):
                changed = breaker.succeeded(now)
            else:
                return
            record = breaker.record
        if changed:
            self._changed(key, record)

    def _counts(self, error: ErrorClass | None) -> bool:
        which = self._settings.breaker_errors
        if error is None or which == "all":
            return error is not None
        if which == "unclear":
            return error is not ErrorClass.DETERMINISTIC
        return error is ErrorClass.TRANSIENT

    @staticmethod
    def _answers(error: ErrorClass, state: BreakerState) -> bool:
        """Whether an error that does not count says that the tool is there."""
        if state is BreakerState.CLOSED:
            return error is ErrorClass.DETERMINISTIC
        # It is no outage any more: a trial has to have an outcome.
        return state is BreakerState.HALF_OPEN

    def _changed(self, key: str, record: Record) -> None:
        of, _, name = key.partition(":")
        if record.until:
            open_s = self._settings.breaker_open_s
            said = "breaker of %s %r is open for %.0f s after %d failures in a row"
            logger.warning(said, of, name, open_s, record.failures)
        else:
            logger.info("breaker of %s %r is closed", of, name)
        if self._sharing is not None:
            self._sharing.tell(key, record)

    def _may_try(self, sharing: Sharing, key: str, breaker: Breaker, opened: int) -> bool:
        """Whether the one trial of all processes is this one, after a look at what they know."""
        sharing.refresh(key)
        if breaker.changed != opened:
            return breaker.state(self._clock()) is BreakerState.CLOSED
        return sharing.claim(key, opened, self._trial_s)

    def _learn(self, key: str, record: Record) -> None:
        """Takes what another process said."""
        with self._lock:
            breaker = self._breakers.get(key) or self._add(key)
            breaker.learn(record, self._clock() + self._open_ns)

    def _add(self, key: str) -> Breaker:
        breaker = self._breakers[key] = Breaker()
        if len(self._breakers) > _MOST:
            self._breakers.popitem(last=False)
        return breaker

    def _look(self, key: str) -> None:
        if self._sharing is not None:
            self._sharing.look(key)


class Guarding:
    """Lets a block run if its breaker does; made by `Breakers.guarding`. Reusable, also by threads.

    Raises:
        BreakerOpenError: On entering: no call may be made now.
    """

    __slots__ = ("_breakers", "_name", "_of")

    def __init__(self, breakers: Breakers, name: str, of: Of) -> None:
        self._breakers = breakers
        self._name = name
        self._of: Of = of

    def __enter__(self) -> None:
        self._breakers.check(self._name, self._of)
        self._breakers.count_by_hand(self._name, self._of)

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self._breakers.ended(self._name, self._of, error)


def _key(name: str, of: Of) -> str:
    return f"{of}:{name[:_NAMED]}"
