"""Parts that some adapters share: runs, functions of tools, and a history without its repeats.

A model that reads the same call and answer again and again goes on with it. A round is one message
of the model with its calls, and their answers; it is left out as a whole, so that every call keeps
its answer. Of equal rounds the last stay, for the newest message has to be the last one.
"""

from __future__ import annotations

import contextvars
import functools
import hashlib
import inspect
import json
import uuid
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar, cast

from opentelemetry import context as otel_context

from otel_loopguard._control.context import named_session, naming
from otel_loopguard.errors import LoopGuardStop
from otel_loopguard.evidence import as_data

if TYPE_CHECKING:
    from otel_loopguard.integrations._adapter import Adapter, ToolCall

_Message = TypeVar("_Message")
_run: ContextVar[AgentRun | None] = ContextVar("loopguard-running", default=None)
_call: ContextVar[ToolCall | None] = ContextVar("loopguard-call", default=None)
_CAPTURES: Final = "loopguard_notes"


class AgentRun:
    """One run of an agent, and of all that run inside of it."""

    def __init__(self) -> None:
        self.context = contextvars.copy_context()
        self.stop: LoopGuardStop | None = None

    @classmethod
    def current(cls) -> AgentRun | None:
        """The run of the current context; None outside of one."""
        return _run.get()

    @classmethod
    def begin(cls, *, traced: bool) -> AgentRun:
        """The run of the current context, else a new one in a copy of the context."""
        found = _run.get()
        if found is not None:
            return found
        run = cls()
        run.context.run(_run.set, run)
        if not traced and named_session() is None:
            # The context is a copy, and ends with the run.
            run.context.run(otel_context.attach, naming(f"run-{uuid.uuid4().hex}"))
        return run

    def call(self, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """Calls what the run is; of a generator each step is made in the run too."""
        if _run.get() is self:
            return function(*args, **options)
        result = self.context.run(function, *args, **options)
        if isinstance(result, Generator):
            return self._iterate(cast("Generator[Any, Any, Any]", result))
        return result

    def join(self, function: Callable[..., Any], *args: Any) -> Any:
        """Calls a part of the run, in a thread that the framework started without the context."""
        if _run.get() is not None:
            return function(*args)
        return self.context.copy().run(function, *args)

    def _iterate(self, steps: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
        done = object()
        try:
            while (item := self.context.run(next, steps, done)) is not done:
                yield item
        finally:
            self.context.run(steps.close)


class GuardedAgent:
    """Replacements for methods of an agent whose framework has no hooks."""

    def __init__(self, agent: Any, adapter: Adapter) -> None:
        self._agent = agent
        self._kind: Any = type(agent)
        self._adapter = adapter
        self._running: AgentRun | None = None

    @classmethod
    def guards(cls, agent: Any) -> bool:
        """True if an agent is guarded already."""
        return isinstance(getattr(agent.run, "__self__", None), cls)

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """In place of the agent's."""
        inside, traced = AgentRun.current(), self._adapter.is_instrumented()
        self._running = running = AgentRun.begin(traced=traced)
        if inside is None and not traced:
            running.call(self._adapter.begin, None)
        return running.call(self._kind.run, self._agent, *args, **kwargs)


def raise_stop() -> None:
    """Raises what stopped the run of the current context, if anything did."""
    running = _run.get()
    if running is not None and running.stop is not None:
        raise running.stop


@contextmanager
def keeping_stop() -> Generator[None, None, None]:
    """Keeps a stop for `raise_stop`: the framework makes a result of what a tool raises."""
    try:
        yield
    except LoopGuardStop as stop:
        running = _run.get()
        if running is not None:
            running.stop = stop
        raise


@contextmanager
def capturing(call: ToolCall) -> Generator[None, None, None]:
    """The block in which a framework runs the function of a call, made by `captured`."""
    token = _call.set(call)
    try:
        yield
    finally:
        _call.reset(token)


def captured(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that does the same, and inside of `capturing` is the call and has its result."""
    if hasattr(function, _CAPTURES):
        return function

    if inspect.isasyncgenfunction(function):
        wrapper = _captured_stream(function)
    elif inspect.iscoroutinefunction(function):
        wrapper = _captured_coroutine(function)
    else:
        wrapper = _captured_function(function)
    setattr(wrapper, _CAPTURES, True)
    return wrapper


def _captured_function(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def run(*args: Any, **options: Any) -> Any:
        with _taken() as call:
            result = function(*args, **options)
            if call is not None and not inspect.isawaitable(result):
                call.set_result(as_data(result))
            return result

    return run


def _captured_coroutine(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    async def run(*args: Any, **options: Any) -> Any:
        with _taken() as call:
            result = await function(*args, **options)
            if call is not None:
                call.set_result(as_data(result))
            return result

    return run


def _captured_stream(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    async def run(*args: Any, **options: Any) -> AsyncGenerator[Any, None]:
        result = None
        with _taken() as call:
            async for result in function(*args, **options):
                yield result
            if call is not None:
                call.set_result(as_data(result))

    return run


def _taken() -> AbstractContextManager[ToolCall | None]:
    """The call that the function is run for; functions that it calls are not."""
    call = _call.get()
    _call.set(None)
    return call or nullcontext()


_LEAST_TIMES: Final = 3
"""Same as `repeat_threshold`, from which the guard hints: twice may be a check."""
_LONGEST_PERIOD: Final = 4
"""Rounds of a rotation; agents rotate among two or three calls, and each more is another look."""


class Round(NamedTuple):
    """The messages of one round, from `start` to before `stop`."""

    start: int
    stop: int
    key: bytes | None = None  # of calls and answers; None for any other message


def key_of(calls: Iterable[tuple[str, object, object]]) -> bytes:
    """The key of a round: name, arguments and answer of each call, in their order."""
    text = json.dumps([*calls], sort_keys=True, default=str)
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def folded(
    messages: Sequence[_Message], rounds: Sequence[Round], note: Callable[[str], _Message]
) -> list[_Message]:
    """The messages with one example of what was repeated three times or more, behind a note.

    Args:
        messages: The history; nothing in it is changed.
        rounds: All of its messages, in order.
        note: Makes a message of the user of a text.
    """
    found: list[_Message] = []
    place = 0
    while place < len(rounds):
        period, times = _loop_at(rounds, place)
        if times >= _LEAST_TIMES:
            found.append(note(_note(period, times)))
            # The last time stays, and may begin another loop.
            place += period * (times - 1)
        else:
            found += messages[rounds[place].start : rounds[place].stop]
            place += 1
    return found


def _loop_at(rounds: Sequence[Round], place: int) -> tuple[int, int]:
    """Number of rounds that repeat from a place on, and how often they occur."""
    for period in range(1, _LONGEST_PERIOD + 1):
        end = place
        while (
            end + period < len(rounds)
            and rounds[end].key is not None
            and rounds[end].key == rounds[end + period].key
        ):
            end += 1
        times = (end - place) // period + 1
        if times >= _LEAST_TIMES:
            return period, times
    return 1, 1


def _note(period: int, times: int) -> str:
    what = "The next round of calls" if period == 1 else f"The next {period} rounds of calls"
    return (
        f"[otel-loopguard] {what}, answers included, came {times} times in a row; "
        f"{(times - 1) * period} equal ones were left out here. The same calls will bring the same."
    )
