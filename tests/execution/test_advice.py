"""The execution choice: the times that are added, the votes, and who wins."""

import json

import pytest

from otel_loopguard import Settings
from otel_loopguard.core import Choice
from otel_loopguard.core.admission import UNKNOWN_PRESSURE, Alert, Factors, ResourcePressure
from otel_loopguard.core.decision import FollowUp, Source
from otel_loopguard.execution.advice import FOLLOW_UPS, Answer, advise
from otel_loopguard.settings.preferences import Preferences, default_preferences
from tests.tables import rows

SYNC, PROMPT = Choice.EXECUTE_SYNC, Choice.PROMPT_USER
BACKGROUND, DEFER = Choice.AUTO_BACKGROUND, Choice.DEFER
BUSY = ResourcePressure(load=0.9)
SHORT = ResourcePressure(1.0, None, (Alert("cpu", 99, 80, critical=True),))
PRESSURES = {"": UNKNOWN_PRESSURE, "busy": BUSY, "short": SHORT}
PLAIN = Preferences()


def work(
    seconds: float = 1, tasks: int = 1, parallel: bool = False, complexity: float = 0
) -> Factors:
    return Factors(tasks, ("t",), parallel, seconds * 1e3, complexity, 10, {"t": "profile"})


def choose(
    what: Factors,
    pressure: ResourcePressure = UNKNOWN_PRESSURE,
    remembered: Choice | None = None,
    wishes: Preferences = PLAIN,
) -> Answer:
    return advise(what, wishes, pressure, remembered)[0]


@pytest.mark.parametrize(("what", "added"), rows(__file__, "total"))
def test_the_total(what: str, added: str) -> None:
    """Tools, changing between tasks, a checkpoint for every five, five seconds of complexity."""
    _, factors = advise(work(**json.loads(what)), PLAIN, UNKNOWN_PRESSURE)
    found = (factors.switching_ms, factors.checkpoints_ms, factors.complexity_ms)
    wanted = [float(value) * 1e3 for value in added.split()]
    assert found == pytest.approx(wanted)
    assert factors.total_ms == pytest.approx(factors.tool_ms + sum(wanted))


@pytest.mark.parametrize(("what", "votes", "pressure"), rows(__file__, "votes"))
def test_votes(what: str, votes: str, pressure: str) -> None:
    """Past a threshold and not at it; 2 s are added to a call. One is always about the time."""
    busy = ResourcePressure(**json.loads(pressure or "{}"))
    _, factors = advise(work(**json.loads(what)), PLAIN, busy)
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
    ("seconds", "remembered", "expected", "sure", "pressure"), rows(__file__, "busy")
)
def test_what_is_busy_speaks_against_a_remembered_answer(
    seconds: str, remembered: str, expected: str, sure: str, pressure: str
) -> None:
    """Then all votes count; where it is for the same option nothing speaks against it."""
    chosen = choose(work(float(seconds)), PRESSURES[pressure], Choice(remembered))
    assert (chosen.choice, chosen.confidence) == (expected, pytest.approx(float(sure)))


def test_a_tie_goes_to_the_user_or_to_what_the_user_prefers() -> None:
    """Of equally sure options the user is asked, unless a default is preferred."""
    tied = work(60, 16, parallel=True)
    for preferred, choice in ((None, PROMPT), (BACKGROUND, BACKGROUND), (DEFER, PROMPT)):
        assert choose(tied, wishes=Preferences(default_choice=preferred)).choice is choice


def test_every_choice_has_follow_ups() -> None:
    """No answer leaves the runtime without a word on what to do next."""
    assert all(FOLLOW_UPS[choice] for choice in Choice)
    for notify in (True, False):
        chosen = choose(work(60), wishes=Preferences(notify_on_completion=notify))
        assert (FollowUp.NOTIFY_ON_COMPLETION in chosen.follow_ups) is notify
