"""Stalls on a recording's own clock: each is found at its own time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.calls import EPOCH, SECOND
from tests.sessions.recorded import Replayed, agent, span

if TYPE_CHECKING:
    from otel_loopguard.spans.views import RecordedSpan

QUIET: dict[str, Any] = {"tuning": {"latency": {"limit_min_s": 600}}}
NOTED: dict[str, Any] = {"budget_action": "allow"}


def busy(start: int, end: int, key: int = 100) -> list[RecordedSpan]:
    """A short call every ten seconds."""
    return [span("tool", "t", at, at + 1, key=key + at) for at in range(start, end, 10)]


@pytest.mark.parametrize(
    ("kind", "took", "said"),
    [
        ("tool", 47, []),
        ("tool", 50, [(48, "step_timeout_near", "hint")]),
        ("tool", 100, [(48, "step_timeout_near", "hint"), (60, "step_timeout", "hint")]),
        ("model", 470, []),
        ("model", 620, [(480, "model_timeout_near", "allow"), (600, "model_timeout", "allow")]),
    ],
    ids=["in time", "near", "past", "a slow model", "a hung model"],
)
def test_a_step_past_its_limit_is_found_at_its_limit(kind: str, took: int, said: Any) -> None:
    """The clock jumps to the step's end, and still each thing is said at its own time."""
    run = Replayed({**QUIET, "tuning": {"latency": {"limit_max_s": 9999, "limit_min_s": 9999}}})
    run.feed(agent(0, took + 1), span(kind, "x", 0, took, key=2))
    assert run.said == said


def test_a_tool_has_a_limit_of_its_own() -> None:
    """`tools` gives a slow tool its time, and an exempt one all of it."""
    slow = {"tools": {"build": {"step_timeout_s": 400}, "sleep": {"exempt": True}}, **QUIET}
    run = Replayed(slow).feed(
        agent(0, 400),
        span("tool", "build", 0, 300, key=2),
        span("tool", "sleep", 0, 300, key=3),
        span("tool", "fetch", 310, 375, key=4),
    )
    assert [(at, reason) for at, reason, _ in run.said] == [
        (358, "step_timeout_near"),
        (370, "step_timeout"),
    ]


class Known:
    """Limits from past runs, made up."""

    def limit_for(self, tool: str, args: object = None) -> float | None:
        return {"quick": 40.0, "slow": 90.0}.get(tool)

    def time_limit(self, tool: str, args: object = None) -> float:
        return 33.0

    def agent_limit(self, agent: str) -> float:
        return 50.0 if agent == "sub" else 600.0


def known(**settings: Any) -> Replayed:
    """A guard that knows how long tools take."""
    run = Replayed({**QUIET, **settings})
    run.guard._watchdog._limits = Known()
    return run


@pytest.mark.parametrize(
    ("tool", "said"),
    [
        ("quick", [(40, "over_estimate"), (48, "step_timeout_near"), (60, "step_timeout")]),
        ("slow", [(72, "step_timeout_near"), (90, "step_timeout")]),
        ("unknown", [(48, "step_timeout_near"), (60, "step_timeout")]),
    ],
    ids=["quick", "known to be slow", "unknown"],
)
def test_the_estimate_makes_the_limit(tool: str, said: Any) -> None:
    """Three times the estimate is a stall; a tool known to be slow may be so."""
    run = known().feed(agent(0, 200), span("tool", tool, 0, 150, key=2))
    assert [(at, reason) for at, reason, _ in run.said] == said


def test_a_limit_that_was_given_goes_before_the_estimate() -> None:
    """Who declares a limit means it."""
    run = known(tools={"slow": {"step_timeout_s": 10}})
    run.feed(agent(0, 200), span("tool", "slow", 0, 50, key=2))
    assert [at for at, _, _ in run.said] == [8, 10]


def test_an_agent_has_a_limit_by_its_estimate() -> None:
    """Five times its estimate; it is noted, and nothing else happens."""
    run = known().feed(agent(0, 120), span("agent", "sub", 10, 100, key=2))
    assert run.said == [(50, "agent_limit_near", "allow"), (60, "agent_limit", "allow")]
    flag = run.guard.flag_of("c")
    assert flag is not None
    assert not flag.raised


def test_with_the_standard_limits_that_of_an_agent_stops() -> None:
    run = known(limits="standard", stall_idle_s=0)
    run.feed(agent(0, 120), span("agent", "sub", 10, 100, key=2))
    assert run.said == [(50, "agent_limit_near", "hint"), (60, "agent_limit", "abort")]


def test_an_agent_without_an_estimate_has_ten_minutes() -> None:
    """The ceiling of E3."""
    run = Replayed(QUIET).feed(agent(0, 700))
    assert [(at, reason) for at, reason, _ in run.said] == [
        (480, "agent_limit_near"),
        (600, "agent_limit"),
    ]


def test_an_idle_run_is_noted_once() -> None:
    """Thirty seconds without a step while the agent's span is open; a running step is none."""
    run = Replayed({"stall_idle_s": 30, **NOTED}).feed(
        agent(0, 220),
        span("tool", "t", 5, 40, key=2),
        span("model", "m", 50, 90, key=3),
        span("tool", "t", 130, 131, key=4),
        span("tool", "t", 190, 191, key=5),
    )
    assert run.said == [(114, "idle_near", "allow"), (120, "idle", "allow")]


def test_a_run_that_does_something_is_not_idle() -> None:
    """A call every ten seconds, for a minute short of its limits."""
    assert Replayed({"limits": "standard"}).feed(agent(0, 200), *busy(0, 200)).said == []


def test_nobody_is_told_of_a_limit_in_time_that_nobody_set() -> None:
    """Nine minutes, most of them idle."""
    assert Replayed().feed(agent(0, 479), *busy(0, 100)).said == []


def test_a_run_has_a_limit() -> None:
    """300 s, with a warning at 80 %."""
    run = Replayed({"stall_run_s": 300, **NOTED}).feed(agent(0, 400), *busy(0, 400))
    assert run.said == [(240, "run_limit_near", "allow"), (300, "run_limit", "allow")]


def test_the_runs_of_a_session_have_one_together() -> None:
    """840 s of all runs; the time between them does not count."""
    run = Replayed({**QUIET, "stall_overall_s": 840, **NOTED})
    run.feed(agent(0, 400))
    first = [*run.said]
    run.feed(agent(1000, 1400, key=3))
    run.feed(agent(2000, 2100, key=5))
    assert first == []
    assert [(at, reason) for at, reason, _ in run.said] == [
        (1272, "overall_limit_near"),
        (2040, "overall_limit"),
    ]


def test_a_limit_in_time_acts_alone() -> None:
    """Two hours for all runs, which may be aborted then; a minute without a step is no matter."""
    run = Replayed({**QUIET, "stall_overall_s": 7200, "budget_action": "abort"})
    run.feed(agent(0, 400), *busy(0, 60), *busy(200, 400))
    assert run.decisions == []


def test_an_operation_of_an_hour_is_found_in_flight() -> None:
    """While a call hangs and no step ends; what the timer said no step says again."""
    run = Replayed({**QUIET, "budget_elapsed_s": 3600, **NOTED})
    run.feed(agent(0, 4000), span("tool", "t", 1, 3999, key=2), *busy(0, 30))
    found = [(at, reason) for at, reason, _ in run.said if "operation" in reason]
    assert found == [(2880, "operation_limit_near"), (3600, "operation_limit")]
    assert [one.detector for one in run.decisions if "elapsed" in one.reason] == []


def test_one_agent_of_several_at_work_for_long_is_noted() -> None:
    """The same phase for over 300 s, by the agent at work; one agent alone has no phases."""
    latency = {"limit_min_s": 600, "limit_max_s": 5000}
    quiet = {**QUIET, "step_timeout_s": 5000, "tuning": {"latency": latency}}
    one = Replayed(quiet).feed(agent(0, 900), *busy(0, 900))
    two = Replayed(quiet).feed(
        agent(0, 900), *busy(0, 50), span("agent", "writer", 60, 800, key=2), *busy(810, 850)
    )
    assert one.said == []
    assert two.said == [(360, "same_phase", "allow")]
    assert "'writer' has been in one phase for 300.0 s" in two.decisions[-1].message


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
    run = Replayed(settings).feed(agent(0, 310), span("node", "n", 0, 305, key=2))
    assert run.said == [(240, "run_limit_near", "hint"), (300, "run_limit", expected)]
    flag = run.guard.flag_of("c")
    assert flag is not None
    assert flag.control.action == expected


def test_switched_off_nothing_is_a_stall() -> None:
    """The name of the family is enough, and nothing is due."""
    run = Replayed({"switched_off": "stall"})
    run.feed(agent(0, 4000), span("tool", "t", 1, 3999, key=2))
    assert run.said == []
    assert run.guard.due == 2**63 - 1


def test_nothing_is_due_when_nothing_is_open() -> None:
    """Every deadline goes with what it was for."""
    run = Replayed().feed(agent(0, 30), *busy(0, 30))
    assert run.guard.due == 2**63 - 1


def test_a_span_that_never_ends_costs_no_more_than_its_limits() -> None:
    """Years later, after a handful of looks, it has said what there is to say."""
    run = Replayed({"limits": "standard", **NOTED})
    run.feed(agent(0, None), span("tool", "t", 1, None, key=2))
    run.guard.tick(EPOCH + 10**9 * SECOND)
    assert len(run.said) == len({reason for _, reason, _ in run.said}) == 10
    assert run.guard.due == 2**63 - 1
