"""The spans of one test, and their tree as text."""

from __future__ import annotations

import weakref
from collections import defaultdict, deque
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ALWAYS_ON

from otel_loopguard._util.bounded import BoundedDict
from otel_loopguard._util.locks import new_lock
from otel_loopguard._util.text import truncate
from otel_loopguard.errors import LoopGuardError
from otel_loopguard.sdk.exporter import LoopGuardSpanExporter
from otel_loopguard.spans.sdk_views import EndedSpanView

if TYPE_CHECKING:
    from opentelemetry.context import Context

    from otel_loopguard.core import Decision, Step
    from otel_loopguard.guard.guard import LoopGuard
    from otel_loopguard.spans.views import SpanView


class Relay(SpanProcessor):
    """Stays on a provider for good, and forwards its spans to the current listeners."""

    def __init__(self) -> None:
        self.listeners: tuple[SpanProcessor, ...] = ()

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Forwards a span that starts."""
        for listener in self.listeners:
            listener.on_start(span, parent_context)

    def on_end(self, span: ReadableSpan) -> None:
        """Forwards a span that ended."""
        for listener in self.listeners:
            listener.on_end(span)


_adding = new_lock()
_relays: weakref.WeakKeyDictionary[Any, Relay] = weakref.WeakKeyDictionary()


@contextmanager
def listening(provider: Any, *listeners: SpanProcessor) -> Generator[None, None, None]:
    """Lets processors see the spans of a provider within the block."""
    with _adding:
        relay = _relay_on(provider)
        relay.listeners += listeners
    try:
        yield
    finally:
        with _adding:
            relay.listeners = tuple(one for one in relay.listeners if one not in listeners)


def own_provider() -> TracerProvider:
    """A private provider that samples all spans, whatever the environment says."""
    return TracerProvider(sampler=ALWAYS_ON, shutdown_on_exit=False)


def global_provider() -> Any:
    """The provider of the process; a new one is set where there is none yet, and stays."""
    found = trace.get_tracer_provider()
    if isinstance(found, trace.ProxyTracerProvider):
        trace.set_tracer_provider(own_provider())
        found = trace.get_tracer_provider()
    return found


def _relay_on(provider: Any) -> Relay:
    if not hasattr(provider, "add_span_processor"):
        raise LoopGuardError(
            f"{type(provider).__name__} takes no span processors, so no span can be "
            "watched: use the SDK's TracerProvider, or provider='own'"
        )
    found = _relays.get(provider)
    if found is None:
        found = _relays[provider] = Relay()
        provider.add_span_processor(found)
    return found


# A failing test prints the tree: it is to fit a screen, its lines a terminal.
_FIRST_SPANS: Final = 30
_DEPTH: Final = 40
_NAME_CHARS: Final = 60
_TEXT_CHARS: Final = 90
_SENTENCE_CHARS: Final = 300


def tree(
    spans: Iterable[ReadableSpan],
    decisions: Sequence[Decision],
    read: Callable[[SpanView], Step | None],
    *,
    arguments: bool = True,
) -> str:
    """The spans of all traces as trees, those with decisions marked by `◆`.

    A long tree shows the first 30 spans and those with a decision.
    """
    marks: defaultdict[int, list[str]] = defaultdict(list)
    for decision in decisions:
        marks[decision.span_id].append(_sentence(decision))
    views = sorted((EndedSpanView(span) for span in spans), key=lambda view: view.start)
    known = {view.span_id for view in views}
    children: defaultdict[int | None, list[EndedSpanView]] = defaultdict(list)
    for view in views:
        children[view.parent_id if view.parent_id in known else None].append(view)
    lines: list[str] = []
    # What the line of a span begins with, and what the lines below it begin with.
    waiting = [(view, "", "") for view in reversed(children[None])]
    shown = hidden = 0
    while waiting:
        view, begin, under = waiting.pop()
        said = marks.get(view.span_id, ())
        if said or shown < _FIRST_SPANS:
            lines += [f"… {hidden} more spans"] if hidden else []
            label = _label(view, read(view), arguments=arguments)
            lines.append(f"{begin}{'◆ ' if said else ''}{label}")
            lines += [f"{under}    {sentence}" for sentence in said]
            shown, hidden = shown + 1, 0
        else:
            hidden += 1
        last = True
        deep = len(under) >= 3 * _DEPTH
        for child in reversed(children[view.span_id]):
            joint, gap = ("└─ ", "   ") if last else ("├─ ", "│  ")
            waiting.append((child, begin, under) if deep else (child, under + joint, under + gap))
            last = False
    lines += [f"… {hidden} more spans"] if hidden else []
    return "\n".join(lines)


def _label(view: EndedSpanView, step: Step | None, *, arguments: bool) -> str:
    parts = [truncate(view.name, _NAME_CHARS)]
    if arguments and step is not None and step.args is not None:
        parts.append(truncate(step.args, _TEXT_CHARS))
    if view.status == "error":
        said = truncate(view.description, _TEXT_CHARS) if arguments else ""
        parts.append(f"✗ {said}".rstrip())
    if view.end is None:
        parts.append("(still open)")
    return "  ".join(parts)


def _sentence(decision: Decision) -> str:
    shadow = ", shadow" if decision.shadow else ""
    told = f"{decision.action} ({decision.severity}{shadow}) by {decision.detector}: "
    return told + truncate(decision.message, _SENTENCE_CHARS)


_KEPT: Final = 10_000
"""Newest spans of one test; a test that leaves spans open does not fill the memory."""


class _Memory(SpanExporter):
    def __init__(self) -> None:
        self.spans: deque[ReadableSpan] = deque(maxlen=_KEPT)

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.spans.extend(spans)
        return SpanExportResult.SUCCESS


class Spans(SpanProcessor):
    """Keeps the newest 10,000 spans that ended, and as many that are open.

    It comes after the live processor, so that each span has its decision already.
    """

    def __init__(self, guard: LoopGuard) -> None:
        self._memory = _Memory()
        self._exporter = LoopGuardSpanExporter(self._memory, guard)
        self._open: BoundedDict[int, ReadableSpan] = BoundedDict(_KEPT)

    @property
    def ended(self) -> tuple[ReadableSpan, ...]:
        """Spans that ended, in this order; with the attributes of their decisions."""
        return tuple(self._memory.spans)

    @property
    def open(self) -> tuple[ReadableSpan, ...]:
        """Spans that are open."""
        return tuple(self._open.values())

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Takes a span that starts."""
        del parent_context
        self._open[span.get_span_context().span_id] = span

    def on_end(self, span: ReadableSpan) -> None:
        """Takes a span that ended."""
        context = span.get_span_context()
        if context is not None:
            self._open.pop(context.span_id, None)
        self._exporter.export((span,))
