"""Different calls that get the run no further."""

from __future__ import annotations

from typing import Any

import pytest

from otel_loopguard import Settings
from otel_loopguard.core import Kind, Step
from otel_loopguard.core.evidence import Effect
from otel_loopguard.detectors.standstill import Sweep
from tests.calls import call
from tests.detectors.alone import STEPS, actions, alone, case, cases, evidence, told_of

TEXTS = (
    "I will look at the file with care and tell what stands in it",
    "then I shall compare both of the tables by their dates",
    "the answer has to be the sum of the last three columns",
    "to be sure I check the result once more from the start",
    "now the final answer can be written down in one line",
)
USER = Step(Kind.OTHER, "user", text="go on")


def printed(text: str, said: str | None = None) -> Step:
    """A program that prints a text."""
    return call("python", {"code": f"print('{text}')"}, text if said is None else said)


ROOMS = (
    "the door to the south is shut, and so is its lock",
    "the window above the desk is shut, and it is dark",
    "nobody is here, and nobody has been for some time",
)


def looked(number: int, said: str | None = None) -> Step:
    """A call that nobody made before, with an answer that was there before."""
    return call("look", {"at": number}, ROOMS[number % 3] if said is None else said)


def test_a_user_begins_anew() -> None:
    """What was asked before was asked for something else."""
    steps = [looked(n) for n in range(36)]
    assert alone("nothing_new", *steps[:18], USER, *steps[18:]) == []


def ran(command: str, said: object = "") -> Step:
    """A command and what it said."""
    return call("bash", {"command": command}, said)


def trained(*scores: float, said: str = "accuracy: {}") -> list[Step]:
    """One try for each score, each with other arguments."""
    return [
        call("train", {"rate": n / 100, "layers": 2}, said.format(score))
        for n, score in enumerate(scores)
    ]


TEST = {"command": "cd /app && pytest -q tests"}


def edit(number: int, file: str = "/app/a.py", named: str = "file_path") -> Step:
    return call("edit", {named: file, "old": "x", "new": f"x = {number}"}, "ok")


def failing(number: int) -> Step:
    return call("bash", TEST, error=f"Exit code 1\nAssertionError: got {number}")


def tried(times: int, named: str = "file_path") -> list[Step]:
    """Edits of one file, the test failing after each."""
    return [step for n in range(times) for step in (edit(n, named=named), failing(n))]


VERDICT = "2 tests did not pass: test_a, test_b"


def guesses(times: int, said: str = VERDICT, **given: Any) -> list[Step]:
    """A change and a check, over and over."""
    return [
        step
        for n in range(times)
        for step in (
            call("edit", {"path": "a.py", "new": f"v{n}"}, "ok"),
            call("run_tests", {"at": n}, said, **given),
        )
    ]


def test_same_verdict_a_user_turn_halves_it() -> None:
    """What was tried before a user spoke counts half."""
    steps = guesses(7)
    assert alone("same_verdict", *steps[:10], USER, *steps[10:]) == []


def page(place: object, name: str = "offset", tool: str = "read", **more: object) -> Step:
    """A page of a file; what it says is new each time."""
    page.said += 1  # type: ignore[attr-defined]
    said = f"chunk {page.said} tells of {page.said * 7919:x}"  # type: ignore[attr-defined]
    return call(tool, {"path": "a.py", name: place, **more}, said)


page.said = 0  # type: ignore[attr-defined]


def places(*found: float, **given: Any) -> list[int]:
    """Where a detector of its own finds that a place was read again."""
    sweep = Sweep(Settings())
    steps = [evidence(n, place=(1, place), **given) for n, place in enumerate(found)]
    return [n for n, step in enumerate(steps) if sweep.observe(step)]


@pytest.mark.parametrize("name", ["offset", "page", "start_line", "cursor", "skip"])
def test_a_sweep_that_wraps_around_is_noticed(name: str) -> None:
    """Shifted by half a page every answer is new, and still the range is read again."""
    steps = [page(100 * (n % 10) + 50 * (n // 10), name) for n in range(30)]
    decisions = alone("sweep", *steps)
    assert actions(decisions) == ["hint"]
    assert decisions[0].step == 17
    assert decisions[0].reason == "read_again"
    assert decisions[0].message == "'read' read 8 places again that it had read through before"


def test_the_same_places_count_too() -> None:
    """Eight places that were read before, after the first step back."""
    assert places(*[n % 10 for n in range(20)]) == [17, 18, 19]


def test_a_search_that_halves_a_range_is_no_sweep() -> None:
    """What lies between two places that are far apart was not read."""
    assert places(0, 1000, 500, 250, 375, 312, 343, 328, 335, 339, 341, 342) == []


def test_waits_and_writes_do_not_count() -> None:
    """Neither asks for a place of a range."""
    wrapped = [n % 10 for n in range(40)]
    assert places(*wrapped, waits=True) == []
    assert places(*wrapped, effect=Effect.WRITE) == []


def test_memory_is_bounded() -> None:
    """Of a thousand ranges sixteen are remembered, of one range 256 places."""
    sweep = Sweep(Settings())
    for n in range(1000):
        sweep.observe(evidence(n, place=(n, float(n))))
    assert len(sweep._ranges) == 16  # pyright: ignore[reportPrivateUsage]
    for n in range(1000):
        sweep.observe(evidence(n, place=(1, float(n))))
    assert len(sweep._ranges[1].places) == 256  # pyright: ignore[reportPrivateUsage]


TEXT = "The kettle boils {} of water and keeps it warm. " + "Nobody knows how long it does. " * 8
DRAFTS = "a litre,one litre,a liter,some water,a pint,two pints,a quart,one quart,a cup".split(",")


def revised(count: int, error: str | None = None) -> list[Step]:
    """A draft goes in and comes out, two words changed."""
    return [
        call(
            "revise",
            {"draft": TEXT.format(DRAFTS[n])},
            TEXT.format(DRAFTS[n + 1]),
            error=error,
        )
        for n in range(count)
    ]


def test_six_revisions_in_a_row_give_a_hint() -> None:
    """That is with the seventh call; what other tools do in between does not matter."""
    steps = [step for one in revised(8) for step in (one, call("look", {"n": id(one)}, "ok"))]
    decisions = alone("revised_in_vain", *steps)
    assert decisions[0].step == 12
    assert set(actions(decisions)) == {"hint"}
    assert decisions[0].message == (
        "'revise' revised a text 6 times in a row, with hardly anything changed in what it got and "
        "what it gave"
    )


TOLD = {
    "found_nothing": [
        # With two real answers between them echoes do not add up.
        case("calls that are no echo take a fifth", "",
             *[step for n, text in enumerate(TEXTS * 4) for step in (printed(text), call("read",
             {"page": n}, f"page {n} is about subject {n * 7919:x}"), call("read", {"part": n},
             f"part {n} is about matter {n * 104729:x}"))]),
    ],
    "nothing_new": [
        case("every fifth answer is new", "", *[looked(n, f"room {n} has {n * 7919:x} in it" if
             n % 5 == 0 else None) for n in range(60)]),
        case("a change now and then", "", *[step for n in range(60) for step in ([looked(n)] if
             n % 8 else [looked(n), call("edit", {"path": "a.py", "new": f"v{n}"}, "ok")])]),
        case("an answer now and then that was not captured", "",
             *[call("look", {"at": n}, None if n % 8 == 0 else ROOMS[n % 3]) for n in range(60)]),
    ],
    "idle_command": [
        # Less than half of the calls in between do nothing.
        case("notes beside real work lead to a hint at most", "does_nothing: 12 hint", *[step
             for n in range(12) for step in (ran(f"echo 'step {n} is done'", f"step {n} is done"),
             ran(f"cat a{n}.py", f"text {n}"), ran(f"sed -i 's/{n}/x/' a{n}.py"))]),
    ],
    "no_better_score": [
        case("down", "", *trained(*(1 - n / 20 for n in range(20)))),
    ],
    "repeated_edit": [
        case("green", "", *[*tried(11), call("bash", TEST, "12 passed"), *tried(11)]),
    ],
    "sweep": [
        case("other arguments", "", *[page(100 * (n % 10), chapter=n // 10) for n in range(60)]),
    ],
    "revised_in_vain": [
        # What moves, is short, or is for another detector.
        case("six calls", "", *revised(6)),
        case("a user turn", "", *[*revised(5), USER, *revised(5)]),
        case("failed", "", *revised(8, error="Error: no such draft")),
        case("longer each time", "",
             *[call("revise", {"draft": TEXT * (n + 1)}, TEXT * (n + 2)) for n in range(3)]),
        case("to somebody else", "", *[call("send", {"to": DRAFTS[n],
             "text": TEXT.format(DRAFTS[n])}, TEXT.format(DRAFTS[n])) for n in range(8)]),
    ],
}  # fmt: skip
"""What one detector tells by itself, of so many steps; nothing of honest work."""


@pytest.mark.parametrize(STEPS, cases(TOLD))
def test_what_is_told(
    detector: str, told: str, steps: list[Step], settings: dict[str, Any]
) -> None:
    """Reason, step and action of each decision."""
    assert told_of(alone(detector, *steps, **settings)) == told
