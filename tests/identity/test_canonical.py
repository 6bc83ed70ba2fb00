"""Canonical forms."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_loopguard.evidence.normalize import (
    bounded,
    canonical,
    masked_call,
    masked_outcome,
    parsed,
)

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
    assert len(bounded(raw, 100)) < 130
    assert bounded(raw, 100) != bounded(raw + b"x", 100)
    assert bounded(raw, 1000) is raw


def test_long_text_that_differs_in_its_middle_is_different() -> None:
    """Not even where what stands for the middle is masked like an id."""
    one, other = (b"x" * 5_000 + middle + b"x" * 5_000 for middle in (b"a", b"b"))
    assert bounded(one, 1_000) != bounded(other, 1_000)
    assert masked_call(bounded(one, 1_000)) != masked_call(bounded(other, 1_000))
    assert masked_outcome(bounded(one, 1_000)) != masked_outcome(bounded(other, 1_000))


def test_what_has_too_many_items_is_equal_to_nothing() -> None:
    """It is not looked at to its end, so nobody knows that it is the same again."""
    values = {(number, 1): number for number in range(20_000)}
    assert canonical(values) != canonical(values)
    assert canonical([b"a", *range(20_000)]) != canonical([b"a", *range(20_000)])


@pytest.mark.parametrize(
    "text", ["[1.0," + "[]," * 100_000 + "1]", '{"a":' * 3_000 + "1" + "}" * 3_000]
)
def test_text_that_is_too_costly_to_parse_stays_text(text: str) -> None:
    """It is told apart as text, by all of it."""
    assert parsed(text) is text


def test_a_long_text_of_few_values_is_parsed() -> None:
    """What counts are the values, and not the commas inside of a string."""
    assert parsed('{"page": "' + "a, b [c] " * 50_000 + '"}') == {"page": "a, b [c] " * 50_000}
