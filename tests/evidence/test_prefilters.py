"""What is looked for in one look must not hide what a pattern finds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_loopguard.core import Kind, Step
from otel_loopguard.evidence import model_text, outcomes
from otel_loopguard.evidence.normalize import PrefilteredPattern, masked_outcome
from otel_loopguard.evidence.outcomes import outcome_of
from tests.tables import rows

PATTERNS = {
    f"{module.__name__}.{name}": each
    for module in (model_text, outcomes)
    for name, each in vars(module).items()
    if isinstance(each, PrefilteredPattern) and not each.pattern.flags & 2
}
PARTS = (
    "status", "build state", "phase", '": "', ": ", " = ", "running", "queued", "is done", "false",
    "HTTP/1.1 202", " accepted", "202", "not ready", "still going", "check back", "no new output",
    "3 minutes remaining", "no results", "not found", "nothing", "found", "12 failed", "incorrect",
    "tests fail", "not accepted", "score", "test_loss", "0.25", "7", "truncated", "...", "more",
    "10 more lines", "i'm not sure", "perhaps", "i apologize", "sorry about", "let me", "i will",
    "begin", "searching", "the weather", "\n", " ", " ", "_", "é", "\u2026", "\ud800",
)  # fmt: skip
TEXTS = st.lists(st.sampled_from(PARTS), max_size=8).map("".join)


@pytest.mark.parametrize("name", PATTERNS)
@given(text=TEXTS)
def test_the_outline_stands_wherever_the_pattern_does(name: str, text: str) -> None:
    """Also beside letters of other alphabets, and halves of letters."""
    one = PATTERNS[name]
    if one.pattern.flags & 256:
        text = text.encode("utf-8", "surrogatepass").decode("latin-1")
    assert one.may_match(text) or one.pattern.search(text) is None


@pytest.mark.parametrize("value", rows(__file__, "volatile"))
def test_a_volatile_value_is_masked_wherever_it_stands(value: str) -> None:
    """In a short text, in the middle of a long one, and at its very end."""
    long = "the weather is mild and " * 20
    for text in (f"at {value}", f"{long}{value} {long}.", long + value):
        outcome = outcome_of(Step(Kind.TOOL, "t", outcome=text), 10_000)
        assert outcome.masked == masked_outcome(text.encode()) != text.encode()
