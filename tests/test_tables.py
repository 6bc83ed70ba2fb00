"""Tables of words and texts, as files of plain text beside the code."""

import re

import pytest

from otel_loopguard._util.tables import rows_in

TEXT = """\
# A comment.
one: first line
    second line

    third line  # no comment
two:
"""


def test_a_row_is_a_name_and_its_lines() -> None:
    """Comments are whole lines, and blank ones mean nothing."""
    assert [tuple(row) for row in rows_in(TEXT, "a.txt")] == [
        ("a.txt:2", "one", ["first line", "second line", "third line  # no comment"]),
        ("a.txt:6", "two", []),
    ]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("one: a\ntwo\n", "a.txt:2: expected 'name: text', or an indented line below, got 'two'"),
        ("# no row\n  one: a\n", "a.txt:2: expected 'name: text'"),
        (": a\n", "a.txt:1: expected 'name: text'"),
        ("one: a\n\none: b\n", "a.txt:3: one: there is another row of this name"),
    ],
)
def test_a_bad_line_is_refused_with_its_place(text: str, why: str) -> None:
    """With file and line, so that whoever wrote it finds it."""
    with pytest.raises(ValueError, match=f"^{re.escape(why)}"):
        list(rows_in(text, "a.txt"))
