"""The log of the cycles that a session came to."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from otel_loopguard import Settings
from otel_loopguard.core import Decision, Kind, Step
from otel_loopguard.guard.guard import LoopGuard
from tests.calls import EPOCH, hand, handle_of

if TYPE_CHECKING:
    from otel_loopguard.sessions import Session

TEXTS = (
    "The summary of the quarterly report misses its sources, please add them",
    "The sources are not in the report, please write the summary again without them",
)
ONLY = {"switched_off": "exchange_ring,exchange_topic"}


class Watched:
    """A guard, and the session that it last decided about."""

    def __init__(self, settings: Settings) -> None:
        self.session: Session | None = None
        self.guard = LoopGuard(settings, clock="replay", on_decision=self._decided)
        self.number = 0

    def rally(self, times: int, texts: tuple[str, str] = TEXTS) -> None:
        """Exchanges to and fro between planner and critic, ten seconds apart."""
        for _ in range(times):
            back = self.number % 2
            agent, source = ("planner", "critic") if back else ("critic", "planner")
            self.guard.observe(hand(texts[back], agent, source, at=10 * self.number), "run")
            self.number += 1

    def _decided(self, session: Session, _: Decision) -> None:
        self.session = session


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    """Level and text of the lines about cycles, without the package's name."""
    name = "otel-loopguard: "
    found = [(one.levelname, one.getMessage().removeprefix(name)) for one in caplog.records]
    return [(level, text) for level, text in found if text.startswith("cycle ")]


def test_a_cycle_is_written_down_from_its_start_to_its_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Found, intervened, escalated and resolved, one line each."""
    caplog.set_level(logging.INFO, "otel_loopguard")
    watched = Watched(Settings(**ONLY))
    watched.rally(12)
    watched.guard.observe(Step(Kind.OTHER, "user", text="stop that"), "run")
    (cycle,) = handle_of(watched.guard).cycles()
    assert cycle.topic is not None
    assert len(cycle.topic) == 16
    said = f"session=run id=1 patterns=pair_cycle agents=critic,planner topic={cycle.topic}"
    warned, grave = f"{said} severity=warning count=4 seconds=30.0", f"{said} severity=fatal"
    more = "seconds=70.0 intervention=inject_context"
    assert lines(caplog) == [
        ("INFO", f"cycle found: {warned}"),
        ("WARNING", f"cycle intervened: {warned} intervention=break_cycle"),
        ("WARNING", f"cycle intervened: {said} severity=critical count=8 {more}"),
        ("ERROR", f"cycle escalated: {grave} count=12 seconds=110.0 intervention=escalate_human"),
        ("INFO", f"cycle resolved: {grave} count=12 seconds=110.0 resolution=user_turn"),
    ]


@pytest.mark.parametrize("key", ["", "a key that all processes have"], ids=["random", "given"])
def test_topics_are_told_apart_by_digests_with_a_key(key: str) -> None:
    """Equal in another session; in another process, of another random key, they are not."""

    def topic(texts: tuple[str, str]) -> str | None:
        watched = Watched(Settings(digest_key=key, **ONLY))
        watched.rally(4, texts)
        (cycle,) = handle_of(watched.guard).cycles()
        return cycle.topic

    assert (topic(TEXTS) == topic(TEXTS)) is bool(key)
    assert topic(TEXTS) != topic(("A summary of the weather of today", "Where is the weather?"))


def test_the_entries_say_what_became_of_it() -> None:
    """Patterns, count, intervention, escalation and how it ended."""
    watched = Watched(Settings())
    watched.rally(9, (TEXTS[0], TEXTS[0]))
    assert watched.session is not None
    (entry,) = watched.session.cycles.entries
    assert set(entry.patterns) == {"pair_cycle", "topic_cycle"}
    assert (entry.found, entry.last, entry.escalated, entry.resolution) == (3, 8, False, None)
    assert entry.intervention == "inject_context"
    assert entry.count == pytest.approx(9)


def test_a_cycle_that_is_not_seen_for_long_is_over() -> None:
    """After as many steps as the window has, and a new one gets a new entry."""
    watched = Watched(Settings(**ONLY))
    watched.rally(4)
    for number in range(105):
        node = Step(Kind.NODE, f"node{number}", start=EPOCH, end=EPOCH)
        watched.guard.observe(node, "run")
    watched.rally(4)
    assert watched.session is not None
    assert [entry.resolution for entry in watched.session.cycles.entries] == ["faded", None]
    assert [entry.id for entry in watched.session.cycles.entries] == [1, 2]


def test_a_cycle_ends_when_somebody_lets_the_session_go_on() -> None:
    """Clearing the flag resolves it."""
    watched = Watched(Settings(**ONLY))
    watched.rally(12)
    assert watched.session is not None
    watched.session.flag.clear()
    watched.guard.observe(Step(Kind.NODE, "node"), "run")
    assert [entry.resolution for entry in watched.session.cycles.entries] == ["cleared"]


def test_only_the_newest_are_kept() -> None:
    """Thirty-two entries, however often a session goes in circles."""
    watched = Watched(Settings(**ONLY))
    for _ in range(40):
        watched.rally(4)
        watched.guard.observe(Step(Kind.OTHER, "user", text="go on"), "run")
    assert watched.session is not None
    entries = watched.session.cycles.entries
    assert (len(entries), entries[-1].id) == (32, 40)
