"""Functions of tools that note the call that they are run for."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from otel_loopguard.integrations._adapter import Adapter, noted, noting


def now(text: str) -> str:
    return text


async def later(text: str) -> str:
    return text


async def steps(text: str) -> Any:
    yield "first"
    yield text


async def _run(function: Any) -> list[str]:
    made = function("done")
    if hasattr(made, "__aiter__"):
        return [item async for item in made]
    return [await made if asyncio.iscoroutine(made) else made]


@pytest.mark.parametrize("function", [now, later, steps], ids=["now", "later", "steps"])
def test_a_call_is_noted_once_and_only_inside_the_block(function: Any) -> None:
    """The function does the same; the second run in the block, and one outside, are not noted."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    guarding = Adapter("x", instrumented=lambda: False, tracer_provider=provider, content=True)

    async def run() -> list[list[str]]:
        with noting(guarding.call("search", {"q": "x"})):
            said = [await _run(noted(function)), await _run(noted(function))]
        return [*said, await _run(noted(function))]

    plain = asyncio.run(_run(function))
    assert asyncio.run(run()) == [plain] * 3
    (span,) = exporter.get_finished_spans()
    assert (span.attributes or {})["gen_ai.tool.call.result"] == "done"


def test_what_notes_is_not_wrapped_again() -> None:
    """The very same function comes back."""
    once = noted(now)
    assert noted(once) is once
