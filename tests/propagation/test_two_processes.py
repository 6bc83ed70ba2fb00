"""Two processes over real HTTP, with real instrumentations on both sides."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import requests
from opentelemetry.instrumentation.requests import RequestsInstrumentor
from opentelemetry.sdk.trace import Tracer, TracerProvider

import otel_loopguard
from otel_loopguard import LoopGuard, LoopGuardAbort, LoopGuardSpanProcessor, Settings, control
from otel_loopguard._control import signing as keyring
from otel_loopguard.core import Action
from tests.control.messages import new_name
from tests.stores.servers import Server, wait_for

if TYPE_CHECKING:
    from otel_loopguard.sdk.propagator import LoopGuardPropagator

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


@pytest.fixture
def service() -> Iterator[Callable[..., Service]]:
    """Starts services."""
    started: list[Service] = []

    def start(**settings: str) -> Service:
        started.append(Service(**settings))
        return started[-1]

    yield start
    for one in started:
        one.end()


@pytest.fixture
def store_url(tmp_path: Path) -> Iterator[str]:
    server = Server(tmp_path / "redis").start()
    yield server.url
    server.kill()


@pytest.fixture
def caller(propagator: LoopGuardPropagator) -> Iterator[Callable[..., tuple[LoopGuard, Tracer]]]:
    """Makes the guard and the tracer of this process, whose requests are instrumented."""
    guards: list[LoopGuard] = []
    instrumentor = RequestsInstrumentor()

    def make(**settings: Any) -> tuple[LoopGuard, Tracer]:
        guard = LoopGuard(Settings(**settings))
        guards.append(guard)
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(LoopGuardSpanProcessor(guard))
        instrumentor.instrument(tracer_provider=provider)
        return guard, provider.get_tracer("caller")

    yield make
    instrumentor.uninstrument()
    for guard in guards:
        guard.shutdown()


AGENT: Any = {"attributes": {"gen_ai.operation.name": "invoke_agent"}}
Make = Callable[..., tuple[LoopGuard, Tracer]]


def test_an_abort_in_the_service_stops_the_caller(
    store_url: str, service: Callable[..., Service], caller: Make
) -> None:
    """Its policy decides; the caller's `check` raises, by the store."""
    known = {"store_url": store_url, "propagation_trust": "store"}
    _, tracer = caller(**known)
    called = service(**known)
    wait_for(keyring.keys)
    run = new_name("http")
    with otel_loopguard.session(run), tracer.start_as_current_span("invoke_agent a", **AGENT):
        # The service takes the key from the store while it starts.
        wait_for(lambda: called.ask("look")["session"] == run)
        told = called.ask("search")
        assert (told["action"], told["session"]) == ("abort", run)
        with pytest.raises(LoopGuardAbort, match="search"):
            _check_for(60)
        assert control.current().by == "policy"


def _check_for(seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        control.check()
        time.sleep(0.002)


def test_an_abort_in_the_caller_stops_the_service(
    store_url: str, service: Callable[..., Service], caller: Make
) -> None:
    """While the service works on a request, a person stops the caller's session."""
    known = {"store_url": store_url, "propagation_key": "a key that is theirs"}
    guard, tracer = caller(**known)
    called = service(**known)
    run = new_name("http")
    answers: list[dict[str, Any]] = []

    def request() -> None:
        with otel_loopguard.session(run), tracer.start_as_current_span("invoke_agent a", **AGENT):
            answers.append(called.ask("work"))

    agent = threading.Thread(target=request)
    agent.start()
    wait_for(lambda: guard.flag_of(run))
    time.sleep(0.5)
    aborted = time.time()
    assert control.abort(run, by="ada")
    agent.join(60)
    (told,) = answers
    assert (told["action"], told["by"], told["session"]) == ("abort", "ada", run)
    assert told["stopped_at"] - aborted < 1


@pytest.mark.parametrize("action", ["deny", "abort"])
def test_without_a_store_baggage_carries_the_stop_down(
    service: Callable[..., Service], caller: Make, action: str
) -> None:
    """The service sees what the caller's session says, for as long as it does."""
    guard, tracer = caller(propagation_key="a key that is theirs")
    called = service(propagation_key="a key that is theirs")
    run = new_name("http")
    with otel_loopguard.session(run), tracer.start_as_current_span("invoke_agent a", **AGENT):
        assert called.ask("look") == {"session": run, "action": "allow", "by": None}
        guard.flag_named(run).set(Action(action), reason="here", by="policy")
        assert called.ask("look") == {"session": run, "action": action, "by": "policy"}
        if action == "abort":
            assert called.ask("search")["calls"] == 0


def test_without_a_store_nothing_comes_back_up(
    service: Callable[..., Service], caller: Make
) -> None:
    """What the docs say does not work: the caller does not hear of the service's abort."""
    _, tracer = caller(propagation_key="a key that is theirs")
    called = service(propagation_key="a key that is theirs")
    with (
        otel_loopguard.session(new_name("http")),
        tracer.start_as_current_span("invoke_agent a", **AGENT),
    ):
        assert called.ask("search")["action"] == "abort"
        _check_for(0.3)
        assert control.current().action is Action.ALLOW


def test_the_trace_alone_is_enough_with_a_store(
    store_url: str, service: Callable[..., Service], caller: Make
) -> None:
    """With no name and no key both processes call the session by the id of its trace."""
    guard, tracer = caller(store_url=store_url)
    called = service(store_url=store_url)
    with tracer.start_as_current_span("invoke_agent a", **AGENT) as span:
        key = f"{span.get_span_context().trace_id:032x}"
        with tracer.start_as_current_span("chat", attributes={"gen_ai.operation.name": "chat"}):
            pass
        told = called.ask("search")
        assert (told["action"], told["session"]) == ("abort", None)
        with pytest.raises(LoopGuardAbort):
            _check_for(5)
    assert guard.flag_of(key) is not None
