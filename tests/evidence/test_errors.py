"""Classes and shapes of errors."""

from __future__ import annotations

import pytest

from otel_loopguard.core import Kind, Step
from otel_loopguard.core.evidence import ErrorClass
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


@pytest.mark.parametrize(
    ("step", "line"),
    [
        (failed(None), None),
        (Step(Kind.TOOL, "t", error=True, outcome="  "), None),
        (Step(Kind.TOOL, "t", error=True, outcome="ValueError: no"), b"ValueError: no"),
        (failed("An error occurred while running the tool. Please try again."), None),
        (failed("Something went wrong."), None),
        (failed("An unexpected error occurred"), None),
        (
            failed("An error occurred while running the tool. Error: 503 from shop-a"),
            b"An error occurred while running the tool. Error: 503 from shop-a",
        ),
    ],
    ids=lambda value: getattr(value, "error_text", ""),
)
def test_the_line_that_names_an_error(step: Step, line: bytes | None) -> None:
    """Missing is equal to nothing, and what frameworks say of any error names none."""
    assert error_line(step) == line


@pytest.mark.parametrize(
    ("text", "of_the_call"),
    [
        ("page_down() got an unexpected keyword argument ''", True),
        ("Unknown tool: serach", True),
        ("no such file: a.txt", False),
    ],
)
def test_errors_of_the_call_itself(text: str, of_the_call: bool) -> None:
    """Unknown tools and wrong arguments are told from other errors."""
    assert is_call_error(failed(text)) is of_the_call
