"""Classes and shapes of errors."""

from __future__ import annotations

import pytest

from otel_loopguard.core import ErrorClass, Kind, Step
from otel_loopguard.evidence.errors import error_class, error_line, error_shape, is_call_error


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


def shape(text: str, arguments: bytes = b"") -> int:
    line = error_line(failed(text))
    assert line is not None
    return error_shape(line, arguments)


def test_shape_is_the_last_line_that_names_the_error() -> None:
    """Tracebacks that end alike have one shape, whatever numbers are in them."""
    one = shape("Traceback:\n  File a.py, line 3\nValueError: bad value 17\n")
    other = shape("Traceback:\n  File b.py, line 9\n  x\nValueError: bad value 4\n")
    assert one == other != shape("KeyError: 'a'")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param(
            ("no such file: 'src/a.py'", b'{"path":"src/a.py"}'),
            ("no such file: 'lib/bb.py'", b'{"path":"lib/bb.py"}'),
            id="in quotes",
        ),
        pytest.param(
            ("user mei_davis_8935 not found", b'{"id":"mei_davis_8935"}'),
            ("user raj_kovacs_20 not found", b'{"id":"raj_kovacs_20"}'),
            id="a value",
        ),
        pytest.param(
            ("sh: line 1: ./build/x.sh: Permission denied", b'{"command":"cd a; ./build/x.sh -v"}'),
            ("sh: line 4: ./tools/y.sh: Permission denied", b'{"command":"./tools/y.sh --all"}'),
            id="a path in a command",
        ),
    ],
)
def test_what_is_quoted_from_the_arguments_is_masked(
    one: tuple[str, bytes], other: tuple[str, bytes]
) -> None:
    """The same error about another thing is the same error; unmasked it is another line."""
    assert shape(*one) == shape(*other)
    assert shape(one[0]) != shape(other[0])


def test_what_stands_in_quotes_by_itself_is_not_masked() -> None:
    """A name that the arguments do not have belongs to the error."""
    arguments = b'{"path":"a.py"}'
    assert shape("KeyError: 'alpha'", arguments) != shape("KeyError: 'beta'", arguments)


def test_a_failure_without_text_has_no_line() -> None:
    """Missing is equal to nothing."""
    assert error_line(failed(None)) is None
    assert error_line(Step(Kind.TOOL, "t", error=True, outcome="  ")) is None


def test_a_failed_calls_outcome_is_its_error() -> None:
    """Where only the outcome was captured it says what went wrong."""
    step = Step(Kind.TOOL, "t", error=True, outcome="ValueError: no")
    assert error_line(step) == b"ValueError: no"


def test_errors_of_the_call_itself() -> None:
    """Unknown tools and wrong arguments are told from other errors."""
    assert is_call_error(failed("page_down() got an unexpected keyword argument ''"))
    assert is_call_error(failed("Unknown tool: serach"))
    assert not is_call_error(failed("no such file: a.txt"))


@pytest.mark.parametrize(
    "text",
    [
        "An error occurred while running the tool. Please try again.",
        "Something went wrong.",
        "An unexpected error occurred",
    ],
)
def test_what_stands_in_place_of_an_error_names_none(text: str) -> None:
    """What a framework says whatever failed is no error that repeats."""
    assert error_line(Step(Kind.TOOL, "fetch", error=True, error_text=text)) is None


def test_a_cause_behind_it_is_named() -> None:
    """With a cause it is an error like others."""
    text = "An error occurred while running the tool. Please try again. Error: 503 from shop-a"
    assert error_line(Step(Kind.TOOL, "fetch", error=True, error_text=text)) is not None
