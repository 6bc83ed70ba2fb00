"""What a session came to: totals, counters, tools, loops, alerts."""

from __future__ import annotations

from dataclasses import fields

import pytest

from otel_loopguard import Action, LoopGuard, Settings
from otel_loopguard.core import Kind, Step
from otel_loopguard.core.decision import Severity
from otel_loopguard.core.progress import Progress
from otel_loopguard.core.report import Report
from otel_loopguard.sessions.stats import SessionStats
from tests.calls import EPOCH, SECOND, Run, call

ANSWER = "No results were found for this question, in any of the sources."


def report_of(*steps: Step, **settings: object) -> Report:
    run = Run(Settings(**settings))
    run.calls(*steps)
    found = run.guard.report("run")
    assert found is not None
    return found


def test_a_healthy_run_is_counted_and_has_no_alert() -> None:
    """Three calls, one of which failed and was made good by another."""
    report = report_of(
        call("read", {"path": "a"}, "text"),
        call("test", {"n": 1}, error="1 failed"),
        call("test", {"n": 2}, "passed"),
    )
    assert (report.steps, report.actions, report.successes, report.failures) == (3, 3, 2, 1)
    assert (report.recovered, report.strategy_switches, report.escalations) == (1, 0, 0)
    assert report.error_rate == pytest.approx(1 / 3)
    assert (report.alert_count, report.alerts, report.highest_severity) == (0, (), None)
    assert (report.loops_detected, report.loops_prevented, report.should_stop) == (0, 0, False)
    assert (report.session, report.action) == ("run", Action.ALLOW)


def test_another_tool_after_a_failure_is_a_switch_of_strategy() -> None:
    """Leaving a tool that failed counts once; going on with it does not."""
    failed = call("grep", {"q": "x"}, error="no such file")
    found = call("find", {"q": "x"}, "a.py")
    assert report_of(failed, found, call("find", {"q": "y"}, "b.py")).strategy_switches == 1
    assert report_of(failed, call("grep", {"q": "y"}, "a.py"), found).strategy_switches == 0


def test_another_tool_after_a_hint_is_a_switch_of_strategy() -> None:
    """A hint that is heeded shows in the report."""
    same = [call("search", {"q": "x"}, ANSWER)] * 3
    report = report_of(*same, call("read", {"path": "a"}, "text"))
    assert (report.alert_count, report.strategy_switches) == (1, 1)


def test_a_loop_is_detected_once_and_prevented_once() -> None:
    """However often the ladder speaks of it."""
    report = report_of(*[call("search", {"q": "x"}, ANSWER)] * 9)
    assert (report.loops_detected, report.loops_prevented) == (1, 1)
    assert report.alert_count == len(report.alerts) > 2
    assert sum(report.alerts_by_type.values()) == report.alert_count
    assert report.should_stop
    assert report.action is Action.ABORT
    assert report.highest_severity is Severity.FATAL


def test_in_shadow_nothing_is_prevented_and_the_report_says_what_would_be() -> None:
    """`should_stop` is true although the flag was never raised."""
    report = report_of(*[call("search", {"q": "x"}, ANSWER)] * 9, mode="shadow")
    assert (report.loops_detected, report.loops_prevented) == (1, 0)
    assert report.action is Action.ALLOW
    assert report.should_stop


def test_a_cycle_is_listed_by_its_length() -> None:
    """Three calls that come back in the same order, with the same answers."""
    said = "light rain in the west, twenty degrees, and a little wind"
    turn = [call(tool, {"q": tool}, f"{said} {tool}") for tool in ("a", "b", "c")]
    report = report_of(*turn * 6)
    assert 3 in report.cycles
    assert report.loops_detected >= 1


def test_the_most_used_tools_come_first_with_their_errors() -> None:
    """At most ten of them."""
    steps = [call("read", {"n": n}, f"text {n}" * 9) for n in range(5)]
    steps += [call("write", {"n": n}, error="denied" if n else None) for n in range(3)]
    others = [call(f"tool {n}", {"q": n}, f"text {n}") for n in range(9)]
    report = report_of(*steps, call("once", {"q": 1}, "x"), *others)
    assert len(report.tools) == 10
    assert [(tool.name, tool.calls, tool.errors) for tool in report.tools[:2]] == [
        ("read", 5, 0),
        ("write", 3, 2),
    ]
    assert report.tools[1].error_rate == pytest.approx(2 / 3)


def test_times_give_the_mean_interval_and_the_duration() -> None:
    """Starts at 0, 10 and 40 s; the last call ends at 41 s."""
    report = report_of(*[call("t", {"n": at}, f"{at}", at=at, took=1) for at in (0, 10, 40)])
    assert report.mean_interval_s == pytest.approx(20)
    assert report.duration_s == pytest.approx(41)


def test_without_times_intervals_are_unknown() -> None:
    """Missing is not zero."""
    report = report_of(call("t", {"n": 1}, "x"), call("t", {"n": 2}, "y"))
    assert (report.mean_interval_s, report.duration_s, report.tokens) == (None, None, None)


def test_tokens_of_model_calls_are_summed() -> None:
    """Those that say nothing count nothing."""
    told = Step(Kind.MODEL, "m", tokens_in=100, tokens_out=20)
    report = report_of(told, Step(Kind.MODEL, "m"), told)
    assert (report.tokens, report.model_calls) == (240, 3)


def test_what_the_spans_lacked_is_counted() -> None:
    """A failed call with an error text has an outcome."""
    report = report_of(
        call("a", None, "x"), call("b", {"q": 1}, None), call("c", {"q": 1}, error="failed")
    )
    assert report.lacks == {"args": 1, "outcome": 1}


def test_a_detector_that_failed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The report says which detectors did not look at the whole session."""
    from otel_loopguard._util.errors import raise_faults

    raise_faults(False)
    report = report_of(call(), detectors=("tests.sessions.test_report:Broken",))
    assert report.switched_off == ("Broken",)


class Broken:
    def __init__(self, settings: Settings) -> None:
        pass

    def observe(self, evidence: object) -> None:
        raise RuntimeError(evidence)


def test_a_report_of_nobody() -> None:
    """A session that was never seen has no report."""
    assert LoopGuard(clock="replay").report("nobody") is None


def test_changes_and_news_say_how_far_it_came() -> None:
    """Two different files were written; what tools answered was new."""
    steps = [
        call("write_file", {"path": f"{n}.py", "content": "x"}, f"wrote {n} lines to a new file")
        for n in range(2)
    ]
    report = report_of(*steps)
    assert report.changes == 2
    assert report.milestones is None


def test_a_record_does_not_grow() -> None:
    """Many tools, many decisions: what is kept is bounded, and totals stay exact."""
    run = Run(Settings())
    for number in range(3000):
        run.calls(call(f"tool{number}", {"q": number // 4}, ANSWER, at=number))
    for number in range(1200):
        run.calls(call("search", {"q": number // 4}, ANSWER, at=9000 + number))
    report = run.guard.report("run")
    assert report is not None
    assert report.actions == 4200
    assert report.tools[0].name == "search"
    assert report.tools[0].calls == 1200
    assert len(report.alerts) == 10
    assert report.alert_count + sum(report.notes_by_type.values()) == len(run.decisions)


def test_every_field_is_explained() -> None:
    """The docstring of the report has every field."""
    text = Report.__doc__ or ""
    assert [field.name for field in fields(Report) if f"        {field.name}: " not in text] == []


def test_odd_steps_do_no_harm() -> None:
    """Times before the epoch, no name, a name of a megabyte."""
    record = SessionStats(Settings())
    for step in (
        Step(Kind.TOOL, None, start=-5, end=-9),
        Step(Kind.TOOL, "x" * 1_000_000, args={"a": 1}),
        Step(Kind.TOOL, "x" * 1_000_000, error=True),
        Step(Kind.MODEL, None, tokens_in=-3),
        Step(Kind.TOOL, "late", start=EPOCH, end=EPOCH - SECOND),
    ):
        record.step(step)
    report = record.report("s", Progress(), Action.ALLOW, ())
    assert report.actions == 4
    assert max(len(tool.name) for tool in report.tools) == 100
    assert [tool.calls for tool in report.tools if tool.name.startswith("x")] == [2]


def test_what_is_only_noted_is_no_alert() -> None:
    """A limit with the action `allow` is written on the trace, and listed apart."""
    steps = [call("read", {"n": str(n)}, f"page {n} of the book") for n in range(60)]
    report = report_of(*steps, budget_steps=50, budget_action="allow")
    assert report.alert_count == 0
    assert report.highest_severity is None
    assert report.notes_by_type
