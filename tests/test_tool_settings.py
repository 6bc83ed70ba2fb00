"""Settings of single tools, of what is switched off, and of how soon: they change what is found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from otel_loopguard import LoopGuard, LoopGuardSettingsError, Settings
from tests.calls import Run, call
from tests.detectors.alone import actions, alone

if TYPE_CHECKING:
    from otel_loopguard.core import Decision, Step

ANSWER = "light rain in the west, twenty degrees, and a little wind"
DENIED = "Permission denied (publickey)"
BUSY = "429 Too Many Requests"


def repeats(tool: str, times: int = 12, **given: Any) -> list[Step]:
    """One call over and over."""
    return [call(tool, {"q": "x"}, ANSWER, **given) for _ in range(times)]


ASKING = [call("get", {"q": f"the {n} of {n}"}, ANSWER) for n in range(12)]
FAILING = [call("get", {"n": n}, error=DENIED) for n in range(12)]
PENDING = [call("get", {"q": "x"}, "pending", at=30 * n) for n in range(12)]
OVERLOADED = [call("get", {"q": "x"}, error=BUSY, at=30 * n) for n in range(30)]


def first(decisions: list[Decision]) -> int | None:
    """Step of the first decision; None if there is none."""
    return decisions[0].step if decisions else None


def test_a_name_that_is_not_there_cannot_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """The guard knows its detectors; the settings do not."""
    monkeypatch.setenv("LOOPGUARD_SWITCHED_OFF", "cycle,cycles")
    with pytest.raises(LoopGuardSettingsError, match=r"LOOPGUARD_SWITCHED_OFF.* = cycles: "):
        LoopGuard(Settings())


@pytest.mark.parametrize(
    ("detector", "setting", "steps", "expected"),
    [
        ("exact_repeat", {"repeat_threshold": 6}, repeats("get"), (2, 5)),
        ("stagnation", {"repeat_threshold": 6}, ASKING, (2, 5)),
        ("error_repeat", {"error_threshold": 6}, FAILING, (2, 5)),
        ("exact_repeat", {"wait_budget_s": 60}, PENDING, (None, 3)),
        ("exact_repeat", {"transient_budget_s": 600}, OVERLOADED, (3, 21)),
    ],
    ids=["repeat", "stagnation", "error", "wait", "transient"],
)
def test_a_threshold_of_a_tool_changes_what_is_found(
    detector: str,
    setting: dict[str, float],
    steps: list[Step],
    expected: tuple[int | None, int | None],
) -> None:
    """Of this tool, and of no other."""
    plain, own = expected
    assert first(alone(detector, *steps)) == plain
    assert first(alone(detector, *steps, tools={"get": setting})) == own
    assert first(alone(detector, *steps, tools={"other": setting})) == plain


def test_an_exempt_tool_is_never_judged() -> None:
    """Named in either place; its changes are changes all the same."""
    for given in ({"tools": {"get": {"exempt": True}}}, {"exempt_tools": ["get"]}):
        run = Run(Settings(**given))
        run.calls(*repeats("get", 30), *[call("get", {"n": n}, error=DENIED) for n in range(9)])
        assert run.actions == []
        run.calls(*repeats("find", 3))
        assert run.actions == ["hint"]
    steps = [
        step
        for n in range(9)
        for step in (
            call("save", {"n": n}, "ok"),
            call("run_tests", {}, "1 failed, 3 passed in test_a.py"),
        )
    ]
    tools = {"save": {"exempt": True, "effect": "write"}}
    assert alone("exact_repeat", *steps, tools=tools) == []


def test_a_tool_that_polls_may_wait() -> None:
    """After a pause an unchanged answer is waiting; without a clock it is told to wait."""
    patient = repeats("get", 12)
    for n, step in enumerate(patient):
        step.start, step.end = call(at=8 * n).start, call(at=8 * n).end
    assert actions(alone("exact_repeat", *patient)) == ["hint"]
    tools = {"get": {"polls": True}}
    assert alone("exact_repeat", *patient, tools=tools) == []
    found = alone("exact_repeat", *repeats("get"), tools=tools)
    assert (first(found), found[0].reason) == (2, "polled_too_soon")


@pytest.mark.parametrize(
    ("tool", "effect", "found"),
    [
        ("frobnicate", None, []),
        ("frobnicate", "read", ["hint"]),
        ("get", None, ["hint"]),
        ("get", "write", []),
        ("get", "wait", []),
    ],
)
def test_a_declared_effect_goes_before_the_name(
    tool: str, effect: str | None, found: list[str]
) -> None:
    """Equal answers to different calls are no sign where the calls change something."""
    steps = [call(tool, {"q": f"the {n} of {n}"}, ANSWER) for n in range(9)]
    tools = {} if effect is None else {tool: {"effect": effect}}
    assert actions(alone("stagnation", *steps, tools=tools)) == found


def test_a_declared_key_says_what_the_same_call_is() -> None:
    """What else is in the arguments does not matter then: it is no guess, and weighs as much."""
    said = "No results were found."
    steps = [call("get", {"q": "x", "mood": f"calm {n}"}, said) for n in range(8)]
    assert alone("exact_repeat", *steps) == []
    decisions = alone("exact_repeat", *steps, tools={"get": {"key": ["q"]}})
    assert actions(decisions) == ["hint", "deny", "abort"]
    assert first(decisions) == 2


@pytest.mark.parametrize(
    ("sensitivity", "step"),
    [(0.5, 5), (0.75, 3), (1, 2), (1.5, 1), (4, 1)],
)
def test_sensitivity_divides_all_thresholds(sensitivity: float, step: int) -> None:
    """Above 1 loops are noticed sooner, below 1 later; one call is never a loop."""
    assert first(alone("exact_repeat", *repeats("get"), sensitivity=sensitivity)) == step


@pytest.mark.parametrize(
    "step",
    [
        call("get", {"q": "x"}, "No results found."),
        call("ssh", {"q": "x"}, error=DENIED),
        call("ssh", {"q": "x"}, error=BUSY),
        call("python", {"code": f"print('{ANSWER}')"}, ANSWER),
        call("run_tests", {}, "2 tests did not pass: a, b"),
    ],
    ids=["nothing found", "an error", "a transient error", "a text that is printed", "a verdict"],
)
def test_one_call_is_never_a_loop(step: Step) -> None:
    """However sensitive the guard is."""
    run = Run(Settings(sensitivity=4))
    assert run.calls(step) == []


def test_a_patient_guard_still_notices() -> None:
    """At the lowest sensitivity every rule takes four times as many, and none falls silent."""
    broken = [call("get", {"n": n}, error=f"{n * 7919:x} is odd") for n in range(60)]
    words = [f"{n * 7919:x}" for n in range(60)]
    runs = {
        "exact_repeat": repeats("get", 60),
        "error_rate": broken,
        "found_nothing": [
            call("get", {"q": word}, f"No results found for {word}.") for word in words
        ],
        "same_verdict": [call("check", {"n": n}, "2 tests did not pass") for n in range(60)],
    }
    noticed = {name: bool(alone(name, *steps, sensitivity=0.25)) for name, steps in runs.items()}
    assert noticed == {
        "exact_repeat": True, "error_rate": True, "found_nothing": True, "same_verdict": True,
    }  # fmt: skip
