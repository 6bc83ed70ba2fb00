"""The execution choice: the times that are added, the votes, and who wins."""

from __future__ import annotations

from typing import Any

import pytest

from otel_loopguard import Settings
from otel_loopguard.core import Choice
from otel_loopguard.core.admission import UNKNOWN_PRESSURE, Alert, Factors, ResourcePressure
from otel_loopguard.core.decision import FollowUp, Source
from otel_loopguard.execution.advice import FOLLOW_UPS, Answer, advise
from otel_loopguard.settings.preferences import Preferences, default_preferences

SYNC, PROMPT = Choice.EXECUTE_SYNC, Choice.PROMPT_USER
BACKGROUND, DEFER = Choice.AUTO_BACKGROUND, Choice.DEFER
BUSY = ResourcePressure(load=0.9)
SHORT = ResourcePressure(1.0, None, (Alert("cpu", 99, 80, critical=True),))
PLAIN = Preferences()


def work(
    seconds: float = 1, tasks: int = 1, *, parallel: bool = False, complexity: float = 0
) -> Factors:
    return Factors(tasks, ("t",), parallel, seconds * 1e3, complexity, 10, {"t": "profile"})


def choose(
    what: Factors,
    pressure: ResourcePressure = UNKNOWN_PRESSURE,
    remembered: Choice | None = None,
    wishes: Preferences = PLAIN,
) -> Answer:
    return advise(what, wishes, pressure, remembered)[0]


@pytest.mark.parametrize(
    ("what", "added"),
    [
        (work(1), (2, 0, 0)),
        (work(1, 4), (8, 0, 0)),
        (work(1, 5), (10, 10, 0)),
        (work(1, 12, complexity=0.5), (24, 20, 2.5)),
        (work(1, 12, parallel=True), (6, 20, 0)),
        (work(1, complexity=1), (2, 0, 5)),
    ],
)
def test_the_total(what: Factors, added: tuple[float, float, float]) -> None:
    """Tools, changing between tasks, a checkpoint for every five, five seconds of complexity."""
    _, factors = advise(what, PLAIN, UNKNOWN_PRESSURE)
    found = (factors.switching_ms, factors.checkpoints_ms, factors.complexity_ms)
    assert [value / 1e3 for value in found] == pytest.approx(added)
    assert factors.total_ms == pytest.approx(factors.tool_ms + sum(added) * 1e3)


@pytest.mark.parametrize(
    ("what", "pressure", "votes"),
    [
        (work(12.9), UNKNOWN_PRESSURE, "time_sync execute_sync 0.9"),
        (work(13), UNKNOWN_PRESSURE, "time_prompt prompt_user 0.8"),
        (work(42.9), UNKNOWN_PRESSURE, "time_prompt prompt_user 0.8"),
        (work(43), UNKNOWN_PRESSURE, "time_background auto_background 0.85"),
        (work(1, 15, parallel=True), UNKNOWN_PRESSURE, ""),
        (work(1, 16, parallel=True), UNKNOWN_PRESSURE, "tasks_prompt prompt_user 0.85"),
        (work(1, 26, parallel=True), UNKNOWN_PRESSURE, "tasks_background auto_background 0.9"),
        (work(1, 10), UNKNOWN_PRESSURE, ""),
        (work(1, 11), UNKNOWN_PRESSURE, "sequential_background auto_background 0.75"),
        (work(1, complexity=0.7), UNKNOWN_PRESSURE, ""),
        (work(1, complexity=0.71), UNKNOWN_PRESSURE, "complexity_prompt prompt_user 0.8"),
        (work(28.1), BUSY, "load_background auto_background 0.75"),
        (work(28), BUSY, "load_defer defer 0.6"),
        (work(28.1), ResourcePressure(load=0.8), ""),
        (work(17.9), ResourcePressure(queue=11), "queue_sync execute_sync 0.7"),
        (work(18), ResourcePressure(queue=11), ""),
        (work(1), ResourcePressure(queue=10), ""),
    ],
)
def test_votes(what: Factors, pressure: ResourcePressure, votes: str) -> None:
    """Each rule votes past its threshold and not at it; 2 s are added to the time of a call.

    The one about the time always does.
    """
    _, factors = advise(what, PLAIN, pressure)
    time, *others = [f"{vote.rule} {vote.choice} {vote.confidence}" for vote in factors.votes]
    assert time.startswith("time_")
    assert votes in (others or [time, ""])
    assert len(others) <= 1


def test_nothing_goes_to_the_background_of_who_does_not_want_it() -> None:
    """Every vote for it becomes a question, whatever was answered before."""
    settings = Settings(tuning={"execution": {"background_s": 0}})
    for wishes in (default_preferences(settings), Preferences(auto_background_enabled=False)):
        chosen, factors = advise(work(60, 30), wishes, UNKNOWN_PRESSURE, BACKGROUND)
        assert {vote.choice for vote in factors.votes} == {PROMPT}
        assert (chosen.choice, chosen.confidence) == (PROMPT, 0.7)


def test_the_highest_mean_wins() -> None:
    """Votes for one option count as their mean, so that a weak one takes a strong one down."""
    chosen = choose(work(60, 11), BUSY)
    assert (chosen.choice, chosen.source) == (BACKGROUND, Source.EXECUTION_CHOICE)
    assert chosen.confidence == pytest.approx((0.85 + 0.75 + 0.75) / 3)
    assert "11 tasks in sequence" in chosen.reason
    assert "90% of the CPUs are busy" in chosen.reason


@pytest.mark.parametrize("remembered", [SYNC, PROMPT, BACKGROUND, DEFER], ids=str)
@pytest.mark.parametrize("what", [work(1), work(20), work(60), work(90, 30)], ids=repr)
def test_a_remembered_answer_decides(what: Factors, remembered: Choice) -> None:
    """However sure the other rules are of theirs."""
    chosen, factors = advise(what, PLAIN, UNKNOWN_PRESSURE, remembered)
    assert (chosen.choice, factors.remembered) == (remembered, remembered)
    assert f"the user answered {remembered} before" in chosen.reason


@pytest.mark.parametrize(
    ("seconds", "pressure", "remembered", "expected", "confidence"),
    [
        (1, UNKNOWN_PRESSURE, BACKGROUND, BACKGROUND, 0.65),
        (60, UNKNOWN_PRESSURE, BACKGROUND, BACKGROUND, 0.75),
        (60, BUSY, SYNC, BACKGROUND, 0.8),
        (60, BUSY, BACKGROUND, BACKGROUND, 0.75),
        (1, SHORT, SYNC, DEFER, 0.8),
    ],
)
def test_what_is_busy_speaks_against_a_remembered_answer(
    seconds: float, pressure: Any, remembered: Choice, expected: Choice, confidence: float
) -> None:
    """Then all votes count; where it is for the same option nothing speaks against it."""
    chosen = choose(work(seconds), pressure, remembered)
    assert (chosen.choice, chosen.confidence) == (expected, pytest.approx(confidence))


@pytest.mark.parametrize(
    ("preferred", "choice"), [(None, PROMPT), (BACKGROUND, BACKGROUND), (DEFER, PROMPT)]
)
def test_a_tie_goes_to_the_user_or_to_what_the_user_prefers(
    preferred: Choice | None, choice: Choice
) -> None:
    """Of equally sure options the user is asked, unless a default is preferred."""
    tied = work(60, 16, parallel=True)
    assert choose(tied, wishes=Preferences(default_choice=preferred)).choice is choice


def test_every_choice_has_follow_ups() -> None:
    """No answer leaves the runtime without a word on what to do next."""
    assert all(FOLLOW_UPS[choice] for choice in Choice)
    for notify in (True, False):
        chosen = choose(work(60), wishes=Preferences(notify_on_completion=notify))
        assert (FollowUp.NOTIFY_ON_COMPLETION in chosen.follow_ups) is notify
