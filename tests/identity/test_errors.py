"""Classes and shapes of errors."""

from __future__ import annotations

import pytest

from otel_loopguard.core import ErrorClass, Kind, Step
from otel_loopguard.identity.errors import error_class, error_shape, is_call_error


def failed(text: str | None, kind: str | None = None) -> Step:
    return Step(Kind.TOOL, "t", error=True, error_text=text, error_type=kind)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("429 Too Many Requests", ErrorClass.TRANSIENT),
        ("HTTP 503 Service Unavailable", ErrorClass.TRANSIENT),
        ("Read timed out.", ErrorClass.TRANSIENT),
        ("Connection reset by peer", ErrorClass.TRANSIENT),
        ("FileNotFoundError: No such file: a.txt", ErrorClass.DETERMINISTIC),
        ("Permission denied (publickey)", ErrorClass.DETERMINISTIC),
        ("got an unexpected keyword argument ''", ErrorClass.DETERMINISTIC),
        ("404 page", ErrorClass.DETERMINISTIC),
        ("it went wrong", ErrorClass.UNKNOWN),
        (None, ErrorClass.UNKNOWN),
    ],
    ids=str,
)
def test_error_class(text: str | None, expected: ErrorClass) -> None:
    """429, 5xx, time-outs and connections are transient; what will fail again is deterministic."""
    assert error_class(failed(text)) is expected


def test_a_success_has_no_error_class() -> None:
    """A call that did not fail is UNKNOWN, whatever its outcome says."""
    assert error_class(Step(Kind.TOOL, "t", outcome="429")) is ErrorClass.UNKNOWN


def test_shape_is_the_last_line_that_names_the_error() -> None:
    """Tracebacks that end alike have one shape, whatever numbers are in them."""
    one = failed("Traceback:\n  File a.py, line 3\nValueError: bad value 17\n")
    other = failed("Traceback:\n  File b.py, line 9\n  x\nValueError: bad value 4\n")
    assert error_shape(one) == error_shape(other) != error_shape(failed("KeyError: 'a'"))


def test_a_failure_without_text_has_no_shape() -> None:
    """Missing is equal to nothing."""
    assert error_shape(failed(None)) is None
    assert error_shape(Step(Kind.TOOL, "t", error=True, outcome="  ")) is None


def test_errors_of_the_call_itself() -> None:
    """Unknown tools and wrong arguments are told from other errors."""
    assert is_call_error(failed("page_down() got an unexpected keyword argument ''"))
    assert is_call_error(failed("Unknown tool: serach"))
    assert not is_call_error(failed("no such file: a.txt"))
