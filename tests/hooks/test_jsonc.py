"""Settings with comments are changed in place."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_loopguard.hooks import jsonc

WHOLE = """\
// Mine.
{
    "theme": "dark", // not light
    /* A folder for each of them:
       "hooks": [] */
    "url": "http://localhost//{}",
    "hooks": {
        "Stop": [
            { "hooks": [ { "command": "say done" } ] }, // keeps me awake
        ],
    },
}
"""
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=12,
)
OBJECTS = st.dictionaries(st.text(max_size=5), VALUES, max_size=5)


def test_what_is_added_and_taken_away_leaves_all_else() -> None:
    """Comments, indentation, commas at the end."""
    added = jsonc.append(WHOLE, ("hooks", "Stop"), {"command": "ours"})
    assert '\n            {\n                "command": "ours"\n            }\n        ],' in added
    assert "// keeps me awake\n" in added
    more = jsonc.append(added, ("hooks", "Start"), {"command": "ours"})
    assert jsonc.loads(more)["hooks"]["Start"] == [{"command": "ours"}]
    less = jsonc.remove(more, ("hooks", "Start", 0))
    assert jsonc.remove(less, ("hooks", "Stop", 1)).replace(",", "") == WHOLE.replace(",", "")


@pytest.mark.parametrize(
    "text",
    [
        "{\n}\n",
        "{\n  // empty\n}\n",
        '{\r\n\t"a": 1\r\n}\r\n',
        '{\n  "a": [] // last\n}',
        "\ufeff{\n}",
    ],
)
def test_a_file_is_as_it_was_once_all_is_taken_away(text: str) -> None:
    added = jsonc.append(text, ("hooks", "Stop"), 1)
    assert jsonc.loads(added)["hooks"] == {"Stop": [1]}
    assert ("\r\n" in added) == ("\r\n" in text)
    assert jsonc.remove(added, ("hooks", "Stop", 0)) == text


@given(OBJECTS, st.sampled_from([None, 0, 2, "\t"]), st.text(max_size=5), VALUES)
def test_any_object_can_be_added_to(
    before: dict[str, Any], indent: int | str | None, key: str, value: object
) -> None:
    """It means the same but for what was added; a value that is no list is reported."""
    text = json.dumps(before, indent=indent, ensure_ascii=False)
    assert jsonc.loads(text) == before
    if not isinstance(before.get(key, []), list):
        with pytest.raises(ValueError, match="expected a list"):
            jsonc.append(text, (key,), value)
        return
    added = jsonc.append(text, (key,), value)
    assert jsonc.loads(added) == {**before, key: [*before.get(key, []), value]}
    left = jsonc.loads(jsonc.remove(added, (key, len(before.get(key, [])))))
    assert left == {name: each for name, each in before.items() if name != key or each}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "expected a value in line 1"),
        ('{\n"a": 1\n"b": 2}', "expected a comma or } in line 3"),
        ('{"a": 1} x', "expected the end in line 1"),
        ('{\n\n"a}', "a string does not end"),
        ("{a: 1}", "expected a key"),
        ('{"a" 1}', "expected a key"),
        ('{"a": }', "expected a value"),
        ("{,}", "expected a key"),
        ('{"a": 1, /* }', "expected a key"),
        ('{"a": 1, "a": 2}', "'a' a second time"),
        ("[" * 5_000, "nested too deep"),
    ],
)
def test_what_is_broken_is_told(text: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        jsonc.loads(text)


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
