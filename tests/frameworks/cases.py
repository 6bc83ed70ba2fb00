"""What the `cases.py` of several frameworks share: a guarded provider, and scripts of a model.

Importing it makes the provider the global one; `--unguarded` leaves the guard out.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from otel_loopguard import LoopGuardSpanProcessor, set_testing

GUARDED = "--unguarded" not in sys.argv
exporter = InMemorySpanExporter()
provider = TracerProvider()
if GUARDED:
    provider.add_span_processor(LoopGuardSpanProcessor())
else:
    set_testing("off")
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)

Call = tuple[str, dict[str, Any]]
Script = Callable[[int], Sequence[Call]]
SEARCH: Call = ("search", {"query": "x"})


def always(*calls: Call) -> Script:
    """Asks for the same calls for ever, or at least for thirty turns."""
    return lambda turn: calls if turn <= 30 else ()


def turns(*asked: Sequence[Call]) -> Script:
    """Asks for these calls turn by turn, then answers."""
    return lambda turn: asked[turn - 1] if turn <= len(asked) else ()
