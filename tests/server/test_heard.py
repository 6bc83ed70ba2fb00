"""An agent that asks before each step hears hint, deny and abort, however late its spans come."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from otel_loopguard import Settings, set_testing
from otel_loopguard._util.clock import now
from otel_loopguard.engine import Engine
from otel_loopguard.server.tenant_guard import TenantGuard
from otel_loopguard.spans.views import RecordedSpan
from tests.server.serving import call, control, post, serving

if TYPE_CHECKING:
    from otel_loopguard.server import Server

STEPS = 400


def span(number: int, start: int) -> RecordedSpan:
    """A search that finds nothing, as it does each time."""
    attributes = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "search",
        "gen_ai.conversation.id": "chat-1",
        "gen_ai.tool.call.arguments": '{"q": "x"}',
        "gen_ai.tool.call.result": "No results.",
    }
    return RecordedSpan(
        "execute_tool search", trace_id=1, span_id=number + 1, start=start, end=now(),
        attributes=attributes,
    )  # fmt: skip


def heard(step_s: float, is_due: Callable[[int, float], bool]) -> list[str]:
    """What an agent hears that goes on until it is aborted; whether its spans are due is told by
    their number, and how long the first of them has waited."""

    async def run() -> list[str]:
        guard = Engine(Settings(), local=False)
        engine = TenantGuard(guard, lateness_s=0)
        said: list[str] = []
        waiting: list[RecordedSpan] = []
        for number in range(STEPS):
            said.append((await engine.read("chat-1")).action.value)
            if said[-1] == "abort":
                break
            start = now()
            clock.advance(step_s)
            waiting.append(span(number, start))
            if is_due(len(waiting), (now() - waiting[0].start) / 1e9):
                await engine.judge(waiting)
                waiting = []
        await engine.close()
        return said

    with set_testing(True) as clock:
        return asyncio.run(run())


@pytest.mark.parametrize("delay_s", [0.2, 5.0])
@pytest.mark.parametrize("step_s", [0.1, 0.4, 0.5])
def test_whatever_an_exporter_waits_for(step_s: float, delay_s: float) -> None:
    said = heard(step_s, lambda _, waited_s: waited_s >= delay_s)
    assert list(dict.fromkeys(said)) == ["allow", "hint", "deny", "abort"]


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8])
def test_however_many_equal_calls_come_at_once(size: int) -> None:
    said = heard(0.5, lambda count, _: count >= size)
    assert list(dict.fromkeys(said)) == ["allow", "hint", "deny", "abort"]


def test_where_nobody_asks_decisions_are_as_ever() -> None:
    """As of what is exported for the record."""
    made: list[str] = []

    async def run() -> None:
        guard = Engine(
            Settings(), local=False, on_decision=lambda _, found: made.append(found.action.value)
        )
        engine = TenantGuard(guard, lateness_s=0)
        await engine.judge([span(number, now() + number * 10**9) for number in range(8)])
        await engine.close()

    asyncio.run(run())
    assert made == ["hint", "deny", "abort"]


def sent(server: Server, session: str, first: int, ago_s: float) -> None:
    """Three calls, one after another, whose exporter waited."""
    begin = time.time_ns() - int(ago_s * 1e9)
    spans = [
        call(
            first + number, session, start_time_unix_nano=begin + number * 1_000_000,
            end_time_unix_nano=begin + number * 1_000_000 + 500_000,
        )
        for number in range(3)
    ]  # fmt: skip
    post(server, *spans).raise_for_status()


def test_who_asks_hears_that_spans_come_too_late_to_warn(caplog: pytest.LogCaptureFixture) -> None:
    """So does the log, once; of sessions that nobody asks for, nobody does."""
    with serving() as server:
        control(server, "asks")
        sent(server, "asks", 0, ago_s=5)
        sent(server, "asks", 3, ago_s=5)
        sent(server, "silent", 100, ago_s=5)
        late, silent = control(server, "asks"), control(server, "silent")
        sent(server, "asks", 6, ago_s=-60)  # however slow this machine is
        in_time = control(server, "asks")
        lines = [one.getMessage() for one in caplog.records if "too late" in one.getMessage()]
        assert len(lines) == 1
    assert "OTEL_BSP_SCHEDULE_DELAY=200" in lines[0]
    assert "steps are judged up to 5." in str(late["warning"])
    assert silent["warning"] is None
    assert in_time["warning"] is None
