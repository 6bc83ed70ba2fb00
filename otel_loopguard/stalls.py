"""Which of the open spans are tool calls, and run for longer than they may."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final, NamedTuple

from otel_loopguard.core import Kind, Step
from otel_loopguard.detectors import stalled

if TYPE_CHECKING:
    from otel_loopguard.core import Detection
    from otel_loopguard.dialects import Reader, SpanView
    from otel_loopguard.settings import Settings

_NAMES: Final = 1024


class Stall(NamedTuple):
    """A call that runs for too long.

    Attributes:
        step: The call, as far as it can be read while it runs.
        detection: What is said about it.
        near: Whether it only comes near its limit, so that it is to be looked at again.
    """

    step: Step
    detection: Detection
    near: bool


class Stalls:
    """Judges open spans of one guard: only tool calls have a limit.

    Some dialects name the tool only when its span ends; so the names of spans that turned out to
    be tool calls are remembered, the newest 1024.
    """

    def __init__(self, settings: Settings, reader: Reader) -> None:
        self._settings = settings
        self._reader = reader
        self._tools: OrderedDict[str, str] = OrderedDict()

    def learn(self, span: SpanView, step: Step) -> None:
        """Takes a tool call that ended."""
        if step.name is not None and len(span.name) < 512 and span.name not in self._tools:
            self._tools[span.name] = step.name
            if len(self._tools) > _NAMES:
                self._tools.popitem(last=False)

    def of(self, span: SpanView, now: int) -> Stall | None:
        """What there is to say about a span that is open at `now`; None if there is nothing."""
        step = self._reader.read(span)
        tool = self._tool(span, step)
        if tool is None or tool in self._settings.exempt:
            return None
        running = (now - span.start) / 1e9
        found = stalled(self._settings.of(tool), tool, span.span_id, running)
        if found is None:
            return None
        read = step or Step(Kind.TOOL, tool)
        read.trace_id, read.span_id = span.trace_id, span.span_id
        return Stall(read, found, running < self._settings.of(tool).step_timeout_s)

    def _tool(self, span: SpanView, step: Step | None) -> str | None:
        if step is not None and step.kind is not Kind.TOOL:
            return None
        return (None if step is None else step.name) or self._tools.get(span.name)
