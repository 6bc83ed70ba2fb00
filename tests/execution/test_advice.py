"""The execution choice: the times that are added, the votes, and who wins."""

from __future__ import annotations

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
    ids=["one", "four", "five", "twelve and complex", "parallel", "complex"],
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
        (work(12.9), None, [("time_sync", SYNC, 0.9)]),
        (work(13), None, [("time_prompt", PROMPT, 0.8)]),
        (work(42.9), None, [("time_prompt", PROMPT, 0.8)]),
        (work(43), None, [("time_background", BACKGROUND, 0.85)]),
        (work(1, 15, parallel=True), None, [...]),
        (work(1, 16, parallel=True), None, [..., ("tasks_prompt", PROMPT, 0.85)]),
        (work(1, 26, parallel=True), None, [..., ("tasks_background", BACKGROUND, 0.9)]),
        (work(1, 10), None, [...]),
        (work(1, 11), None, [..., ("sequential_background", BACKGROUND, 0.75)]),
        (work(1, complexity=0.7), None, [...]),
        (work(1, complexity=0.71), None, [..., ("complexity_prompt", PROMPT, 0.8)]),
        (work(28.1), BUSY, [..., ("load_background", BACKGROUND, 0.75)]),
        (work(28), BUSY, [..., ("load_defer", DEFER, 0.6)]),
        (work(28.1), ResourcePressure(load=0.8), [...]),
        (work(17.9), ResourcePressure(queue=11), [..., ("queue_sync", SYNC, 0.7)]),
        (work(18), ResourcePressure(queue=11), [...]),
        (work(1), ResourcePressure(queue=10), [...]),
    ],
)
def test_votes(
    what: Factors, pressure: ResourcePressure | None, votes: list[tuple[str, Choice, float]]
) -> None:
    """Each rule votes past its threshold and not at it; 2 s are added to the time of a call."""
    _, factors = advise(what, PLAIN, pressure or UNKNOWN_PRESSURE)
    cast = [(vote.rule, vote.choice, vote.confidence) for vote in factors.votes]
    assert len(cast) == len(votes)
    assert [one for one, wanted in zip(cast, votes, strict=True) if wanted not in (..., one)] == []


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
    ("seconds", "pressure", "remembered", "choice", "confidence"),
    [
        (1, UNKNOWN_PRESSURE, BACKGROUND, BACKGROUND, 0.65),
        (60, UNKNOWN_PRESSURE, BACKGROUND, BACKGROUND, 0.75),
        (60, BUSY, SYNC, BACKGROUND, 0.8),
        (60, BUSY, BACKGROUND, BACKGROUND, 0.75),
        (1, SHORT, SYNC, DEFER, 0.8),
    ],
    ids=["alone", "with another", "against a load", "with a load", "against a short machine"],
)
def test_what_is_busy_speaks_against_a_remembered_answer(
    seconds: float,
    pressure: ResourcePressure,
    remembered: Choice,
    choice: Choice,
    confidence: float,
) -> None:
    """Then all votes count; where it is for the same option nothing speaks against it."""
    chosen = choose(work(seconds), pressure, remembered)
    assert (chosen.choice, chosen.confidence) == (choice, pytest.approx(confidence))


@pytest.mark.parametrize(
    ("preferred", "choice"), [(None, PROMPT), (BACKGROUND, BACKGROUND), (DEFER, PROMPT)]
)
def test_a_tie_goes_to_the_user_or_to_what_the_user_prefers(
    preferred: Choice | None, choice: Choice
) -> None:
    """Of equally sure options the user is asked, unless a default is preferred."""
    tied = work(60, 16, parallel=True)
    assert choose(tied, wishes=Preferences(default_choice=preferred)).choice is choice


def test_a_machine_that_is_critically_short_goes_before_the_votes() -> None:
    """Resources are heard before the execution choice, with a certainty of 0.8."""
    chosen = choose(work(1), SHORT)
    assert (chosen.choice, chosen.confidence, chosen.source) == (DEFER, 0.8, Source.RESOURCES)
    assert chosen.reason == "the machine is short of resources: cpu 99 %"


def test_every_choice_has_follow_ups() -> None:
    """No answer leaves the runtime without a word on what to do next."""
    assert all(FOLLOW_UPS[choice] for choice in Choice)
    for notify in (True, False):
        chosen = choose(work(60), wishes=Preferences(notify_on_completion=notify))
        assert (FollowUp.NOTIFY_ON_COMPLETION in chosen.follow_ups) is notify
