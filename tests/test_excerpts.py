"""Short text of any value."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_loopguard._util.text import truncate


@pytest.mark.parametrize(
    ("value", "text"),
    [
        pytest.param(None, "", id="nothing"),
        pytest.param("a  b\nc", "a b c", id="a text"),
        pytest.param({"q": "x", "n": [1, 2.5, True, None]}, None, id="a map"),
        pytest.param("x" * 50, "x" * 27 + "...", id="a long text"),
        pytest.param(10**5000, "...", id="a huge number"),
        pytest.param(b"ab", "<bytes>", id="bytes"),
        pytest.param([], "[]", id="an empty list"),
    ],
)
def test_what_is_shown(value: object, text: str | None) -> None:
    """About as JSON would write it."""
    assert truncate(value, 30) == (text if text is not None else '{"q": "x", "n": [1, 2.5, tr...')


@given(st.recursive(st.none() | st.integers() | st.floats() | st.text() | st.binary(), st.lists))
def test_it_never_throws_and_is_never_longer(value: object) -> None:
    """Whatever the value is."""
    text = truncate(value, 20)
    assert len(text) <= 20
    assert text == " ".join(text.split())


def test_its_cost_does_not_depend_on_the_value() -> None:
    """It takes hours else: ten megabytes, a hundred thousand keys, a thing in itself."""
    endless: list[object] = []
    endless.append(endless)
    deep: object = "x"
    for _ in range(1000):
        deep = [deep]
    values = ("x" * 10_000_000, {str(n): "y" * 1000 for n in range(100_000)}, endless, deep)
    assert all(len(truncate(value, 300)) <= 300 for value in values)
