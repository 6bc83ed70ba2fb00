"""What a session came to: totals, counters, tools, loops, alerts, phases, context."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from otel_loopguard import Action, LoopGuard, Settings
from otel_loopguard._util.errors import raise_faults
from otel_loopguard.core import Kind, Step
from otel_loopguard.core.decision import Severity
from tests.calls import EPOCH, SECOND, Run, call, handle_of

if TYPE_CHECKING:
    from otel_loopguard.core.report import Report

ANSWER = "No results were found for this question, in any of the sources."
LOOP = [call("search", {"q": "x"}, ANSWER)] * 9
FAILED = call("grep", {"q": "x"}, error="no such file")
FOUND = call("find", {"q": "x"}, "a.py")
TOLD = Step(Kind.MODEL, "m", tokens_in=100, tokens_out=20)
NOTED = {"budget_steps": 50, "budget_action": "allow"}


def report_of(*steps: Step, **settings: Any) -> Report:
    run = Run(Settings(**settings))
    run.calls(*steps)
    return handle_of(run.guard).report()


def work(agent: str, start: float, end: float, tokens: int | None = None) -> Step:
    """A model call of an agent, in seconds after the epoch of the tests."""
    times = {"start": EPOCH + round(start * SECOND), "end": EPOCH + round(end * SECOND)}
    return Step(Kind.MODEL, "m", agent=agent, tokens_in=tokens, **times)


CASES: dict[str, tuple[list[Step], dict[str, Any], dict[str, Any]]] = {
    # One failed and was made good by another.
    "a healthy run": (
        [call("read", {"path": "a"}, "text"), call("test", {"n": 1}, error="1 failed"),
         call("test", {"n": 2}, "passed")],
        {},
        {"steps": 3, "actions": 3, "successes": 2, "failures": 1, "recovered": 1,
         "strategy_switches": 0, "escalations": 0, "error_rate": pytest.approx(1 / 3),
         "alert_count": 0, "alerts": (), "highest_severity": None, "loops_detected": 0,
         "loops_prevented": 0, "should_stop": False, "session": "run", "action": Action.ALLOW},
    ),
    # However often the ladder speaks of it.
    "a loop is detected and prevented once": (
        LOOP, {},
        {"loops_detected": 1, "loops_prevented": 1, "should_stop": True, "action": Action.ABORT,
         "highest_severity": Severity.FATAL},
    ),
    # `should_stop` is true although the flag was never raised.
    "in shadow the report says what would be": (
        LOOP, {"mode": "shadow"},
        {"loops_detected": 1, "loops_prevented": 0, "should_stop": True, "action": Action.ALLOW},
    ),
    # Starts at 0, 10 and 40 s; the last call ends at 41 s.
    "times": (
        [call("t", {"n": at}, f"{at}", at=at, took=1) for at in (0, 10, 40)], {},
        {"mean_interval_s": pytest.approx(20), "duration_s": pytest.approx(41)},
    ),
    # Missing is not zero.
    "no times": (
        [call("t", {"n": 1}, "x"), call("t", {"n": 2}, "y")], {},
        {"mean_interval_s": None, "duration_s": None, "tokens": None},
    ),
    # Those that say nothing count nothing.
    "tokens": ([TOLD, Step(Kind.MODEL, "m"), TOLD], {}, {"tokens": 240, "model_calls": 3}),
    # A failed call with an error text has an outcome.
    "what the spans lacked": (
        [call("a", None, "x"), call("b", {"q": 1}, None), call("c", {"q": 1}, error="failed")], {},
        {"lacks": {"args": 1, "outcome": 1}},
    ),
    # Two different files were written; what tools answered was new.
    "changes": (
        [call("write_file", {"path": f"{n}.py", "content": "x"}, f"wrote {n} lines to a new file")
         for n in range(2)], {},
        {"changes": 2, "milestones": None},
    ),
    # A limit with the action `allow` is written on the trace, and listed apart.
    "what is only noted is no alert": (
        [call("read", {"n": str(n)}, f"page {n} of the book") for n in range(60)], NOTED,
        {"alert_count": 0, "highest_severity": None,
         "notes_by_type": {"spending_limit": 2}},
    ),
    # Three calls that come back in the same order, with the same answers.
    "a cycle is listed by its length": (
        [call(tool, {"q": tool}, f"light rain in the west, and a little wind {tool}")
         for tool in "abc" * 6], {},
        {"cycles": (3,), "loops_detected": 1},
    ),
    "a tool that failed is left": (
        [FAILED, FOUND, call("find", {"q": "y"}, "b.py")], {}, {"strategy_switches": 1},
    ),
    "a tool that failed is used on": (
        [FAILED, call("grep", {"q": "y"}, "a.py"), FOUND], {}, {"strategy_switches": 0},
    ),
    "another tool after a hint": (
        [*LOOP[:3], call("read", {"path": "a"}, "text")], {}, {"strategy_switches": 1},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("steps", "settings", "expected"), CASES.values(), ids=CASES)
def test_what_a_session_came_to(
    steps: list[Step], settings: dict[str, Any], expected: dict[str, Any]
) -> None:
    report = report_of(*steps, **settings)
    assert {name: getattr(report, name) for name in expected} == expected
    assert sum(report.alerts_by_type.values()) == report.alert_count == len(report.alerts)


def test_the_most_used_tools_come_first_with_their_errors() -> None:
    """At most ten of them."""
    steps = [call("read", {"n": n}, f"text {n}" * 9) for n in range(5)]
    steps += [call("write", {"n": n}, error="denied" if n else None) for n in range(3)]
    others = [call(f"tool {n}", {"q": n}, f"text {n}") for n in range(9)]
    report = report_of(*steps, call("once", {"q": 1}, "x"), *others)
    assert len(report.tools) == 10
    assert [(tool.name, tool.calls, tool.errors) for tool in report.tools[:2]] == [
        ("read", 5, 0), ("write", 3, 2),
    ]  # fmt: skip
    assert report.tools[1].error_rate == pytest.approx(2 / 3)


BOSS = Step(Kind.AGENT, "boss", agent="boss", start=EPOCH, end=EPOCH + 60 * SECOND)
USER = Step(Kind.OTHER, "user", start=EPOCH + 50 * SECOND, end=EPOCH + 50 * SECOND)
WRITER, CODER = work("writer", 0, 2), work("coder", 5, 35)


@pytest.mark.parametrize(
    ("steps", "phases"),
    [
        ([WRITER, CODER, work("writer", 36, 40)], "writer 2.0, coder 30.0, writer 4.0"),
        ([work("north", 0, 10), work("south", 5, 12), work("a", 13, 14)], "north 12.0, a 1.0"),
        ([CODER, BOSS], "coder 30.0"),
        ([WRITER, USER, work("writer", 60, 61)], "writer 2.0, writer 1.0"),
        ([Step(Kind.MODEL, "m", agent="a")], "a None"),
    ],
    ids=["one after the other", "side by side", "a span around it", "a user", "no times"],
)
def test_phases_follow_the_agents(steps: list[Step], phases: str) -> None:
    """Each stretch of work of one agent, with its time; work side by side is one."""
    told = report_of(*steps).run.phases
    assert ", ".join(f"{one.name} {one.seconds}" for one in told) == phases


@pytest.mark.parametrize(
    ("tokens", "newest", "most"),
    [((9000, 400, None), 400, 9000), ((None,), None, None), ((-5,), 0, 0)],
)
def test_the_size_of_the_context_is_told(
    tokens: tuple[int | None, ...], newest: int | None, most: int | None
) -> None:
    """What says nothing changes nothing, and no number is odd."""
    run = report_of(*(work("a", n, n + 1, count) for n, count in enumerate(tokens))).run
    assert (run.context_tokens, run.peak_context_tokens) == (newest, most)


class Broken:
    def __init__(self, settings: Settings) -> None:
        pass

    def observe(self, evidence: object) -> None:
        raise RuntimeError(evidence)


def test_a_detector_that_failed_is_named() -> None:
    """The report says which detectors did not look at the whole session."""
    raise_faults(False)
    report = report_of(call(), detectors=("tests.sessions.test_report:Broken",))
    assert report.switched_off == ("Broken",)
    assert LoopGuard(clock="replay").report("nobody") is None


def test_a_record_does_not_grow() -> None:
    """Many tools, agents, decisions: what is kept is bounded, and totals stay exact."""
    run = Run(Settings())
    for number in range(3000):
        run.calls(call(f"tool{number}", {"q": number // 4}, ANSWER, at=number))
    for number in range(1200):
        run.calls(call("search", {"q": number // 4}, ANSWER, at=9000 + number))
    for number in range(200):
        run.calls(work(f"agent{number}", 10_300 + number, 10_301 + number))
    report = handle_of(run.guard).report()
    assert (report.actions, report.tools[0].name, report.tools[0].calls) == (4200, "search", 1200)
    assert len(report.alerts) == 10
    assert report.alert_count + sum(report.notes_by_type.values()) == len(run.decisions)
    phases = report.run.phases
    assert (len(phases), phases[0].name, phases[-1].name) == (48, "agent152", "agent199")
