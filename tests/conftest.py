"""What all tests share: faults of ours are raised, and the environment sets nothing."""

from __future__ import annotations

import concurrent.futures.thread  # noqa: F401  # imported later, a fork hangs inside the SDK
import gc
import logging
import os
import threading
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING
from weakref import WeakSet

import pytest
from hypothesis import HealthCheck, settings
from opentelemetry import context, trace
from opentelemetry.context import Context
from opentelemetry.util._once import Once

from otel_loopguard._control.context import _guards  # pyright: ignore[reportPrivateUsage]
from otel_loopguard._util import clock as rehearsal
from otel_loopguard._util.errors import _warned, raise_faults
from otel_loopguard.guard import guard as guard_module
from otel_loopguard.integrations._adapter import (
    _default_provider,  # pyright: ignore[reportPrivateUsage]
)

if TYPE_CHECKING:
    from tests.stores.servers import Server

pytest_plugins = ["pytester"]  # for the tests of our own plugin

RARE = "guards against rare events: `make test-all`, or `pytest --rare` with its path"

for _name, _examples in (("usual", 100), ("rare", 500)):
    settings.register_profile(
        _name, max_examples=_examples, deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rare", action="store_true", help="run tests marked `rare`, draw more often")


def pytest_configure(config: pytest.Config) -> None:
    settings.load_profile("rare" if config.getoption("--rare") else "usual")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--rare"):
        for item in items:
            if item.get_closest_marker("rare"):
                item.add_marker(pytest.mark.skip(reason=RARE))


def pytest_collection_finish() -> None:
    """What tests collect by hand is theirs alone: all that was imported takes 0.2 s each time."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_report_to_serializable() -> Generator[None, object, object]:
    """Lone surrogates, in what a test logged, cannot be sent to the process that reports."""
    return _sendable((yield))


def _sendable(value: object) -> object:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, dict):
        return {_sendable(key): _sendable(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(map(_sendable, value))
    return value


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Says what was left out and how to get it: one line for each reason."""
    reasons = Counter(
        report.longrepr[2].removeprefix("Skipped: ")
        for report in terminalreporter.getreports("skipped")
        if isinstance(report.longrepr, tuple)
    )
    if reasons:
        terminalreporter.section("left out")
        for reason, count in sorted(reasons.items()):
            terminalreporter.line(f"{count:5d}  {reason}")


@pytest.fixture(scope="session")
def seeds(request: pytest.FixtureRequest) -> range:
    """What made-up runs are drawn from: 5 seeds, 20 with `--rare`."""
    return range(20 if request.config.getoption("--rare") else 5)


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of recorded runs and captures."""
    folder = Path(__file__).resolve().parents[1].parent / "shared"
    if not folder.is_dir():
        if os.environ.get("CI"):
            pytest.fail(f"{folder} is missing")
        pytest.skip(f"{folder} is missing")
    return folder


@pytest.fixture
def runtime_dir(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for sockets, in `XDG_RUNTIME_DIR`: `tmp_path` may be too long for their names."""
    with TemporaryDirectory(prefix="lg") as folder:
        monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
        yield Path(folder)


@pytest.fixture
def threadless(monkeypatch: pytest.MonkeyPatch) -> None:
    """No thread can be started any more, as while the interpreter ends."""

    def start(_thread: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    monkeypatch.setattr(threading.Thread, "start", start)


@pytest.fixture
def listens() -> Iterator[Callable[[logging.Handler], None]]:
    """Has a handler told all that the package logs, until the test ends."""
    log, added = logging.getLogger("otel_loopguard"), list[logging.Handler]()

    def add(handler: logging.Handler) -> None:
        added.append(handler)
        log.addHandler(handler)
        log.setLevel(logging.DEBUG)

    yield add
    for handler in added:
        log.removeHandler(handler)
    log.setLevel(logging.NOTSET)


@pytest.fixture
def own_redis(tmp_path: Path) -> Iterator[Server]:
    """A Redis of the test's own."""
    from tests.stores.servers import Server

    server = Server(tmp_path / "redis").start()
    yield server
    server.kill()


@pytest.fixture(autouse=True)
def _nothing_is_left_of_other_tests(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Neither spans, providers, warnings, filters, clocks and levels, nor settings from outside."""
    for name in [name for name in os.environ if name.startswith("LOOPGUARD_")]:
        if not name.startswith(("LOOPGUARD_FRAMEWORKS_", "LOOPGUARD_WRITE_DOCS")):
            monkeypatch.delenv(name)
    # The global one is set once in a process, and adapters behave as it says.
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", trace._TRACER_PROVIDER)
    monkeypatch.setattr(trace, "_TRACER_PROVIDER_SET_ONCE", Once())
    # Guards that nothing collected yet know sessions and traces of the same names.
    monkeypatch.setattr(_guards, "_known", _guards._known)
    for name in ("_attached", "_switched_off"):
        monkeypatch.setattr(guard_module, name, WeakSet(getattr(guard_module, name)))
    monkeypatch.setattr(guard_module, "_default", None)
    _default_provider.cache_clear()
    # A clock that a test moved on never goes back by itself, and others measure by it.
    monkeypatch.setattr(rehearsal, "_ahead", 0)
    rehearsal.moves.clear()
    # `serve` sets it for its process.
    logging.getLogger("otel_loopguard").setLevel(logging.NOTSET)
    _warned.clear()
    # The command line leaves decisions out of the log, for the rest of its process.
    log = logging.getLogger("otel_loopguard")
    filters, token = list(log.filters), context.attach(Context())
    raise_faults(True)
    yield
    raise_faults(False)
    context.detach(token)
    log.filters[:] = filters
