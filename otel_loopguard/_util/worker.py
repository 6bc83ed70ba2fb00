"""Background work: daemon threads, queues, and delivery again where it failed and may pass."""

from __future__ import annotations

import inspect
import random
import threading
import time
import weakref
from collections.abc import Callable, Generator
from contextlib import contextmanager, nullcontext
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Any, Final, Generic, ParamSpec, TypeVar, cast

from opentelemetry import context as otel_context

from otel_loopguard._util.errors import InternalErrors, swallow
from otel_loopguard._util.locks import Signal, new_lock, reset_after_fork, start_thread
from otel_loopguard._util.text import expected

_SUPPRESSED: Final = "suppress_instrumentation"
"""The key that instrumentations look for (OpenTelemetry's contrib packages)."""


@contextmanager
def suppress_instrumentation() -> Generator[None]:
    """Suppresses instrumentations on this thread inside the block."""
    token = otel_context.attach(otel_context.set_value(_SUPPRESSED, True))
    try:
        yield
    finally:
        otel_context.detach(token)


_LOOK_S: Final = 5.0
"""Seconds that a thread may outlive the object it works for; each look costs microseconds."""
_NAP_S: Final = 0.01
"""Seconds between two looks of `flush`, which holds no lock that an interrupt could leave."""
_Given = ParamSpec("_Given")
_Item = TypeVar("_Item")
_Function = TypeVar("_Function", bound=Callable[..., Any])


def weak_reference(function: _Function) -> Callable[[], _Function | None]:
    """A reference that does not keep the object of a bound method alive."""
    if inspect.ismethod(function):
        return cast("Callable[[], _Function | None]", weakref.WeakMethod(function))
    return lambda: function


def weak_callback(method: Callable[_Given, object]) -> Callable[_Given, None]:
    """Calls a method, unless its object is gone."""
    reference = weak_reference(method)

    def call(*given: _Given.args, **named: _Given.kwargs) -> None:
        found = reference()
        if found is not None:
            found(*given, **named)

    return call


class BackgroundThread:
    """Calls `turn` on a daemon thread while there is work.

    The first `wake` starts the thread. It ends after `idle_s` seconds without work, and the next
    `wake` starts another one, as in the child of a fork. `turn` returns the seconds after which to
    call it again (0: at once; it may be called earlier), or None: there is no work until `wake`.

    Between two turns the thread does not keep the object of `turn` alive, unless `weak` is false.
    Spans of what `turn` does are suppressed, unless `suppress` is false. No method waits.

    Attributes:
        is_running: True if there is a thread.
    """

    def __init__(  # noqa: PLR0913
        self, name: str, turn: Callable[[], float | None], errors: InternalErrors, *,
        idle_s: float = 5.0, weak: bool = True, suppress: bool = True,
    ) -> None:  # fmt: skip
        self._name = name
        self._turn = weak_reference(turn) if weak else lambda: turn
        self._errors = errors
        self._idle_s = idle_s
        self._suppressed = suppress_instrumentation if suppress else nullcontext
        self.forked()
        reset_after_fork(self)

    def forked(self) -> None:
        """Starts anew in the child of a fork: the thread is the parent's."""
        self._lock = new_lock()
        self._signal = Signal()
        self.is_running = False
        self._ident = 0

    @property
    def is_current(self) -> bool:
        """True if the caller is on this thread."""
        return threading.get_ident() == self._ident

    def wake(self) -> None:
        """Has `turn` called, soon."""
        starts = started = False
        try:
            with self._lock:
                if not self.is_running:
                    starts, self.is_running, self._signal = True, True, Signal()
                signal = self._signal
                signal.set()
            # Not with the lock: where threads are gevent's, others run until this has started.
            started = starts and start_thread(self._name, self._run, signal)
        finally:
            if starts and not started:
                # The next `wake` tries again.
                self.is_running = False
        # An interpreter that ends starts no thread; a caller who waits stands in.
        if starts and not started and threading.main_thread().is_alive():
            self._errors.note(self._name, RuntimeError("no thread could be started"))

    def stand_in(self) -> bool:
        """Calls `turn` on the caller's thread where there is no other; returns whether it did.

        From Python 3.12 on no thread can be started while the interpreter ends. For who waits.
        """
        turn = None if self.is_running else self._turn()
        if turn is None:
            return False
        with swallow(self._errors, self._name), self._suppressed():
            turn()
        return True

    def stop(self) -> None:
        """Ends the thread after its turn; the next `wake` starts a new one."""
        with self._lock:
            signal, self._signal = self._signal, Signal()
            self.is_running = False
        signal.set()

    def _run(self, signal: Signal) -> None:
        self._ident = threading.get_ident()
        try:
            while signal is self._signal:
                signal.clear()
                turn = self._turn()
                if turn is None:
                    return
                wait_s: float | None = None
                with swallow(self._errors, self._name), self._suppressed():
                    wait_s = turn()
                del turn
                if wait_s is None and self._is_over(signal):
                    return
                if wait_s:
                    # It looks now and then whether the object of `turn` is gone.
                    signal.wait(min(wait_s, _LOOK_S))
        finally:
            with self._lock:
                if signal is self._signal and self._ident == threading.get_ident():
                    self.is_running = False
                    self._ident = 0

    def _is_over(self, signal: Signal) -> bool:
        """Waits for work; True if none came, so that the thread ends."""
        if signal.wait(self._idle_s):
            return False
        with self._lock:
            if signal is not self._signal:
                return True
            self.is_running, self._ident = False, 0
            # A finalizer may have called `wake` right here, and so have started another thread.
            if self.is_running or not signal.is_set():
                return True
            self.is_running, self._ident = True, threading.get_ident()
            return False


class BackgroundWorker(Generic[_Item]):
    """A bounded queue, and the background thread that delivers what is in it, in order.

    Where `maximum` items wait, more are refused, or with `drop_oldest` the oldest one is lost. An
    item whose delivery fails counts as delivered. Nobody who adds one waits.
    """

    def __init__(  # noqa: PLR0913
        self, name: str, deliver: Callable[[_Item], object], errors: InternalErrors, *,
        maximum: int, idle_s: float = 5.0, drop_oldest: bool = False, suppress: bool = True,
    ) -> None:  # fmt: skip
        self._name = name
        self._deliver = deliver
        self._errors = errors
        self._maximum = maximum
        self._drop_oldest = drop_oldest
        # What waits is delivered even if nobody else holds this.
        self._thread = BackgroundThread(
            name, self._turn, errors, idle_s=idle_s, weak=False, suppress=suppress
        )
        self.forked()
        reset_after_fork(self)

    def forked(self) -> None:
        """Starts anew in the child of a fork: what waits, the parent delivers."""
        self._lock = new_lock()
        self._waiting: list[tuple[float, int, _Item]] = []
        self._numbers = count()
        self._delivering = False

    def __len__(self) -> int:
        """Number of waiting items."""
        return len(self._waiting)

    def put(self, item: _Item, delay_s: float = 0.0) -> bool:
        """Adds an item, delivered after `delay_s`; False if this one, or the oldest, is lost."""
        with self._lock:
            full = len(self._waiting) >= self._maximum
            if full and not self._drop_oldest:
                return False
            if full:
                heappop(self._waiting)
            due = time.monotonic() + delay_s
            heappush(self._waiting, (due, next(self._numbers), item))
        self._thread.wake()
        return not full

    def hasten(self) -> None:
        """Delivers waiting items now, whatever their delay."""
        with self._lock:
            self._waiting = [(0.0, number, item) for _, number, item in self._waiting]
            heapify(self._waiting)
        self._thread.wake()

    def flush(self, limit_s: float) -> bool:
        """Waits until all is delivered, `limit_s` seconds at most; True if it is."""
        until = time.monotonic() + limit_s
        while (busy := self._is_busy()) and time.monotonic() < until:
            self._thread.stand_in()
            time.sleep(_NAP_S)
        return not busy

    def abandon(self) -> None:
        """Leaves a delivery that hangs to its thread, and goes on with the next item on another."""
        self._thread.stop()
        self._thread.wake()

    def stop(self) -> None:
        """Ends the thread; what waits is not delivered."""
        with self._lock:
            self._waiting.clear()
        self._thread.stop()

    def _is_busy(self) -> bool:
        # Looked at twice: what was not delivered may be put back in between.
        return bool(self._waiting or self._delivering or self._waiting)

    def _turn(self) -> float | None:
        with self._lock:
            if not self._waiting:
                return None
            early_s = self._waiting[0][0] - time.monotonic()
            if early_s > 0:
                return early_s
            self._delivering = True  # first, as `_is_busy` takes no lock
            item = heappop(self._waiting)[2]
        try:
            with swallow(self._errors, self._name):
                self._deliver(item)
        finally:
            self._delivering = False
        return 0


# A burst of a large fleet; one that takes longer for each than they come loses the oldest.
_WAITING_EVENTS: Final = 1000
_Notice = tuple[Any, InternalErrors, Callable[[object], object] | None]


class Callbacks:
    """The callbacks for one kind of event. May be called from any thread; nobody waits for them.

    Each has a thread of its own, and is called with one event after the other. At most 1000 wait
    for it; beyond that the oldest are dropped. What it raises, and what is dropped, is counted.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        # Adding and removing are atomic; `notify` iterates over a copy.
        self._workers: dict[BackgroundWorker[_Notice], str | None] = {}

    def __bool__(self) -> bool:
        return bool(self._workers)

    def add(self, callback: Callable[[Any], object], session: str | None) -> Callable[[], None]:
        """Adds a callback, of one session or of all; returns what removes it."""
        if not callable(callback):
            raise TypeError(expected("a function", callback))

        def deliver(notice: _Notice) -> None:
            event, faults, then = notice
            with swallow(faults, self._name):
                try:
                    said = callback(event)
                except Exception:
                    raise
                except BaseException as fault:  # noqa: BLE001  # it would end the thread
                    faults.note(self._name, fault)
                else:
                    if then is not None:
                        then(said)

        worker = BackgroundWorker(
            "listener", deliver, InternalErrors(),
            maximum=_WAITING_EVENTS, drop_oldest=True, suppress=False,
        )  # fmt: skip
        self._workers[worker] = session

        def remove() -> None:
            self._workers.pop(worker, None)
            worker.stop()

        return remove

    def notify(
        self, event: Any, faults: InternalErrors, then: Callable[[object], object] | None = None
    ) -> None:
        """Queues an event for every callback; `then` gets what each gave back."""
        for worker, only in tuple(self._workers.items()):
            if only in {None, event.session} and not worker.put((event, faults, then)):
                faults.note(self._name, OverflowError("a callback is too slow"))


_FIRST_PAUSE_S: Final = 0.05
"""A dropped connection is usually back at once."""
_DOUBLED: Final = 16  # times: 50 ms are an hour then
_SPREAD: Final = random.SystemRandom()
"""Processes do not all come back at once. The state of `random` is the application's."""


class Pauses:
    """Pauses between attempts, doubled up to `most_s`, and spread over time.

    Attributes:
        failures: Failures since the last success; set it to 0 with each.
    """

    def __init__(self, most_s: float) -> None:
        self._most_s = most_s
        self.failures = 0

    def next_s(self) -> float:
        """Seconds from a failure to the next attempt."""
        pause_s = min(_FIRST_PAUSE_S * 2 ** min(self.failures, _DOUBLED), self._most_s)
        self.failures += 1
        return pause_s * _SPREAD.uniform(0.5, 1)


# An address that is down for minutes is tried once a minute: it is back for a minute at most
# before it is found.
_LONGEST_PAUSE_S: Final = 60.0
# While the process ends: attempts do not count, and the last spans may reach a backend meanwhile.
_CLOSING_PAUSE_S: Final = 0.2


class DeliveryError(Exception):
    """An item was not delivered.

    Attributes:
        again: True if another attempt may help.
    """

    def __init__(self, why: str, *, again: bool) -> None:
        super().__init__(why)
        self.again = again


class DeliveryQueue(Generic[_Item]):
    """A bounded queue whose items are delivered on a thread of its own; `put` never blocks.

    The pause after a failure doubles from `retry_s` to a minute.

    Args:
        name: Name of the thread.
        deliver: Delivers one item; may block, and raises `DeliveryError`.
        errors: Counts what else it raises.
        failed: Called for each failure, with the item, why, and whether it is tried again.
        maximum: Items that wait at most; more are refused.
        attempts: Attempts to deliver one item.
        retry_s: Seconds between the first two attempts.
        until: After this time, nanoseconds since the epoch, an item is not tried again.
    """

    def __init__(  # noqa: PLR0913
        self, name: str, deliver: Callable[[_Item], None], errors: InternalErrors,
        failed: Callable[[_Item, str, bool], None], *, maximum: int, attempts: int,
        retry_s: float, until: Callable[[_Item], int] | None = None,
    ) -> None:  # fmt: skip
        self._deliver = deliver
        self._failed = failed
        self._attempts = attempts
        self._retry_s = retry_s
        self._until = until
        self._closing = False
        self._worker = BackgroundWorker[tuple[int, _Item]](
            name, self._attempt, errors, maximum=maximum
        )
        self.flush = self._worker.flush

    def put(self, item: _Item) -> bool:
        """Adds an item; False if too many wait."""
        return self._worker.put((1, item))

    def close(self, limit_s: float) -> bool:
        """Delivers everything now, again and again, for at most `limit_s`; True if all is."""
        self._closing = True
        try:
            self._worker.hasten()
            return self._worker.flush(limit_s)
        finally:
            self._closing = False

    def _attempt(self, entry: tuple[int, _Item]) -> None:
        attempt, item = entry
        try:
            self._deliver(item)
        except DeliveryError as error:
            pause_s = min(self._retry_s * 2 ** (attempt - 1), _LONGEST_PAUSE_S)
            if self._closing:
                attempt, pause_s = attempt - 1, _CLOSING_PAUSE_S
            again = error.again and attempt < self._attempts
            if again and self._until is not None:
                again = time.time_ns() + pause_s * 1e9 < self._until(item)
            again = again and self._worker.put((attempt + 1, item), pause_s)
            self._failed(item, str(error), again)
