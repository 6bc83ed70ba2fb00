"""Suppresses instrumentation for the guard's own I/O."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from opentelemetry import context as otel_context

_SUPPRESSED: Final = "suppress_instrumentation"
"""The key that instrumentations look for (OpenTelemetry's contrib packages)."""


def suppress_instrumentation_in_thread() -> None:
    """Has instrumentations make no spans of whatever this thread does from here on."""
    otel_context.attach(otel_context.set_value(_SUPPRESSED, True))


@contextmanager
def suppress_instrumentation() -> Generator[None]:
    """Has instrumentations make no spans of what runs inside, on this thread."""
    token = otel_context.attach(otel_context.set_value(_SUPPRESSED, True))
    try:
        yield
    finally:
        otel_context.detach(token)
