"""What is awaited in a session that is aborted is cancelled: `async with control.cancelling():`."""

from __future__ import annotations

import asyncio
import sys
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Protocol

from otel_loopguard.control.context import current_places, flag_at, flags_at
from otel_loopguard.control.gate import check_at
from otel_loopguard.control.watchers import WATCHERS
from otel_loopguard.core import Action
from otel_loopguard.locks import new_lock

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

    from otel_loopguard.control.flag import Flag

_COUNTS_CANCELS: Final = sys.version_info >= (3, 11)


class Scope(Protocol):
    """What can be cancelled: a scope of anyio or trio."""

    def cancel(self) -> Any:
        """Cancels what runs inside."""
        ...


class cancelling:  # noqa: N801  # reads as a statement: `async with control.cancelling():`
    """A block whose awaiting is cancelled when its session is aborted (D13, D14).

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
        self._scope = scope
        self._flag: Flag | None = None
        self._lock = new_lock()

    def __enter__(self) -> Self:
        places = list(current_places())
        known = (place for place in places if flag_at(place) is not None)
        # Of a run that nothing is known of yet, the trace: it may get its flag while it waits.
        self._place = next(known, places[-1] if places else None)
        self._task = None if self._scope is not None else _current_task()
        self._soon = _soon()
        self._cancels = _cancels(self._task)
        _blocks.add(self)
        for known in () if self._place is None else flags_at(self._place):
            check_at(known)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        _blocks.discard(self)
        with self._lock:
            flag, self._place = self._flag, None
        if flag is None:
            return
        own = self._task is None or _taken_back(self._task) <= self._cancels
        if own and kind is not None and not issubclass(kind, Exception):
            check_at(flag)

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.__exit__(kind, error, traceback)

    def stop(self, flag: Flag) -> None:
        """Cancels the block if it is one of a session, from any thread."""
        place = self._place
        if self._flag is None and place is not None and flag in flags_at(place):
            self._soon(lambda: self._cancel(flag))

    def _cancel(self, flag: Flag) -> None:
        with self._lock:
            if self._place is None or self._flag is not None:
                return
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


WATCHERS.add(_changed)


def _current_task() -> asyncio.Task[Any]:
    try:
        task = asyncio.current_task()
    except RuntimeError:
        task = None
    if task is None:
        msg = (
            "control.cancelling cancels what a task of asyncio awaits: use it inside of a "
            "coroutine, or give it a cancel scope"
        )
        raise RuntimeError(msg)
    return task


def _soon() -> Callable[[Callable[[], None]], object]:
    """What has a function called in the event loop that runs here, from any thread."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        trio = sys.modules.get("trio")
        if trio is None:
            raise
        return trio.lowlevel.current_trio_token().run_sync_soon
    return lambda function: _call_soon(loop, function)


def _call_soon(loop: asyncio.AbstractEventLoop, function: Callable[[], None]) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(function)


def _cancels(task: Any) -> int:
    return task.cancelling() if task is not None and _COUNTS_CANCELS else 0


def _taken_back(task: Any) -> int:
    return task.uncancel() if _COUNTS_CANCELS else 0
