"""Arguments that turn out to be volatile."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from otel_loopguard.evidence.normalize import VolatileArguments
from tests.calls import call
from tests.detectors.alone import actions, alone

ANSWER = "no results for weather in Paris"


def nonce(number: int) -> str:
    """A value in which letters and digits change about."""
    return f"{number}f{number}ab{number}c7"


def left(
    name: str,
    value: Callable[[int], object],
    times: int = 6,
    outcome: Callable[[int], int | None] = lambda _: 1,
    more: Callable[[int], dict[str, object]] = lambda _: {"user": "u"},
) -> list[bool]:
    """Whether the argument is still part of each of some calls."""
    volatile = VolatileArguments()
    return [
        name in volatile.without(1, {**more(n), name: value(n)}, outcome(n)) for n in range(times)
    ]


def test_a_value_that_is_new_in_four_equal_calls_is_learned() -> None:
    """From the fourth on the argument is left out."""
    assert left("zz", nonce) == [True, True, True, False, False, False]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        pytest.param("zz", lambda n: n, id="a number"),
        pytest.param("zz", lambda n: f"page{n:04d}", id="a number counted up"),
        pytest.param("zz", lambda n: f"2026-11-{n + 10}", id="a day"),
        pytest.param("zz", lambda n: f"chapter_{n}.txt", id="the name of a file"),
        pytest.param("zz", lambda n: f"some words {nonce(n)}", id="a text"),
        pytest.param("zz", lambda n: nonce(n)[:7], id="a short value"),
        pytest.param("zz", lambda n: nonce(n) * 12, id="a long value"),
        pytest.param("order_id", nonce, id="an id by its name"),
        pytest.param("userId", nonce, id="an id in another spelling"),
        pytest.param("path", nonce, id="a path by its name"),
        pytest.param("zz", lambda _: nonce(1), id="always the same"),
        pytest.param("zz", lambda n: nonce(n % 3), id="one of three"),
    ],
)
def test_what_says_what_is_asked_for_is_kept(name: str, value: Callable[[int], object]) -> None:
    """Numbers, days, names, texts and ids of things are no nonces."""
    assert all(left(name, value, times=12))


def test_calls_that_differ_in_anything_else_teach_nothing() -> None:
    """Other arguments, other answers, answers that are not known."""
    assert all(left("zz", nonce, 12, more=lambda n: {"user": n}))
    assert all(left("zz", nonce, 12, outcome=lambda n: n))
    assert all(left("zz", nonce, 12, outcome=lambda _: None))


def test_the_only_argument_is_never_learned() -> None:
    """It is what is asked for."""
    assert all(left("zz", nonce, 12, more=lambda _: {}))


def test_what_is_learned_of_one_tool_does_not_hold_for_another() -> None:
    """Each tool has its own arguments."""
    volatile = VolatileArguments()
    for n in range(6):
        volatile.without(1, {"user": "u", "zz": nonce(n)}, 1)
    assert "zz" not in volatile.without(1, {"user": "u", "zz": nonce(9)}, 1)
    assert "zz" in volatile.without(2, {"user": "u", "zz": nonce(9)}, 1)


def test_nothing_learned_gives_the_very_same_arguments() -> None:
    """The common case makes no copy."""
    given: dict[str, object] = {"user": "u", "zz": "x"}
    assert VolatileArguments().without(1, given, 1) is given


def test_memory_is_bounded() -> None:
    """Many tools, many arguments, values that never come again."""
    volatile = VolatileArguments()
    for tool in range(300):
        for n in range(5):
            volatile.without(tool, {"user": "u", f"z{tool}": nonce(n)}, 1)
    assert len(volatile._learned) <= 64
    assert len(volatile._runs) <= 64


def test_what_rests_on_it_hints_at_most() -> None:
    """A guess stops nothing: the value may have been what the call was about."""
    steps = [call("job", {"user": "u", "zz": nonce(n)}, ANSWER) for n in range(20)]
    assert actions(alone("exact_repeat", *steps)) == ["hint"]
