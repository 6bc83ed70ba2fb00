"""What looks at what is not ready cost: counted, and how long to wait instead."""

from collections.abc import Iterator

from otel_loopguard import LoopGuard, Settings, control
from otel_loopguard.core import Kind, Step
from tests.calls import EPOCH, SECOND, Run, handle_of

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
