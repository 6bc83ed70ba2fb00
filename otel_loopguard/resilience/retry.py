"""Tries again what failed, where trying again can help, and writes until it is stored.

The tries are made by tenacity (extra `retry`): it has no dependencies, most agent frameworks bring
it along, and it has the three forms that are needed (decorator, iterator with a `with` block, the
same in asyncio), with delays that tests can replace. stamina stands on top of it, but its waits
cannot be told exactly, and it logs and counts through hooks of its own. What is ours is which
error may be retried, and that an aborted session does not go on trying.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Any, ParamSpec, TypedDict, TypeVar, cast, overload

from otel_loopguard._control.context import happened
from otel_loopguard._control.gate import check
from otel_loopguard._util.clock import deterministic
from otel_loopguard._util.logger import logger
from otel_loopguard.core.error_kinds import exception_class
from otel_loopguard.core.evidence import ErrorClass
from otel_loopguard.errors import LoopGuardError, UnverifiedWriteError

if TYPE_CHECKING:
    import tenacity
    from typing_extensions import Unpack

_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")

On = type[Exception] | tuple[type[Exception], ...] | Callable[[Exception], bool]
"""Which errors are retried: classes, or a predicate."""


class Retrying:
    """Rules of trying again, by `resilience.retrying`; threads and tasks may share them."""

    def __init__(
        self, *, limit: int = 3, delay_s: float = 2, max_delay_s: float = 30, on: On | None = None
    ) -> None:
        if limit < 0 or delay_s < 0 or max_delay_s < 0:
            msg = f"limit and delays must be 0 or more, got {limit=}, {delay_s=}, {max_delay_s=}"
            raise ValueError(msg)
        self._limit = limit
        self._delays_s = delay_s, max_delay_s
        self._on = on

    def __call__(self, function: Callable[_Given, _Result]) -> Callable[_Given, _Result]:
        """Makes a function, or a coroutine function, one that is tried again."""
        wraps: Any = self._made(is_async=inspect.iscoroutinefunction(function)).wraps
        return wraps(function)

    def __iter__(self) -> Iterator[tenacity.AttemptManager]:
        """Tries, each a `with` block: an error inside it is swallowed if another try follows."""
        return iter(self._made())

    def __aiter__(self) -> AsyncIterator[tenacity.AttemptManager]:
        """As iterating, with delays that do not block the event loop."""
        return aiter(self._made(is_async=True))

    def _made(self, *, is_async: bool = False) -> Any:
        """What tenacity makes the tries by."""
        try:
            import tenacity  # noqa: PLC0415
        except ImportError:
            msg = "retries need tenacity: pip install 'otel-loopguard[retry]'"
            raise ImportError(msg) from None
        wait = tenacity.wait_none()
        if not deterministic():
            delay_s, max_delay_s = self._delays_s
            wait = tenacity.wait_exponential(multiplier=delay_s, max=max_delay_s)
        return (tenacity.AsyncRetrying if is_async else tenacity.Retrying)(
            retry=tenacity.retry_if_exception(self._may_retry),
            stop=tenacity.stop_after_attempt(self._limit + 1),
            wait=wait,
            before=_check_again,
            before_sleep=self._log,
            reraise=True,
        )

    def _may_retry(self, error: BaseException) -> bool:
        """True for an error to try again after; what this package raises to stop is none."""
        if isinstance(error, LoopGuardError) or not isinstance(error, Exception):
            return isinstance(error, UnverifiedWriteError)
        on = self._on
        if on is None:
            return exception_class(error) is ErrorClass.TRANSIENT
        if isinstance(on, (type, tuple)):
            return isinstance(error, cast("tuple[type[Exception], ...]", on))
        return on(error)

    def _log(self, state: tenacity.RetryCallState) -> None:
        failed = None if state.outcome is None else state.outcome.exception()
        happened("retries")
        delay = 0.0 if state.next_action is None else state.next_action.sleep
        logger.info(
            "try %d of %d failed with %s; the next one is in %.1f s",
            state.attempt_number, self._limit + 1, type(failed).__name__, delay,
        )  # fmt: skip


class Rules(TypedDict, total=False):
    """Options of `resilience.retrying`; what is not given is as below.

    Attributes:
        limit: Further tries after the first (3).
        delay_s: Seconds before the first further try, then doubled (2).
        max_delay_s: Seconds of a delay at most (30).
        on: Which errors; by default those after which trying again can help: time-outs,
            connections, 408, 429 and 5xx.
    """

    limit: int
    delay_s: float
    max_delay_s: float
    on: On


@overload
def retrying(function: Callable[_Given, _Result], /) -> Callable[_Given, _Result]: ...
@overload
def retrying(**rules: Unpack[Rules]) -> Retrying: ...
def retrying(
    function: Callable[_Given, _Result] | None = None, /, **rules: Unpack[Rules]
) -> Callable[_Given, _Result] | Retrying:
    """Tries again after errors that may pass: at most 3 times, 2, 4 and 8 s later.

    ::

        @resilience.retrying
        def search(query): ...

        for attempt in resilience.retrying(limit=2, on=ConnectionError):
            with attempt:
                page = fetch(url)

        async for attempt in resilience.retrying():
            with attempt:
                page = await fetch(url)

    The last error is raised as it is. Between two tries the session is asked: in an aborted one
    `LoopGuardAbort` is raised instead of trying again. Every try leaves a span if the function
    makes one, so that the detectors see a storm of errors all the same.

    Args:
        function: A function or coroutine function, for the form without brackets.
        **rules: See `Rules`.

    Returns:
        The function, or a decorator that can be iterated over as well.

    Raises:
        ImportError: The extra `retry` is missing; said when the first try is made.
        ValueError: A limit or delay is below 0.
    """
    made = Retrying(**rules)
    return made if function is None else made(function)


def verified(
    write: Callable[[], object], stored: Callable[[], bool], **rules: Unpack[Rules]
) -> None:
    """Writes, reads back, and writes again with growing delays until it is there.

    Args:
        write: Writes; has to bear being called again.
        stored: Reads back; whether what was written is there.
        **rules: See `Rules`; an unverified write is tried again whatever `on` says.

    Raises:
        UnverifiedWriteError: It is not there after the last try; what `write` and `stored` raise
            in the last try is raised as it is.
    """
    for attempt in Retrying(**rules):
        with attempt:
            write()
            _require(stored(), write)


async def verified_async(
    write: Callable[[], Awaitable[object]],
    stored: Callable[[], Awaitable[bool]],
    **rules: Unpack[Rules],
) -> None:
    """As `verified`, with coroutine functions, without blocking the event loop.

    Args:
        write: Writes; has to bear being called again.
        stored: Reads back; whether what was written is there.
        **rules: See `Rules`.

    Raises:
        UnverifiedWriteError: It is not there after the last try.
    """
    async for attempt in Retrying(**rules):
        with attempt:
            await write()
            _require(await stored(), write)


def _require(there: object, write: Callable[[], object]) -> None:
    if not there:
        name = getattr(write, "__qualname__", type(write).__name__)
        msg = f"what {name} was to store is not there when it is read back"
        raise UnverifiedWriteError(msg)


def _check_again(state: tenacity.RetryCallState) -> None:
    if state.attempt_number > 1:
        check()
