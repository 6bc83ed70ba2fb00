"""Two processes over real HTTP, with real instrumentations on both sides."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import requests
from opentelemetry.instrumentation.requests import RequestsInstrumentor
from opentelemetry.sdk.trace import Tracer

import otel_loopguard
from otel_loopguard import (
    Action,
    LoopGuard,
    LoopGuardAbort,
    LoopGuardPropagator,
    LoopGuardSpanProcessor,
    Settings,
    control,
)
from tests.agents import agent, provider_with
from tests.control.messages import new_name
from tests.stores.servers import Server, wait_for

ROOT = Path(__file__).resolve().parents[2]
PROPAGATORS = "tracecontext,baggage,loopguard"


class Service:
    """The service in its process."""

    def __init__(self, **settings: str) -> None:
        named = {f"LOOPGUARD_{name.upper()}": value for name, value in settings.items()}
        environment = {**os.environ, "OTEL_PROPAGATORS": PROPAGATORS, "PYTHONPATH": str(ROOT)}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.propagation.service"],
            cwd=ROOT, env={**environment, **named}, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self._process.stdout is not None
        self.url = f"http://127.0.0.1:{int(self._process.stdout.readline())}"

    def ask(self, what: str) -> dict[str, Any]:
        found: dict[str, Any] = requests.get(f"{self.url}/{what}", timeout=30).json()
        return found

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


class Pair(NamedTuple):
    """The guard and the tracer of this process, and the service that it calls."""

    guard: LoopGuard
    tracer: Tracer
    ask: Callable[[str], dict[str, Any]]

    @contextmanager
    def agent(self) -> Iterator[str]:
        """An open run of an agent, in a session."""
        with otel_loopguard.session(new_name("http")) as run, agent(self.tracer):
            yield run


Make = Callable[..., Pair]


@pytest.fixture
def pair(propagator: LoopGuardPropagator) -> Iterator[Make]:
    """Makes both, with the same settings; requests are instrumented."""
    instrumentor = RequestsInstrumentor()
    with ExitStack() as ends:

        def make(**settings: str) -> Pair:
            guard = LoopGuard(Settings(**settings))
            ends.callback(guard.shutdown)
            provider = provider_with(LoopGuardSpanProcessor(guard))
            instrumentor.instrument(tracer_provider=provider)
            ends.callback(instrumentor.uninstrument)
            service = Service(**settings)
            ends.callback(service.end)
            return Pair(guard, provider.get_tracer("caller"), service.ask)

        yield make


KEY = "a key that is theirs"


def _check_for(seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        control.check()
        time.sleep(0.002)


def test_an_abort_in_the_service_stops_the_caller(own_redis: Server, pair: Make) -> None:
    """Its policy decides; the caller's `check` raises, by the store."""
    two = pair(store_url=own_redis.url, propagation_key=KEY)
    with two.agent() as run:
        told = two.ask("search")
        assert (told["action"], told["session"]) == ("abort", run)
        with pytest.raises(LoopGuardAbort, match="search"):
            _check_for(60)
        assert control.current().by == "policy"


def test_an_abort_in_the_caller_stops_the_service(own_redis: Server, pair: Make) -> None:
    """While the service works on a request, a person stops the caller's session."""
    two = pair(store_url=own_redis.url, propagation_key=KEY)
    runs: list[str] = []
    answers: list[dict[str, Any]] = []

    def request() -> None:
        with two.agent() as run:
            runs.append(run)
            answers.append(two.ask("work"))

    asking = threading.Thread(target=request)
    asking.start()
    wait_for(lambda: runs and two.guard.flag_of(runs[0]))
    time.sleep(0.5)
    aborted = time.time()
    assert control.abort(runs[0], by="ada")
    asking.join(60)
    (told,) = answers
    assert (told["action"], told["by"], told["session"]) == ("abort", "ada", runs[0])
    assert told["stopped_at"] - aborted < 1


def test_without_a_store_baggage_carries_the_stop_down(pair: Make) -> None:
    """The service sees what the caller's session says, as long as it does; nothing comes back."""
    two = pair(propagation_key=KEY)
    with two.agent() as run:
        assert two.ask("look") == {"session": run, "action": "allow", "by": None}
        for action in ("deny", "abort"):
            two.guard.flag_named(run).set(Action(action), reason="here", by="policy")
            said = {"session": run, "action": action, "by": "policy"}
            wait_for(lambda said=said: two.ask("look") == said)  # baggage counts in seconds
        assert two.ask("search")["calls"] == 0
    with two.agent():
        assert two.ask("search")["action"] == "abort"
        _check_for(0.3)
        assert control.current().action is Action.ALLOW


def test_the_trace_alone_is_enough_with_a_store(own_redis: Server, pair: Make) -> None:
    """With no name and no key both processes call the session by the id of its trace."""
    two = pair(store_url=own_redis.url)
    with agent(two.tracer) as span:
        key = f"{span.get_span_context().trace_id:032x}"
        with two.tracer.start_as_current_span("chat", attributes={"gen_ai.operation.name": "chat"}):
            pass
        told = two.ask("search")
        assert (told["action"], told["session"]) == ("abort", None)
        with pytest.raises(LoopGuardAbort):
            _check_for(5)
    assert two.guard.flag_of(key) is not None
