"""The guard's own work is never traced by itself."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.instrumentation.redis import RedisInstrumentor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from otel_loopguard import LoopGuard, LoopGuardSpanProcessor, Settings
from tests.agents import Ended, agent, provider_with, tool_call
from tests.stores.servers import Server, need_redis, wait_for
from tests.telemetry.scene import Scene, points


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A running Redis."""
    need_redis()
    server = Server(tmp_path / "redis")
    server.start()
    yield server
    server.kill()


def test_calls_of_the_store_make_no_spans_and_are_measured(server: Server) -> None:
    """With Redis instrumented, a guard that stores leaves no span; its calls show as metrics."""
    ended, reader = Ended(), InMemoryMetricReader()
    meters = MeterProvider([reader], shutdown_on_exit=False)
    guard = LoopGuard(
        Settings(
            store_url=server.url,
            digest_key="a key of sixteen",
            tuning={"stores": {"delay_s": 0.01}},
        ),
        meter_provider=meters,
    )
    provider = provider_with(LoopGuardSpanProcessor(guard), ended)
    RedisInstrumentor().instrument(tracer_provider=provider)
    try:
        with agent(provider.get_tracer("agent")):
            for _ in range(5):
                tool_call(provider.get_tracer("agent"))
        wait_for(lambda: _points(reader, "loopguard.store.writes") and _stored(reader) > 3)
        time.sleep(0.1)  # whatever would still come
    finally:
        RedisInstrumentor().uninstrument()
        guard.shutdown()
    assert {span.name.split()[0] for span in ended.spans} == {"invoke_agent", "execute_tool"}
    took = _points(reader, "loopguard.store.operation.duration")
    writes = [point for point in took if point.attributes["db.operation.name"] == "write"]
    assert writes[0].attributes["db.system.name"] == "redis"
    assert writes[0].count > 0
    states = {
        point.attributes["loopguard.store.state"]: point.value
        for point in _points(reader, "loopguard.store.status")
    }
    assert states == {"available": 1, "degraded": 0, "unavailable": 0}


def test_a_store_that_is_gone_is_unavailable(server: Server) -> None:
    """Its state, failed calls and queue are on metrics."""
    reader = InMemoryMetricReader()
    meters = MeterProvider([reader], shutdown_on_exit=False)
    settings = Settings(store_url=server.url, tuning={"stores": {"delay_s": 0.01, "flush_s": 0.1}})
    guard = LoopGuard(settings, meter_provider=meters)
    server.kill()
    tracer = provider_with(LoopGuardSpanProcessor(guard)).get_tracer("agent")
    with agent(tracer):
        tool_call(tracer)

    def unavailable() -> bool:
        return any(
            point.value and point.attributes["loopguard.store.state"] == "unavailable"
            for point in _points(reader, "loopguard.store.status")
        )

    wait_for(unavailable)
    assert _points(reader, "loopguard.store.queue.size")[0].value > 0
    assert (
        _points(reader, "loopguard.store.queue.capacity")[0].value == settings.tuning.stores.queue
    )
    failed = [
        point.attributes.get("error.type")
        for point in _points(reader, "loopguard.store.operation.duration")
    ]
    assert "down" in failed
    guard.shutdown()


def test_without_a_store_nothing_is_said_of_one() -> None:
    """No series of a store that there is not."""
    assert not any(name.startswith("loopguard.store.") for name in Scene().metrics())


def _points(reader: InMemoryMetricReader, name: str) -> list[Any]:
    return points(reader).get(name, [])


def _stored(reader: InMemoryMetricReader) -> float:
    writes = _points(reader, "loopguard.store.writes")
    return sum(point.value for point in writes if "error.type" not in point.attributes)
