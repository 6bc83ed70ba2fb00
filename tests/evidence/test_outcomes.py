"""The outcome of a call: keys, and what it says in words."""

from __future__ import annotations

import json

import pytest

from otel_loopguard.core import Kind, Step
from otel_loopguard.evidence import parsed
from otel_loopguard.evidence.outcomes import (
    Outcome,
    content_key,
    outcome_of,
    rejects,
    reports_failure,
    says_nothing_found,
)


def of(value: object, limit: int = 1_000_000) -> Outcome:
    return outcome_of(Step(Kind.TOOL, "t", outcome=value), limit)


def test_equal_outcomes_have_equal_keys() -> None:
    """A map whatever the order of its keys; volatile values in the masked key only."""
    assert of({"a": 1, "b": 2}) == of({"b": 2, "a": 1})
    one, other = (
        outcome_of(Step(Kind.TOOL, "t", outcome=text), 1000, parsed(text))
        for text in ('{"a": 1, "error": "x"}', '{"error":"x","a":1}')
    )
    assert (one.key, one.exact) == (other.key, other.exact)
    one, other = of("done at 10:00:01"), of("done at 10:00:02")
    assert one.key == other.key
    assert one.exact != other.exact


@pytest.mark.parametrize(
    ("said", "size"),
    [
        ({"output": "200"}, 3),
        ([{"type": "text", "text": "200"}], 3),
        ({"content": [{"type": "text", "text": "200"}]}, 3),
        ({"count": 42}, 2),
        ({"output": ""}, 0),
        ({"output": None}, 15),
        ({"a": "1", "b": "2"}, 17),
        ([], 2),
    ],
)
def test_a_frame_makes_an_answer_no_longer(said: object, size: int) -> None:
    """What one value stands in does not count, as JSON text or as a value; a record counts."""
    for value in (said, json.dumps(said, separators=(",", ":"))):
        assert outcome_of(Step(Kind.TOOL, "t", outcome=value), 1000, parsed(value)).size == size


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        ("1. a - x\n2. b - y\n3. c - z", "3. c - z\n1. a - x\n2. b - y", True),
        ([{"url": "a"}, {"url": "b"}], [{"url": "b"}, {"url": "a"}], True),
        ({"hits": [{"u": "a"}, {"u": "b"}]}, {"hits": [{"u": "b"}, {"u": "a"}]}, True),
        ({"x": 1, "y": 2}, {"x": 2, "y": 1}, False),
        ([1, 2], [2, 1], False),
        ("from a to b", "from b to a", False),
        ("1. a - x\n2. b - y", "1. b - y\n2. a - x", False),
    ],
)
def test_records_in_another_order_are_equal_content(
    one: object, other: object, equal: bool
) -> None:
    """Lines of a text and records of a list may be given in any order; what they say may not."""
    assert (content_key(of(one)) == content_key(of(other))) is equal


def test_an_outcome_that_was_not_captured_has_no_key() -> None:
    """Missing is not empty."""
    assert of(None).key is None
    assert of("").key is not None
    assert not says_nothing_found(of(None))
    assert not rejects(of(None))


def test_of_a_failed_call_its_error_is_the_outcome() -> None:
    """The error's text, or what came back if that is all there is."""
    failed = Step(Kind.TOOL, "t", outcome="partly", error=True, error_text="it broke")
    assert outcome_of(failed, 1000).key == of("it broke").key
    failed = Step(Kind.TOOL, "t", outcome="it broke", error=True)
    assert outcome_of(failed, 1000).key == of("it broke").key
    assert outcome_of(Step(Kind.TOOL, "t", error=True), 1000).key is None


def test_a_long_outcome_is_told_by_head_tail_and_length() -> None:
    """Its size is bounded too."""
    long = "x" * 50_000
    keys = {of(text, 1000).key for text in (long, long + "x", long + "y", "y" + long)}
    assert len(keys) == 4
    assert of(long, 1000).size < 1100


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("No results found for your query.", True),
        ("0 matches", True),
        ("Found no entries", True),
        ("nothing was found", True),
        ("File not found", True),
        ("The search did not match any documents", True),
        ("No such table: users", True),
        ("[]", False),
        ("", False),
        ("3 results found", False),
        ("10 matches", False),
        ("there is no doubt about it", False),
        ("notable results", False),
        ("No results found. " + "But elsewhere there is a lot. " * 20, False),
    ],
)
def test_nothing(said: str, expected: bool) -> None:
    """Short answers that say that nothing was found, in whatever words."""
    assert says_nothing_found(of(said)) is expected


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("Your solution did not pass the tests", True),
        ("2 failed, 3 passed", True),
        ("FAILED test_a.py::test_b", True),
        ("That is incorrect.", True),
        ("Wrong answer, try again", True),
        ("build failed", True),
        ("not accepted", True),
        ("x" * 1000 + " 1 failed", True),
        ("1 failed " + "x" * 1000, True),
        ("5 passed", False),
        ("all tests pass", False),
        ("right", False),
        ("test result: ok. 5 passed; 0 failed; 0 ignored", False),
        ("5 passed, 0 failed", False),
        ('{"passed": 5, "failed": 0}', False),
        ("no test failed", False),
        ("x" * 1000 + " 1 failed " + "x" * 1000, False),
    ],
)
def test_rejects(said: str, expected: bool) -> None:
    """An answer that turns down what was tried says so in its head or tail; none failed is none."""
    assert rejects(of(said)) is expected


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({"exit_code": 1, "output": "x"}, True),
        ({"returncode": -9}, True),
        ('{"exit_code": 2}', True),
        ({"status": "Failed"}, True),
        ({"success": False}, True),
        ({"ok": False}, True),
        ({"error": "no"}, True),
        ("Error: no such thing", True),
        ("  Exception in thread", True),
        ("exit code: 1\nodd", True),
        ("text before\nTraceback (most recent call last):\n  x\nOdd: 1", True),
        ({"exit_code": 0}, False),
        ({"status": "ok", "error": None}, False),
        ({"error": ""}, False),
        ({"success": True}, False),
        ("exit code: 0", False),
        ("all fine, no error", False),
        ("errors: 0", False),
        ([{"error": "x"}], False),
        (None, False),
        (7, False),
    ],
    ids=str,
)
def test_reports_failure(said: object, expected: bool) -> None:
    """By an exit code, a status, its first word or a traceback; not by any word in it."""
    assert reports_failure(said, parsed(said)) is expected


@pytest.mark.parametrize(
    "text", ["no " * 100_000, "0 a a" * 60_000, "not " * 90_000, "\t" * 300_000]
)
def test_words_are_looked_for_in_linear_time(text: str) -> None:
    """However an outcome is made: quadratic time would take hours."""
    outcome = of(text)
    assert says_nothing_found(outcome) is False
    rejects(outcome)
    reports_failure(text, text)
