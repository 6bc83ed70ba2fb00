"""Size, complexity and identity of arguments."""

from __future__ import annotations

from typing import Any

import pytest

from otel_loopguard.execution.latency import measure

CIRCLE: dict[str, Any] = {}
CIRCLE["again"] = CIRCLE


def test_size_is_that_of_the_json() -> None:
    """A JSON text and the equal map are of one size, complexity and identity."""
    assert measure({"q": "nile"}) == measure('{"q":"nile"}')
    assert measure({"q": "nile"}).size == 12
    assert measure({"a": 1, "b": 2}).key == measure({"b": 2, "a": 1}).key


def test_complexity_grows_from_0_to_1() -> None:
    """More text, more fields and more depth make arguments more complex, up to 1."""
    plain = measure({"q": "x"})
    long = measure({"q": "x" * 5_000})
    deep = measure({"rows": [{"a": [1, 2], "b": {"c": 3}} for _ in range(30)]})
    most = measure([{"text": "x" * 500, **{f"f{n}": n for n in range(9)}} for _ in range(60)])
    assert 0 < plain.complexity < long.complexity < deep.complexity < most.complexity == 1


@pytest.mark.parametrize(
    "args",
    [{"n": 2**70}, {"s": "\ud800"}, CIRCLE, {"o": {1, 2}}, {(1, 2): 3}, float("nan"), object()],
    ids=["huge number", "lone surrogate", "circle", "set", "odd key", "nan", "object"],
)
def test_strange_arguments_do_not_throw(args: object) -> None:
    """What is no JSON has an unknown size, or that of what stands for it."""
    found = measure(args)
    assert found.size is None or 0 < found.size < 50
    assert 0 <= found.complexity <= 1


def test_unknown_is_not_empty() -> None:
    """Arguments that were not captured have no size and no identity; empty ones have both."""
    assert measure(None).size is None
    assert measure(None).key is None
    assert (measure("").size, measure({}).size) == (0, 2)


def test_long_text_costs_no_more_than_its_head() -> None:
    """Of a text of megabytes the size counts, and the rest is not looked at."""
    assert measure("x" * 3_000_000).size == 3_000_000
    assert measure("\ud800" * 10).size == 30
