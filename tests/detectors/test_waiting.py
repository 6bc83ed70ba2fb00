"""What looks at what is not ready cost: told, counted, and never a stop."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from otel_loopguard import LoopGuard, Settings, control
from otel_loopguard.core import Decision, Kind, Step
from tests.calls import EPOCH, SECOND, Run, handle_of
from tests.detectors.judges import WORDS

RUNNING = '{"status": "running"}'


def looks(
    number: int, *, pause: int = 20, tokens: int | None = 30_000, cost: float | None = None,
    answer: str = RUNNING, times: bool = True,
) -> Iterator[Step]:  # fmt: skip
    """A model that asks for one look after the other, each some seconds after the last."""
    at = EPOCH
    for each in range(number):
        begin, end = (at, at + 2 * SECOND) if times else (0, None)
        yield Step(Kind.MODEL, "m", start=begin, end=end, tokens_in=tokens, cost=cost)
        at += (2 + pause) * SECOND
        said, begin = answer.replace("#", WORDS[each % 20] + WORDS[each // 20]), at - SECOND
        begin, end = (begin, at) if times else (0, None)
        yield Step(Kind.TOOL, "job_status", args={"id": 7}, outcome=said, start=begin, end=end)


def told(steps: Iterator[Step], **settings: object) -> tuple[LoopGuard, list[Decision]]:
    """A guard that saw these steps, and what it said of the price."""
    run = Run(Settings(**settings))
    run.calls(*steps)
    return run.guard, [one for one in run.decisions if one.detector == "price_of_waiting"]


def test_a_dear_wait_is_told_and_told_again_at_four_times_the_price() -> None:
    """A hint with what was spent, what a longer wait would have cost, and how long to wait."""
    guard, (first, second) = told(looks(60, cost=0.1))
    assert (first.action, first.reason) == ("hint", "looks_cost")
    assert first.message == (
        "7 looks at what is not ready cost 210,000 tokens (0.70 USD); one look every 300 s would "
        "have cost 30,000"
    )
    assert first.advice == "Wait 44 seconds before the next look, or longer."
    assert second.count == 840_000
    run = handle_of(guard).report().run
    assert (run.looks, run.look_tokens, round(run.look_cost, 2)) == (59, 1_770_000, 5.9)
    assert handle_of(guard).wait_advice() == 300


@pytest.mark.parametrize(
    ("steps", "off"),
    [
        (looks(6), ""),
        (looks(60, tokens=500), ""),
        (looks(60, tokens=None), ""),
        (looks(30, pause=250), ""),
        (looks(60, times=False), ""),
        (looks(60, answer="# built, # linked, # tested"), ""),
        (looks(60), "price_of_waiting"),
    ],
    ids=["a short wait", "a small context", "tokens that nobody tells", "long pauses", "no times",
         "looks that bring news", "switched off"],
)  # fmt: skip
def test_nothing_is_said_of(steps: Iterator[Step], off: str) -> None:
    """What is cheap, unknown, worth its price, or not wanted."""
    assert told(steps, switched_off=off)[1] == []


def test_advice_is_for_who_waits_only() -> None:
    """None before the first look, after news, in an unknown session, and where it is off."""
    assert handle_of(told(looks(1))[0]).wait_advice() == 0
    guard, _ = told(looks(20))
    assert 10 <= handle_of(guard).wait_advice() <= 300
    done = Step(Kind.TOOL, "job_status", args={"id": 7}, outcome="finished: 12 files written")
    guard.observe(done, "run")
    assert handle_of(guard).wait_advice() == 0
    assert control.wait_advice("nobody-knows-this-session") == 0
    assert handle_of(told(looks(20), switched_off="price_of_waiting")[0]).wait_advice() == 0
