"""Circuit breakers per tool and agent, shared between processes."""

from __future__ import annotations

import threading
import time
import uuid
from enum import Enum
from typing import TYPE_CHECKING, Final, Literal

import orjson

from otel_loopguard._util.bounded import BoundedDict
from otel_loopguard._util.errors import InternalErrors
from otel_loopguard._util.fork import reset_after_fork
from otel_loopguard._util.locks import new_lock
from otel_loopguard._util.logger import logger
from otel_loopguard._util.values import NamedTuple, dataclass
from otel_loopguard._util.worker import BackgroundThread, suppress_instrumentation
from otel_loopguard.core import ErrorClass
from otel_loopguard.core.error_kinds import exception_class
from otel_loopguard.errors import BreakerOpenError, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from otel_loopguard.settings import Settings
    from otel_loopguard.stores import Store


class BreakerState(str, Enum):
    """Whether calls pass: all of them, none, or one trial."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"

    __str__ = str.__str__


class BreakerStatus(NamedTuple):
    """The state of a breaker at a moment.

    Attributes:
        state: Whether calls pass.
        failures: Failures in a row that counted.
        until: End of the time that it is open, nanoseconds since the epoch; 0 if it is closed.
    """

    state: BreakerState = BreakerState.CLOSED
    failures: int = 0
    until: int = 0


class Record(NamedTuple):
    """The record of a breaker that processes share; times are nanoseconds since the epoch."""

    until: int  # end of the time that it is open; 0 if it is closed
    at: int  # when it was opened or closed; the later record holds
    failures: int  # in a row, that opened it


@dataclass(slots=True)
class Breaker:
    """The breaker of one tool or agent. Times are nanoseconds since the epoch. Takes no lock."""

    failures: int = 0  # in a row, that counted
    until: int = 0  # end of the time that it is open; 0 if it is closed
    changed: int = 0  # when it was opened or closed last; 0 if it never was
    trial: int = 0  # until when the trial that is under way may take; 0 if none is

    def state(self, now: int) -> BreakerState:
        """Whether calls pass at `now`."""
        if not self.until:
            return BreakerState.CLOSED
        return BreakerState.OPEN if now < self.until else BreakerState.HALF_OPEN

    def failed(self, now: int, most: int, open_ns: int) -> bool:
        """Counts a failure; whether it opened (again). While it is open nothing changes."""
        state = self.state(now)
        if state is BreakerState.OPEN:
            return False
        self.failures += 1
        if state is BreakerState.CLOSED and self.failures < most:
            return False
        self._change(now, now + open_ns)
        return True

    def succeeded(self, now: int) -> bool:
        """Counts a success; whether that closed it. Also while it is open: the tool works."""
        self.failures = 0
        if not self.until:
            return False
        self._change(now, 0)
        return True

    def learn(self, record: Record, latest: int) -> bool:
        """Applies the record of another process if it is newer; returns whether it was."""
        if record.at <= self.changed:
            return False
        self.failures, self.changed, self.trial = record.failures, record.at, 0
        self.until = min(record.until, latest)
        return True

    @property
    def record(self) -> Record:
        """The record for other processes."""
        return Record(self.until, self.changed, self.failures)

    def _change(self, now: int, until: int) -> None:
        self.until, self.trial = until, 0
        # Later than what it follows, also where another process' clock is ahead.
        self.changed = max(now, self.changed + 1)


_KIND: Final = "breaker"
_MOST: Final = 1024


class BreakerReplication:
    """Exchanges the records of breakers with a store, in the background.

    Only `claim` and `refresh` call the store on the caller's thread. Records that it did not take
    are kept (of 1024 breakers) and sent again.
    """

    def __init__(
        self, store: Store, faults: InternalErrors, learn: Callable[[str, Record], None],
        every_s: float, keep_s: float,
    ) -> None:  # fmt: skip
        self._store = store
        self._learn = learn
        self._every_s = every_s
        self._keep_s = keep_s
        self._unreadable: set[str] = set()
        self._failing = self._stopped = False
        self._thread = BackgroundThread("breakers", self._turn, faults)
        self.forked()
        reset_after_fork(self)

    def forked(self) -> None:
        """In the child of a fork: another thread may have held the locks."""
        # Re-entrant: a finalizer may end a span while it is held.
        self._lock = new_lock()
        # No hook ever takes this one; it is held during calls to the store.
        self._exchanging = threading.RLock()
        self._next = 0.0
        # Breakers to exchange, each with the record to store, if any.
        self._waiting: BoundedDict[str, Record | None] = BoundedDict(_MOST)

    def look(self, key: str) -> None:
        """Reads a breaker from the store, soon. Does not wait."""
        if key not in self._waiting:
            self._add(key, None)

    def publish(self, key: str, record: Record) -> None:
        """Writes a breaker to the store, soon. Does not wait."""
        self._add(key, record)

    def claim(self, key: str, opened: int, trial_s: float) -> bool:
        """Whether this caller may make the one trial of all processes. Calls the store.

        If the store fails, each process makes a trial of its own: a store that is down does not
        keep a working tool refused.
        """
        try:
            owner = uuid.uuid4().hex
            with suppress_instrumentation():
                return self._store.claim(_KIND, f"{key}:trial:{opened}", owner, trial_s)
        except StoreError as error:
            self._log_failure(error)
            return True

    def sync(self) -> None:
        """Exchanges all that waits; what fails is tried again next time."""
        # Waits for an exchange under way: afterwards everything is stored.
        with self._exchanging:
            with self._lock:
                waiting = list(self._waiting)
            if all(map(self.refresh, waiting)):
                self._failing = False

    def stop(self) -> None:
        """Exchanges what is left, and ends the thread."""
        self._stopped = True
        self._thread.stop()
        self.sync()

    def refresh(self, key: str) -> bool:
        """Exchanges one breaker with the store now; whether the store answered."""
        with self._lock:
            record = self._waiting.pop(key, None)
        try:
            with suppress_instrumentation():
                self._exchange(key, record)
        except StoreError as error:
            self._log_failure(error)
            with self._lock:
                # What was said meanwhile is newer.
                self._waiting[key] = self._waiting.get(key) or record
            return False
        return True

    def _exchange(self, key: str, record: Record | None) -> None:
        """Learns a newer record from the store, or puts ours there."""
        raw = self._store.get(_KIND, key)
        found = None if raw is None else _read(raw)
        if raw is not None and found is None:
            # An unreadable record is not overwritten.
            if key not in self._unreadable and len(self._unreadable) < _MOST:
                self._unreadable.add(key)
                msg = "the record of breaker %r in the store is not readable: left alone"
                logger.warning(msg, key)
        elif found is not None and (record is None or found.at > record.at):
            self._learn(key, found)
        elif record is not None:
            self._store.put(_KIND, key, orjson.dumps(record._asdict()), self._keep_s)

    def _add(self, key: str, record: Record | None) -> None:
        with self._lock:
            self._waiting[key] = record or self._waiting.get(key)
        if not self._stopped:
            self._thread.wake()

    def _log_failure(self, error: StoreError) -> None:
        if not self._failing:
            self._failing = True
            logger.warning("breakers are not shared while the store fails: %s", error)

    def _turn(self) -> float | None:
        early_s = self._next - time.monotonic()
        if early_s > 0:
            return early_s
        self._next = time.monotonic() + self._every_s
        self.sync()
        return self._every_s if self._waiting else None


def _read(raw: bytes) -> Record | None:
    """A record from the store; None if it is not one."""
    try:
        found = orjson.loads(raw)
        record = Record(*(found[name] for name in ("until", "at", "failures")))
    except (orjson.JSONDecodeError, LookupError, TypeError):
        return None
    whole = all(type(value) is int and 0 <= value < 2**63 for value in record)
    return record if whole else None


Of = Literal["tool", "agent"]

_NAMED: Final = 200
_NOTHING: Final = BreakerStatus()


class Breakers:
    """The breakers of a process, of all its runs. Any thread may call it.

    A breaker opens after `breaker_failures` (3) failures in a row that count, for `breaker_open_s`
    (300) seconds. Then one call is let through, of all threads and, with a store, of all
    processes: it closes the breaker or opens it again. Which errors count says `breaker_errors`:
    by default only those where trying again may help, for three calls with wrong arguments say
    nothing about a tool that other runs use. Such an error is an answer: it starts the count anew.
    An error of unknown kind neither counts nor starts anew.

    The newest 1024 that have failed are kept. In mode `shadow` they are counted and let all pass.
    """

    def __init__(
        self,
        settings: Settings,
        store: Store | None = None,
        faults: InternalErrors | None = None,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._open_ns = int(settings.breaker_open_s * 1e9)
        self._trial_s = settings.tuning.resilience.breaker_trial_s
        self._shadow = settings.mode == "shadow"
        self._breakers: BoundedDict[str, Breaker] = BoundedDict(_MOST)
        self._manual: BoundedDict[str, None] = BoundedDict(_MOST)
        self._sharing: BreakerReplication | None = None
        self.forked()
        if store is not None:
            keep_s = 2 * settings.breaker_open_s + settings.tuning.resilience.breaker_trial_s
            every_s = settings.tuning.resilience.breaker_sync_s
            self._sharing = BreakerReplication(
                store, faults or InternalErrors(), self._learn, every_s, keep_s
            )
        reset_after_fork(self)

    def forked(self) -> None:
        """In the child of a fork: another thread may have held the lock."""
        # Re-entrant: a finalizer may end a span while it is held.
        self._lock = new_lock()

    def standing(self, name: str, of: Of = "tool") -> BreakerStatus:
        """The state of a breaker, from memory. Does not wait, begins no trial."""
        key = _key(name, of)
        self._look(key)
        breaker = self._breakers.get(key)
        if breaker is None:
            return _NOTHING
        return BreakerStatus(breaker.state(self._clock()), breaker.failures, breaker.until)

    @property
    def idle(self) -> bool:
        """Whether nothing has failed here, and no other process can say that it has."""
        return self._sharing is None and not self._breakers

    def is_well(self, name: str, of: Of) -> bool:
        """Whether a successful call changes nothing, as far as is known of other processes."""
        if self.idle:
            return True
        key = _key(name, of)
        self._look(key)
        return key not in self._breakers

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
        """As `allow`, and raises."""
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
        """
        return Guarding(self, name, of)

    def ended(self, name: str, of: Of, error: BaseException | None) -> None:
        """Counts the outcome of a call that is counted manually. Waits for nothing."""
        key = _key(name, of)
        if error is None or isinstance(error, Exception):
            self._ended(key, None if error is None else exception_class(error))
            return
        with self._lock:
            if key in self._breakers:
                self._breakers[key].trial = 0

    def count_manually(self, name: str, of: Of = "tool") -> None:
        """Says that calls are counted by `ended`, so that their spans do not count as well."""
        key = _key(name, of)
        if key not in self._manual:
            with self._lock:
                self._manual[key] = None

    def finished(
        self, tool: str | None, agent: str | None, error: bool, error_class: ErrorClass
    ) -> None:
        """Counts a call that ended, from its span. Does not wait."""
        name = tool or agent
        if not name or name in self._settings.exempt:
            return
        key = _key(name, "tool" if tool else "agent")
        self._look(key)
        if (error or key in self._breakers) and key not in self._manual:
            self._ended(key, error_class if error else None)

    def reset(self, name: str, of: Of = "tool") -> None:
        """Closes a breaker manually, in all processes."""
        self._ended(_key(name, of), None)

    def sync(self) -> None:
        """Exchanges with the store now, on the caller's thread."""
        if self._sharing is not None:
            self._sharing.sync()

    def close(self) -> None:
        """Writes what is left to the store, and ends the thread."""
        if self._sharing is not None:
            self._sharing.stop()

    def _ended(self, key: str, error: ErrorClass | None) -> None:
        now, counts = self._clock(), self._counts(error)
        with self._lock:
            breaker = self._breakers.get(key)
            if breaker is None:
                if not counts:
                    return
                breaker = self._breakers[key] = Breaker()
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
        if which == "none":
            return False
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
            self._sharing.publish(key, record)

    def _may_try(
        self, sharing: BreakerReplication, key: str, breaker: Breaker, opened: int
    ) -> bool:
        """Whether the one trial of all processes is this one, after a look at what they know."""
        sharing.refresh(key)
        if breaker.changed != opened:
            return breaker.state(self._clock()) is BreakerState.CLOSED
        return sharing.claim(key, opened, self._trial_s)

    def _learn(self, key: str, record: Record) -> None:
        """Applies the record of another process."""
        with self._lock:
            breaker = self._breakers.setdefault(key, Breaker())
            breaker.learn(record, self._clock() + self._open_ns)

    def _look(self, key: str) -> None:
        if self._sharing is not None:
            self._sharing.look(key)


class Guarding:
    """Runs a block if its breaker allows it. Reusable, also by threads."""

    __slots__ = ("_breakers", "_name", "_of")

    def __init__(self, breakers: Breakers, name: str, of: Of) -> None:
        self._breakers = breakers
        self._name = name
        self._of: Of = of

    def __enter__(self) -> None:
        self._breakers.check(self._name, self._of)
        self._breakers.count_manually(self._name, self._of)

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self._breakers.ended(self._name, self._of, error)


def _key(name: str, of: Of) -> str:
    return f"{of}:{name[:_NAMED]}"
