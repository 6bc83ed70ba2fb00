"""The run that something belongs to, for frameworks whose hooks are not told."""

from __future__ import annotations

import contextvars
import uuid
from collections.abc import Callable, Generator
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, cast

from opentelemetry import context as otel_context

from otel_loopguard.control import named_session
from otel_loopguard.control.context import naming

if TYPE_CHECKING:
    from otel_loopguard.errors import LoopGuardStop

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
        """The run of the current context, else a new one in a copy of the context.

        Args:
            traced: Whether its spans have a trace of their own, which is the session then; else
                the session has a key of its own, unless the context names one.
        """
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
