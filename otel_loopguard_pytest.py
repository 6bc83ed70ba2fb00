"""The pytest plugin of otel-loopguard: the fixture `loopguard`, its marker and its ini option.

It stands beside the package, because pytest loads it at every start: the package, which takes most
of a second, is imported by the first test that asks for the fixture.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from otel_loopguard.testing import LoopGuardFixture

_MARKER = (
    "loopguard(provider='global', testing=True, gate_limit_s=0.0, **settings): how the fixture "
    "`loopguard` watches the agent; settings are those of otel_loopguard.Settings."
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the ini option `loopguard`."""
    parser.addini(
        "loopguard",
        "Options of the fixture `loopguard` and settings of its guard, a line `name = value` each.",
        type="linelist",
        default=[],
    )


def pytest_configure(config: pytest.Config) -> None:
    """Makes the marker known."""
    config.addinivalue_line("markers", _MARKER)


@pytest.fixture
def loopguard(request: pytest.FixtureRequest) -> Iterator[LoopGuardFixture]:
    """Watches the agent of this test with a guard of its own: `loopguard.assert_no_loops()`."""
    from otel_loopguard.testing import options, watching  # noqa: PLC0415

    marked: list[dict[str, Any]] = []
    for mark in request.node.iter_markers("loopguard"):
        if mark.args:
            msg = f"the marker loopguard takes keywords only, got {mark.args!r}"
            raise pytest.UsageError(msg)
        marked.insert(0, dict(mark.kwargs))
    given = options(request.config.getini("loopguard"), marked)
    with watching(**{"name": request.node.nodeid, **given}) as found:
        yield found
