"""A fleet: the Collector in front of several servers on one Redis, which take turns."""

import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import grpc
import pytest
from stack.builds import BALANCER
from stack.ports import Ports
from stack.programs import Program, wait_for
from stack.stack import Stack

from otel_loopguard import Settings
from otel_loopguard.stores.redis import RedisStore
from tests.e2e.running import EXPORT, Sink, need
from tests.server.serving import asking, attributes, call, request
from tests.stores.servers import free_port, need_redis

SESSIONS: Final = 24
CALLS: Final = 16
"""Equal calls of each session, each in a trace of its own: three times what stops it, as calls that
come out of order count as made at once."""


def decisions(sink: Sink) -> Counter[tuple[str, ...]]:
    """How many different decisions there are, by session and action."""
    names = ("loopguard.session.id", "loopguard.decision.action")
    found = {
        told["loopguard.decision.id"]: tuple(told[name] for name in names)
        for told in map(attributes, sink.records)
    }
    return Counter(found.values())


def homes(sink: Sink) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for worker, span in sink.spans:
        found.setdefault(attributes(span)["gen_ai.conversation.id"], set()).add(worker)
    return found


class Workers:
    """A Redis, servers on it, and who takes what they send on."""

    def __init__(self, folder: Path, count: int, **env: str) -> None:
        self.sink, self.stack, self._env = Sink(), Stack(folder, Ports.free()), env
        self.stack.redis()
        self.workers: dict[int, Program] = {}
        for _ in range(count):
            self.add()

    def add(self) -> None:
        http, port = free_port(), free_port()
        hop, name = f"grpc://127.0.0.1:{self.sink.port}", f"worker-{len(self.workers)}"
        self.workers[port] = self.stack.worker(name, http, port, hop, **self._env)

    def take(self) -> Program:
        return self.workers.pop(next(iter(self.workers)))

    def tell(self, *spans: dict[str, Any]) -> None:
        """Sends spans to the first worker, which acknowledges them."""
        with grpc.insecure_channel(f"127.0.0.1:{next(iter(self.workers))}") as channel:
            channel.unary_unary(EXPORT)(request(*spans).SerializeToString(), timeout=60)

    def stop(self) -> None:
        self.stack.stop()
        self.sink.stop()


class Fleet(Workers):
    """Workers with the Collector in front of them."""

    def __init__(self, folder: Path, count: int) -> None:
        super().__init__(folder, count)
        self.collector = self.stack.fleet(list(self.workers))

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

    def sending(self, pause_s: float) -> threading.Thread:
        thread = threading.Thread(target=self.send, kwargs={"pause_s": pause_s})
        thread.start()
        return thread

    def _export(self, target: str, raw: bytes) -> None:
        """Sends until it is acknowledged, as exporters do; the Collector restarts its receivers."""

        def acknowledged() -> bool:
            with grpc.insecure_channel(target) as channel, suppress(grpc.RpcError):
                channel.unary_unary(EXPORT)(raw, timeout=10, wait_for_ready=True)
                return True
            return False

        wait_for(acknowledged, "it was acknowledged", 60)


def span(number: int, session: int) -> dict[str, Any]:
    return call(session * CALLS + number, f"chat-{session}")


Start = Callable[..., Any]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a fleet, or workers; none outlives its test."""
    need_redis()
    made: list[Workers] = []

    def start(kind: type[Workers], count: int, **env: str) -> Workers:
        if kind is Fleet:
            need(BALANCER)
        made.append(kind(tmp_path, count, **env))
        return made[-1]

    yield start
    for each in made:
        each.stop()


def judged_once(sink: Sink) -> None:
    """Waits for every span; then each session was hinted at, denied and aborted, each once."""
    wait_for(lambda: len(sink.ids()) >= SESSIONS * CALLS, "all spans came", 90)
    wait_for(lambda: decisions(sink).total() >= 3 * SESSIONS, "all decided", 90)
    assert len(sink.ids()) == SESSIONS * CALLS
    # Which of the equal calls showed it depends on the order in which the queue hands them on.
    assert decisions(sink) == {
        (f"chat-{session}", action): 1
        for session in range(SESSIONS)
        for action in ("hint", "deny", "abort")
    }


def came(sink: Sink, rounds: int) -> None:
    wait_for(lambda: len(sink.ids()) >= rounds * SESSIONS, "spans came", 60)


def test_sessions_of_many_traces_stay_with_one_worker(start: Start) -> None:
    fleet = start(Fleet, 2)
    fleet.send(in_order=True)
    judged_once(fleet.sink)
    found = homes(fleet.sink)
    assert all(len(each) == 1 for each in found.values())
    assert len({one for each in found.values() for one in each}) == 2


@pytest.mark.rare
def test_a_worker_that_is_killed_loses_and_repeats_nothing(start: Start) -> None:
    fleet = start(Fleet, 3)
    sending = fleet.sending(0.3)
    came(fleet.sink, 2)
    fleet.take().kill()
    time.sleep(0.5)
    fleet.route()
    sending.join()
    judged_once(fleet.sink)
    assert any(len(each) > 1 for each in homes(fleet.sink).values())


@pytest.mark.rare
def test_workers_come_and_go_under_load(start: Start) -> None:
    fleet = start(Fleet, 2)
    fleet.add()
    sending = fleet.sending(0.5)
    came(fleet.sink, 1)
    fleet.route()
    came(fleet.sink, 4)
    gone = fleet.take()
    fleet.route()
    gone.stop()
    sending.join()
    judged_once(fleet.sink)


@pytest.mark.rare
def test_a_stall_is_told_though_the_worker_that_saw_it_begin_was_killed(start: Start) -> None:
    pair = start(Workers, 2, LOOPGUARD_STEP_TIMEOUT_S="10", LOOPGUARD_BUDGET_ACTION="hint")
    pair.tell(asking("deploy"))
    pair.take().kill()
    assert not pair.sink.records
    wait_for(lambda: pair.sink.records, "the stall was told", 60)
    told = {"loopguard.detector.name": "stall", "loopguard.session.id": "chat-1"}
    assert told.items() <= attributes(pair.sink.records[0]).items()


@pytest.mark.rare
def test_a_call_whose_span_around_it_is_open_outlives_its_worker(start: Start) -> None:
    """Its result might be told by that; it was acknowledged without, so it is stored without."""
    pair = start(Workers, 2)
    inside = call(0, parent_span_id=(9).to_bytes(8, "big"))
    del inside["attributes"]["gen_ai.tool.call.result"]
    pair.tell(inside)
    pair.take().kill()
    url = f"redis://127.0.0.1:{pair.stack.ports.redis}/0"
    store = RedisStore(Settings(store_url=url))
    assert len(store.journal("chat-1")) == 1
    store.close()
