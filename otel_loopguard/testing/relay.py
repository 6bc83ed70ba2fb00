"""Which tracer provider is listened to, and for how long: providers cannot remove a processor."""

from __future__ import annotations

import weakref
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_ON

from otel_loopguard.errors import LoopGuardError
from otel_loopguard.locks import new_lock

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import Span


class Relay(SpanProcessor):
    """Stays on a provider for good, and hands its spans to whoever listens at the moment."""

    def __init__(self) -> None:
        self._listeners: tuple[SpanProcessor, ...] = ()

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Hands on a span that starts."""
        for listener in self._listeners:
            listener.on_start(span, parent_context)

    def on_end(self, span: ReadableSpan) -> None:
        """Hands on a span that ended."""
        for listener in self._listeners:
            listener.on_end(span)

    def add(self, *listeners: SpanProcessor) -> None:
        """Hands spans to these too, in this order."""
        with _adding:
            self._listeners = (*self._listeners, *listeners)

    def remove(self, *listeners: SpanProcessor) -> None:
        """Hands these no more spans."""
        with _adding:
            self._listeners = tuple(one for one in self._listeners if one not in listeners)


# Of the one process that runs the test; a test that forks while another thread adds is none.
_adding = new_lock()
_relays: weakref.WeakKeyDictionary[Any, Relay] = weakref.WeakKeyDictionary()


@contextmanager
def listening(provider: Any, *listeners: SpanProcessor) -> Generator[None, None, None]:
    """Shows the spans of a provider to processors, inside of the block.

    Args:
        provider: A provider with `add_span_processor`.
        *listeners: Who is shown each span, in this order.

    Raises:
        LoopGuardError: The provider takes no processors.
    """
    relay = _relay_on(provider)
    relay.add(*listeners)
    try:
        yield
    finally:
        relay.remove(*listeners)


def own_provider() -> TracerProvider:
    """A provider that samples all, whatever the environment says, and that nobody else knows."""
    return TracerProvider(sampler=ALWAYS_ON, shutdown_on_exit=False)


def global_provider() -> Any:
    """The provider of the process; a new one is set where there is none yet, and stays."""
    found = trace.get_tracer_provider()
    if isinstance(found, trace.ProxyTracerProvider):
        trace.set_tracer_provider(own_provider())
        found = trace.get_tracer_provider()
    return found


def _relay_on(provider: Any) -> Relay:
    with _adding:
        found = _relays.get(provider)
        if found is None:
            if not hasattr(provider, "add_span_processor"):
                msg = (
                    f"{type(provider).__name__} takes no span processors, so no span can be "
                    "watched: use the SDK's TracerProvider, or provider='own'"
                )
                raise LoopGuardError(msg)
            found = _relays[provider] = Relay()
            provider.add_span_processor(found)
        return found
