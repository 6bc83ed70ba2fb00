"""In settings with comments one member is changed, and nothing else."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_loopguard.hooks import jsonc

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=12,
)


@pytest.mark.parametrize(
    "text",
    [
        "{\n}\n",
        "{\n  // empty\n}\n",
        '{\r\n\t"a": 1\r\n}\r\n',
        '{\n  "a": [] // last\n}',
        '{\n  "a": "http://x//{}", /* "hooks": [], \n */\n  "b": [1, ], // 2\n}\n',
        "\ufeff{\n}",
    ],
)
def test_a_file_is_as_it_was_once_all_is_taken_away(text: str) -> None:
    """Comments, indentation, commas at the end."""
    added = jsonc.with_member(text, "hooks", {"Stop": [1]})
    assert jsonc.loads(added)["hooks"] == {"Stop": [1]}
    assert ("\r\n" in added) == ("\r\n" in text)
    changed = jsonc.with_member(added, "hooks", [])
    assert jsonc.loads(changed) == {**jsonc.loads(text), "hooks": []}
    assert jsonc.with_member(changed, "hooks", None) == text.replace("], //", "] //")  # a comma


@given(
    st.dictionaries(st.text(max_size=5), VALUES, max_size=5),
    st.sampled_from([None, 0, 2, "\t"]),
    st.text(max_size=5),
    VALUES.filter(lambda value: value is not None),
)
def test_any_member_is_changed_and_no_other(
    before: dict[str, Any], indent: int | str | None, key: str, value: object
) -> None:
    text = json.dumps(before, indent=indent, ensure_ascii=False)
    changed = jsonc.with_member(text, key, value)
    assert jsonc.loads(changed) == {**before, key: value}
    left = jsonc.loads(jsonc.with_member(changed, key, None))
    assert left == {name: each for name, each in before.items() if name != key}


def test_of_two_members_with_one_name_the_last_one_counts() -> None:
    """As to the agents that read it."""
    assert jsonc.loads(jsonc.with_member('{"a": 1, "a": 2}', "a", 3)) == {"a": 3}


@given(st.text(alphabet='{}[]",:/*\\\n ab1', max_size=40))
def test_no_text_breaks_it(text: str) -> None:
    """It is read or reported, and what JSON reads it reads the same."""
    try:
        found: object = jsonc.loads(text)
    except ValueError:
        return
    try:
        assert json.loads(text) == found
    except json.JSONDecodeError:
        assert "/" in text or "," in text


@pytest.mark.parametrize("text", ["[" * 5_000_000, '"\\' * 2_000_000, "/*" * 2_000_000])
def test_a_hostile_file_is_refused_at_once(text: str) -> None:
    with pytest.raises(ValueError, match=r"nested too deep|line 1"):
        jsonc.loads(text)
