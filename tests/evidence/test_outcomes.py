"""The outcome of a call: keys, and what it says in words."""

from otel_loopguard.core import Kind, Step
from otel_loopguard.core.evidence import ErrorClass
from otel_loopguard.evidence.errors import error_class, error_line
from otel_loopguard.evidence.outcomes import (
    Outcome,
    outcome_of,
    rejects,
    says_nothing_found,
)


def of(value: object, limit: int = 1_000_000) -> Outcome:
    return outcome_of(Step(Kind.TOOL, "t", outcome=value), limit)


def test_missing_is_not_empty() -> None:
    """A long one is told by its head, its tail and its length; its size is bounded."""
    assert of(None).key is None
    assert of("").key is not None
    assert not says_nothing_found(of(None))
    assert not rejects(of(None))
    long = "x" * 50_000
    keys = {of(text, 1000).key for text in (long, long + "x", long + "y", "y" + long)}
    assert len(keys) == 4
    assert of(long, 1000).size < 1100


def test_words_of_a_long_answer_count_at_its_ends() -> None:
    """Nothing was found only where that is about all that is said."""
    long = "x" * 1000
    assert rejects(of(f"{long} 1 failed"))
    assert rejects(of(f"1 failed {long}"))
    assert not rejects(of(f"{long} 1 failed {long}"))
    assert not says_nothing_found(of("No results found. " + "But elsewhere there is a lot. " * 20))


def test_of_a_failed_call_its_error_is_the_outcome() -> None:
    """The error's text, or what came back if that is all there is."""
    failed = Step(Kind.TOOL, "t", outcome="partly", error=True, error_text="it broke")
    assert outcome_of(failed, 1000).key == of("it broke").key
    failed = Step(Kind.TOOL, "t", outcome="it broke", error=True)
    assert outcome_of(failed, 1000).key == of("it broke").key
    assert error_line(failed) == b"it broke"
    for said in (None, "  "):
        assert error_line(Step(Kind.TOOL, "t", error=True, outcome=said)) is None
    assert outcome_of(Step(Kind.TOOL, "t", error=True), 1000).key is None
    # A call that did not fail has no error, whatever its outcome says.
    assert error_class(Step(Kind.TOOL, "t", outcome="429")) is ErrorClass.UNKNOWN
