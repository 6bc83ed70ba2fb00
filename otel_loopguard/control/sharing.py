"""Breakers of several processes: told and asked in the background, through the store (E5)."""

from __future__ import annotations

import threading
import uuid
import weakref
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

import orjson

from otel_loopguard.control.breaker import Record
from otel_loopguard.errors import StoreError
from otel_loopguard.faults import swallow
from otel_loopguard.forks import renew_after_fork
from otel_loopguard.locks import Signal, new_lock, start_thread
from otel_loopguard.logger import logger
from otel_loopguard.quiet import untraced

if TYPE_CHECKING:
    from collections.abc import Callable

    from otel_loopguard.faults import Faults
    from otel_loopguard.stores import Store

_KIND: Final = "breaker"
_MOST: Final = 1024


class Sharing:
    """Tells a store how breakers stand, and asks it how those of other processes do.

    The store is talked to by a daemon thread, which starts with the first breaker that is asked
    for and sleeps while none is; only `claim` does so on the caller's thread. What a store that
    fails was not told stays here (of 1024 breakers) and is told when it is back.

    Args:
        store: The store.
        faults: Where faults of the thread are counted.
        learn: Takes key and record of a breaker of another process.
        every_s: Seconds between two looks.
        keep_s: Seconds that a record stays in the store.
    """

    def __init__(
        self,
        store: Store,
        faults: Faults,
        learn: Callable[[str, Record], None],
        every_s: float,
        keep_s: float,
    ) -> None:
        self._store = store
        self._faults = faults
        self._learn = learn
        self._every_s = every_s
        self._keep_s = keep_s
        self._strange: set[str] = set()
        self._failing = False
        self._stopped = Signal()
        self.forked()
        renew_after_fork(self)

    def forked(self) -> None:
        """In the child of a fork: the thread is not here, and the lock may be held."""
        # Re-entrant: a finalizer may end a span while it is held.
        self._lock = new_lock()
        self._work = Signal()
        # No hook ever takes this one; it is held while the store is talked to.
        self._turn = threading.RLock()
        self._running = False
        self._asked: OrderedDict[str, Record | None] = OrderedDict()

    def look(self, key: str) -> None:
        """Has the store asked for a breaker, soon. Does not wait."""
        if key not in self._asked:
            self._note(key, None)

    def tell(self, key: str, record: Record) -> None:
        """Has the store told of a breaker, soon. Does not wait."""
        self._note(key, record)

    def claim(self, key: str, opened: int, trial_s: float) -> bool:
        """Whether this caller may make the one trial of all processes. Talks to the store.

        Where the store fails each process makes a trial of its own: a tool that works again is
        not kept shut by a store that is down.

        Args:
            key: Key of the breaker.
            opened: When it was opened, the same in all processes; each opening has one trial.
            trial_s: Seconds after which another one may be made if this had no outcome.
        """
        try:
            owner = uuid.uuid4().hex
            with untraced():
                return self._store.claim(_KIND, f"{key}:trial:{opened}", owner, trial_s)
        except StoreError as error:
            self._fails(error)
            return True

    def sync(self) -> None:
        """Tells and asks what is to be told and asked; what fails is tried again next time."""
        # Whoever is at it is waited for: afterwards all that was said is told.
        with self._turn:
            self._sync()

    def _sync(self) -> None:
        with self._lock:
            asked, self._asked = self._asked, OrderedDict()
        while asked:
            key, record = asked.popitem(last=False)
            try:
                self._exchange(key, record)
            except StoreError as error:
                self._fails(error)
                asked[key] = record
                self._put_back(asked)
                return
        self._failing = False

    def stop(self) -> None:
        """Tells what is left to be told, and ends the thread."""
        self._stopped.set()
        self._work.set()
        self.sync()

    def refresh(self, key: str) -> None:
        """Exchanges one breaker with the store now, on the caller's thread."""
        with self._lock:
            record = self._asked.pop(key, None)
        try:
            self._exchange(key, record)
        except StoreError as error:
            self._fails(error)
            self._put_back(OrderedDict({key: record}))

    def _put_back(self, left: OrderedDict[str, Record | None]) -> None:
        """Keeps what the store was not told; what was said meanwhile is newer."""
        with self._lock:
            for key, record in left.items():
                self._asked[key] = self._asked.get(key) or record

    def _exchange(self, key: str, record: Record | None) -> None:
        """Takes a newer record from the store, or puts ours there; nobody's span."""
        with untraced():
            self._exchange_untraced(key, record)

    def _exchange_untraced(self, key: str, record: Record | None) -> None:
        raw = self._store.get(_KIND, key)
        found = None if raw is None else _read(raw)
        if raw is not None and found is None:
            self._pass_over(key)
        elif found is not None and (record is None or found.at > record.at):
            self._learn(key, found)
        elif record is not None:
            self._store.put(_KIND, key, orjson.dumps(record._asdict()), self._keep_s)

    def _pass_over(self, key: str) -> None:
        """What is not understood is not overwritten."""
        if key not in self._strange and len(self._strange) < _MOST:
            self._strange.add(key)
            logger.warning("the record of breaker %r in the store is not readable: left alone", key)

    def _note(self, key: str, record: Record | None) -> None:
        with self._lock:
            self._asked[key] = record or self._asked.get(key)
            if len(self._asked) > _MOST:
                self._asked.popitem(last=False)
            if not (self._running or self._stopped.is_set()):
                parts = (weakref.ref(self), self._work, self._stopped, self._every_s)
                self._running = start_thread("breakers", _run, *parts)
        self._work.set()

    def _fails(self, error: StoreError) -> None:
        if not self._failing:
            self._failing = True
            logger.warning("breakers are not shared while the store fails: %s", error)

    def work(self) -> None:
        """One turn of the thread."""
        with swallow(self._faults, "breakers"):
            self.sync()
        if self._asked:
            self._work.set()


def _run(owner: weakref.ref[Sharing], work: Signal, stopped: Signal, every_s: float) -> None:
    while not stopped.is_set():
        # It wakes now and then to see whether its owner is gone.
        if work.wait(60):
            work.clear()
            found = owner()
            if found is None:
                return
            found.work()
            del found
            stopped.wait(every_s)
        elif owner() is None:
            return


def _read(raw: bytes) -> Record | None:
    """A record from the store; None if it is not one."""
    try:
        found = orjson.loads(raw)
        record = Record(*(found[name] for name in ("until", "at", "failures")))
    except (orjson.JSONDecodeError, LookupError, TypeError):
        return None
    whole = all(type(value) is int and 0 <= value < 2**63 for value in record)
    return record if whole else None
