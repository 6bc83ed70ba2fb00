"""The log of the cycles that a session came to."""

import logging
from typing import Any

import pytest

from otel_loopguard import Settings
from otel_loopguard.core import Kind, Step
from tests.calls import Run, hand, handle_of, node

TEXTS = (
    "The summary of the quarterly report misses its sources, please add them",
    "The sources are not in the report, please write the summary again without them",
)
PAIRS = {"switched_off": "exchange_ring,exchange_topic"}
USER = Step(Kind.OTHER, "user", text="stop that")


def rally(run: Run, times: int, texts: tuple[str, str] = TEXTS, begin: int = 0) -> None:
    """Exchanges to and fro between planner and critic, ten seconds apart."""
    for number in range(begin, begin + times):
        back = number % 2
        agent, source = ("planner", "critic") if back else ("critic", "planner")
        run.calls(hand(texts[back], agent, source, at=10 * number))


def cycles(run: Run) -> list[Any]:
    return list(handle_of(run.guard).cycles())


def test_a_cycle_is_written_down_from_its_start_to_its_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Found, intervened, escalated and resolved, one line each."""
    caplog.set_level(logging.INFO, "otel_loopguard")
    run = Run(Settings(**PAIRS))
    rally(run, 12)
    run.calls(USER)
    (cycle,) = cycles(run)
    assert cycle.topic is not None
    assert len(cycle.topic) == 16
    said = f"session=run id=1 patterns=pair_cycle agents=critic,planner topic={cycle.topic}"
    warned, grave = f"{said} severity=warning count=4 seconds=30.0", f"{said} severity=fatal"
    more = "seconds=70.0 intervention=inject_context"
    assert [
        (one.levelname, one.getMessage().removeprefix("otel-loopguard: cycle "))
        for one in caplog.records
        if "cycle " in one.getMessage()[:25]
    ] == [
        ("INFO", f"found: {warned}"),
        ("WARNING", f"intervened: {warned} intervention=break_cycle"),
        ("WARNING", f"intervened: {said} severity=critical count=8 {more}"),
        ("ERROR", f"escalated: {grave} count=12 seconds=110.0 intervention=escalate_human"),
        ("INFO", f"resolved: {grave} count=12 seconds=110.0 resolution=user_turn"),
    ]


@pytest.mark.parametrize("key", ["", "a key that all processes have"], ids=["random", "given"])
def test_topics_are_told_apart_by_digests_with_a_key(key: str) -> None:
    """Equal in another session; in another process, of another random key, they are not."""

    def topic(texts: tuple[str, str]) -> str | None:
        run = Run(Settings(digest_key=key, **PAIRS))
        rally(run, 4, texts)
        return cycles(run)[0].topic

    assert (topic(TEXTS) == topic(TEXTS)) is bool(key)
    assert topic(TEXTS) != topic(("A summary of the weather of today", "Where is the weather?"))


def test_the_entries_say_what_became_of_it() -> None:
    run = Run()
    rally(run, 9, (TEXTS[0], TEXTS[0]))
    (entry,) = cycles(run)
    assert set(entry.patterns) == {"pair_cycle", "topic_cycle"}
    assert (entry.found, entry.last, entry.escalated, entry.resolution) == (3, 8, False, None)
    assert (entry.intervention, entry.count) == ("inject_context", pytest.approx(9))


def test_a_cycle_ends_by_itself_or_when_somebody_lets_the_session_go_on() -> None:
    """Not seen for as many steps as the window has it is over; a new one gets a new entry.

    The newest thirty-two are kept, however often a session goes in circles.
    """
    run = Run(Settings(**PAIRS))
    rally(run, 4)
    run.calls(*(node(f"node{number}", at=0) for number in range(105)))
    rally(run, 12, begin=4)
    run.guard.flag_named("run").clear()
    run.calls(node("node"))
    assert [(one.id, one.resolution) for one in cycles(run)] == [(1, "faded"), (2, "cleared")]
    for turn in range(4, 42):
        rally(run, 4, begin=4 * turn)
        run.calls(USER)
    assert (len(cycles(run)), cycles(run)[-1].id) == (32, 40)
