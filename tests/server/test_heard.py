"""An agent that asks before each step hears hint, deny and abort, however late its spans come."""

import asyncio
import time
from collections.abc import Callable

import pytest

from otel_loopguard import Settings, set_testing
from otel_loopguard._util.clock import now
from otel_loopguard.engine import Engine
from otel_loopguard.server import Server
from otel_loopguard.server.tenant_guard import TenantGuard
from otel_loopguard.spans.views import RecordedSpan
from tests.server.serving import SECOND, call, control, post, serving

STEPS = 400
RUNGS = ["allow", "hint", "deny", "abort"]


def span(number: int, start: int) -> RecordedSpan:
    """The same call each time, as `call` has it."""
    return RecordedSpan(
        "execute_tool search", trace_id=1, span_id=number + 1, start=start, end=now(),
        attributes=call(number)["attributes"],
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
        return list(dict.fromkeys(asyncio.run(run())))


@pytest.mark.parametrize("delay_s", [0.2, 5.0])
@pytest.mark.parametrize("step_s", [0.1, 0.4, 0.5])
def test_whatever_an_exporter_waits_for(step_s: float, delay_s: float) -> None:
    assert heard(step_s, lambda _, waited_s: waited_s >= delay_s) == RUNGS


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8])
def test_however_many_equal_calls_come_at_once(size: int) -> None:
    assert heard(0.5, lambda count, _: count >= size) == RUNGS


def sent(server: Server, session: str, first: int, ago_s: float) -> None:
    """Three calls, one after another, whose exporter waited."""
    begin = time.time_ns() - int(ago_s * 1e9)
    times = ((at, at + 500_000) for at in range(begin, begin + 3_000_000, 1_000_000))
    post(server, *(
        call(number, session, start_time_unix_nano=start, end_time_unix_nano=end)
        for number, (start, end) in enumerate(times, first)
    )).raise_for_status()  # fmt: skip


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


def test_who_asks_hears_that_its_clock_is_behind() -> None:
    """Its spans come at once, each by itself, and seem to have begun before any answer."""
    behind = 120 * SECOND
    with serving() as server:
        for number in range(2):
            assert control(server, "behind")["warning"] is None
            at = time.time_ns() - behind
            times = {"start_time_unix_nano": at, "end_time_unix_nano": at + 1}
            post(server, call(number, "behind", **times)).raise_for_status()
        assert "compare the clocks" in str(control(server, "behind")["warning"])


def test_who_asks_hears_that_no_span_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the thirtieth question; waiting for a change is none, and the first span ends it."""
    with serving() as server:
        for _ in range(40):
            assert control(server, "batch")["warning"] is None  # an exporter may still wait
        monkeypatch.setattr("otel_loopguard.server.metrics._SENDS_S", 0.0)
        for _ in range(29):
            assert control(server, "alone")["warning"] is None
        for _ in range(40):
            assert control(server, "waits", wait="0.001")["warning"] is None
        assert "no span of it has come" in str(control(server, "alone")["warning"])
        sent(server, "alone", 0, ago_s=0)
        assert control(server, "alone")["warning"] is None
