"""Canonical forms."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_loopguard.identity.canonical import bounded, canonical, parsed

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param('{"b": 1, "a": [1, 2]}', {"a": [1, 2], "b": 1}, id="text and map"),
        pytest.param({"a": 1, "b": 2}, {"b": 2, "a": 1}, id="order of keys"),
        pytest.param({"a": 1.0}, {"a": 1}, id="way a number is written"),
        pytest.param(' {"a": 1} ', {"a": 1}, id="space around"),
        pytest.param((1, 2), [1, 2], id="tuple and list"),
        pytest.param(" text ", "text", id="space around text"),
    ],
)
def test_equal_values_have_one_form(one: object, other: object) -> None:
    """Whatever way a value is written, its canonical form is the same."""
    assert canonical(parsed(one)) == canonical(parsed(other))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param({"a": 1}, {"a": "1"}, id="number and text"),
        pytest.param({"a": 1}, {"a": True}, id="number and truth"),
        pytest.param({"a": None}, {}, id="null and missing"),
        pytest.param([1, 2], [2, 1], id="order of a list"),
        pytest.param({"a": 1.5}, {"a": 1}, id="part of a number"),
        pytest.param('{"a": 1', {"a": 1}, id="cut text stays text"),
    ],
)
def test_different_values_have_different_forms(one: object, other: object) -> None:
    """What is not the same is not made the same."""
    assert canonical(parsed(one)) != canonical(parsed(other))


@given(JSON)
def test_a_json_text_is_its_value(value: object) -> None:
    """The text of any object or array has the form of the value."""
    import orjson

    if isinstance(value, (dict, list)):
        text = orjson.dumps(value).decode()
        assert canonical(parsed(text)) == canonical(value)


def test_anything_has_a_form() -> None:
    """Cycles, NaN, surrogates, bytes, huge numbers and objects are taken as they are."""
    loop: dict[str, object] = {}
    loop["self"] = loop
    odd = [loop, math.nan, math.inf, "\ud800", b"\xff", 2**80, object(), {1: 2}, {3, 4}, 1e300]
    for value in odd:
        assert canonical(parsed(value))
        assert canonical(parsed({"a": value}))


def test_long_text_keeps_head_tail_and_length() -> None:
    """What is too long is still told apart by its two ends and its length."""
    raw = b"x" * 1000
    assert len(bounded(raw, 100)) < 120
    assert bounded(raw, 100) != bounded(raw + b"x", 100)
    assert bounded(raw, 1000) is raw
