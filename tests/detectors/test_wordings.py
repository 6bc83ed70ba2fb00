"""What the rules of the detectors say: `rules.txt`."""

import pytest

from otel_loopguard._util.tables import rows_in
from otel_loopguard.detectors.base import table_of


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a:\n  Sure: 1 1 x", "r.txt:1: a: could not convert string to float: 'x'"),
        ("a:\n\na b: hm\nc:\n  Up to: halt", "r.txt:4: c: 'halt' is not a valid Action"),
        ("a:\nb c: hm", "r.txt:2: b c: expected a row of the detector above it"),
        ("a:\n  Setings: x", "r.txt:1: a: expected it once, .* got 'Setings: x'"),
    ],
)
def test_a_bad_row_is_refused_with_its_place(text: str, why: str) -> None:
    """With file and line."""
    with pytest.raises(ValueError, match=f"^{why}"):
        table_of(rows_in(text, "r.txt"))
