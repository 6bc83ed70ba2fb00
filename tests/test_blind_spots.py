"""What the guard cannot see is logged once per process and reason."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from opentelemetry.trace import SpanKind

from otel_loopguard import LoopGuardSpanProcessor, session
from otel_loopguard._util.clock import set_testing
from otel_loopguard._util.logger import warn_blind
from tests.agents import agent, provider_with, tool_call

if TYPE_CHECKING:
    import pytest


def test_each_reason_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """The second call with a reason says nothing, another reason does."""
    told = [warn_blind("no_tools", "%d model calls", n) for n in (3, 4)]
    assert told == [True, False]
    assert warn_blind("no_session", "no session")
    assert [one.getMessage() for one in caplog.records] == [
        "otel-loopguard: 3 model calls",
        "otel-loopguard: no session",
    ]


def test_nothing_is_told_where_the_guard_is_off() -> None:
    """Tests of agents that switch the guard off hear nothing, and nothing is spent."""
    with set_testing("off"):
        assert not warn_blind("no_tools", "nothing")
    assert warn_blind("no_tools", "something")


def test_tool_calls_without_a_session_and_a_root_are_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Once, with the remedy; below an agent, in a session, or on a server they are not."""
    tracer = provider_with(LoopGuardSpanProcessor()).get_tracer("my.agent")
    for _ in range(8):
        with agent(tracer):
            tool_call(tracer)
        with session(uuid.uuid4().hex):
            tool_call(tracer)
        with tracer.start_as_current_span(
            "tools/call t", kind=SpanKind.SERVER,
            attributes={"mcp.method.name": "tools/call", "gen_ai.tool.name": "t"},
        ):  # fmt: skip
            pass
    assert not caplog.records
    for number in range(8):
        assert len(caplog.records) == (number >= 5)
        tool_call(tracer)
    assert "otel_loopguard.session(key)" in caplog.text
