"""What an adapter shows the guard of this process itself, where no span processor does.

It writes spans on a provider of its own, which nothing exports and whose only processor feeds
`LoopGuard.default()`. So calls, sessions, deadlines and decisions are those of any other span.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from opentelemetry.sdk.environment_variables import OTEL_SDK_DISABLED
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanLimits, TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_ON

from otel_loopguard.blind_spots import warn_blind
from otel_loopguard.forks import renew_after_fork
from otel_loopguard.guard import LoopGuard
from otel_loopguard.locks import new_lock
from otel_loopguard.processor import LoopGuardSpanProcessor
from otel_loopguard.rehearsal import off
from otel_loopguard.version import __version__

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.trace import Tracer

_UNLIMITED: Final = SpanLimits(
    max_attribute_length=SpanLimits.UNSET, max_span_attribute_length=SpanLimits.UNSET
)


class _Feeder(LoopGuardSpanProcessor):
    """Feeds the default guard, until a processor of the user's feeds any."""

    attaches = False

    def on_end(self, span: ReadableSpan) -> None:
        context = span.get_span_context()
        if alone() or context is None:
            super().on_end(span)
        else:
            # A processor came while the call was made, and may count it.
            self.guard.let_go(context.span_id)


class _Provider:
    """The provider of this process, made on first use."""

    def __init__(self) -> None:
        self._made: TracerProvider | None = None
        self.forked()
        renew_after_fork(self)

    def forked(self) -> None:
        self._lock = new_lock()

    def get(self) -> TracerProvider:
        with self._lock:
            if self._made is None:
                self._made = TracerProvider(
                    ALWAYS_ON, Resource.get_empty(), shutdown_on_exit=False, span_limits=_UNLIMITED
                )
                self._made.add_span_processor(_Feeder(LoopGuard.default()))
            return self._made


_provider = _Provider()


def alone() -> bool:
    """Whether no span processor feeds a guard, and none is there that was switched off."""
    return not (LoopGuard.all_attached() or LoopGuard.any_switched_off() or off())


def tracer_alone(framework: str) -> Tracer | None:
    """The tracer that shows the default guard what an adapter knows; None where it is not alone.

    Args:
        framework: Name of the framework, as in `otel_loopguard.integrations`.

    Raises:
        LoopGuardSettingsError: The default guard is to be made, and a variable cannot be used.
    """
    if not alone():
        return None
    if _disabled():
        return None
    return _provider.get().get_tracer(f"otel_loopguard.integrations.{framework}", __version__)


def warn_if_off(framework: str) -> None:
    """Warns once where an adapter is there and no guard will ever see what it knows."""
    if LoopGuard.all_attached():
        return
    if LoopGuard.any_switched_off():
        _warn_off(framework, "enabled is False")
    elif alone():
        _disabled(framework)


def _disabled(framework: str = "") -> bool:
    """Whether OpenTelemetry or the default guard is switched off, by the environment."""
    if os.environ.get(OTEL_SDK_DISABLED, "").strip().lower() == "true":
        _warn_off(framework, f"{OTEL_SDK_DISABLED} is true")
        return True
    if not LoopGuard.default().settings.enabled:
        _warn_off(framework, "LOOPGUARD_ENABLED is false")
        return True
    return False


def _warn_off(framework: str, why: str) -> None:
    warn_blind(
        "adapter-off",
        "the adapter of %s does nothing, because %s: no call is seen and no run is stopped",
        framework or "a framework",
        why,
    )
