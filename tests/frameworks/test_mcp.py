"""Client and server of the MCP adapter over real connections, beyond what all adapters share."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from tests.frameworks.harness import FRAMEWORKS, finished, line_of, started

pytestmark = pytest.mark.rare

MCP = FRAMEWORKS["mcp"]


@cache
def _said() -> dict[str, Any]:
    """What every case came to."""
    return line_of(finished(started(MCP, program=MCP.folder / "cases.py")))


def test_a_server_refuses_the_loop_of_a_client_without_the_adapter() -> None:
    """The hint is behind a result, and the loop is refused; the next connection is not."""
    said = _said()["server_alone"]
    assert said["errors"] == [*[False] * 5, True]
    assert said["hinted"] == [3]
    assert said["again"] == [False, "No results for x."]


def test_what_the_client_decided_stops_the_server() -> None:
    """An abort travels signed in `_meta`; a call without it is made."""
    said = _said()["session_that_came_along"]
    assert said["before"] == said["other"] == [False, "No results for x."]
    assert said["after"][0] is True
    assert "talk-9" in said["after"][1]
    assert said["sent"] == ["baggage", "otel-loopguard/call", "traceparent"]


def test_a_stop_leaves_the_block_of_the_client_as_it_is() -> None:
    """It is in no exception group, and has each result once."""
    assert _said()["stop_leaves_the_block"] == ["No results for x."] * 4


def test_what_the_caller_sends_besides_is_sent() -> None:
    """`meta` of the caller is kept, and the call is made."""
    assert _said()["own_meta"] == [False, "No results for z."]


def test_a_failed_call_is_no_result() -> None:
    """A stop carries no errors along."""
    assert _said()["failing"] == []
