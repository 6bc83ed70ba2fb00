"""Stalls on a recording's own clock: each is found at its own time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.calls import EPOCH, SECOND
from tests.sessions.recorded import Replayed, agent, span

if TYPE_CHECKING:
    from otel_loopguard.spans.views import RecordedSpan

NEVER = 2**63 - 1
QUIET: dict[str, Any] = {"tuning": {"latency": {"limit_min_s": 600}}}
LONG: dict[str, Any] = {"tuning": {"latency": {"limit_max_s": 9999, "limit_min_s": 9999}}}
NOTED: dict[str, Any] = {"budget_action": "allow"}
PHASES: dict[str, Any] = {
    "step_timeout_s": 5000,
    "tuning": {"latency": {"limit_min_s": 600, "limit_max_s": 5000}},
}
STEP = "step_timeout_near@48 hint"
AGENT = "agent_limit_near@50 {}, agent_limit@60 {}"


def tool(name: str, start: float, end: float | None, key: int = 2) -> RecordedSpan:
    return span("tool", name, start, end, key=key)


def busy(start: int, end: int) -> list[RecordedSpan]:
    """A short call every ten seconds."""
    return [tool("t", at, at + 1, 100 + at) for at in range(start, end, 10)]


class Known:
    """Limits from past runs, made up."""

    def limit_for(self, tool: str, args: object = None) -> float | None:
        return {"quick": 40.0, "slow": 90.0}.get(tool)

    def time_limit(self, tool: str, args: object = None) -> float:
        return 33.0

    def agent_limit(self, agent: str) -> float:
        return 50.0 if agent == "sub" else 600.0


def told(settings: dict[str, Any], spans: list[RecordedSpan], *, known: bool = False) -> Replayed:
    """A run that was fed spans; where it is `known` how long tools take."""
    run = Replayed(settings)
    if known:
        run.guard._watchdog._limits = Known()
    return run.feed(*spans)


def said(run: Replayed) -> str:
    """Reason, second and action of all stalls."""
    return ", ".join(f"{reason}@{at:g} {action}" for at, reason, action in run.said)


CASES: dict[str, tuple[dict[str, Any], list[RecordedSpan], str]] = {
    # The clock jumps to the step's end, and still each thing is said at its own time.
    "in time": (LONG, [agent(0, 48), tool("x", 0, 47)], ""),
    "near": (LONG, [agent(0, 51), tool("x", 0, 50)], STEP),
    "past": (LONG, [agent(0, 101), tool("x", 0, 100)], f"{STEP}, step_timeout@60 hint"),
    "a slow model": (LONG, [agent(0, 471), span("model", "x", 0, 470, key=2)], ""),
    "a hung model": (
        LONG, [agent(0, 621), span("model", "x", 0, 620, key=2)],
        "model_timeout_near@480 allow, model_timeout@600 allow",
    ),
    # `tools` gives a slow tool its time, and an exempt one all of it.
    "a limit of its own": (
        {"tools": {"build": {"step_timeout_s": 400}, "sleep": {"exempt": True}}, **QUIET},
        [agent(0, 400), tool("build", 0, 300), tool("sleep", 0, 300, 3),
         tool("fetch", 310, 375, 4)],
        "step_timeout_near@358 hint, step_timeout@370 hint",
    ),
    # The ceiling of E3.
    "an agent without an estimate": (
        QUIET, [agent(0, 700)], "agent_limit_near@480 allow, agent_limit@600 allow",
    ),
    # Thirty seconds without a step while the agent's span is open; a running step is none.
    "an idle run is noted once": (
        {"stall_idle_s": 30, **NOTED},
        [agent(0, 220), tool("t", 5, 40), span("model", "m", 50, 90, key=3),
         tool("t", 130, 131, 4), tool("t", 190, 191, 5)],
        "idle_near@114 allow, idle@120 allow",
    ),
    # A call every ten seconds, for a minute short of its limits.
    "a run that does something": ({"limits": "standard"}, [agent(0, 200), *busy(0, 200)], ""),
    # Nine minutes, most of them idle.
    "limits that nobody set": ({}, [agent(0, 479), *busy(0, 100)], ""),
    "a run has a limit": (
        {"stall_run_s": 300, **NOTED}, [agent(0, 400), *busy(0, 400)],
        "run_limit_near@240 allow, run_limit@300 allow",
    ),
    # Two hours for all runs, which may be aborted then; a minute without a step is no matter.
    "a limit in time acts alone": (
        {**QUIET, "stall_overall_s": 7200, "budget_action": "abort"},
        [agent(0, 400), *busy(0, 60), *busy(200, 400)], "",
    ),
    # The same phase for over 300 s, by the agent at work; one agent alone has no phases.
    "one agent alone": (PHASES, [agent(0, 900), *busy(0, 900)], ""),
    "one agent of several": (
        PHASES,
        [agent(0, 900), *busy(0, 50), span("agent", "writer", 60, 800, key=2), *busy(810, 850)],
        "same_phase@360 allow",
    ),
    "switched off": ({"switched_off": "stall"}, [agent(0, 4000), tool("t", 1, 3999)], ""),
}  # fmt: skip


@pytest.mark.parametrize(("settings", "spans", "expected"), CASES.values(), ids=CASES)
def test_what_is_late_is_told_at_its_limit(
    settings: dict[str, Any], spans: list[RecordedSpan], expected: str
) -> None:
    """And nothing is due when nothing is open: every deadline goes with what it was for."""
    run = told(settings, spans)
    assert said(run) == expected
    assert run.guard.due == NEVER


@pytest.mark.parametrize(
    ("name", "settings", "expected"),
    [
        ("quick", {}, f"over_estimate@40 hint, {STEP}, step_timeout@60 hint"),
        ("slow", {}, "step_timeout_near@72 hint, step_timeout@90 hint"),
        ("unknown", {}, f"{STEP}, step_timeout@60 hint"),
        ("slow", {"tools": {"slow": {"step_timeout_s": 10}}},
         "step_timeout_near@8 hint, step_timeout@10 hint"),
    ],
    ids=["quick", "known to be slow", "unknown", "a limit that was given goes first"],
)  # fmt: skip
def test_the_estimate_makes_the_limit(name: str, settings: Any, expected: str) -> None:
    """Three times the estimate is a stall; a tool known to be slow may be so."""
    run = told({**QUIET, **settings}, [agent(0, 200), tool(name, 0, 150)], known=True)
    assert said(run) == expected


@pytest.mark.parametrize(
    ("settings", "near", "limit"),
    [({}, "allow", "allow"), ({"limits": "standard", "stall_idle_s": 0}, "hint", "abort")],
)
def test_an_agent_has_a_limit_by_its_estimate(settings: Any, near: str, limit: str) -> None:
    """Five times its estimate; it is noted, or stops with the standard limits."""
    spans = [agent(0, 120), span("agent", "sub", 10, 100, key=2)]
    run = told({**QUIET, **settings}, spans, known=True)
    assert said(run) == AGENT.format(near, limit)
    flag = run.guard.flag_named("c")
    assert flag.raised is (limit != "allow")


def test_the_runs_of_a_session_have_one_together() -> None:
    """840 s of all runs; the time between them does not count."""
    run = told({**QUIET, "stall_overall_s": 840, **NOTED}, [agent(0, 400)])
    assert run.said == []
    run.feed(agent(1000, 1400, key=3))
    run.feed(agent(2000, 2100, key=5))
    assert said(run) == "overall_limit_near@1272 allow, overall_limit@2040 allow"


def test_an_operation_of_an_hour_is_found_in_flight() -> None:
    """While a call hangs and no step ends; what the timer said no step says again."""
    spans = [agent(0, 4000), tool("t", 1, 3999), *busy(0, 30)]
    run = told({**QUIET, "budget_elapsed_s": 3600, **NOTED}, spans)
    assert "operation_limit_near@2880 allow" in said(run)
    assert "operation_limit@3600 allow" in said(run)
    assert [one.detector for one in run.decisions if "elapsed" in one.reason] == []


@pytest.mark.parametrize(
    ("action", "strongest", "expected"),
    [
        ("", "abort", "abort"),
        ("pause", "abort", "pause"),
        ("abort", "deny", "deny"),
        ("hint", "abort", "hint"),
    ],
    ids=["none set", "pause", "cut short", "hint"],
)
def test_the_action_of_a_limit_is_a_setting(action: str, strongest: str, expected: str) -> None:
    """A warning hints at most; the limit does what is set, within `max_action`."""
    settings = {"stall_run_s": 300, "budget_action": action, "max_action": strongest}
    run = told(settings, [agent(0, 310), span("node", "n", 0, 305, key=2)])
    assert said(run) == f"run_limit_near@240 hint, run_limit@300 {expected}"
    flag = run.guard.flag_named("c")
    assert flag.control.action == expected


def test_a_span_that_never_ends_costs_no_more_than_its_limits() -> None:
    """Years later, after a handful of looks, it has said what there is to say."""
    run = told({"limits": "standard", **NOTED}, [agent(0, None), tool("t", 1, None)])
    run.guard.tick(EPOCH + 10**9 * SECOND)
    assert len(run.said) == len({reason for _, reason, _ in run.said}) == 10
    assert run.guard.due == NEVER
