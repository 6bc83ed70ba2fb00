"""The real programs, on free ports of loopback, once for all tests here."""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from stack import views
from stack.builds import BALANCER, COLLECTOR, JAEGER, MissingError
from stack.ports import Ports
from stack.programs import installed
from stack.stack import Pace, Stack
from stack.web import Webhook

from tests.e2e.running import need, start_agent
from tests.jaeger import references_of, undrawn
from tests.zero_code.interpreter import lacking


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All of these are `e2e`, so that they can be left out: `-m "not e2e"`."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.e2e)


@pytest.fixture(scope="session", autouse=True)
def _drawn() -> Iterator[None]:
    """Every trace that a test asks Jaeger for can be drawn by Jaeger's page."""
    read = views._spans

    def checked(found: dict[str, Any]) -> list[views.Seen]:
        assert not undrawn(references_of(found)), f"Jaeger draws nothing of {found['traceID']}"
        return read(found)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(views, "_spans", checked)
        yield


@pytest.fixture(scope="session")
def collector() -> str:
    need(COLLECTOR)
    return str(COLLECTOR.path())


@pytest.fixture(scope="session")
def balancer() -> str:
    need(BALANCER)
    return str(BALANCER.path())


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Jaeger, Collector, Prometheus and Alertmanager, living by the second."""
    need(COLLECTOR, JAEGER)
    try:
        installed("prometheus", package="prometheus")
        name = "prometheus-alertmanager"
        installed("alertmanager", name, package=name)
    except MissingError as error:
        lacking(str(error))
    with Stack(tmp_path_factory.mktemp("stack"), Ports.free(), Pace(sampling_percent=0)) as made:
        made.jaeger()
        made.gateway()
        made.prometheus()
        made.alertmanager()
        yield made
        made.stop(1)


@pytest.fixture(scope="session")
def webhook(stack: Stack) -> Iterator[Webhook]:
    """What the stack's Alertmanager tells."""
    with Webhook(stack.ports.webhook) as made:
        yield made


@pytest.fixture
def stacks(tmp_path: Path) -> Iterator[Callable[[], Stack]]:
    """Makes stacks that a test may maltreat; nothing runs in them yet."""
    need(COLLECTOR, JAEGER)
    made: list[Stack] = []

    def make() -> Stack:
        made.append(Stack(tmp_path / f"stack-{len(made)}", Ports.free(), Pace()))
        return made[-1]

    yield make
    for each in made:
        each.stop(1)


@pytest.fixture
def agents() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []

    def start(port: int, *words: str, **env: str) -> subprocess.Popen[str]:
        started.append(start_agent(port, *words, **env))
        return started[-1]

    yield start
    for each in started:
        if each.poll() is None:
            each.kill()
        if each.stdout is not None and not each.stdout.closed:
            each.communicate()
