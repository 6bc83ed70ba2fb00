"""The run that something belongs to, and functions of tools that are the call they run for."""

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import otel_loopguard
from otel_loopguard._control.context import named_session
from otel_loopguard.integrations._adapter import Adapter
from otel_loopguard.integrations._runs import AgentRun, captured, capturing


def test_a_run_has_a_key_of_its_own_and_leaves_nothing_behind() -> None:
    """What an agent starts belongs to its run; a trace or a name of the context is the session."""
    run, other = (AgentRun.begin(traced=False) for _ in range(2))
    assert None not in (run.call(named_session), other.call(named_session))
    assert run.call(named_session) != other.call(named_session)
    assert (named_session(), AgentRun.current()) == (None, None)
    assert run.call(lambda: AgentRun.begin(traced=False)) is run
    assert run.call(lambda: run.call(named_session)) == run.call(named_session)
    assert AgentRun.begin(traced=True).call(named_session) is None
    with otel_loopguard.session("mine"):
        assert AgentRun.begin(traced=False).call(named_session) == "mine"


def test_a_stream_is_in_the_run_at_each_step() -> None:
    """A generator sees the run at every step, and is closed when the caller stops."""
    run = AgentRun.begin(traced=False)
    closed: list[AgentRun | None] = []

    def steps() -> Iterator[AgentRun | None]:
        try:
            while True:
                yield AgentRun.current()
        finally:
            closed.append(AgentRun.current())

    stream = run.call(steps)
    assert [next(stream), next(stream)] == [run, run]
    assert AgentRun.current() is None
    stream.close()
    assert closed == [run]


def test_a_thread_without_the_context_joins() -> None:
    """A thread of a framework gets the run back."""
    run, seen = AgentRun.begin(traced=False), list[AgentRun | None]()
    thread = threading.Thread(target=lambda: seen.append(run.join(AgentRun.current)))
    thread.start()
    thread.join(60)
    assert seen == [run]


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
    adapter = Adapter("x", tracer_provider=provider, content=True)

    async def run() -> list[list[str]]:
        with capturing(adapter.tool_call("search", {"q": "x"})):
            said = [await _run(captured(function)), await _run(captured(function))]
        return [*said, await _run(captured(function))]

    plain = asyncio.run(_run(function))
    assert asyncio.run(run()) == [plain] * 3
    assert captured(once := captured(function)) is once
    (span,) = exporter.get_finished_spans()
    assert (span.attributes or {})["gen_ai.tool.call.result"] == "done"
