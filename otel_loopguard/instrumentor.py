"""LoopGuardInstrumentor: the guard under `opentelemetry-instrument` and in a configuration file.

Needs opentelemetry-instrumentation, which is there wherever an instrumentor is loaded from.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Any

from opentelemetry import trace
from opentelemetry.instrumentation.instrumentor import BaseInstrumentor

from otel_loopguard.exporter import exporter_settings
from otel_loopguard.guard import LoopGuard
from otel_loopguard.processor import LoopGuardSpanProcessor
from otel_loopguard.settings import Settings

_log = logging.getLogger("otel_loopguard")


class LoopGuardInstrumentor(BaseInstrumentor):
    """Adds a `LoopGuardSpanProcessor` to a tracer provider.

    `instrument(tracer_provider=None, guard=None, **settings)` takes the provider (default: the
    global one), and the guard (default: the guard of the process) or settings of a guard of its
    own (see `Settings`). A `LoopGuardSpanExporter` that was given no guard writes the decisions of
    this one, so that nothing is reported twice; settings that such an exporter was given hold where
    these say nothing. It raises LoopGuardSettingsError for a setting that cannot be used.
    `uninstrument()` ends the watching.
    """

    _processor: LoopGuardSpanProcessor | None = None

    def instrumentation_dependencies(self) -> Collection[str]:
        """Returns nothing: spans of every library are read."""
        return ()

    def _instrument(self, **options: Any) -> None:
        provider: Any = options.pop("tracer_provider", None) or trace.get_tracer_provider()
        if not hasattr(provider, "add_span_processor"):
            _log.warning(
                "otel-loopguard: %s takes no span processors, so no span is watched; set up a "
                "TracerProvider first, or pass it: instrument(tracer_provider=...)",
                type(provider).__name__,
            )
            return
        guard = options.pop("guard", None) or _guard_of({**exporter_settings(), **options})
        self._processor = LoopGuardSpanProcessor(guard)
        provider.add_span_processor(self._processor)

    def _uninstrument(self, **_options: Any) -> None:
        if self._processor:
            self._processor.shutdown()
            self._processor = None


def _guard_of(settings: dict[str, Any]) -> LoopGuard:
    return LoopGuard(Settings(**settings)) if settings else LoopGuard.default()
