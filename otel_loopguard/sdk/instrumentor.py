"""LoopGuardInstrumentor: the guard under `opentelemetry-instrument` and in a configuration file.

Needs opentelemetry-instrumentation, which is there wherever an instrumentor is loaded from.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from contextlib import suppress
from importlib import import_module
from typing import Any, Final

from opentelemetry import trace
from opentelemetry.instrumentation.instrumentor import BaseInstrumentor

from otel_loopguard._util.errors import InternalErrors, attempt, logger
from otel_loopguard.errors import LoopGuardSettingsError
from otel_loopguard.guard.guard import LoopGuard
from otel_loopguard.sdk.exporter import exporter_settings, without_none
from otel_loopguard.sdk.processor import LoopGuardSpanProcessor
from otel_loopguard.sdk.provider import remember
from otel_loopguard.settings import Settings

_FILE: Final = "OTEL_CONFIG_FILE"


class LoopGuardInstrumentor(BaseInstrumentor):
    """Adds a `LoopGuardSpanProcessor` to a tracer provider.

    `instrument(tracer_provider=None, guard=None, meter_provider=None, logger_provider=None,
    **settings)` takes the provider (default: the global one), and the guard (default: the guard of
    the process) or settings of a guard of its own (see `Settings`), with who is told of it. A
    `LoopGuardSpanExporter` that was given no guard writes the decisions of this one, so that
    nothing is reported twice; settings that such an exporter was given hold where these say
    nothing. Without any of these it takes what the file in `OTEL_CONFIG_FILE` says below
    `instrumentation/development: python: loopguard:`. A setting of None is as none. It raises
    LoopGuardSettingsError for a setting that cannot be used; where it was given nothing, as by
    `opentelemetry-instrument`, it logs that. `uninstrument()` ends the watching.
    """

    _processor: LoopGuardSpanProcessor | None = None

    def instrumentation_dependencies(self) -> Collection[str]:
        """Returns nothing: spans of every library are read."""
        return ()

    def _instrument(self, **options: Any) -> None:
        if options:
            self._watch(without_none(options))
            return
        try:
            self._watch(without_none(_configured()))
        except LoopGuardSettingsError as error:
            # `opentelemetry-instrument` drops all instrumentations that are not loaded yet.
            logger.error("%s; no span is watched", error)
            # By an exporter neither, which would go by the defaults. What is wrong in the
            # environment it finds itself.
            with suppress(LoopGuardSettingsError):
                self._watch({"enabled": False})

    def _watch(self, options: dict[str, Any]) -> None:
        provider: Any = options.pop("tracer_provider", None) or trace.get_tracer_provider()
        if not hasattr(provider, "add_span_processor"):
            logger.warning(
                "%s takes no span processors, so no span is watched; set up a TracerProvider "
                "first, or pass it: instrument(tracer_provider=...); opentelemetry-instrument "
                "sets one up where opentelemetry-distro is installed",
                type(provider).__name__,
            )
            return
        outputs = {name: options.pop(name, None) for name in ("meter_provider", "logger_provider")}
        guard = options.pop("guard", None)
        settings = {**exporter_settings(), **options}
        if guard is None and (settings or any(outputs.values())):
            guard = LoopGuard(Settings(**settings), **outputs)
        self._processor = LoopGuardSpanProcessor(guard or LoopGuard.default())
        provider.add_span_processor(self._processor)
        remember(provider, self._processor)

    def _uninstrument(self, **_options: Any) -> None:
        if self._processor:
            self._processor.shutdown()
            self._processor = None


def _configured() -> Mapping[str, Any]:
    """The entry of this instrumentor in the declarative configuration.

    OpenTelemetry reads it too. But what the file switches off, or what a mistake in it kept from
    starting, `opentelemetry-instrument` starts all the same afterwards, without any options; a
    guard that was to be in mode `shadow` would then act.
    """
    path = os.environ.get(_FILE)
    found = attempt(InternalErrors(), "instrumentor.file", _read, path) if path else None
    return found or {}


def _read(path: str) -> Mapping[str, Any] | None:
    try:
        configuration: Any = import_module("opentelemetry.configuration")
    except ImportError:
        return None  # no other program can read the file either
    written: Any = configuration.load_config_file(path).instrumentation_development
    return written.python.get("loopguard") if written and written.python else None
