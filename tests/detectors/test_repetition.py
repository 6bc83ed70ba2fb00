"""Equal, cyclic and similar calls: what `repetition.txt` cannot say."""

from __future__ import annotations

import pytest

from otel_loopguard import Settings
from otel_loopguard.detectors.repetition import Cycle
from tests.calls import Run, call
from tests.detectors.alone import alone, evidence

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
    flag = run.guard.flag_named("run")
    assert flag.control.action == ("allow" if mode == "shadow" else "abort")


def test_a_hint_at_a_poll_says_how_long_it_was_asked() -> None:
    """Since the first such call, and not since the budget ended; and what helps who waits."""
    run = Run()
    run.calls(*[call("job", {"id": 9}, "in_progress", at=60 * n) for n in range(40)])
    found = run.decisions[0]
    assert found.message == (
        f"'job' was asked {found.step + 1} times in {found.step} minutes, and its 11-character "
        "answer is still the same"
    )
    assert found.advice.startswith(f"You have waited {found.step} minutes: ")
    run = Run()
    run.calls(*[call("job", {"id": 9}, "in_progress", at=0.6 * n) for n in range(6)])
    assert "Ask again after 10 seconds" in run.decisions[0].advice


@pytest.mark.parametrize("period", range(2, 17))
def test_every_period_to_sixteen_is_found(period: int) -> None:
    """Within three turns, with its own period; a turn more or less is not enough."""
    turn = [call("read", {"page": n}, f"the text of page {n} is this") for n in range(period)]
    assert [one.period for one in alone("cycle", *turn * 3)][:1] == [period]
    assert alone("cycle", *turn * (2 if period < 9 else 1)) == []


def test_a_cycle_of_guessed_calls_weighs_less() -> None:
    """What rests on a value that only looks volatile is found later, and stops later."""
    found = {}
    for guessed in (True, False):
        cycle = Cycle(Settings())
        calls = [evidence(n, call=n % 3, guessed=guessed) for n in range(18)]
        found[guessed] = [one for one in map(cycle.observe, calls) if one]
    assert 0 < len(found[True]) < len(found[False])
    assert found[True][-1].weight < found[False][-1].weight == 1.0
