"""A fleet: the Collector in front of several servers on one Redis, which take turns."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import grpc
import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from stack.builds import BALANCER
from stack.ports import Ports
from stack.programs import wait_for
from stack.stack import Stack

from otel_loopguard import Settings
from otel_loopguard.stores.redis import RedisStore
from tests.e2e.running import need
from tests.e2e.test_scale import EXPORT
from tests.server.serving import asking, attributes, call, request
from tests.stores.servers import free_port, need_redis

if TYPE_CHECKING:
    from stack.programs import Program

SESSIONS: Final = 24
CALLS: Final = 16
"""Equal calls of each session, each in a trace of its own: three times what stops it, as calls that
come out of order count as made at once."""
LOGS: Final = "/opentelemetry.proto.collector.logs.v1.LogsService/Export"


class Sink(grpc.GenericRpcHandler):
    """The next hop of all workers: spans and decisions, and which worker sent them."""

    def __init__(self) -> None:
        from concurrent.futures import ThreadPoolExecutor

        self.spans: list[tuple[str, Any]] = []
        self.records: list[Any] = []
        self._server = grpc.server(ThreadPoolExecutor(4))
        self._server.add_generic_rpc_handlers((self,))
        self.port = self._server.add_insecure_port("127.0.0.1:0")
        self._server.start()

    def service(self, handler_call_details: Any) -> grpc.RpcMethodHandler[bytes, bytes]:
        told = handler_call_details.method == LOGS
        return grpc.unary_unary_rpc_method_handler(self._logs if told else self._traces)

    def _logs(self, raw: bytes, _: object) -> bytes:
        for resource in ExportLogsServiceRequest.FromString(raw).resource_logs:
            for scope in resource.scope_logs:
                self.records += scope.log_records
        return b""

    def _traces(self, raw: bytes, context: Any) -> bytes:
        worker = context.peer().rpartition(":")[2]
        for resource in ExportTraceServiceRequest.FromString(raw).resource_spans:
            for scope in resource.scope_spans:
                self.spans += [(worker, span) for span in scope.spans]
        return b""

    def ids(self) -> set[bytes]:
        """The spans that came."""
        return {span.span_id for _, span in list(self.spans)}

    def decisions(self) -> Counter[tuple[str, str, bytes]]:
        """How many different decisions there are about each span, by session and action."""
        made: dict[str, tuple[str, str, bytes]] = {}
        for record in list(self.records):
            told = attributes(record)
            session = told["loopguard.session.id"]
            made[told["loopguard.decision.id"]] = (
                session, told["loopguard.decision.action"], record.span_id,
            )  # fmt: skip
        return Counter(made.values())

    def homes(self) -> dict[str, set[str]]:
        """The workers that sent spans of each session."""
        homes: dict[str, set[str]] = {}
        for worker, span in list(self.spans):
            homes.setdefault(attributes(span)["gen_ai.conversation.id"], set()).add(worker)
        return homes

    def stop(self) -> None:
        """Takes no more."""
        self._server.stop(None)


class Fleet:
    """A Redis, servers, and the Collector in front of them."""

    def __init__(self, folder: Path, count: int) -> None:
        self.sink = Sink()
        self.stack = Stack(folder, Ports.free())
        self.stack.redis()
        self.workers: dict[int, Program] = {}
        for _ in range(count):
            self.add()
        self.collector = self.stack.fleet(list(self.workers))

    def add(self) -> int:
        """Starts one more worker; nothing is sent to it yet."""
        http, port = free_port(), free_port()
        hop = f"grpc://127.0.0.1:{self.sink.port}"
        self.workers[port] = self.stack.worker(f"worker-{len(self.workers)}", http, port, hop)
        return port

    def route(self) -> None:
        """Tells the Collector who the workers are."""
        self.stack.route(list(self.workers))
        os.kill(self.collector.pid, signal.SIGHUP)

    def send(self, *, pause_s: float = 0, in_order: bool = False) -> None:
        """Sends all sessions, a call of each in turn; each request is acknowledged.

        With `in_order` each round is waited for before the next one.
        """
        rounds = [[(number, one) for one in range(SESSIONS)] for number in range(CALLS)]
        for each in rounds:
            random.Random(each[0][0]).shuffle(each)
        target = f"127.0.0.1:{self.stack.ports.gateway_grpc}"
        for each in rounds:
            made = request(*(span(number, session) for number, session in each))
            self._export(target, made.SerializeToString())
            time.sleep(pause_s)
            if in_order:
                sent = (each[0][0] + 1) * SESSIONS
                wait_for(lambda sent=sent: len(self.sink.ids()) >= sent, "the round came", 90)

    def _export(self, target: str, raw: bytes) -> None:
        """Sends until it is acknowledged, as exporters do; the Collector restarts its receivers."""

        def acknowledged() -> bool:
            with grpc.insecure_channel(target) as channel, suppress(grpc.RpcError):
                channel.unary_unary(EXPORT)(raw, timeout=10, wait_for_ready=True)
                return True
            return False

        wait_for(acknowledged, "it was acknowledged", 60)

    def stop(self) -> None:
        """Ends all of it."""
        self.stack.stop()
        self.sink.stop()


def span(number: int, session: int) -> dict[str, Any]:
    """A call of a session, which is the same each time."""
    return call(session * CALLS + number, f"chat-{session}")


class Pair:
    """A Redis and two workers on it, without anything in front of them."""

    def __init__(self, folder: Path, **env: str) -> None:
        self.sink = Sink()
        self.stack = Stack(folder, Ports.free())
        self.stack.redis()
        hop = f"grpc://127.0.0.1:{self.sink.port}"
        self._ports = [(free_port(), free_port()) for _ in range(2)]
        self.first, self.second = (
            self.stack.worker(f"worker-{number}", http, port, hop, **env)
            for number, (http, port) in enumerate(self._ports)
        )

    def send(self, number: int, *spans: dict[str, Any]) -> None:
        """Sends spans to one of them, which acknowledges them."""
        with grpc.insecure_channel(f"127.0.0.1:{self._ports[number][1]}") as channel:
            channel.unary_unary(EXPORT)(request(*spans).SerializeToString(), timeout=60)

    def stop(self) -> None:
        """Ends all of it."""
        self.stack.stop()
        self.sink.stop()


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Callable[..., Pair]]:
    need_redis()
    made: list[Pair] = []

    def start(**env: str) -> Pair:
        made.append(Pair(tmp_path, **env))
        return made[-1]

    yield start
    for each in made:
        each.stop()


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Callable[[int], Fleet]]:
    need(BALANCER)
    need_redis()
    made: list[Fleet] = []

    def start(count: int) -> Fleet:
        made.append(Fleet(tmp_path, count))
        return made[-1]

    yield start
    for each in made:
        each.stop()


def judged_once(sink: Sink) -> None:
    """Waits for every span; then each session was hinted at, denied and aborted, each once."""
    wait_for(lambda: len(sink.ids()) >= SESSIONS * CALLS, "all spans came", 90)
    wait_for(lambda: sum(sink.decisions().values()) >= 3 * SESSIONS, "all decided", 90)
    assert len(sink.ids()) == SESSIONS * CALLS
    told: dict[str, list[str]] = {}
    for (session, action, _), count in sink.decisions().items():
        told.setdefault(session, []).extend([action] * count)
    # Which of the equal calls showed it depends on the order in which the queue hands them on.
    assert {tuple(sorted(each)) for each in told.values()} == {("abort", "deny", "hint")}


def test_sessions_of_many_traces_stay_with_one_worker(fleet: Callable[[int], Fleet]) -> None:
    started = fleet(2)
    started.send(in_order=True)
    judged_once(started.sink)
    homes = started.sink.homes()
    assert all(len(each) == 1 for each in homes.values())
    assert len({one for each in homes.values() for one in each}) == 2


@pytest.mark.rare
def test_a_worker_that_is_killed_loses_and_repeats_nothing(
    fleet: Callable[[int], Fleet],
) -> None:
    started = fleet(3)
    sending = threading.Thread(target=started.send, kwargs={"pause_s": 0.3})
    sending.start()
    wait_for(lambda: len(started.sink.ids()) >= 2 * SESSIONS, "spans came", 60)
    port, killed = next(iter(started.workers.items()))
    killed.kill()
    del started.workers[port]
    time.sleep(0.5)
    started.route()
    sending.join()
    judged_once(started.sink)
    assert any(len(each) > 1 for each in started.sink.homes().values())


@pytest.mark.rare
def test_workers_come_and_go_under_load(fleet: Callable[[int], Fleet]) -> None:
    started = fleet(2)
    started.add()
    sending = threading.Thread(target=started.send, kwargs={"pause_s": 0.5})
    sending.start()
    wait_for(lambda: len(started.sink.ids()) >= SESSIONS, "spans came", 60)
    started.route()
    wait_for(lambda: len(started.sink.ids()) >= 4 * SESSIONS, "more spans came", 60)
    port, gone = next(iter(started.workers.items()))
    del started.workers[port]
    started.route()
    gone.stop()
    sending.join()
    judged_once(started.sink)


@pytest.mark.rare
def test_a_stall_is_told_though_the_worker_that_saw_it_begin_was_killed(
    pair: Callable[..., Pair],
) -> None:
    started = pair(LOOPGUARD_STEP_TIMEOUT_S="10", LOOPGUARD_STALL_ACTION="hint")
    started.send(0, asking("deploy"))
    started.first.kill()
    assert not started.sink.records
    wait_for(lambda: started.sink.records, "the stall was told", 60)
    told = attributes(started.sink.records[0])
    assert told["loopguard.detector.name"] == "stall"
    assert told["loopguard.session.id"] == "chat-1"


@pytest.mark.rare
def test_a_call_whose_span_around_it_is_open_outlives_its_worker(
    pair: Callable[..., Pair],
) -> None:
    """Its result might be told by that; it was acknowledged without, so it is stored without."""
    started = pair()
    inside = call(0, parent_span_id=(9).to_bytes(8, "big"))
    del inside["attributes"]["gen_ai.tool.call.result"]
    started.send(0, inside)
    started.first.kill()
    url = f"redis://127.0.0.1:{started.stack.ports.redis}/0"
    store = RedisStore(Settings(store_url=url))
    assert len(store.journal("chat-1")) == 1
    store.close()
