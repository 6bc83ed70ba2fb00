"""The guard's own work is measured, and never traced by itself."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from opentelemetry.instrumentation.redis import RedisInstrumentor

from tests.agents import agent, tool_call
from tests.stores.servers import Server, need_redis, wait_for
from tests.telemetry.scene import Scene


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    need_redis()
    server = Server(tmp_path / "redis")
    server.start()
    yield server
    server.kill()


def storing(server: Server, **stores: float) -> Scene:
    tuning = {"stores": {"delay_s": 0.01, **stores}}
    return Scene(store_url=server.url, digest_key="a key of sixteen", tuning=tuning)


def test_calls_of_the_store_make_no_spans_and_are_measured(server: Server) -> None:
    """With Redis instrumented, a guard that stores leaves no span; its calls show as metrics."""
    scene = storing(server)
    RedisInstrumentor().instrument(tracer_provider=scene.provider)
    try:
        with agent(scene.tracer):
            scene.loop(5)
        wait_for(lambda: scene.total("loopguard.store.writes") > 3)
        scene.guard.shutdown()
    finally:
        RedisInstrumentor().uninstrument()
    names = {span.name.split()[0] for span in scene.spans.get_finished_spans()}
    assert names == {"invoke_agent", "execute_tool"}
    took = scene.metrics()["loopguard.store.operation.duration"]
    written = {"db.operation.name": "write", "db.system.name": "redis"}
    assert any(point.count for labels, point in took if written.items() <= labels.items())
    assert scene.values("loopguard.store.status") == [({"loopguard.store.state": "available"}, 1)]
    assert not any("error.type" in labels for labels, _ in scene.values("loopguard.store.writes"))


def test_a_store_that_is_gone_is_unavailable(server: Server) -> None:
    """Its state, failed calls and queue are on metrics."""
    scene = storing(server, flush_s=0.1)
    server.kill()
    with agent(scene.tracer):
        tool_call(scene.tracer)
    gone = {"loopguard__store__state": "unavailable"}
    wait_for(lambda: scene.total("loopguard.store.status", **gone) == 1)
    assert scene.total("loopguard.store.queue.size") > 0
    most = scene.guard.settings.tuning.stores.queue
    assert scene.total("loopguard.store.queue.capacity") == most
    took = scene.metrics()["loopguard.store.operation.duration"]
    assert "down" in [labels.get("error.type") for labels, _ in took]
    scene.guard.shutdown()


def test_without_a_store_nothing_is_said_of_one() -> None:
    """No series of a store that there is not."""
    assert not any(name.startswith("loopguard.store.") for name in Scene().metrics())
