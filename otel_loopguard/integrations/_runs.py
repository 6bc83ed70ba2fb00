"""The run that a call belongs to, and the answers of its models."""

from __future__ import annotations

import contextvars
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Generator, Hashable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

import orjson
from opentelemetry import context as otel_context
from opentelemetry.trace import SpanKind

from otel_loopguard._control.context import named_session, naming
from otel_loopguard._util.fork import reset_after_fork
from otel_loopguard._util.locks import new_lock

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Tracer
    from typing_extensions import Self

    from otel_loopguard.errors import LoopGuardStop

_MOST: Final = 1024


class Runs:
    """One key for each run, for runs that have no id of their own.

    For a framework that gives its hooks something that is the same throughout a run, and another
    one in every run. The newest 1024 are known.
    """

    def __init__(self) -> None:
        self._known: OrderedDict[int, tuple[object, str]] = OrderedDict()
        self.forked()
        reset_after_fork(self)

    def forked(self) -> None:
        """In the child of a fork: the lock may be held."""
        self._lock = new_lock()

    def knows(self, run: object) -> bool:
        """Whether the key of a run was asked for before."""
        return id(run) in self._known

    def key_of(self, run: object) -> str:
        """The key of a run."""
        with self._lock:
            found = self._known.get(id(run)) or (run, f"run-{uuid.uuid4().hex}")
            self._known[id(run)] = found
            self._known.move_to_end(id(run))
            if len(self._known) > _MOST:
                self._known.popitem(last=False)
        return found[1]


class Given:
    """Keys that an adapter has named spans after; the newest 1024."""

    def __init__(self) -> None:
        self._keys: dict[str, None] = {}

    def add(self, key: str) -> None:
        """Takes a key."""
        if key in self._keys:
            return
        # A dict replaced whole: readers take no lock.
        self._keys = dict.fromkeys([*self._keys, key][-_MOST:])

    def others(self, key: str | None, mine: str | None) -> bool:
        """Whether a key was given to another run than that of `mine`."""
        return mine is not None and key != mine and key in self._keys


_current: ContextVar[Running | None] = ContextVar("loopguard-running", default=None)


class Running:
    """One run of an agent, and of all that run inside of it.

    Attributes:
        context: The context that it runs in, for threads that the framework starts without it.
        stop: What stopped it, where the framework swallows that; None if nothing did.
    """

    def __init__(self) -> None:
        self.context = contextvars.copy_context()
        self.stop: LoopGuardStop | None = None

    @classmethod
    def current(cls) -> Running | None:
        """The run of the current context; None outside of one."""
        return _current.get()

    @classmethod
    def begin(cls, *, traced: bool) -> Running:
        """The run of the current context, else a new one in a copy of the context."""
        found = _current.get()
        if found is not None:
            return found
        made = cls()
        made.context.run(made._enter, named=traced or named_session() is not None)
        return made

    def call(self, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """Calls what the run is; of a generator each step is made in the run too."""
        if _current.get() is self:
            return function(*args, **options)
        result = self.context.run(function, *args, **options)
        if isinstance(result, Generator):
            return self._driven(cast("Generator[Any, Any, Any]", result))
        return result

    def join(self, function: Callable[..., Any], *args: Any) -> Any:
        """Calls a part of the run, in a thread that the framework started without the context."""
        if _current.get() is not None:
            return function(*args)
        return self.context.copy().run(function, *args)

    def _enter(self, *, named: bool) -> None:
        _current.set(self)
        if not named:
            # The context is a copy, and ends with the run.
            otel_context.attach(naming(f"run-{uuid.uuid4().hex}"))

    def _driven(self, steps: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
        done = object()
        try:
            while (item := self.context.run(next, steps, done)) is not done:
                yield item
        finally:
            self.context.run(steps.close)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a model answered.

    Attributes:
        text: What it wrote; empty if it wrote nothing, None if that is not known.
        model: Its name.
        agent: Name of the agent that asked.
        tokens_in: Input tokens.
        tokens_out: Output tokens.
    """

    text: str | None = None
    model: str | None = None
    agent: str | None = None
    tokens_in: int | None = None
    tokens_out: int | None = None

    @classmethod
    def of_usage(
        cls, text: str | None, *, agent: str | None = None, model: str | None = None,
        usage: Any = None, names: tuple[str, str] = ("input_tokens", "output_tokens"),
    ) -> Self:  # fmt: skip
        """An answer whose tokens an object of the framework counts."""
        counted = (getattr(usage, name, None) for name in names)
        tokens_in, tokens_out = (one if isinstance(one, int) and one else None for one in counted)
        return cls(text, model, agent, tokens_in, tokens_out)

    def write(self, tracer: Tracer, context: Context | None, began: int | None) -> None:
        """Writes the span of the call, by the GenAI conventions."""
        known = {
            "gen_ai.request.model": self.model,
            "gen_ai.agent.name": self.agent,
            "gen_ai.usage.input_tokens": self.tokens_in,
            "gen_ai.usage.output_tokens": self.tokens_out,
        }
        told = {name: value for name, value in known.items() if value is not None}
        if self.text is not None:
            parts = [{"type": "text", "content": self.text}] if self.text else []
            said = [{"role": "assistant", "parts": parts}]
            told["gen_ai.output.messages"] = orjson.dumps(said).decode()
        span = tracer.start_span(
            f"chat {self.model or 'model'}",
            context,
            kind=SpanKind.CLIENT,
            attributes={"gen_ai.operation.name": "chat", **told},
            start_time=began,
        )
        span.end()


class Asked:
    """When a model was asked, of the newest 1024 calls under way. Thread-safe."""

    def __init__(self) -> None:
        self._since: OrderedDict[Hashable, int] = OrderedDict()
        self.forked()
        reset_after_fork(self)

    def forked(self) -> None:
        """In the child of a fork: the lock may be held."""
        self._lock = new_lock()

    def begin(self, place: Hashable) -> None:
        """A model is asked."""
        with self._lock:
            self._since[place] = time.time_ns()
            self._since.move_to_end(place)
            if len(self._since) > _MOST:
                self._since.popitem(last=False)

    def end(self, place: Hashable) -> int | None:
        """When it was asked, nanoseconds since the epoch; None if that is not known."""
        with self._lock:
            return self._since.pop(place, None)
