"""Time limits and cancellation for what an agent awaits."""

from __future__ import annotations

import asyncio
import math
import sys
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Protocol

from opentelemetry import trace

from otel_loopguard import semconv
from otel_loopguard._control.context import current_places, flag_at, live_guards, sessions_at
from otel_loopguard._control.flag import NOTHING, OBSERVERS, Flag, asks, running_trio
from otel_loopguard._control.gate import check_at, stop_of
from otel_loopguard._util.locks import new_lock
from otel_loopguard.core import Action
from otel_loopguard.errors import LoopGuardLimit

if TYPE_CHECKING:
    from typing_extensions import Self


# Python 3.10 does not count how often a task was asked to end.
_COUNTS_CANCELS: Final = sys.version_info >= (3, 11)


class Scope(Protocol):
    """A cancellable scope of anyio or trio."""

    def cancel(self) -> Any:
        """Cancels what runs inside."""
        ...


class Block:
    """Makes a context manager an async one, too."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        """Ends the block."""

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(self, kind: object, error: object, traceback: object) -> None:
        self.__exit__(kind, error, traceback)


class cancelling(Block):  # noqa: N801  # reads as a statement: `async with control.cancelling():`
    """Cancels what is awaited in the block when its session is aborted.

    ::

        async with control.cancelling():
            answer = await agent.run(task)

    The session is the one of the context in which the block begins. The block raises
    `LoopGuardAbort`, with the results so far, in place of the cancellation. What blocks its event
    loop, or swallows the cancellation, runs on. A cancellation from outside stays one.

    Args:
        scope: A cancel scope of anyio or trio that stands around the block; by default the task of
            asyncio in which the block begins.
    """

    def __init__(self, scope: Scope | None = None) -> None:
        asks()
        self._scope = scope
        self._flag: Flag | None = None
        self._seen = NOTHING
        self._lock = new_lock()

    def __enter__(self) -> Self:
        places = list(current_places())
        known = (place for place in places if flag_at(place) is not None)
        # A run that is not known yet has its trace only; it may get a flag while it waits.
        self._place = next(known, places[-1] if places else None)
        self._task = None if self._scope is not None else _Task(_NO_TASK_TO_CANCEL)
        self._soon = _soon()
        _blocks.add(self)
        try:
            for known in () if self._place is None else sessions_at(self._place):
                check_at(known.flag)
        except BaseException:
            # The block is not entered, and so never left.
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        _blocks.discard(self)
        with self._lock:
            flag, self._place = self._flag, None
        if flag is None:
            return
        own = self._task is None or self._task.takes_back()
        if own and error is not None and not isinstance(error, Exception):
            # Also where the session was resumed meanwhile: what was awaited is cancelled.
            raise stop_of(flag, self._seen)

    def stop(self, flag: Flag) -> None:
        """Cancels the block if it is one of a session, from any thread."""
        place = self._place
        if self._flag is not None or place is None:
            return
        if any(found.flag is flag for found in sessions_at(place)):
            self._soon(lambda: self._cancel(flag))

    def _cancel(self, flag: Flag) -> None:
        with self._lock:
            if self._place is None or self._flag is not None:
                return
            self._seen = flag.read()
            if self._seen.action is not Action.ABORT:
                return  # it was resumed meanwhile
            self._flag = flag
        if self._scope is not None:
            self._scope.cancel()
        elif self._task is not None:
            self._task.cancel()


_blocks: weakref.WeakSet[cancelling] = weakref.WeakSet()


def _changed(flag: Flag) -> None:
    if _blocks and flag.control.action is Action.ABORT:
        for block in tuple(_blocks):
            block.stop(flag)


OBSERVERS.add(_changed)


_NO_TASK_TO_CANCEL: Final = (
    "control.cancelling cancels what a task of asyncio awaits: use it inside of a coroutine, or "
    "give it a cancel scope"
)
_NO_TASK_TO_LIMIT: Final = (
    "control.limit cancels what a task awaits: it has to be used inside of a coroutine"
)


class _Task:
    """The current task of asyncio, which a block cancels."""

    def __init__(self, otherwise: str) -> None:
        task: asyncio.Task[Any] | None = None
        with suppress(RuntimeError):
            task = asyncio.current_task()
        if task is None:
            raise RuntimeError(otherwise)
        self.cancel = task.cancel
        self._task: Any = task
        self._cancels = self._task.cancelling() if _COUNTS_CANCELS else 0

    def takes_back(self) -> bool:
        """Undoes the cancellation; True if nothing else requested one (on Python 3.10 too)."""
        return not _COUNTS_CANCELS or self._task.uncancel() <= self._cancels


def _soon() -> Callable[[Callable[[], None]], object]:
    """Returns a function that schedules calls on the running event loop, from any thread."""
    trio = running_trio()
    if trio is not None:
        return trio.lowlevel.current_trio_token().run_sync_soon
    loop = asyncio.get_running_loop()
    return lambda function: None if loop.is_closed() else loop.call_soon_threadsafe(function)


_UNKNOWN_S: Final = 600.0
"""Seconds that an unknown call may take."""


class Limit(Block):
    """Cancels what is awaited inside the block when its time is over. Used once, in one task.

    Works as `async with` and as `with`, both inside of a coroutine. Limits may be nested; the one
    that is over first speaks. A cancellation from outside stays one (on Python 3.10 as far as it
    does not come at the very moment of the limit).

    Attributes:
        seconds: The limit, in seconds.
        name: Name of what runs; None if it was not given.
        exceeded: True once the limit was passed.
    """

    def __init__(self, seconds: float, name: str | None = None) -> None:
        self.seconds = seconds
        self.name = name
        self.exceeded = False
        self._task: _Task | None = None
        self._handle: asyncio.TimerHandle | None = None
        self._span = trace.INVALID_SPAN

    def __enter__(self) -> Self:
        task = _Task(_NO_TASK_TO_LIMIT)
        if self._task is not None:
            msg = f"a limit is used once: this one of {self.seconds:g} s was entered before"
            raise RuntimeError(msg)
        self._task = task
        self._span = trace.get_current_span()
        self._handle = asyncio.get_running_loop().call_later(self.seconds, self._pass)
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        if self._handle is not None:
            self._handle.cancel()
        if not self.exceeded or self._task is None:
            return
        if self._task.takes_back() and isinstance(error, asyncio.CancelledError):
            who = "what was awaited" if self.name is None else repr(self.name[:200])
            msg = f"{who} passed its limit of {self.seconds:g} s and was cancelled"
            raise LoopGuardLimit(msg, self.seconds, self.name) from error

    def _pass(self) -> None:
        self.exceeded = True
        if self._span.is_recording():
            self._span.set_attribute(semconv.LIMIT_EXCEEDED, float(self.seconds))
        if self._task is not None:
            self._task.cancel()


def limit(seconds: float | None = None, *, tool: str | None = None, args: object = None) -> Limit:
    """Cancels what is awaited in the block once it has taken too long.

    ::

        async with control.limit(30):
            page = await fetch(url)

        async with control.limit(tool="fetch", args={"url": url}):
            page = await fetch(url)

    The attribute `loopguard.limit.exceeded` on the span that is current where the block begins says
    that it happened. What blocks its event loop, or swallows the cancellation, runs on.

    Args:
        seconds: The limit; by default five times the estimate of the tool, within 30 to 600 s, and
            600 s where nothing is known of it.
        tool: Name of the tool, for the estimate and the message.
        args: Its arguments, for the estimate.

    Returns:
        A context manager, for `async with` and `with`; it raises `LoopGuardLimit`, which is a
        `TimeoutError` too, when its time is over, and `RuntimeError` outside of a task.

    Raises:
        ValueError: The limit is no finite number above 0.
    """
    if seconds is None:
        # The longest that any guard of this process allows.
        allowed = () if tool is None else (one.limit_s(tool, args) for one in live_guards())
        seconds = max(allowed, default=_UNKNOWN_S)
    if (
        not isinstance(seconds, (int, float))  # pyright: ignore[reportUnnecessaryIsInstance]
        or isinstance(seconds, bool)
        or not 0 < seconds < math.inf
    ):
        raise ValueError(f"a limit must be a finite number of seconds above 0, got {seconds!r}")
    return Limit(seconds, tool)
