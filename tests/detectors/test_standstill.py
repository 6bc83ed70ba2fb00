"""Different calls that get the run no further: what `standstill.txt` cannot say."""

from __future__ import annotations

import itertools

import pytest

from otel_loopguard import Settings
from otel_loopguard.core.evidence import Effect
from otel_loopguard.detectors.standstill import Sweep
from tests.calls import call
from tests.detectors.alone import alone, evidence

TEXT = "The kettle boils {} of water and keeps it warm. " + "Nobody knows how long it does. " * 8
DRAFTS = "a litre,one litre,a liter,some water,a pint,two pints,a quart,one quart,a cup".split(",")


def test_a_hint_says_how_much_was_done_in_vain() -> None:
    """Places that were read again, and revisions that changed hardly anything."""
    pages = [
        call("read", {"offset": n % 20 * 100 + n // 20 * 50}, f"{n * 7919}") for n in range(40)
    ]
    (swept,) = alone("sweep", *pages)
    assert swept.message == "'read' read 8 places again that it had read through before"
    drafts = [TEXT.format(draft) for draft in DRAFTS]
    steps = [call("revise", {"draft": a}, b) for a, b in itertools.pairwise(drafts)]
    revised = alone("revised_in_vain", *steps)
    assert {one.action for one in revised} == {"hint"}
    assert revised[0].message == (
        "'revise' revised a text 6 times in a row, with hardly anything changed in what it got and "
        "what it gave"
    )
    longer = [call("revise", {"draft": TEXT * n}, TEXT * (n + 1)) for n in (1, 2, 3)]
    assert alone("revised_in_vain", *longer) == []


@pytest.mark.parametrize(
    ("given", "found"),
    [({}, [17, 18, 19]), ({"waits": True}, []), ({"effect": Effect.WRITE}, [])],
    ids=["reads", "waits", "writes"],
)
def test_only_reads_ask_for_a_place_of_a_range(given: dict[str, object], found: list[int]) -> None:
    """Eight places that were read before, after the first step back."""
    sweep = Sweep(Settings())
    steps = [evidence(n, place=(1, float(n % 10)), **given) for n in range(20)]
    assert [n for n, step in enumerate(steps) if sweep.observe(step)] == found


def test_memory_is_bounded() -> None:
    """Of a thousand ranges sixteen are remembered, of one range 256 places."""
    sweep = Sweep(Settings())
    for n in range(1000):
        sweep.observe(evidence(n, place=(n, float(n))))
    assert len(sweep._ranges) == 16  # pyright: ignore[reportPrivateUsage]
    for n in range(1000):
        sweep.observe(evidence(n, place=(1, float(n))))
    assert len(sweep._ranges[1].places) == 256  # pyright: ignore[reportPrivateUsage]
