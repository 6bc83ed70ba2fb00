"""Equal errors of one tool."""

from __future__ import annotations

from otel_loopguard import Settings
from tests.calls import Run, call


def test_the_same_error_with_other_arguments_is_noticed() -> None:
    """Three equal errors of one tool are a loop, whatever was asked."""
    run = Run()
    for number in range(3):
        run.calls(call("ssh", {"flags": f"-o opt{number}"}, error="Permission denied (publickey)"))
    assert run.actions == ["hint"]
    assert run.decisions[0].detector == "error_repeat"


def test_a_wrong_call_is_noticed_at_its_second_error() -> None:
    """An error about the call itself will not go away by itself."""
    run = Run()
    for value in ("", " "):
        run.calls(call("page_down", {"": value}, error="got an unexpected keyword argument ''"))
    assert run.actions == ["hint"]
    assert run.decisions[0].reason == "call_error"


def test_transient_errors_have_time() -> None:
    """Three 429 within a minute are retries; past the budget they are a loop."""
    early = Run()
    early.calls(
        *[call("s", {"q": "x"}, error="429 Too Many Requests", at=12 * n) for n in range(4)]
    )
    assert early.actions == []
    late = Run(Settings(transient_budget_s=20))
    late.calls(*[call("s", {"q": "x"}, error="429 Too Many Requests", at=12 * n) for n in range(8)])
    assert late.actions[:1] == ["hint"]


def test_failures_without_text_are_not_equal() -> None:
    """A failure that says nothing is equal to nothing."""
    run = Run()
    failing = [call("s", {"q": n}) for n in range(20)]
    for step in failing:
        step.error = True
    assert run.calls(*failing) == []


def test_a_change_in_between_takes_weight() -> None:
    """After each edit the same failing test counts a third of before."""
    run = Run()
    for number in range(6):
        run.calls(
            call("edit", {"path": "a.py", "new": f"v{number}"}, "ok"),
            call("run_tests", {"x": number}, error="AssertionError: 1 test failed"),
        )
    assert run.actions == []


def test_success_takes_weight() -> None:
    """A tool that works in between is not stuck on its error."""
    run = Run()
    for number in range(8):
        run.calls(
            call("read", {"path": f"a{number}"}, error="no such file or directory"),
            call("read", {"path": f"b{number}"}, f"content {number}"),
        )
    assert run.actions == []
