"""Functions of tools that note the call that they are run for.

For a framework whose own span of a call is open while the function runs, says neither arguments nor
result, and is not open yet where a call can be refused.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, cast

if TYPE_CHECKING:
    from otel_loopguard.integrations.guarding import GuardedCall

_PLAIN: Final = (str, int, float, bool, dict, list, tuple, type(None))
_MARK: Final = "loopguard_notes"
_call: ContextVar[GuardedCall | None] = ContextVar("loopguard-call", default=None)


@contextmanager
def noting(call: GuardedCall) -> Generator[None, None, None]:
    """The block in which a framework runs the function of a call."""
    token = _call.set(call)
    try:
        yield
    finally:
        _call.reset(token)


def noted(
    function: Callable[..., Any], passing: tuple[type[BaseException], ...] = ()
) -> Callable[..., Any]:
    """A function that does the same, and notes its result and its span, inside of `noting`.

    Args:
        function: A function, a coroutine function or one that gives an asynchronous generator, the
            last item of which is the result then.
        passing: Exceptions by which the framework puts a call off.

    Returns:
        The function, or the very same if it notes already. Outside of `noting`, and for all that it
        calls itself, it is as it was.
    """
    if hasattr(function, _MARK):
        return function
    if inspect.isasyncgenfunction(function):
        made = _steps(function, passing)
    elif inspect.iscoroutinefunction(function):
        made = _later(function, passing)
    else:
        made = _now(function, passing)
    setattr(made, _MARK, True)
    return made


def _now(function: Callable[..., Any], passing: Any) -> Callable[..., Any]:
    @functools.wraps(function)
    def noting(*args: Any, **options: Any) -> Any:
        call = _taken()
        if call is None:
            return function(*args, **options)
        with call.span(passing) as made:
            result = function(*args, **options)
            if not inspect.isawaitable(result):
                made.result(_plain(result))
            return result

    return noting


def _later(function: Callable[..., Any], passing: Any) -> Callable[..., Any]:
    @functools.wraps(function)
    async def noting(*args: Any, **options: Any) -> Any:
        call = _taken()
        if call is None:
            return await function(*args, **options)
        with call.span(passing) as made:
            result = await function(*args, **options)
            made.result(_plain(result))
            return result

    return noting


def _steps(function: Callable[..., Any], passing: Any) -> Callable[..., Any]:
    @functools.wraps(function)
    async def noting(*args: Any, **options: Any) -> AsyncGenerator[Any, None]:
        call = _taken()
        result = None
        if call is None:
            async for result in function(*args, **options):
                yield result
            return
        with call.span(passing) as made:
            async for result in function(*args, **options):
                yield result
            made.result(_plain(result))

    return noting


def _taken() -> GuardedCall | None:
    """The call that the function is run for; functions that it calls are not."""
    call = _call.get()
    _call.set(None)
    return call


def _plain(result: object) -> object:
    return cast("object", result) if isinstance(result, _PLAIN) else str(result)
