"""Identical calls with identical outcomes, and everything that only looks like it."""

from __future__ import annotations

import pytest

from otel_loopguard import Settings
from otel_loopguard.core import Kind, Step
from tests.calls import Run, call
from tests.detectors.alone import actions, alone

ANSWER = "no results for weather in Paris"


def repeats(run: Run) -> list[str]:
    """What this detector led to."""
    return [found.action.value for found in run.decisions if found.detector == "exact_repeat"]


def test_three_equal_calls_with_an_equal_answer_give_a_hint() -> None:
    """The third repeat is noticed, at its own step, and says what was measured."""
    run = Run()
    assert run.calls(*[call(args={"q": "x"}, outcome=ANSWER) for _ in range(3)]) == ["hint"]
    (decision,) = run.decisions
    assert decision.step == 2
    assert decision.detector == "exact_repeat"
    assert decision.count == 3
    assert "3 times" in decision.message
    assert ANSWER not in decision.message


def test_a_stubborn_agent_is_denied_and_aborted() -> None:
    """hint at the third, deny with the next confirmation, abort with the one after that."""
    run = Run()
    run.calls(*[call(args={"q": "x"}, outcome=ANSWER) for _ in range(8)])
    assert run.actions == ["hint", "deny", "abort"]
    assert [decision.step for decision in run.decisions] == [2, 3, 4]
    assert len({decision.loop for decision in run.decisions}) == 1


def test_keys_in_another_order_and_a_json_text_are_the_same_call() -> None:
    """A JSON text and the equal map are one call."""
    run = Run()
    run.calls(
        call(args={"a": 1, "b": 2}, outcome=ANSWER),
        call(args='{"b": 2, "a": 1}', outcome=ANSWER),
        call(args={"b": 2.0, "a": 1}, outcome=ANSWER),
    )
    assert run.actions == ["hint"]


def test_other_calls_may_sit_between() -> None:
    """Never "in a row": a loop is seen through good calls in between."""
    run = Run()
    for number in range(4):
        run.calls(
            call("pytest", args={"x": 1}, outcome="1 failed, as always, in test_a.py"),
            call("read", args={"path": f"f{number}.py"}, outcome=f"content {number}"),
        )
    assert run.actions == ["hint"]


def test_volatile_values_do_not_hide_a_loop() -> None:
    """A fresh request id in the arguments and a clock in the answer make no difference."""
    run = Run()
    for number in range(6):
        run.calls(
            call(
                args={"user": "u1", "request_id": f"r-{number:04d}"},
                outcome=f"not found (10:00:{number:02d}, {number + 3} ms)",
            )
        )
    assert run.actions[0] == "hint"
    assert run.decisions[0].step == 3  # masked repeats weigh 0.8 each


def test_a_nonce_of_unknown_name_is_learned() -> None:
    """An argument that is new in each of four otherwise equal calls is no part of the call."""
    steps = [call(args={"user": "u1", "zz": f"{n}f{n}ab{n}c7"}, outcome=ANSWER) for n in range(8)]
    assert actions(alone("exact_repeat", *steps)) == ["hint"]


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param(
            [call("tail", {"f": "build.log"}, f"{4 * n}% done") for n in range(25)],
            id="polling whose answer changes",
        ),
        pytest.param(
            [call("read_output", {"session": 1}, f"bytes {n}") for n in range(25)],
            id="paging without a cursor",
        ),
        pytest.param(
            [call("read", {"path": "big.py", "offset": 200 * n}, f"chunk {n}") for n in range(25)],
            id="paging with an offset",
        ),
        pytest.param(
            [
                step
                for n in range(12)
                for step in (
                    call("edit", {"path": "a.py", "new": f"v{n}"}, "ok"),
                    call("bash", {"command": "pytest -q"}, "1 failed, 3 passed in test_a.py"),
                )
            ],
            id="a test run again after an edit",
        ),
        pytest.param(
            [call("edit", {"path": f"m{n}.py", "old": "a", "new": "b"}, "ok") for n in range(25)],
            id="one change in many files",
        ),
        pytest.param(
            [call("job", {"id": 9}, "in_progress", at=30 * n) for n in range(20)],
            id="waiting for a pending job",
        ),
        pytest.param(
            [
                step
                for n in range(12)
                for step in (call("wait", {"seconds": 30}, "ok"), call("status", {}, f"step {n}"))
            ],
            id="a wait tool between checks",
        ),
        pytest.param([call(args={"q": "x"}, outcome=ANSWER) for _ in range(2)], id="only twice"),
        pytest.param(
            [call(args={"q": f"city {n}"}, outcome=ANSWER) for n in range(2)], id="other arguments"
        ),
    ],
)
def test_honest_work_is_left_alone(steps: list) -> None:
    """Progress, paging, verification and waiting are no repetition, and never stopped."""
    run = Run()
    run.calls(*steps)
    assert repeats(run) == []
    assert not any(found.action.stops for found in run.decisions)


def test_a_poll_without_a_pause_is_told_to_wait() -> None:
    """The same poll with no time between: the hint says how long to wait, nothing is stopped."""
    run = Run()
    run.calls(*[call("job", {"id": 9}, "in_progress", at=0.6 * n) for n in range(60)])
    assert run.actions == ["hint"]
    assert run.decisions[0].reason == "polled_too_soon"
    assert "Wait 10 seconds" in run.decisions[0].advice


def test_a_poll_that_spins_is_stopped_past_its_budget() -> None:
    """A pending answer asked for without a pause until `wait_budget_s` is over is a loop."""
    run = Run(Settings(wait_budget_s=30))
    run.calls(*[call("job", {"id": 9}, "in_progress", at=0.6 * n) for n in range(70)])
    assert run.actions[:2] == ["hint", "deny"]


def test_waiting_ends_with_its_budget() -> None:
    """Past `wait_budget_s` an unchanged answer counts again."""
    run = Run(Settings(wait_budget_s=100))
    run.calls(*[call("job", {"id": 9}, "in_progress", at=30 * n) for n in range(9)])
    assert run.actions[:1] == ["hint"]
    assert run.decisions[0].step >= 4


def test_missing_is_not_empty() -> None:
    """What was not captured is equal to nothing: no stop without outcomes, nothing without args."""
    unseen = Run()
    unseen.calls(*[call(args={"q": "x"}) for _ in range(30)])
    assert unseen.actions == ["hint"]
    assert unseen.decisions[0].reason == "identical_call_unseen_outcome"
    names = Run()
    names.calls(*[call() for _ in range(30)])
    assert names.actions == []
    outcomes = Run()
    outcomes.calls(*[call(outcome=ANSWER) for _ in range(30)])
    assert repeats(outcomes) == []
    assert not any(found.action.stops for found in outcomes.decisions)


def test_parallel_calls_of_one_round_count_once() -> None:
    """A fan-out of equal calls is waste, no loop."""
    run = Run()
    run.calls(*[call(args={"q": "x"}, outcome=ANSWER, at=0.001 * n, took=1) for n in range(6)])
    assert run.actions == []


def test_exempt_tools_are_never_judged() -> None:
    """A tool can be taken out by name."""
    run = Run(Settings(exempt_tools=frozenset({"search"})))
    assert run.calls(*[call(args={"q": "x"}, outcome=ANSWER) for _ in range(30)]) == []


def test_obeying_a_hint_clears_the_flag() -> None:
    """Another call takes the hint down; the ladder still remembers the loop."""
    run = Run()
    run.calls(*[call(args={"q": "x"}, outcome=ANSWER) for _ in range(3)])
    flag = run.guard.flag_of("run")
    assert flag is not None
    assert flag.control.action == "hint"
    run.calls(call(args={"q": "y"}, outcome="something else"))
    assert flag.control.action == "allow"
    run.calls(call(args={"q": "x"}, outcome=ANSWER))
    assert run.actions == ["hint", "deny"]


def test_shadow_decides_and_never_raises_the_flag() -> None:
    """In shadow mode everything is noted and nothing is stopped."""
    run = Run(Settings(mode="shadow"))
    run.calls(*[call(args={"q": "x"}, outcome=ANSWER) for _ in range(8)])
    assert run.actions == ["hint", "deny", "abort"]
    assert all(decision.shadow for decision in run.decisions)
    flag = run.guard.flag_of("run")
    assert flag is not None
    assert flag.control.action == "allow"


def test_other_spans_in_between_do_not_matter() -> None:
    """Frameworks write one span per turn or twenty; only calls are counted."""
    run = Run()
    for _ in range(3):
        run.calls(*[Step(Kind.NODE, f"node {n}") for n in range(30)])
        run.calls(call(args={"q": "x"}, outcome=ANSWER))
    assert repeats(run) == ["hint"]


def test_a_change_by_an_exempt_tool_is_a_change() -> None:
    """A tool that is not judged may still bring the work on."""
    run = Run(Settings(exempt_tools=frozenset({"edit"})))
    for number in range(6):
        run.calls(
            call("edit", {"path": "a.py", "new": f"v{number}"}, "ok"),
            call("bash", {"command": "pytest -q"}, "1 failed, 3 passed in test_a.py"),
        )
    assert repeats(run) == []


def test_a_loop_beside_work_that_goes_on_hints_at_most() -> None:
    """Where half or more of the calls in between were new, nothing is stopped."""
    steps = [
        step
        for n in range(20)
        for step in (
            call("status", {"id": 1}, "the build of today is what it was"),
            call("read", {"page": n}, f"page {n} is about subject {n * 7919:x}"),
        )
    ]
    assert actions(alone("exact_repeat", *steps)) == ["hint"]


def test_repeats_fade() -> None:
    """Forty other calls between two equal ones leave a little more than half."""
    between = iter(range(1000))

    def others() -> list[Step]:
        pages = [next(between) for _ in range(40)]
        return [call("read", {"page": n}, f"page {n} is of {n * 7919:x}") for n in pages]

    same = call(args={"q": "x"}, outcome=ANSWER)
    decisions = alone("exact_repeat", *[step for _ in range(6) for step in (same, *others())])
    assert decisions == []


def test_beyond_the_window_it_begins_anew() -> None:
    """`tuning.calls.repeat_window` calls are looked back."""
    other = [call("read", {"page": n}, f"page {n} is about {n * 7919:x}") for n in range(5)]
    same = call(args={"q": "x"}, outcome=ANSWER)
    steps = [same, *other, same, *other, same]
    assert actions(alone("exact_repeat", *steps, repeat_threshold=2.5)) == ["hint"]
    assert (
        alone("exact_repeat", *steps, repeat_threshold=2.5, tuning={"calls": {"repeat_window": 5}})
        == []
    )


def test_without_a_clock_a_pending_answer_hints_at_most() -> None:
    """Nobody can tell whether it waits, so it takes half as many again and stops nothing."""
    decisions = alone("exact_repeat", *[call("job", {"id": 9}, "in progress") for _ in range(20)])
    assert [(decision.step, decision.action) for decision in decisions] == [(4, "hint")]


def test_another_answer_begins_anew() -> None:
    """Twice the same, then another: that was progress."""
    steps = [call(args={"q": "x"}, outcome=f"{ANSWER}, {n // 2}") for n in range(30)]
    assert alone("exact_repeat", *steps) == []


def test_transient_errors_have_time() -> None:
    """The same failing call within a minute is a retry."""
    steps = [call(args={"q": "x"}, error="429 Too Many Requests", at=10 * n) for n in range(6)]
    assert alone("exact_repeat", *steps) == []
    assert actions(alone("exact_repeat", *steps, transient_budget_s=15))[:1] == ["hint"]


def test_critical_from_two_above_the_threshold() -> None:
    """The third is a warning; what is denied is critical, what is aborted fatal."""
    decisions = alone("exact_repeat", *[call(args={"q": "x"}, outcome=ANSWER) for _ in range(6)])
    assert [decision.severity.value for decision in decisions] == ["warning", "critical", "fatal"]


def test_no_rows_are_an_answer() -> None:
    """A map of an empty list is no bare acknowledgement, nor is one with a new id."""
    for answer in ('{"rows": []}', '{"sent": true, "id": "0d9f3a2e8b7c4d1f9a6e5b4c3d2f1a0b"}'):
        run = Run()
        run.calls(*[call("ask", {"q": 1}, answer) for _ in range(6)])
        assert run.decisions[0].reason == "identical_call"
