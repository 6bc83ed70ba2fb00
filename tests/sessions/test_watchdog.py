"""Stalls, on the machine's clock and on that of a recording, as `stalls.txt` has it."""

import json
import os
import re
import time
from contextlib import AbstractContextManager, nullcontext
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.trace import Span, StatusCode

from otel_loopguard import Settings, control, session, set_testing
from otel_loopguard.replay import SpanReplay
from otel_loopguard.sessions.active import NEVER
from otel_loopguard.spans.views import RecordedSpan
from tests.agents import agent, tool_call
from tests.calls import EPOCH, SECOND, Run
from tests.hostile.rig import Rig
from tests.sessions.journals import until

# Who is late at the warning still has time before the limit, and gives both.
EARLY = {"tuning": {"stalls": {"warning": 0.1}}}
SLOW = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "slow"}
CHILD_S = 60


class Watched(Rig):
    """An agent whose calls hang."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(settings)

    def agent(self, **attributes: str) -> AbstractContextManager[Span]:
        return agent(self.tracer, **attributes)

    def slow(self, **more: str) -> AbstractContextManager[Span]:
        """An open tool call."""
        return self.tracer.start_as_current_span("execute_tool slow", attributes={**SLOW, **more})

    @property
    def reasons(self) -> list[str]:
        """What was said, in order; nobody asks the guard for it."""
        return [one.reason for one in self._decisions]


def test_the_flag_is_raised_while_the_call_hangs() -> None:
    """Not before the limit, nor the warning before its share of it."""
    watched = Watched(step_timeout_s=2, **EARLY)
    with watched.agent(), watched.slow() as span:
        began: int = span.start_time  # type: ignore[attr-defined]
        until(lambda: control.current().action == "hint")
        assert "has been running" in (control.current().hint or "")
        until(lambda: "step_timeout" in watched.reasons)
        standing = control.current().decision
        assert standing is not None
        assert standing.reason == "step_timeout"
    assert watched.reasons == ["step_timeout_near", "step_timeout"]
    for found, limit in zip(watched.decisions, (0.2, 2), strict=True):
        assert found.time - began >= limit * 1e9
    for ended in watched.exported:
        assert (ended.attributes or {})["loopguard.decision.reason"] == "step_timeout"
        assert ended.status.status_code is not StatusCode.ERROR
    assert (len(watched.exported), watched.faults) == (2, {})


@pytest.mark.parametrize("reason", ["step_timeout", "idle"])
def test_a_stall_is_told_of_though_the_clock_was_set_back(
    monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    """It was told of once the clock had caught up, an hour later."""
    real = time.time_ns
    watched = Watched(step_timeout_s=2, stall_idle_s=2)
    with watched.agent(), watched.slow() if reason == "step_timeout" else nullcontext():
        until(lambda: watched.guard._now)
        monkeypatch.setattr(time, "time_ns", lambda: real() - 3600 * SECOND)
        until(lambda: reason in watched.reasons)
    assert watched.faults == {}


def test_an_earlier_deadline_wakes_the_thread() -> None:
    """While it sleeps for calls that may take an hour, one comes that may take 0.2 s."""
    tools = {"slow": {"step_timeout_s": 0.2}}
    watched = Watched(step_timeout_s=3600, stall_idle_s=0.5, budget_action="pause", tools=tools)
    with watched.agent():
        time.sleep(0.05)
        with watched.slow():
            until(lambda: "step_timeout" in watched.reasons)
        until(lambda: control.current().action == "pause")
        assert "no step for" in (control.current().reason or "")


@pytest.mark.parametrize("hangs", [False, True])
def test_a_run_past_its_limit_is_noted_on_its_span(*, hangs: bool) -> None:
    """The flag is not raised, and a mere note takes no other decision's place."""
    limits = {"step_timeout_s": 1, "stall_run_s": 2, "budget_action": "allow"}
    watched = Watched(**limits, span_events=True, **EARLY)
    with watched.agent(), watched.slow() if hangs else nullcontext():
        until(lambda: "run_limit" in watched.reasons)
        assert control.current().action == ("hint" if hangs else "allow")
    ended = watched.exported[-1]
    attributes = ended.attributes or {}
    kept = ("step_timeout", "hint") if hangs else ("run_limit", "allow")
    assert attributes["loopguard.decision.reason"] == kept[0]
    assert attributes["loopguard.decision.action"] == kept[1]
    assert [event.name for event in ended.events] == ["loopguard.decision"] * (4 if hangs else 2)


def test_a_held_back_call_is_counted_in_time() -> None:
    """A call without its answer waits for a twin, and is counted a second later, by the thread."""
    watched = Watched()
    other = watched.provider.get_tracer("other.scope")
    with watched.agent(), other.start_as_current_span("execute_tool slow", attributes=SLOW):
        tool_call(watched.tracer, "slow", result=None)
        assert watched.steps == []
        until(lambda: [step.name for step in watched._steps] == ["slow"])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_preloaded_worker_finds_its_loops_and_stalls() -> None:
    """As under gunicorn's preload: the guard and its thread were made in the parent."""
    watched = Watched(step_timeout_s=0.2)
    tool_call(watched.tracer)
    open_above = watched.slow()
    with watched.agent(), open_above:
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            with session("stuck"):
                for _ in range(8):
                    tool_call(watched.tracer)
                said = control.current().action.value
            with session("hung"), watched.agent(), watched.slow():
                deadline = time.monotonic() + CHILD_S
                while time.monotonic() < deadline and control.current().action == "allow":
                    time.sleep(0.01)
                said += f" {control.current().action.value}"
            os.write(writer, said.encode())
            os._exit(0)
        os.waitpid(child, 0)
        assert os.read(reader, 100) == b"abort hint"
        until(lambda: "step_timeout" in watched.reasons)
    assert watched.faults == {}


def test_the_state_is_checked_while_spans_are_open() -> None:
    """What does not agree with itself is counted, and put right where it can be; also on demand."""
    watched = Watched(tuning={"stalls": {"health_s": 0.1}}, max_sessions=1)
    with session("one"), watched.agent(), watched.slow() as span:
        assert watched.guard.health() == ()
        opened = watched.guard._opened(span.get_span_context().span_id)
        assert opened is not None
        assert opened.run is not None
        opened.run.busy = 7
        until(lambda: watched.guard.faults.counts["health:InconsistentState"] == 1)
        assert opened.run.busy == 1
        with session("two"), watched.slow():
            (said,) = watched.guard.health()
            assert said == "2 open spans belong to sessions that are not kept any more"
    assert watched.guard.health() == ()


@pytest.mark.parametrize("where", ["calls", "agents"])
def test_one_phase_for_too_long(where: str) -> None:
    """Whether the spans of agents or those of calls name who is at work."""
    with set_testing(True) as rehearsal:
        watched = Watched(tuning={"stalls": {"phase_s": 100}})
        with watched.agent():
            for name in ("writer", "critic"):
                within = watched.agent(gen_ai__agent__name=name)
                own = {"gen_ai.agent.name": name} if where == "calls" else {}
                with within if where == "agents" else nullcontext():
                    for _ in range(5):
                        with watched.slow(**own):
                            rehearsal.advance(30)
        assert [one.reason for one in watched.decisions].count("same_phase") == 2


def test_the_hint_fits_what_hangs() -> None:
    """It says to wait or to cancel, and nothing of repeating."""
    with set_testing(True) as rehearsal:
        watched = Watched(stall_idle_s=30, budget_action="hint")
        with watched.agent(), watched.slow():
            rehearsal.advance(61)
            said = control.current().hint or ""
            assert said.startswith("'slow' has been running for 61.0 s")
            assert "wait for it or cancel it" in said
            assert "repeat" not in said
        with watched.agent():
            rehearsal.advance(31)
            assert (control.current().hint or "").endswith("or say what you are waiting for.")


NAMED = {
    "tool": ("execute_tool", "gen_ai.tool.name"),
    "model": ("chat", "gen_ai.request.model"),
    "agent": ("invoke_agent", "gen_ai.agent.name"),
}
SPAN = re.compile(r"(\w+) (?:(\w+) )?(\d+)-(\d*)")


def spans(text: str) -> list[RecordedSpan]:
    """The spans of a line, below the first of them."""
    found: list[RecordedSpan] = []
    for kind, name, start, end in SPAN.findall(text):
        parts = [(int(start), int(end) if end else None)]
        if kind == "busy":
            parts = [(at, at + 1) for at in range(int(start), int(end), 10)]
        for part in parts:
            above = found[0].span_id if found else None
            found.append(_span("tool" if kind == "busy" else kind, name, *part, above))
    return found


IDS = count(1)


def _span(kind: str, name: str, start: int, end: int | None, above: int | None) -> RecordedSpan:
    attributes = {"gen_ai.conversation.id": "run"}
    if kind in NAMED:
        operation, naming = NAMED[kind]
        attributes |= {"gen_ai.operation.name": operation, naming: name}
    until = None if end is None else EPOCH + end * SECOND
    return RecordedSpan(
        f"{kind} {name}", span_id=next(IDS), trace_id=1, start=EPOCH + start * SECOND, end=until,
        parent_id=above, attributes=attributes,
    )  # fmt: skip


class Known:
    """Limits from past runs, made up."""

    def limit_for(self, tool: str, args: object = None) -> float | None:
        return {"quick": 40.0, "slow": 90.0}.get(tool)

    def time_limit(self, tool: str, args: object = None) -> float:
        return 33.0

    def agent_limit(self, agent: str) -> float:
        return 50.0 if agent == "sub" else 600.0


def replayed(lines: list[str], *, known: bool = False, **settings: Any) -> Run:
    """A run that was fed spans; where it is `known` how long tools take."""
    run = Run(Settings(**settings))
    if known:
        run.guard._watchdog._limits = Known()  # type: ignore[assignment]
    for line in lines:
        replay = SpanReplay(run.guard, run.guard.reader.read)
        for one in spans(line):
            replay.add(one)
        replay.finish()
    return run


def said(run: Run) -> str:
    """Reason, second and action of all stalls."""
    return ", ".join(
        f"{one.reason}@{(one.time - EPOCH) / SECOND:g} {one.action}" for one in run.decisions
    )


TEXT = Path(__file__).with_name("stalls.txt").read_text(encoding="utf-8")
CASES = re.split(r"^\[(.+)\]\n", TEXT, flags=re.MULTILINE)


@pytest.mark.parametrize("case", CASES[2::2], ids=CASES[1::2])
def test_what_is_late_is_told_at_its_limit(case: str) -> None:
    """And nothing is due when nothing is open: every deadline goes with what it was for."""
    lines = [line for line in case.splitlines() if line and not line.startswith("#")]
    told = {line.partition(": ")[0]: line.partition(": ")[2] for line in lines if ": " in line}
    expected = [line.removeprefix("= ") for line in lines if line.startswith("= ")]
    settings = json.loads(told.get("with", "{}"))
    run = replayed([line for line in lines if SPAN.match(line)], known="known" in told, **settings)
    assert said(run) == ", ".join(expected)
    assert run.guard.due == NEVER
    assert run.guard.flag_named("run").stops is any(one.action.stops for one in run.decisions)


def test_a_span_that_never_ends_costs_no_more_than_its_limits() -> None:
    """Years later, after a handful of looks, it has said what there is to say."""
    run = replayed(["agent a 0-, tool t 1-"], limits="standard", budget_action="allow")
    run.guard.tick(EPOCH + 10**9 * SECOND)
    assert len(run.decisions) == len({one.reason for one in run.decisions}) == 10
    assert run.guard.due == NEVER
