"""The locks of this package, and what has to wait until a thread holds none of them.

The garbage collector and signal handlers may run anywhere, also where a thread of ours holds a
lock, and they may end spans there. What then follows (a decision, a log line, somebody's callback)
may wait for a lock of somebody who waits for ours; and what is half done is changed beneath it. So:

1. Every lock is made by `new_lock`, is re-entrant, and is taken by `with`: a KeyboardInterrupt
   leaves none behind.
2. Nothing is logged, emitted or called back while the thread holds one of them. The package's
   logger sees to it for what it logs (`errors.py`).
3. A span that starts or ends while the thread holds one is not looked at: `later` keeps it, in
   order, with its context. `settle` works off what was kept, on the first thread that comes by
   without a lock: at the end of the outer hook, at the next hook, or on the thread of a timer.
4. No lock is taken in a weak reference's callback, in a finalizer of ours, or at exit. Threads
   are woken by a `Signal`, which takes none, and look now and then whether their owner is gone.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from contextvars import Context, copy_context
from operator import methodcaller
from typing import Any, Final, Protocol, cast

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

_KEPT_LATER: Final = 10_000
"""Calls that wait until a thread holds no lock; only a finalizer that ends spans in bulk makes so
many."""
_LEAST: Final = 64
"""Locks, and owners, before their table is first looked through for those that are gone."""
_NAP_S: Final = 0.01
"""Seconds between two attempts to lock a file that another process holds."""
_RLock: Final = type(threading.RLock())
"""All locks are of one class, also where gevent puts another one there once this is imported.
Eventlet even replaces those that it finds, see `_patched`."""


class Signal:
    """Wakes one thread. May be set anywhere: in a finalizer, a signal handler, at exit.

    Like `threading.Event` for one waiter, without its lock: a dead thread cannot hold it, and a
    setter cannot be interrupted by another one. Each thread has one of its own, made when it
    starts: gevent's threads all wait where one waits for a queue that was made before them.
    """

    def __init__(self) -> None:
        self._is_set = False
        # Its `put` takes no lock that could be held, and may be entered again.
        self._bell: queue.SimpleQueue[None] = queue.SimpleQueue()

    def is_set(self) -> bool:
        """True if it was set since it was cleared."""
        return self._is_set

    def set(self) -> None:
        """Wakes the thread that waits, now or next."""
        self._is_set = True
        if self._bell.empty():
            self._bell.put(None)

    def clear(self) -> None:
        """Clears it. Look at what it was set for after this, not before."""
        self._is_set = False
        with suppress(queue.Empty):
            while True:
                self._bell.get_nowait()

    def wait(self, limit_s: float | None = None) -> bool:
        """Waits until it is set, `limit_s` seconds at most; True if it is."""
        if not self._is_set:
            with suppress(queue.Empty):
                self._bell.get(timeout=None if limit_s is None else max(limit_s, 0.0))
        return self._is_set


def new_lock() -> threading.RLock:
    """A lock of this package, known to `held` as long as it lives.

    Re-entrant, as a finalizer may end a span while it is held; free in the child of a fork, where
    the thread that held it is gone.
    """
    lock = _RLock()
    with _making:
        if len(_known) > _state.most_known:
            _own.clear()
            # Those with another owner. Weak references would have to be called one by one.
            _known[:] = [known for known in _known if sys.getrefcount(known) > _state.unused]
            _own.extend(_known)
            _state.most_known = 2 * len(_known) + _LEAST
        # Sooner each time: after a burst of guards, those who ask would walk its locks for long.
        _state.most_known -= _LEAST
        _known.append(lock)
        _own.append(lock)
    return lock


def busy() -> AbstractContextManager[object]:
    """Context in which `held` is true; for calls that take a lock of others, as of a span."""
    return _here.busy


def held() -> bool:
    """True if this thread holds a lock of this package, or is `busy`."""
    # Asked of the locks themselves: a count of ours could be left wrong by an interrupt. And at C
    # speed: every hook asks, and a guard has some 40 locks.
    try:
        return _here.busy._is_owned() or any(map(_is_owned, _known))  # noqa: SLF001
    except TypeError:
        _patched()
        return held()


def _patched() -> None:
    """Eventlet replaced the locks it found; objects with slots still have ours."""
    global _is_owned  # noqa: PLW0603
    _is_owned = methodcaller("_is_owned")
    with _making:
        _known.extend(_own)


def later(what: Callable[[], object]) -> None:
    """Defers a call to the next thread that holds no lock; the newest 10,000 are kept."""
    waiting.append((copy_context(), what))
    for known in _signals:
        signal = known()
        if signal is not None:
            signal.set()


def settle() -> None:
    """Makes the deferred calls in order, unless this thread holds a lock or another is at it."""
    if not waiting or held() or _here.settles._is_owned():  # noqa: SLF001
        return
    with _here.settles:
        while waiting:
            # Taken within: an interrupt right behind it would leave it held for good.
            try:
                # Does not wait for the other thread: the calls may take long.
                if not _state.settling.acquire(blocking=False):
                    return
                while waiting:
                    context, what = waiting.popleft()
                    context.run(what)
            finally:
                try:  # noqa: SIM105  # an interrupt may come behind any other call
                    _state.settling.release()
                except RuntimeError:  # another thread has it
                    pass


def start_thread(name: str, run: Callable[..., object], *given: object) -> bool:
    """Starts a daemon thread; False where none can be had, as when the interpreter ends."""
    thread = threading.Thread(target=run, args=given, name=f"loopguard-{name}", daemon=True)
    try:
        thread.start()
    except RuntimeError:
        return False
    return True


def lock_file(descriptor: int, limit_s: float) -> bool:
    """Locks an open file against other processes; False where it cannot be had in time.

    Whoever closes the file lets go of it. Waits, for up to `limit_s` seconds.
    """
    until = time.monotonic() + limit_s
    while fcntl is not None:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            if time.monotonic() >= until:
                return False
            time.sleep(_NAP_S)
        except OSError:  # some file systems have no locks
            return False
    return True


def wake_by(signal: Signal) -> None:
    """Sets a signal, held weakly, whenever a call is deferred, so that its thread settles."""
    with _making:
        others = [known for known in _signals if known() not in (None, signal)]
        _signals[:] = [*others, weakref.ref(signal)]


class _State:
    """State that a fork renews."""

    def __init__(self) -> None:
        self.most_known = self.most_owners = _LEAST
        only = [_RLock()]
        (self.unused,) = [sys.getrefcount(lock) for lock in only]
        self.settling = _RLock()


class _Here(threading.local):
    """Per-thread locks as interrupt-safe marks of what the thread is doing."""

    def __init__(self) -> None:
        self.settles: Any = _RLock()
        self.busy: Any = _RLock()


def _forked() -> None:
    """In the child: the holders of locks are not here, and deferred calls are the parent's."""
    global _making  # noqa: PLW0603
    _making = _RLock()
    _state.settling = _RLock()
    for lock in cast("list[Any]", _known):
        # A lock held at the fork is released by its `with` in the child, too.
        if not lock._is_owned():  # noqa: SLF001
            lock._at_fork_reinit()  # noqa: SLF001
    waiting.clear()
    # Once the locks are free, which owners may take.
    for known in tuple(_owners):
        owner = known()
        if owner is not None:
            owner.forked()


_state = _State()
_here = _Here()
_making = _RLock()
_known: list[threading.RLock] = []
_own: deque[threading.RLock] = deque()  # the same, where eventlet does not look
_is_owned: Any = cast("Any", _RLock)._is_owned  # noqa: SLF001
_signals: list[weakref.ref[Signal]] = []
waiting: Final[deque[tuple[Context, Callable[[], object]]]] = deque(maxlen=_KEPT_LATER)
"""Deferred calls; hooks look whether there are any before they call `settle`."""


class Forked(Protocol):
    """Has state that belongs to the parent of a fork, or to its threads; locks free themselves."""

    def forked(self) -> None:
        """Makes it anew; called in the child, before anything else."""
        ...


def reset_after_fork(owner: Forked) -> None:
    """Calls `owner.forked()` in every child of a fork, as long as the owner lives.

    Owners are held weakly, in the order in which they were made. What is registered with the
    interpreter itself stays for good, and a process may make a million guards.
    """
    with _making:
        if len(_owners) > _state.most_owners:
            _owners[:] = [known for known in _owners if known() is not None]
            _state.most_owners = 2 * len(_owners) + _LEAST
        _owners.append(weakref.ref(owner))


_owners: Final[list[weakref.ref[Forked]]] = []

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
