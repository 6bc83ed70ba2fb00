"""Several tools that say the same."""

from __future__ import annotations

from tests.calls import Run, call

DOWN = "Temporary data inconsistency detected, please retry the exact same query"


def test_one_error_from_several_tools_is_an_outage() -> None:
    """Three equal errors of three tools are noticed, and nothing is stopped."""
    run = Run()
    run.calls(*[call(f"tool_{n % 3}", {"n": n}, error=DOWN, at=20 * n) for n in range(9)])
    # With 20 s between them these are patient retries of something transient.
    assert run.actions == []
    run = Run()
    run.calls(*[call(f"tool_{n % 3}", {"n": n}, error=DOWN, at=n) for n in range(9)])
    assert run.actions == ["hint"]
    assert run.decisions[0].reason == "same_from_several_tools"


def test_one_long_answer_from_several_tools_is_an_outage() -> None:
    """An answer that does not depend on what was asked, nor on whom, is none."""
    run = Run()
    run.calls(*[call(f"lookup_{n % 2}", {"city": n}, DOWN) for n in range(3)])
    assert run.actions == ["hint"]
    assert run.decisions[0].detector == "outage"
    assert run.decisions[0].step == 2


def test_short_answers_of_several_tools_coincide() -> None:
    """Two tools may both say "none"."""
    run = Run()
    assert run.calls(*[call(f"lookup_{n}", {"city": n}, "none") for n in range(9)]) == []


def test_retries_at_once_are_noticed_and_not_stopped() -> None:
    """A transient error deserves a pause before the next try."""
    run = Run()
    run.calls(*[call("search", {"q": n}, error="503 Service Unavailable", at=n) for n in range(4)])
    assert run.actions == ["hint"]
    assert run.decisions[0].reason == "retry_without_pause"


def test_patient_retries_are_left_alone() -> None:
    """With seconds in between a transient error has its budget of time."""
    run = Run()
    steps = [call("s", {"q": 1}, error="429 Too Many Requests", at=12 * n) for n in range(4)]
    assert run.calls(*steps) == []
