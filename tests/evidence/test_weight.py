"""What a repeat weighs, what was between two calls, and tools whose repeats pay off."""

import time
from collections.abc import Iterator
from itertools import accumulate, pairwise, product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_loopguard import Settings
from otel_loopguard.core import Evidence, Kind, Step
from otel_loopguard.core.evidence import Effect, ErrorClass
from otel_loopguard.evidence import ToolCallExtractor
from otel_loopguard.evidence.weight import Pace, RepeatBaseline, Since, weigh
from tests.calls import EPOCH, SECOND, call
from tests.detectors.alone import evidence

KINDS: dict[str, dict[str, Any]] = {
    "own": {"effect": Effect.READ, "own": True},
    "read": {"effect": Effect.READ},
    "shell": {"effect": Effect.READ, "runs_code": True},
    "unknown": {"effect": Effect.UNKNOWN},
    "write": {"effect": Effect.WRITE},
    "wait": {"effect": Effect.WAIT},
}
ANSWERS: dict[str, dict[str, Any]] = {
    "captured": {},
    "pending": {"pending": True},
    "nothing": {"nothing": True},
    "cut": {"cut": True},
    "failed": {"failing": True, "error": True, "error_class": ErrorClass.DETERMINISTIC},
    "unclear": {"failing": True, "error": True},
    "transient": {
        "failing": True, "error": True, "error_class": ErrorClass.TRANSIENT, "transient": True,
    },
    "unseen": {"outcome": None},
}  # fmt: skip
PAUSES = [n / 10 for n in range(400)]
SIZES = range(1000)
CASES = [*product(KINDS, ANSWERS)]


def weights(
    pause: float = 0.0, size: int = 50, since: Since | None = None, news: float = 0.0, **given: Any
) -> tuple[float, float]:
    """What a call weighs towards a hint and towards a stop, after the same call before it."""
    found = evidence(1, fresh=False, outcome_size=size, **given)
    weigh(found, since or Since(fresh=False, pause=pause, news=news))
    return found.hint_weight, found.stop_weight


def columns(rows: Iterator[tuple[float, float]]) -> Iterator[list[float]]:
    """The weights towards a hint, and those towards a stop."""
    yield from map(list, zip(*rows, strict=True))


@pytest.mark.parametrize(("kind", "answer"), CASES)
def test_weights_have_no_cliff_and_point_one_way(kind: str, answer: str) -> None:
    """Pauses and news lower them, length raises them, and none of these by a tenth at once."""
    given = {**KINDS[kind], **ANSWERS[answer]}
    sinces = [[Since(fresh=False, pause=pause) for pause in PAUSES]]
    sinces += [[Since(fresh=False, thought=2, pause=rest, sure=rest) for rest in PAUSES]]
    sinces += [[Since(fresh=False, thought=thought) for thought in PAUSES]]
    sinces += [[Since(fresh=False, news=n / 100) for n in range(101)]]
    sinces += [[Since(fresh=False, acted=n / 100) for n in range(101)]]
    falling = [(weights(since=since, **given) for since in row) for row in sinces]
    rising = [(weights(size=size, **given) for size in SIZES)]
    for sign, tables in ((-1, falling), (1, rising)):
        for column in (column for rows in tables for column in columns(rows)):
            steps = [(after - before) * sign for before, after in pairwise(column)]
            assert min(steps) >= -1e-12
            assert max(steps) <= 0.1


@given(
    case=st.sampled_from(CASES), pause=st.floats(0, 1e6), size=st.integers(0, 10**7),
    news=st.floats(0, 1), thought=st.floats(0, 1e6), refused=st.booleans(),
    effect=st.sampled_from([*Effect]),
)  # fmt: skip
def test_weights_stay_within_their_bounds(
    *, case: tuple[str, str], pause: float, size: int, news: float, thought: float, refused: bool,
    effect: Effect,
) -> None:  # fmt: skip
    """From 0 to 1, and what nobody knows to read never weighs more than what is known to."""
    kind, answer = case
    given = {**KINDS[kind], **ANSWERS[answer], "refused": refused, "effect": effect}
    since = Since(fresh=False, pause=pause, news=news, thought=thought, sure=pause)
    found = weights(size=size, since=since, **given)
    assert all(0 <= weight <= 1 for weight in found)
    known = weights(size=size, since=since, **{**given, "effect": Effect.READ, "runs_code": False})
    assert effect is not Effect.UNKNOWN or all(
        less <= more for less, more in zip(found, known, strict=True)
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("known", ["pending", "transient"])
def test_words_do_not_acquit(kind: str, known: str) -> None:
    """A wait and an error in words that nobody knows weigh no more than in known ones."""
    unknown = {"pending": "captured", "transient": "unclear"}[known]
    for pause, took, size in product((0, 1, 5, 60), (0, 30), (10, 60, 120, 390)):
        one, other = (
            evidence(1, fresh=False, outcome_size=size, **{**KINDS[kind], **ANSWERS[answer]})
            for answer in (unknown, known)
        )
        for each in (one, other):
            weigh(each, Since(fresh=False, pause=pause, took=took))
        assert one.stop_weight <= other.stop_weight


def model(at: float, took: float) -> Step:
    """A model call."""
    start = EPOCH + round(at * SECOND)
    return Step(Kind.MODEL, "m", start=start, end=start + round(took * SECOND))


def seen(*steps: Step, **settings: Any) -> list[Evidence]:
    """Evidence of the tool calls among steps."""
    observer = ToolCallExtractor(Settings(**settings))
    return [found for step in steps if (found := observer.extract(step)) is not None]


@pytest.mark.parametrize("answer", ["captured", "nothing", "unclear"])
def test_a_rest_beside_a_model_that_is_seen_is_sure(answer: str) -> None:
    """Three seconds are meant, though not where the call itself is wrong."""
    given = {**KINDS["read"], **ANSWERS[answer], "size": 400}
    rested = Since(fresh=False, pause=3, sure=3, thought=2)
    _, none = weights(**given)
    assert weights(since=rested, **given)[1] < none / 50
    assert weights(since=rested._replace(thought=0, sure=0), **given)[1] > none / 3
    assert weights(since=rested, refused=True, **given)[1] > none / 3


def test_a_line_may_change_while_a_slow_model_thinks() -> None:
    """What is the agent's own does not, nor does a page, and an error is one however it thinks."""
    slow = Since(fresh=False, thought=25)
    line, again = (weights(since=since, **KINDS["read"])[1] for since in (Since(fresh=False), slow))
    assert again < line / 5
    for size, call_of in ((50, KINDS["own"]), (400, KINDS["read"]), (50, ANSWERS["failed"])):
        assert weights(size=size, **call_of) == weights(size=size, since=slow, **call_of)


def test_a_look_comes_too_soon_at_every_pace() -> None:
    """Where a model thinks longer than its agent rests: it is hinted at, and not refused."""
    pending = {**KINDS["read"], **ANSWERS["pending"]}
    for pace in (1, 4, 15):
        since = Since(fresh=False, pause=2 * pace, sure=2 * pace, thought=3 * pace)
        assert weights(since=since, **pending)[0] > 0.6
        since = Since(fresh=False, pause=6 * pace, sure=6 * pace, thought=2 * pace)
        assert weights(since=since, **pending)[0] < 0.05


UNCHANGED = "the build has 12 parts"


def twice(pause: float) -> list[Step]:
    """A call, and the same call again after a pause in seconds."""
    return [call("job", {"id": 9}, UNCHANGED, at=at) for at in (0, pause + 0.5)]


def add(
    pace: Pace, name: str, start: float = 0.0, end: float = 0.0, size: int = 50, **given: Any
) -> Since:
    """Notes a call by its name; without times where it took none."""
    given["effect"] = {"wait": Effect.WAIT, "press": Effect.UNKNOWN}.get(name, Effect.READ)
    at = [EPOCH + round(moment * SECOND) if end else 0 for moment in (start, end)]
    return pace.add(evidence(0, call=hash(name), time=at[1], outcome_size=size, **given), at[0])


def rested(model: float | None, *between: list[Any]) -> float:
    """The rest before a call, 10 s after the same one; calls between have a name, start and end."""
    last = max([1.0, *(end for _, _, end in between)])
    again = max(11.0, last)
    pace, since = Pace(), Since(fresh=True)
    for name, start, end in (("same", -30, 1), *between, ("same", again, again + 40)):
        since = add(pace, name, start, end, size=4, novelty=0.5)
        if model is not None:
            pace.thought(round(model * SECOND))
    return round(since.pause, 1)


def test_what_answers_with_a_page_has_worked_and_not_waited() -> None:
    """A quarter of the time of a neighbour is a rest as far as it says little."""
    for size, least, most in ((2, 9, 10), (30, 5, 9), (400, 0, 0.1)):
        pace, since = Pace(), Since(fresh=True)
        for name, start, end in (("look", 0, 1), ("other", 1, 41), ("look", 41, 42)):
            since = add(pace, name, start, end, size=size)
        assert least <= since.pause <= most


def test_a_slow_model_that_is_not_seen_is_told_by_five_gaps() -> None:
    """After fewer its agent may have waited; one that is slow varies by as much."""
    for others, gap, waits in ((6, 90, False), (6, 120, False), (6, 300, True), (3, 90, True)):
        other = [call("job", {"id": n}, UNCHANGED, at=90.5 * n) for n in range(others)]
        again = call("job", {"id": others - 1}, UNCHANGED, at=90.5 * (others - 1) + 0.5 + gap)
        assert seen(*other, again)[-1].waits is waits


@pytest.mark.parametrize(("between", "rests"), [(10.0, False), (0.4, True)])
def test_calls_of_one_message_do_not_make_a_model_quick(between: float, rests: bool) -> None:
    """Its pace is what lies between messages; one that is quick throughout has rested."""
    messages = [between, 0.05, 0.05] * 8
    times = list(accumulate(0.5 + gap for gap in messages))
    other = [call("job", {"id": n}, UNCHANGED, at=at) for n, at in enumerate(times)]
    again = call("job", {"id": 23}, UNCHANGED, at=times[-1] + 10.5)
    assert seen(*other, again)[-1].waits is rests


def test_waits_count_after_the_clock_was_set_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until it had caught up, an hour later, none did, and who polled was stopped."""
    monkeypatch.setattr(time, "time_ns", lambda: EPOCH + 200 * SECOND)
    pace = Pace()
    add(pace, "same", 3600, 3601)
    assert [add(pace, "same", at, at + 1).pause for at in (60, 121)] == [0, 30]
    # One of a host whose clock is a minute behind, or that came late, moves nothing.
    add(pace, "other", 90, 91)
    assert add(pace, "same", 182, 183).pause == 30


@pytest.mark.parametrize("gap", [60, 300])
def test_a_monitor_of_many_things_is_not_stopped_where_no_model_is_seen(gap: int) -> None:
    """It looks as a slow model does; what may have been a rest stops nobody."""
    looks = [call("status", {"of": n % 7}, UNCHANGED, at=gap * n) for n in range(70)]
    assert max(one.stop_weight for one in seen(*looks)[7:]) < 0.01


def test_what_is_not_known_is_no_pause() -> None:
    """A clock that goes back, no clock, no arguments, and model calls without a start or an end."""
    pace = Pace()
    add(pace, "same", 60, 61)
    assert add(pace, "same", 0, 1).pause == 0
    assert seen(*[call("job", {"id": 9}, UNCHANGED)] * 2)[1].rested == 0
    unknown = seen(*[call("job", None, UNCHANGED, at=at) for at in (0, 60)])
    assert [(one.fresh, one.rested) for one in unknown] == [(False, 0.0)] * 2
    first, again = twice(6)
    plain = seen(first, again)[1].rested
    for start, end in ((0, EPOCH), (EPOCH, None)):
        assert seen(first, Step(Kind.MODEL, "m", start=start, end=end), again)[1].rested == plain
    assert seen(first, model(1, 5.4), again)[1].rested < plain


def between(*calls: list[Any]) -> dict[str, float]:
    """What was between the newest call and the same before it; each has a name and its evidence."""
    pace, since = Pace(), Since(fresh=True)
    for name, *more in calls:
        if name == "ran":
            pace.ran(*more)
        else:
            since = add(pace, name, **(more[0] if more else {}))
    return {"news": since.news, "acted": since.acted}


def test_memory_is_bounded() -> None:
    """After 64 other calls a call is fresh again."""
    pace = Pace()
    assert all(add(pace, str(number)).fresh for number in range(200))
    assert not add(pace, "150").fresh
    assert add(pace, "1").fresh


def eased(*repeats: bool, **said: bool) -> list[float]:
    """What a tool's thresholds are multiplied by, after repeats with another answer or an equal."""
    habits = RepeatBaseline()
    call = evidence(1, **said)
    return [habits.ease(call, Since(fresh=False, changed=changed)) for changed in repeats]


def test_a_tool_whose_repeats_pay_gets_more_of_them() -> None:
    """The more often and the surer, without a step; and it is lost again."""
    always, half = eased(*[True] * 12), eased(*[True, False] * 6)
    assert always == sorted(always)
    assert always[0] < 1.1
    assert 1.6 < always[3] < 1.9
    assert 2.2 < always[-1] <= 2.5
    assert 1.5 < half[-1] < 1.75
    assert set(eased(*[False] * 20)) == {1.0}
    assert eased(*[True] * 8, *[False] * 20)[-1] < 1.25
    # Each file fails three times, and works then.
    assert eased(*[False, False, True] * 4)[-1] > 1.3
    # A first call says nothing; of a thousand tools 64 are remembered.
    habits = RepeatBaseline()
    assert {habits.ease(evidence(1), Since(fresh=True)) for _ in range(20)} == {1.0}
    for number in range(8_000):
        habits.ease(evidence(1, tool=f"tool {number // 8}"), Since(fresh=False, changed=True))
    assert habits.ease(evidence(1, tool="search"), Since(fresh=False)) == 1.0
    assert len(habits._tools) == 64


@pytest.mark.parametrize("vain", ["failing", "nothing", "rejects"])
def test_what_is_in_vain_does_not_pay(vain: str) -> None:
    """A search that found nothing once more, in another time, is no watch."""
    assert set(eased(*[True] * 20, **{vain: True})) == {1.0}
