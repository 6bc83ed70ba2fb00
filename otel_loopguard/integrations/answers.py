"""Answers of models, as an adapter shows them to the guard where no processor feeds one."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import orjson
from opentelemetry.trace import SpanKind

from otel_loopguard.forks import renew_after_fork
from otel_loopguard.locks import new_lock

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Tracer
    from typing_extensions import Self

_MOST: Final = 1024


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
        """An answer whose tokens an object of the framework counts.

        Args:
            text: As of the class.
            agent: Likewise.
            model: Likewise.
            usage: What counts the tokens; None if nothing does.
            names: Its attributes for input and output tokens.
        """
        counted = (getattr(usage, name, None) for name in names)
        tokens_in, tokens_out = (one if isinstance(one, int) and one else None for one in counted)
        return cls(text, model, agent, tokens_in, tokens_out)

    def write(self, tracer: Tracer, context: Context | None, began: int | None) -> None:
        """Writes the span of the call, by the GenAI conventions.

        Args:
            tracer: Where it is made.
            context: What it belongs to.
            began: When the model was asked, nanoseconds since the epoch; None if unknown.
        """
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
        renew_after_fork(self)

    def forked(self) -> None:
        """In the child of a fork: the lock may be held."""
        self._lock = new_lock()

    def begin(self, place: Hashable) -> None:
        """A model is asked.

        Args:
            place: What tells the call from others.
        """
        with self._lock:
            self._since[place] = time.time_ns()
            self._since.move_to_end(place)
            if len(self._since) > _MOST:
                self._since.popitem(last=False)

    def end(self, place: Hashable) -> int | None:
        """When it was asked, nanoseconds since the epoch; None if that is not known."""
        with self._lock:
            return self._since.pop(place, None)
