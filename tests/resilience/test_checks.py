"""resilience.problems: what was learned, and what was registered."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.trace import Status, StatusCode

from otel_loopguard import (
    LoopGuard,
    LoopGuardSpanProcessor,
    Settings,
    execution,
    resilience,
    set_testing,
)
from otel_loopguard._util.errors import raise_faults
from otel_loopguard.core import Kind, Step
from otel_loopguard.core.evidence import ErrorClass
from otel_loopguard.resilience.checks import Checks, described, shape_of
from tests.agents import provider_with

WRONG = ErrorClass.DETERMINISTIC


@pytest.fixture
def guard() -> LoopGuard:
    """The guard whose checks `control` uses."""
    return LoopGuard(Settings())


def fail(checks: Checks, args: object, times: int = 3, signature: str = "wrong_arguments") -> None:
    """Calls of `search` that fail."""
    for _ in range(times):
        checks.finished("search", args, True, WRONG, signature)


def test_the_third_failure_of_a_kind_speaks_against_the_fourth() -> None:
    """It says what failed and, from the last call that went well, what to change."""
    checks = Checks(Settings())
    checks.finished("search", {"query": "paris", "limit": 5}, False)
    fail(checks, {"query": "rome", "limit": "five", "year": 2024}, 2)
    other = {"query": "oslo", "limit": "nine", "year": 1999}
    assert checks.of("search", other) == ()
    fail(checks, {"query": "bern", "limit": "many", "year": 2001}, 1)
    (found,) = checks.of("search", other)
    assert found.check == "learned"
    assert found.reason == (
        "'search' with arguments of this kind (limit: tiny text, query: tiny text, "
        "year: a number above 1,000) failed 3 times in a row: wrong arguments."
    )
    assert found.change == (
        "As in the last call that went well: leave out `year`; "
        "make `limit` a number up to 1,000 instead of tiny text."
    )
    assert str(found) == f"{found.reason} {found.change}"
    assert checks.of("search", {"query": "oslo"}) == ()
    checks.finished("search", {"query": "ulm", "limit": "all", "year": 2020}, False)
    assert checks.of("search", other) == ()


def test_it_has_no_content() -> None:
    """What arguments say is neither kept nor told."""
    checks = Checks(Settings())
    fail(checks, {"query": "a secret", "deep": {"also": "a secret"}})
    (found,) = checks.of("search", {"query": "a secret", "deep": {"also": "a secret"}})
    assert "secret" not in str(found)
    assert "secret" not in repr((checks._failing, checks.good))


@pytest.mark.parametrize(
    "between",
    [
        lambda checks: checks.finished("search", {"q": "c"}, False),
        lambda checks: fail(checks, {"q": "c"}, 1, "not_found"),
    ],
    ids=["a success", "another error"],
)
def test_what_comes_between_starts_anew(between: Any) -> None:
    """In a row means in a row, and of one kind."""
    checks = Checks(Settings())
    fail(checks, {"q": "a"}, 2)
    between(checks)
    fail(checks, {"q": "b"}, 2)
    assert checks.of("search", {"q": "d"}) == ()


@pytest.mark.parametrize(
    ("settings", "args", "kind"),
    [
        ({}, {"q": "a"}, ErrorClass.TRANSIENT),
        ({"exempt_tools": "search"}, {"q": "a"}, WRONG),
        ({}, None, WRONG),
    ],
    ids=["an outage", "exempt", "not captured"],
)
def test_what_is_not_learned(settings: dict[str, Any], args: object, kind: ErrorClass) -> None:
    """Outages are for breakers; of arguments that were not captured nothing is known."""
    checks = Checks(Settings(**settings))
    for _ in range(9):
        checks.finished("search", args, True, kind, "x")
    assert checks.learned("search", args) is None


BY_VALUE = [
    {"error_text": said}
    for said in (
        "Error: file 'notes.txt' not found",
        "HTTP 404",
        "old_str did not match anything in the file",
        "PermissionError: [Errno 13] Permission denied: 'secret.txt'",
        "403 Forbidden",
        "401 Unauthorized: not your project",
        "sqlite3.OperationalError: no such table: orders",
        "FileExistsError: [Errno 17] File exists: 'out.txt'",
        "SyntaxError: invalid syntax",
    )
]


@pytest.mark.parametrize("said", [*BY_VALUE, {"error_type": "FileNotFoundError"}], ids=str)
def test_what_depends_on_the_value_is_not_learned(guard: LoopGuard, said: dict[str, str]) -> None:
    """Ten good reads and three misses say nothing about the next read, in whatever session."""
    for number in range(10):
        good = Step(Kind.TOOL, "read_file", args={"path": f"{number}.txt"}, outcome="text")
        guard.observe(good, "one")
    for name in ("x.txt", "y.txt", "z.txt", "w.txt"):
        miss = Step(Kind.TOOL, "read_file", args={"path": name}, error=True, **said)
        guard.observe(miss, "one")
    found = execution.admit("read_file", {"path": "3.txt"}, session="two")
    assert (found.choice, found.warnings) == (execution.Choice.EXECUTE_SYNC, ())
    assert resilience.problems("read_file", {"path": "3.txt"}) == ()


def teach(guard: LoopGuard, tool: str = "search") -> None:
    said = "TypeError: search() got an unexpected keyword argument 'year'"
    for number in range(3):
        step = Step(Kind.TOOL, tool, args={"q": "x", "year": 1}, error=True, error_text=said)
        guard.observe(step, f"run {number}")


def test_what_was_learned_warns(guard: LoopGuard) -> None:
    """Of all runs; the call may be made, and the admission says what failed before.

    Of a shell nothing is learned, whose arguments are all of one kind.
    """
    teach(guard)
    teach(guard, "bash")
    found = execution.admit("search", {"q": "y", "year": 2})
    assert (found.choice, found.objection) == (execution.Choice.EXECUTE_SYNC, None)
    (said,) = found.warnings
    assert "failed 3 times in a row: wrong arguments" in said
    (problem,) = resilience.problems("search", {"q": "y", "year": 2})
    assert problem.warns
    assert execution.admit("search", {"q": "y"}).warnings == ()
    assert resilience.problems("bash", {"q": "y", "year": 2}) == ()


def test_what_was_learned_expires() -> None:
    """Whoever obeys makes no such call that could take it back."""
    with set_testing(True) as rehearsal:
        guard = LoopGuard()
        teach(guard)
        rehearsal.advance(599)
        assert resilience.problems("search", {"q": "y", "year": 2})
        rehearsal.advance(2)
        assert resilience.problems("search", {"q": "y", "year": 2}) == ()
        assert execution.admit("search", {"q": "y", "year": 2}).warnings == ()


def test_a_call_that_has_just_ended_teaches_too(guard: LoopGuard) -> None:
    """It waits to be judged, and who asks has it judged first."""
    tracer = provider_with(LoopGuardSpanProcessor(guard)).get_tracer("my.agent")
    said = {"gen_ai.tool.name": "search", "gen_ai.tool.call.arguments": '{"q": "x"}'}
    for _ in range(3):
        with tracer.start_as_current_span("execute_tool search", attributes=said) as span:
            span.set_attribute("error.type", "ValueError")
            span.set_status(Status(StatusCode.ERROR, "invalid query"))
    assert [found.check for found in resilience.problems("search", {"q": "y"})] == ["learned"]


def test_the_tables_are_bounded() -> None:
    """Whatever names a model makes up."""
    checks = Checks(Settings())
    for number in range(2000):
        checks.finished(f"tool {number}", {f"a{number}": 1}, True, WRONG, "x")
        checks.finished(f"tool {number}", {"b": 1}, False)
    tables = (checks._failing, checks.good, checks.troubled)
    assert [len(table) for table in tables] == [1024] * 3
    assert len(shape_of({str(number): 1 for number in range(10_000)})) == 32


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ({}, "none"),
        ("a text", "tiny text"),
        ([1, 2], "tiny list"),
        ({"a": None, "b": True, "c": 0, "d": -1.5, "e": float("nan")},
         ("a: null, b: yes or no, c: a zero number, d: a negative number, "
          "e: a number above 1,000")),
        ({"x": "y" * 20_000, "z": {"k": 1}, "o": object()},
         "o: other, x: huge text, z: tiny object"),
        ({"big": 10**5000}, "big: a number above 1,000"),
    ],
    ids=["none", "text", "list", "odd values", "sizes", "huge number"],
)  # fmt: skip
def test_a_kind_is_names_types_and_sizes(args: object, words: str) -> None:
    """Of any value."""
    assert described(shape_of(args)) == words


def test_a_file_has_to_be_there(guard: LoopGuard, tmp_path: Path) -> None:
    """For the tools it is registered for."""
    resilience.checks().register("there", resilience.file_exists(), tool="read_*")
    (tmp_path / "a.txt").write_text("x")
    assert resilience.problems("read_file", {"path": str(tmp_path / "a.txt")}) == ()
    assert resilience.problems("list", {"path": str(tmp_path / "b.txt")}) == ()
    (found,) = resilience.problems("read_file", {"path": str(tmp_path / "b.txt")})
    assert found.reason == "The file of `path` does not exist (its folder is there)."
    assert found.change == "Give a `path` that exists, or make it first."
    (found,) = resilience.problems("read_file", {"path": str(tmp_path / "c" / "b.txt")})
    assert "neither is its folder" in found.reason


@pytest.mark.parametrize("path", [None, 3, "", "a\0b", "x" * 5000], ids=lambda path: repr(path)[:9])
def test_a_path_that_is_none_is_left_to_the_tool(path: object) -> None:
    """Nothing is raised."""
    check = resilience.file_exists()
    assert check({"path": path}) is None
    assert resilience.permitted("write")({"path": path}) is None


def test_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To write a new file its nearest folder is asked."""
    place = tmp_path / "locked"
    place.mkdir()
    real = os.access
    # Who runs the tests may be allowed everything.
    monkeypatch.setattr(os, "access", lambda path, mode: path != place and real(path, mode))
    check = resilience.permitted("write")
    said = check({"path": str(place / "deep" / "new.txt")})
    assert said is not None
    assert said[0] == "This process may not write the folder of `path`."
    assert check({"path": str(tmp_path / "new.txt")}) is None
    assert resilience.permitted("read")({"path": str(tmp_path / "gone.txt")}) is None


@pytest.mark.parametrize(
    ("language", "good", "bad", "said"),
    [
        ("python", "x = 1\n", "x = 1\ndef f(:\n", "line 2"),
        ("python", "x = '\\d'", "x = '\0'", "null byte|null character"),
        ("json", '{"a": [1]}', '{\n"a": [1}', "line 2"),
        ("toml", "a = 1", "a = = 1", "line 1"),
    ],
    ids=["python", "odd python", "json", "toml"],
)
@pytest.mark.filterwarnings("ignore:invalid escape")
def test_syntax(language: Any, good: str, bad: str, said: str) -> None:
    """The line that is wrong is named, its text is not."""
    check = resilience.syntax(language)
    assert check({"content": good}) is None
    assert check({}) is None
    assert check({"content": 3}) is None
    found = check({"content": bad})
    assert found is not None
    import re

    assert re.search(said, found[0])
    assert "def f" not in found[0]


@pytest.mark.parametrize("language", ["python", "json", "toml"])
def test_what_is_nested_too_deeply_raises_nothing(language: Any) -> None:
    """Nor what is too long to be read in passing."""
    check = resilience.syntax(language)
    text = {"toml": "a = "}.get(language, "") + "[" * 50_000 + "]" * 50_000
    check({"content": text})
    assert check({"content": "(" * 2_000_000}) is None


def test_resources(tmp_path: Path) -> None:
    """Enough memory and disk space, or how much is missing."""
    assert resilience.resources(memory_mb=1, disk_mb=1, folder=str(tmp_path))({}) is None
    memory = resilience.resources(memory_mb=1e9)({})
    disk = resilience.resources(disk_mb=1e12, folder=str(tmp_path))({})
    assert memory is not None
    assert "MB of memory are available, 1,000,000,000 are needed" in memory[0]
    assert disk is not None
    assert "disk space" in disk[0]


def test_a_check_that_raises_says_nothing(guard: LoopGuard) -> None:
    """It is counted, and the others are asked."""
    raise_faults(False)

    def broken(args: Any) -> None:
        raise ZeroDivisionError

    resilience.checks().register("broken", broken)
    resilience.checks().register("no", lambda args: ("It is closed.", "Come tomorrow."))
    (found,) = resilience.problems("search")
    assert found == resilience.Problem("search", "no", "It is closed.", "Come tomorrow.")
    assert guard.faults.counts == {"broken:ZeroDivisionError": 1}
    with pytest.raises(ValueError, match="not empty"):
        resilience.checks().register("", broken)
