"""Setup of the guard on the present tracer provider, once."""

from __future__ import annotations

import os
import weakref
from typing import TYPE_CHECKING, Any, Final

from opentelemetry import trace
from opentelemetry.sdk.environment_variables import OTEL_SDK_DISABLED
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_ON

from otel_loopguard._util import clock
from otel_loopguard._util.clock import off
from otel_loopguard._util.errors import warn_blind
from otel_loopguard._util.locks import new_lock
from otel_loopguard._util.text import expected
from otel_loopguard.errors import LoopGuardError, LoopGuardSettingsError
from otel_loopguard.guard.guard import LoopGuard
from otel_loopguard.sdk.exporter import LoopGuardSpanExporter, exporter_settings
from otel_loopguard.sdk.processor import LoopGuardSpanProcessor
from otel_loopguard.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from opentelemetry.context import Context
    from opentelemetry.trace import Span

_EXPORTER: Final = "OTEL_TRACES_EXPORTER"
_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")


class GuardOnlyProcessor(LoopGuardSpanProcessor):
    """Feeds a guard spans of our own; adapters that ask for a processor are to find none."""

    attaches = False


class GuardOnlyProvider(TracerProvider):
    """Its spans only a guard sees, uncut, for where others make none or drop them."""

    def __init__(self, processor: GuardOnlyProcessor) -> None:
        limits = SpanLimits(
            max_attribute_length=SpanLimits.UNSET, max_span_attribute_length=SpanLimits.UNSET
        )
        super().__init__(ALWAYS_ON, Resource.get_empty(), span_limits=limits)
        self.guard = processor.guard
        self.add_span_processor(processor)


class _Watched:
    """A provider with a processor of ours on it."""

    def __init__(self, provider: Any, processor: LoopGuardSpanProcessor) -> None:
        # Compared by identity: providers of others need not have a hash.
        self.provider: weakref.ref[Any] = weakref.ref(provider)
        self.processor = processor
        self.exports = False


class _Providers:
    """The providers of this process that were set up, and one whose spans only a guard sees."""

    def __init__(self) -> None:
        self.watched: list[_Watched] = []
        self.guard_only: GuardOnlyProvider | None = None
        self.lock = new_lock()

    def get(self, provider: Any) -> _Watched | None:
        """Returns the entry of a provider, or None."""
        self.watched = [one for one in self.watched if one.provider() is not None]
        return next((one for one in self.watched if one.provider() is provider), None)


_providers = _Providers()


def setup(
    guard: LoopGuard | None = None,
    *,
    tracer_provider: trace.TracerProvider | None = None,
    exporter: SpanExporter | str | Mapping[str, Any] | None = None,
    **settings: Any,
) -> LoopGuard:
    """Adds the guard to the present tracer provider, and to the path of its exports.

    ::

        logfire.configure()
        otel_loopguard.setup()

    Call it after the code that makes the provider (`logfire.configure()`, `Langfuse()`, a
    distribution of OpenTelemetry). If there is no provider, it sets the SDK's `TracerProvider`,
    with the exporter of `OTEL_TRACES_EXPORTER` or `OTEL_EXPORTER_OTLP_ENDPOINT` if one of them is
    set. Further calls change nothing.

    Decisions are written on spans that are open. On ended spans they can only be written by a
    wrapped exporter, and an exporter that is on a provider already cannot be wrapped any more: give
    yours as `exporter`, in place of adding it yourself.

    Args:
        guard: The guard. By default the one that is attached already, else that of the process.
        tracer_provider: The provider; the global one by default.
        exporter: Where spans go, wrapped and behind a `BatchSpanProcessor`: an exporter, or its
            name as for `LoopGuardSpanExporter`.
        **settings: Settings of a new guard, by name; see `Settings`.

    Returns:
        The guard that watches the provider.

    Raises:
        LoopGuardSettingsError: A setting cannot be used, `guard` and settings were both given, or
            the provider was set up with a guard or settings that are others.
        LoopGuardError: The provider takes no span processors.
        TypeError: What was given is no guard.
    """
    if guard is not None and settings:
        msg = f"a guard was given: set {sorted(settings)} in its Settings instead"
        raise LoopGuardSettingsError(msg)
    if guard is not None and _takes(guard):
        raise TypeError(expected("a LoopGuard", guard, "setup(tracer_provider=...)"))
    with _providers.lock:
        provider: Any = tracer_provider or trace.get_tracer_provider()
        missing = type(provider) is trace.ProxyTracerProvider
        known = None if missing else _providers.get(_innermost(provider))
        if known is not None:
            _check_same(known.processor.guard, guard, settings)
        else:
            if guard is None:
                # Before anything is changed: a setting may be invalid.
                merged = {**exporter_settings(), **settings}
                guard = LoopGuard(Settings(**merged)) if merged else _present_guard()
            if missing:
                trace.set_tracer_provider(TracerProvider())
                provider = trace.get_tracer_provider()
            known = _watch(provider, guard)
        if exporter is None and missing:
            exporter = _from_environment()
        if exporter is not None and not known.exports:
            out = LoopGuardSpanExporter(exporter, known.processor.guard)
            provider.add_span_processor(BatchSpanProcessor(out))
            known.exports = True
    if sdk_disabled():
        warn_blind("sdk_disabled", OTEL_SDK_DISABLED)
    return known.processor.guard


def sdk_disabled() -> bool:
    """True if the environment has the SDK make no spans."""
    return os.environ.get(OTEL_SDK_DISABLED, "").strip().lower() == "true"


def remember(provider: Any, processor: LoopGuardSpanProcessor) -> None:
    """Remembers that a processor was put on a provider by another way of ours."""
    with _providers.lock:
        _providers.watched.append(_Watched(_innermost(provider), processor))


def ensure_followed(span: Span, provider: Any, context: Context) -> bool:
    """Sets up the provider of a span that has just started, where no guard watches it.

    False where the span records nothing, so that no guard can follow it.
    """
    if off() or is_followed(span):
        return True
    there = provider or trace.get_tracer_provider()
    if not isinstance(span, ReadableSpan) or not span.is_recording() or not _takes(there):
        return False
    if clock.state.only is not None:
        return True  # a test says itself what it watches
    guard = setup(tracer_provider=provider)
    if not guard.settings.enabled:
        return True
    known = _providers.get(_innermost(there))
    if known is not None:
        span_of_sdk: Any = span
        # It started before the processor was there.
        known.processor.on_start(span_of_sdk, context)
    return is_followed(span)


def guard_only_provider() -> GuardOnlyProvider | None:
    """The provider whose spans only a guard sees.

    None where the guard is switched off, or the SDK makes no spans at all.
    """
    if sdk_disabled():
        return None
    with _providers.lock:
        test: Any = clock.state.only
        guard: LoopGuard = test or _present_guard()
        if not guard.settings.enabled:
            return None
        known = _providers.guard_only
        if known is None or known.guard is not guard:
            known = _providers.guard_only = GuardOnlyProvider(GuardOnlyProcessor(guard))
        return known


def _watch(provider: Any, guard: LoopGuard) -> _Watched:
    if not _takes(provider):
        raise LoopGuardError(
            f"{type(provider).__name__} takes no span processors, so no span can be watched: set "
            "up the SDK's TracerProvider first, or pass it: setup(tracer_provider=...)"
        )
    processor = LoopGuardSpanProcessor(guard)
    provider.add_span_processor(processor)
    known = _Watched(_innermost(provider), processor)
    _providers.watched.append(known)
    return known


def _present_guard() -> LoopGuard:
    """The guard that is meant where none is named."""
    # That of a processor that the application made itself; that of a test ends with it.
    attached = [one for one in LoopGuard.all_attached() if one is not clock.state.only]
    return attached[0] if len(attached) == 1 else LoopGuard.default()


def _check_same(known: LoopGuard, guard: LoopGuard | None, settings: dict[str, Any]) -> None:
    if guard is not None and guard is not known:
        msg = "the tracer provider is set up already, with another guard: call setup() once"
        raise LoopGuardSettingsError(msg)
    wanted = Settings(**settings) if settings else known.settings
    have = known.settings.values()
    changed = [name for name, value in wanted.values().items() if value != have[name]]
    if changed:
        msg = f"the tracer provider is set up already, with another {changed[0]}: call setup() once"
        raise LoopGuardSettingsError(msg)


def _from_environment() -> str | None:
    named = os.environ.get(_EXPORTER, "").split(",")[0].strip()
    if named:
        # Its own name stands for the exporter that `LOOPGUARD_EXPORTER` names.
        return os.environ.get("LOOPGUARD_EXPORTER", "otlp") if named == "loopguard" else named
    return "otlp" if any(os.environ.get(name) for name in _ENDPOINTS) else None


def is_followed(span: Span) -> bool:
    """True if a guard follows a span; one that records nothing may have the id of its parent."""
    span_id = span.get_span_context().span_id
    guards = LoopGuard.all_attached() if span.is_recording() else ()
    return any(guard.follows(span_id) for guard in guards)


def _takes(provider: Any) -> bool:
    return hasattr(_innermost(provider), "add_span_processor")


def _innermost(provider: Any) -> Any:
    """The SDK's provider behind a proxy such as logfire's."""
    inner = getattr(provider, "provider", None)
    return inner if isinstance(inner, trace.TracerProvider) else provider
