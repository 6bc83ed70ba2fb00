"""What the tables beside cannot say of calls that repeat, fail or stand still, and of texts."""

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from otel_loopguard import LoopGuard, Settings, control, semconv, session
from otel_loopguard.core import Kind, Step
from tests.calls import EPOCH, SECOND, Run, call, handle_of
from tests.detectors.alone import alone

SAME = call(args={"q": "x"}, outcome="no results for weather in Paris")


@pytest.mark.parametrize("mode", ["guard", "shadow"])
def test_three_equal_calls_with_an_equal_answer_give_a_hint(mode: str) -> None:
    """It says what was measured, and no content; in shadow mode nothing is stopped."""
    run = Run(Settings(mode=mode))
    run.calls(*[SAME] * 8)
    assert run.actions == ["hint", "deny", "abort"]
    first = run.decisions[0]
    assert (first.step, first.detector, first.count) == (2, "exact_repeat", 3)
    assert "3 times" in first.message
    assert "Paris" not in first.message
    assert len({one.loop for one in run.decisions}) == 1
    assert [one.severity for one in run.decisions] == ["warning", "critical", "fatal"]
    assert {one.shadow for one in run.decisions} == {mode == "shadow"}
    expected = "allow" if mode == "shadow" else "abort"
    assert run.guard.flag_named("run").control.action == expected


@pytest.mark.parametrize("period", range(2, 17))
def test_every_period_to_sixteen_is_found(period: int) -> None:
    """Within three turns, with its own period; a turn more or less is not enough."""
    turn = [call("read", {"page": n}, f"the text of page {n} is this") for n in range(period)]
    assert [one.period for one in alone("cycle", *turn * 3)][:1] == [period]
    assert alone("cycle", *turn * (2 if period < 9 else 1)) == []


DOWN = "Temporary data inconsistency detected, please retry the exact same query"
OUTAGE = [call(f"tool_{n % 3}", {"n": n}, error=DOWN, at=n) for n in range(9)]


def test_nobody_is_waited_for_where_nobody_can_answer(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """Where somebody can, the warning names the call, and the command that reaches the process."""

    def outage(control_socket: str = "") -> list[str]:
        found: list[str] = []
        guard = LoopGuard(
            Settings(control_socket=control_socket),
            on_decision=lambda _, one: found.append(f"{one.detector}: {one.action}"),
        )
        for step in OUTAGE:
            guard.observe(step, "a $(b)")
        guard.shutdown()
        return [one for one in found if one.startswith("outage")]

    assert outage() == ["outage: hint"]
    forget = control.on_escalation(lambda escalation: None)
    try:
        assert outage() == ["outage: hint", "outage: pause"]
    finally:
        forget()
    assert "control.resume('a $(b)')" in caplog.text
    assert "otel-loopguard resume" not in caplog.text
    outage(str(tmp_path / "socket"))
    assert "otel-loopguard resume 'a $(b)'" in caplog.text


def unanswered(times: int, gap_s: float, **given: str) -> list[Step]:
    """Failing model calls of half a second, so far from each other."""
    error = {"error_text": "Error code: 400 - the context is too long", **given}
    starts = [EPOCH + round(n * (gap_s + 0.5) * SECOND) for n in range(times)]
    return [
        Step(Kind.MODEL, "m", agent="w", error=True, start=start, end=start + SECOND // 2, **error)
        for start in starts
    ]


def test_a_model_that_works_again_ends_what_its_failures_led_to() -> None:
    """The next failure is the first one; calls side by side, or stopped by the guard, are none."""
    run = Run()
    run.calls(*unanswered(10, 0.1))
    flag = run.guard.flag_named("run")
    assert flag.control.action == "deny"
    run.calls(Step(Kind.MODEL, "m", agent="w", text="Now it fits."))
    assert flag.control.action == "allow"
    run.calls(*unanswered(5, 0.1))
    assert [(one.step, one.action) for one in run.decisions] == [(5, "hint"), (9, "deny")]
    for steps in (unanswered(20, -0.5), unanswered(20, 0.1, error_type="loopguard_abort")):
        assert Run().calls(*steps) == []


@pytest.mark.parametrize(
    ("trace", "gap_s", "actions"),
    [(1, 30, []), (1, 0.5, ["hint"]), (0, -0.999, [])],
    ids=["after a user's pause", "at once", "samples beside each other"],
)
def test_who_answers_a_user_announces_nothing_again(
    trace: int, gap_s: float, actions: list[str]
) -> None:
    """Nobody types within a second; after a pause in another trace somebody may have."""
    run = Run()
    for number in range(8):
        step = Step(Kind.MODEL, "chat", agent="writer", text=f"I now begin to work ({number}).")
        step.start = EPOCH + round(number * (gap_s + 1) * SECOND)
        step.end = step.start + SECOND
        step.trace_id = trace * (number + 1)
        run.calls(step)
    assert run.actions == actions


def test_a_message_holds_no_content() -> None:
    """What was measured, and nothing of what was written."""
    for text in ("I'll look up the secret of Oslo now.", "The secret of Oslo is not clear. " * 12):
        run = Run()
        run.calls(*[Step(Kind.MODEL, "chat", agent="writer", text=text)] * 8)
        assert run.decisions
        assert not any("Oslo" in one.message + one.advice for one in run.decisions)


ORDER = {"sku": "A1", "qty": 1}


@pytest.mark.parametrize(
    "settings",
    [{"once_tools": frozenset({"zorb"})}, {"tools": {"zorb": {"once": True}}}],
    ids=["a name", "a table"],
)
def test_the_third_is_refused_where_it_is_declared(settings: dict[str, Any]) -> None:
    """Whatever the tool is called, and whatever ids its answers have; others of it may run."""
    guard = LoopGuard(Settings(**settings))
    with session(uuid.uuid4().hex) as key:
        for number in range(2):
            assert control.refused("zorb", ORDER) is None
            guard.observe(call("zorb", args=ORDER, outcome={"id": 30609 + number}), key)
        refusal = control.refused("zorb", ORDER)
        assert refusal is not None
        assert "done before" in refusal.hint
        assert control.refused("zorb", {**ORDER, "qty": 2}) is None
        # Other loops are forgotten after 24 calls; what is to be done once is not.
        for number in range(40):
            text = f"Chapter {number}: {uuid.uuid4().hex} and {uuid.uuid4().hex}"
            guard.observe(call("read_page", args={"page": number}, outcome=text), key)
        assert control.refused("zorb", ORDER) is not None


BETWEEN = {
    "another order": ("zorb", {"sku": "B{n}"}, "done {n}"),
    "a new page": ("read_page", {"page": "{n}"}, "{news}"),
    "a clock": ("get_time", {}, "12:0{n}"),
    "a file": ("write_file", {"path": "{n}.txt"}, "ok"),
}


@pytest.mark.parametrize(("tool", "args", "said"), BETWEEN.values(), ids=BETWEEN)
def test_no_success_takes_back_what_is_declared(tool: str, args: dict[str, str], said: str) -> None:
    """The third is refused, and every one after it; work beside it goes on, and is not ended."""
    guard = LoopGuard(Settings(once_tools=frozenset({"zorb"})))
    refused: list[bool] = []
    with session(uuid.uuid4().hex) as key:
        for number in range(9):
            refused.append(control.refused("zorb", ORDER) is not None)
            if refused[-1]:
                step = call("zorb", args=ORDER, error=control.current().hint or "refused")
                step.error_type = semconv.ERROR_DENY
                guard.observe(step, key)
            else:
                guard.observe(call("zorb", args=ORDER, outcome="ok"), key)
            letters = "abcdefghijklmnopqrstuvwxyz"[number:]
            news = " ".join(letters[::step] for step in range(1, 6))
            other = {name: value.format(n=number) for name, value in args.items()}
            guard.observe(call(tool, args=other, outcome=said.format(n=number, news=news)), key)
            assert control.refused(tool, other) is None or tool != "zorb"
            control.check()
    assert refused == [False] * 2 + [True] * 7


WORDS = "log in to the old host by another way than before".split()


def test_a_tool_that_only_fails_is_refused_whatever_it_is_asked() -> None:
    """None of the last twenty calls succeeded; another tool may run."""
    guard = LoopGuard(Settings())
    ran = 0
    with session(uuid.uuid4().hex) as key:
        for number in range(60):
            asked = {"command": " ".join(WORDS[number % 7 :] + WORDS[: number // 7])}
            if control.refused("login", asked) is None:
                ran += 1
                guard.observe(call("login", asked, error="Permission denied (publickey)"), key)
        assert ran == 20
        assert control.refused("read", {"path": "notes"}) is None


PAUSE = 22 * SECOND


def looks(number: int) -> Iterator[Step]:
    """A model that asks for one look after the other, each some seconds after the last."""
    for at in range(EPOCH, EPOCH + number * PAUSE, PAUSE):
        end = at + 2 * SECOND
        yield Step(Kind.MODEL, "m", start=at, end=end, tokens_in=30_000, cost=0.1)
        said = {"args": {"id": 7}, "outcome": '{"status": "running"}'}
        yield Step(Kind.TOOL, "job_status", **said, start=at + PAUSE - SECOND, end=at + PAUSE)


def seen(number: int, **settings: object) -> LoopGuard:
    """A guard that saw so many looks."""
    run = Run(Settings(**settings))
    run.calls(*looks(number))
    return run.guard


def test_what_a_wait_cost_is_reported() -> None:
    guard = seen(60)
    run = handle_of(guard).report().run
    assert (run.looks, run.look_tokens, round(run.look_cost, 2)) == (59, 1_770_000, 5.9)
    assert handle_of(guard).wait_advice() == 300


def test_advice_is_for_who_waits_only() -> None:
    """None before the first look, after news, in an unknown session, and where it is off."""
    assert handle_of(seen(1)).wait_advice() == 0
    guard = seen(20)
    assert 10 <= handle_of(guard).wait_advice() <= 300
    done = Step(Kind.TOOL, "job_status", args={"id": 7}, outcome="finished: 12 files written")
    guard.observe(done, "run")
    assert handle_of(guard).wait_advice() == 0
    assert control.wait_advice("nobody-knows-this-session") == 0
    assert handle_of(seen(20, switched_off="price_of_waiting")).wait_advice() == 0
