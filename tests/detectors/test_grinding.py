"""A long stretch of different calls without anything new."""

from __future__ import annotations

from typing import Any

import pytest

from otel_loopguard import Settings
from otel_loopguard.core import Kind, Step
from otel_loopguard.detectors.standstill import Grinding
from tests.calls import call
from tests.detectors.alone import actions, alone, evidence

ROOMS = ("the door is shut", "the window is shut", "nobody is here")
USER = Step(Kind.OTHER, "user", text="and the cellar?")


def looked(number: int, said: str | None = None) -> Step:
    """A call that nobody made before, with an answer that was there before."""
    return call("look", {"at": number}, ROOMS[number % 3] if said is None else said)


def test_twenty_calls_without_news_give_a_hint() -> None:
    """All calls differ, and so do the answers; nothing of them is new. Never more than a hint."""
    decisions = alone("grinding", *[looked(n) for n in range(60)])
    assert actions(decisions) == ["hint"]
    assert decisions[0].step == 20  # The first answers are new: they have to be outweighed.
    assert decisions[0].reason == "nothing_new"
    assert "20 calls" in decisions[0].message


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param([looked(n) for n in range(19)], id="nineteen calls"),
        pytest.param(
            [
                looked(n, f"room {n} has {n * 7919:x} in it" if n % 5 == 0 else None)
                for n in range(60)
            ],
            id="every fifth answer is new",
        ),
        pytest.param(
            [
                step
                for n in range(60)
                for step in (
                    [looked(n)]
                    if n % 15
                    else [looked(n), call("edit", {"path": "a.py", "new": f"v{n}"}, "ok")]
                )
            ],
            id="a change now and then",
        ),
        pytest.param(
            [
                step
                for n in range(60)
                for step in ([looked(n)] if n % 15 else [looked(n), call("wait", {}, "ok")])
            ],
            id="a wait now and then",
        ),
        pytest.param(
            [call("look", {"at": n}, None if n % 15 == 0 else ROOMS[n % 3]) for n in range(60)],
            id="an answer now and then that was not captured",
        ),
    ],
)
def test_honest_work_is_left_alone(steps: list[Step]) -> None:
    """News, changes, waits, and what is not known begin a stretch anew."""
    assert alone("grinding", *steps) == []


def test_a_user_begins_anew() -> None:
    """What was asked before was asked for something else."""
    steps = [looked(n) for n in range(36)]
    assert alone("grinding", *steps[:18], USER, *steps[18:]) == []


@pytest.mark.parametrize(
    ("news", "expected"),
    [
        pytest.param([0.0] * 20, [19], id="nothing"),
        pytest.param([0.09] * 20, [19], id="less than a tenth of each"),
        pytest.param([0.11] * 20, [], id="a little more"),
        pytest.param([1.0, 1.0, *[0.0] * 18], [19], id="two answers that are new"),
        pytest.param([1.0, 1.0, 1.0, *[0.0] * 17], [], id="three answers that are new"),
        pytest.param([1.0, 1.0, 1.0, *[0.0] * 18], [20], id="which go out of sight"),
    ],
)
def test_what_next_to_nothing_means(news: list[float], expected: list[int]) -> None:
    """A tenth of all the newest twenty answers together."""
    grinding = Grinding(Settings())
    steps = [evidence(n, novelty=share) for n, share in enumerate(news)]
    assert [n for n, step in enumerate(steps) if grinding.observe(step)] == expected


@pytest.mark.parametrize(
    ("settings", "first"),
    [
        pytest.param({"tuning": {"calls": {"grinding_calls": 10}}}, 11, id="fewer calls"),
        pytest.param({"tuning": {"calls": {"grinding_calls": 40}}}, 39, id="more calls"),
        pytest.param({"tuning": {"calls": {"grinding_novelty": 0.01}}}, 22, id="less news"),
    ],
)
def test_the_settings_say_when(settings: dict[str, Any], first: int) -> None:
    """`tuning.calls.grinding_calls` and `tuning.calls.grinding_novelty`."""
    assert alone("grinding", *[looked(n) for n in range(60)], **settings)[0].step == first


def test_a_long_run_does_not_drift() -> None:
    """The sum is kept by adding and taking away: after 10,000 calls it is still right."""
    grinding = Grinding(Settings())
    for n in range(10_000):
        grinding.observe(evidence(n, novelty=(n % 7) / 7))
    found = [n for n in range(40) if grinding.observe(evidence(n, novelty=0.0))]
    assert found[0] == 14
