"""Carries journals to the store and back on a thread of its own."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from typing import TYPE_CHECKING, Final, Protocol

from otel_loopguard._util.bounded import BoundedDict
from otel_loopguard._util.errors import InternalErrors, logger, swallow
from otel_loopguard._util.worker import BackgroundThread
from otel_loopguard.errors import StoreError
from otel_loopguard.sessions.journal import (
    Codec,
    JournalBuffer,
    JournalReplay,
    Pseudonymizer,
    Unread,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from otel_loopguard.detectors import Registry
    from otel_loopguard.sessions.journal import Entry, Noted, Written
    from otel_loopguard.sessions.session import Session
    from otel_loopguard.settings import Settings
    from otel_loopguard.stores import Writer

_LIMIT_S: Final = 30.0
"""Seconds that a read waits for the store, on a thread of its own: three of its time limits."""


class JournalStore(Protocol):
    """The store of journals."""

    def submit(self, session: str, entries: Sequence[Written]) -> None:
        """Adds entries to be stored. Called where steps end, so it must not block."""
        ...

    def journal(self, session: str, after: str | None = None) -> list[Written]:
        """Returns the stored entries of a session, as `RedisStore.journal`. May block.

        Raises:
            StoreError: The store failed.
        """
        ...


class WriterJournalStore:
    """Journals in a store, written and read by its writer."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    def submit(self, session: str, entries: Sequence[Written]) -> None:
        """Passes entries to the writer, which counts those it has to drop."""
        self._writer.append(session, entries)

    def journal(self, session: str, after: str | None = None) -> list[Written]:
        """Returns the stored entries of a session in order. Blocks."""
        found: list[list[Written]] = []
        answered = threading.Event()

        def take(entries: list[Written]) -> None:
            found.append(entries)
            answered.set()

        asked = self._writer.ask(lambda store: store.journal(session, after), take, answered.set)
        if asked:
            answered.wait(_LIMIT_S)
        if not found:
            raise StoreError(f"the journal of session {session!r} cannot be read")
        return found[0]


_BREATH: Final = 20
"""Entries after which the thread gives way: a millisecond."""
_LOOKS: Final = 6
"""Reads after the last step: others may write for half a minute after it."""
_FORGOTTEN: Final = -1
"""Instead of how many reads are left, of a session that is not read any more."""


class JournalWorker:
    """Gives sessions a journal, writes it behind, and brings in what the store knows of before.

    Entries are handed on after `tuning.journal.flush_steps` (100), after a decision, after
    `tuning.journal.flush_s` (1 s) and at `close`. A new session is asked for at once, one in use
    every `tuning.journal.read_s` (5 s), and 6 times after its last step. What is new is shown to
    new detectors beside the session, on the thread; under its lock they only change places, and see
    what came meanwhile.
    """

    def __init__(  # noqa: PLR0913
        self, settings: Settings, registry: Registry, faults: InternalErrors, lock: threading.RLock,
        store: JournalStore, *, manual: bool = False,
    ) -> None:  # fmt: skip
        self._settings = settings
        self._registry = registry
        self._faults = faults
        self._lock = lock
        self._store = store
        self._cover = Pseudonymizer(settings.digest_key.get_secret_value())
        self._codec = Codec(self._cover.id)
        self._dirty: OrderedDict[int, Session] = OrderedDict()
        self._requested: BoundedDict[int, Session] = BoundedDict(settings.max_sessions)
        self._used: OrderedDict[int, Session] = OrderedDict()
        self._warned: set[Unread] = set()
        self._thread = BackgroundThread("journal", self._turn, faults)
        self._read_at = time.monotonic()
        self._flush_at = self._read_at + settings.tuning.journal.flush_s
        # Whether there is no thread: the owner of the guard calls `read` and `flush`.
        self._manual = manual
        self._closed = False
        # Beyond it the thread lags, and the one that makes steps hands entries on.
        self._flush_steps = settings.tuning.journal.flush_steps
        self._most_pending = 10 * self._flush_steps
        self._most_dirty = settings.max_sessions

    def begin(self, session: Session) -> None:
        """Requests the past of a session that is new, or has its final key. The lock is held."""
        if session.journal is None:
            session.journal = JournalBuffer(self._cover, self._settings.tuning.journal.steps)
        else:
            session.journal.start_over()
        session.journal.looks = _LOOKS
        self._requested[id(session)] = session
        self._rouse()

    def wrote(self, session: Session, *, now: bool = False) -> None:
        """Schedules the entries that a step of a session left. The lock is held."""
        journal = session.journal
        if journal is None:
            return
        journal.looks = _LOOKS
        if id(session) not in self._used:
            self._used[id(session)] = session
            self._rouse()
        waiting = len(journal.pending)
        if not waiting:
            return
        if now or waiting >= self._most_pending or len(self._dirty) >= self._most_dirty:
            self._dirty.pop(id(session), None)
            self._hand_on(session.key, journal, journal.take())
            return
        if waiting == 1 or id(session) not in self._dirty:
            self._dirty[id(session)] = session
            self._rouse()
        if waiting >= self._flush_steps and self._flush_at:
            self._flush_at = 0.0
            self._rouse()

    def forget(self, session: Session) -> None:
        """Writes the entries of a forgotten session. The lock is held."""
        for table in (self._dirty, self._requested, self._used):
            table.pop(id(session), None)
        journal = session.journal
        if journal is None:
            return
        journal.looks = _FORGOTTEN
        if journal.pending:
            self._hand_on(session.key, journal, journal.take())

    def flush(self) -> None:
        """Passes all pending entries to the store."""
        with self._lock:
            if self._manual:
                self._requested.clear()
                self._used.clear()
            dirty, self._dirty = self._dirty, OrderedDict()
            taken = [
                (one.key, one.journal, one.journal.take()) for one in dirty.values() if one.journal
            ]
        for key, journal, noted in taken:
            self._hand_on(key, journal, noted)

    def _hand_on(self, key: str, journal: JournalBuffer, noted: list[Noted]) -> None:
        with swallow(self._faults, "journal"):
            written = journal.packed(noted)
            with self._lock:
                journal.entries.extend(written)
            if written:
                self._store.submit(key, written)

    def close(self) -> None:
        """Passes all pending entries to the store, and ends the thread."""
        self._closed = True
        self.flush()
        self._thread.stop()

    def read(self, session: Session) -> bool:
        """Merges the stored entries of a session. Blocks: called on the thread."""
        key, journal = session.key, session.journal
        found = [] if journal is None else self._store.journal(key, journal.after)
        if journal is None or not found:
            return False
        with self._lock:
            if session.key != key:
                return False  # it got another key meanwhile, and is asked for again
            own: list[Noted] = [*journal.entries, *journal.pending]
            journal.since = []
        known = {name for name, _ in own}
        # More of its own entries may be stored than are kept here.
        others = [one for one in found if not (one[0] in known or journal.wrote(one[0]))]
        new = self._new(key, others)
        if new:
            self._rebuild(session, journal, sorted([*journal.packed(own), *new]))
        with self._lock:
            journal.since = None
            if session.key == key:
                journal.after = found[-1][0]
        return bool(new)

    def _new(self, session: str, found: list[Written]) -> list[Written]:
        """The entries that can be read, each once."""
        new: list[Written] = []
        for name, value in dict(found).items():
            entry = self._codec.read(value, session)
            if isinstance(entry, Unread):
                self._skip(entry, session)
            else:
                new.append((name, value))
        return new

    def _rebuild(self, session: Session, journal: JournalBuffer, entries: list[Written]) -> None:
        entries = entries[-self._settings.tuning.journal.steps :]
        past = JournalReplay(self._settings, self._registry, self._faults)
        for number, entry in enumerate(self._entries(session.key, entries)):
            past.take(entry)
            if not number % _BREATH:
                time.sleep(0)  # the agent does not wait for this thread
        with self._lock:
            late = journal.packed(journal.since or [])
            for entry in self._entries(session.key, late):
                past.take(entry)
            pending = {name for name, _ in journal.pending}
            journal.entries.clear()
            journal.entries.extend(one for one in (*entries, *late) if one[0] not in pending)
            if entries:
                journal.goes_on(entries[-1][0])
            session.recall(past)

    def _entries(self, session: str, written: Iterable[Written]) -> Iterable[Entry]:
        for _, value in written:
            entry = self._codec.read(value, session)
            if not isinstance(entry, Unread):
                yield entry

    def _skip(self, why: Unread, session: str) -> None:
        """Logs the first entry that is unreadable for a reason: after an upgrade all have some."""
        if why not in self._warned:
            self._warned.add(why)
            logger.warning(
                "session %r: an entry of its journal is %s and was skipped, as others will be",
                session,
                why,
            )

    def _rouse(self) -> None:
        if not self._manual:
            self._closed = False  # a guard may be used after its shutdown
            self._thread.wake()

    def _turn(self) -> float | None:
        """One round of the thread; seconds until the next, None without work."""
        if self._closed:
            return None
        now, settings = time.monotonic(), self._settings.tuning.journal
        flush, read = now >= self._flush_at, now >= self._read_at
        if flush:
            self._flush_at = now + settings.flush_s
        if read:
            self._read_at = now + settings.read_s
        self.work(flush=flush, read=read)
        return settings.flush_s if self._dirty or self._requested or self._used else None

    def work(self, *, flush: bool, read: bool) -> None:
        """One round of the thread."""
        if flush:
            self.flush()
        with self._lock:
            requested = OrderedDict(self._requested)
            self._requested.clear()
            if read:
                requested.update(self._used)
                self._used.clear()
        try:
            while requested and not self._closed:
                session = next(iter(requested.values()))
                self.read(session)
                requested.popitem(last=False)
                self._look_again(session)
        except StoreError:
            # They are asked for again with those that are in use.
            with self._lock:
                again = {
                    place: session
                    for place, session in requested.items()
                    if session.journal is not None and session.journal.looks != _FORGOTTEN
                }
                self._used = OrderedDict([*again.items(), *self._used.items()])

    def _look_again(self, session: Session) -> None:
        journal = session.journal
        if journal is not None and journal.looks > 0:
            journal.looks -= 1
            with self._lock:
                self._used[id(session)] = session
