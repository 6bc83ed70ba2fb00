"""Equal errors of one tool."""

from __future__ import annotations

from typing import Any

import pytest

from otel_loopguard import Settings
from otel_loopguard.core import Kind, Step
from tests.calls import Run, call
from tests.detectors.alone import actions, alone

DENIED = "Permission denied (publickey)"
USER = Step(Kind.OTHER, "user", text="try it again, please")


def failing(number: int, error: str = DENIED, **given: Any) -> Step:
    """A call with arguments of its own that fails."""
    return call("ssh", {"flags": f"-o opt{number}"}, error=error, **given)


def working(number: int) -> Step:
    """A call of the same tool that goes well."""
    return call("ssh", {"host": number}, f"welcome to host {number}, all is well here")


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
    steps = [call("s", {"q": n}) for n in range(20)]
    for step in steps:
        step.error = True
    assert alone("error_repeat", *steps) == []


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


def test_an_error_for_other_things_each_time_hints_at_most() -> None:
    """Six users that are not found are no loop that has to be stopped."""
    assert actions(alone("error_repeat", *[failing(n) for n in range(12)])) == ["hint"]


def test_the_same_failing_call_climbs_the_ladder() -> None:
    """The very same call with the same deterministic error counts from its second time on."""
    decisions = alone("error_repeat", *[failing(0) for _ in range(6)])
    assert actions(decisions) == ["hint", "deny", "abort"]
    assert [decision.step for decision in decisions] == [1, 2, 3]
    assert decisions[0].message == "'ssh' failed 2 times with an equal deterministic error"


def test_a_wrong_call_climbs_though_its_arguments_move() -> None:
    """What is wrong is the call itself, whatever it asks for."""
    said = "search() got an unexpected keyword argument 'year'"
    steps = [call("search", {"q": f"city {n}", "year": 1}, error=said) for n in range(6)]
    decisions = alone("error_repeat", *steps)
    assert {decision.reason for decision in decisions} == {"call_error"}
    assert actions(decisions) == ["hint", "deny", "abort"]


def test_an_error_of_unknown_kind_has_to_come_three_times() -> None:
    """Twice the same call may be chance where nobody knows what the error means."""
    decisions = alone("error_repeat", *[failing(0, "it went wrong somehow") for _ in range(3)])
    assert [(one.step, one.count) for one in decisions] == [(2, 3)]


def test_what_an_error_quotes_does_not_tell_it_apart() -> None:
    """Equal but for what it repeats from the arguments: each counts four fifths."""
    steps = [
        call("read", {"path": name}, error=f"FileNotFoundError: no such file: '{name}'")
        for name in ("alpha.py", "beta.py", "gamma.py", "delta.py")
    ]
    decisions = alone("error_repeat", *steps)
    assert [(one.step, one.count) for one in decisions] == [(3, 3.4)]


def test_other_errors_are_other_errors() -> None:
    """Each failure that says something else is news."""
    words = "permission quota syntax network encoding memory signal".split()
    steps = [failing(n, f"the {word} is not what was expected") for n, word in enumerate(words)]
    assert alone("error_repeat", *steps) == []


def test_two_tools_do_not_share_an_error() -> None:
    """One tool's errors; several tools have another detector."""
    steps = [call(f"tool_{n % 3}", {"n": n}, error=DENIED) for n in range(6)]
    assert alone("error_repeat", *steps) == []


def test_parallel_failures_count_once() -> None:
    """A fan-out that fails is one failure."""
    steps = [failing(0, at=0.001 * n, took=1) for n in range(6)]
    assert alone("error_repeat", *steps) == []


def test_a_user_turn_halves_it() -> None:
    """What failed before a user spoke counts half."""
    assert actions(alone("error_repeat", *[failing(n) for n in range(3)])) == ["hint"]
    assert alone("error_repeat", failing(0), failing(1), USER, failing(2)) == []


def test_a_failure_is_forgotten() -> None:
    """An error that comes back after more than fifty calls begins anew."""
    between = [call("read", {"page": n}, f"page {n} is about subject {n}") for n in range(51)]
    assert alone("error_repeat", failing(0), failing(1), *between, failing(2)) == []


@pytest.mark.parametrize("threshold", [2, 3, 5])
def test_the_threshold_is_a_setting(threshold: int) -> None:
    """`error_threshold` equal errors, whatever the arguments."""
    steps = [failing(n) for n in range(8)]
    decisions = alone("error_repeat", *steps, error_threshold=threshold)
    assert [decision.step for decision in decisions] == [threshold - 1]


def test_without_arguments_it_hints_at_most() -> None:
    """Where it is not known what was asked, nothing is stopped on an equal error."""
    steps = [call("ssh", error=DENIED) for _ in range(12)]
    assert actions(alone("error_repeat", *steps)) == ["hint"]


def test_a_success_in_between_takes_two_fifths() -> None:
    """Two failures, a success and another failure are not three."""
    assert alone("error_repeat", failing(0), failing(1), working(0), failing(2)) == []


ABSENT = [
    ("get_customer", "id", "KeyError: '{}'"),
    ("fetch_order", "order", "HTTP 404 Not Found: {}"),
    ("find_user", "email", "NotFoundError: no user with e-mail {}"),
]


@pytest.mark.parametrize(("tool", "name", "error"), ABSENT)
def test_items_that_are_not_there_are_looked_up(tool: str, name: str, error: str) -> None:
    """One item after the other, each another one: a hint no earlier than after ten."""
    run = Run()
    for number in range(50):
        run.calls(call(tool, {name: f"K{number + 1000}"}, error=error.format(f"K{number + 1000}")))
    assert run.actions[:1] == ["hint"]
    assert run.decisions[0].step >= 9
    assert set(run.actions) == {"hint"}


@pytest.mark.parametrize("what", ["the same", "a path", "a change", "another tool"])
def test_what_is_not_there_counts_in_full(what: str) -> None:
    """The same asked again, guessed paths, a change, and a tool that does not exist."""
    tool, name, error = {
        "the same": ("get_customer", "id", "KeyError: 'K7'"),
        "a path": ("read_file", "path", "FileNotFoundError: no such file: not found"),
        "a change": ("update_customer", "id", "404 not found"),
        "another tool": ("get_customer", "id", "tool get_customer not found"),
    }[what]
    run = Run()
    for number in range(8):
        value = "K7" if what == "the same" else f"src/part{number + 1000}"
        run.calls(call(tool, {name: value}, error=error))
    assert run.actions
    assert run.decisions[0].step <= 3
