"""A range that was read through is read again."""

from __future__ import annotations

from typing import Any

import pytest

from otel_loopguard import Settings
from otel_loopguard.core import Effect, Kind, Step
from otel_loopguard.detectors.standstill import Sweep
from tests.calls import call
from tests.detectors.alone import actions, alone, evidence

USER = Step(Kind.OTHER, "user", text="now the other chapter")


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


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param([page(100 * n) for n in range(60)], id="onward only"),
        pytest.param([page(6000 - 100 * n) for n in range(60)], id="backward only"),
        pytest.param(
            [page(100 * (n % 10), chapter=n // 10) for n in range(60)], id="other arguments"
        ),
        pytest.param([page(100 * (n % 4)) for n in range(40)], id="few places"),
        pytest.param(
            [page(place) for n in range(5) for place in (100 * n, 2000 - 100 * n)],
            id="to and fro in parts that were not read",
        ),
        pytest.param(
            [call("read", {"offset": n % 10, "page": n % 10}, f"t {n}") for n in range(40)],
            id="two arguments that page",
        ),
        pytest.param([page(f"c{n % 10}", "cursor") for n in range(40)], id="a cursor of letters"),
        pytest.param([page(bool(n % 2), "page") for n in range(40)], id="true and false"),
        pytest.param(
            [
                step
                for n in range(40)
                for step in (page(n % 10), call("edit", {"path": "a.py", "new": f"v{n}"}, "ok"))
            ],
            id="a change in between",
        ),
        pytest.param([page(n % 10, tool="write_page") for n in range(40)], id="pages are written"),
    ],
)
def test_honest_reading_is_left_alone(steps: list[Step]) -> None:
    """Reading on, other things, a few places and changes are no sweep."""
    assert alone("sweep", *steps) == []


def test_a_search_that_halves_a_range_is_no_sweep() -> None:
    """What lies between two places that are far apart was not read."""
    assert places(0, 1000, 500, 250, 375, 312, 343, 328, 335, 339, 341, 342) == []


def test_waits_and_writes_do_not_count() -> None:
    """Neither asks for a place of a range."""
    wrapped = [n % 10 for n in range(40)]
    assert places(*wrapped, waiting=True) == []
    assert places(*wrapped, effect=Effect.WRITE) == []


def test_a_user_begins_anew() -> None:
    """What was read before was read for something else."""
    steps = [page(100 * (n % 10) + 50 * (n // 10)) for n in range(18)]
    assert actions(alone("sweep", *steps)) == ["hint"]
    assert alone("sweep", *steps[:10], USER, *steps[10:]) == []


@pytest.mark.parametrize(
    ("settings", "first"),
    [
        ({"tuning": {"calls": {"sweep_threshold": 3}}}, 12),
        ({"tuning": {"calls": {"sweep_threshold": 9}}}, 18),
        ({"sensitivity": 2}, 13),
    ],
    ids=["fewer", "more", "more sensitive"],
)
def test_the_settings_say_when(settings: dict[str, Any], first: int) -> None:
    """`tuning.calls.sweep_threshold` places, divided by `sensitivity`."""
    steps = [page(100 * (n % 10) + 50 * (n // 10)) for n in range(30)]
    assert alone("sweep", *steps, **settings)[0].step == first


def test_memory_is_bounded() -> None:
    """Of a thousand ranges sixteen are remembered, of one range 256 places."""
    sweep = Sweep(Settings())
    for n in range(1000):
        sweep.observe(evidence(n, place=(n, float(n))))
    assert len(sweep._ranges) == 16
    for n in range(1000):
        sweep.observe(evidence(n, place=(1, float(n))))
    assert len(sweep._ranges[1].places) == 256
