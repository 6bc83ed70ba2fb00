"""resilience.problems: what was learned, and what was registered."""

import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.trace import StatusCode

from otel_loopguard import LoopGuard, LoopGuardSpanProcessor, Settings, execution, resilience
from otel_loopguard._util.clock import TestMode as Moved
from otel_loopguard._util.errors import raise_faults
from otel_loopguard.core.evidence import ErrorClass
from otel_loopguard.resilience.checks import Checks, described, shape_of
from tests.agents import provider_with
from tests.calls import call
from tests.programs import ran
from tests.tables import content, rows

WRONG = ErrorClass.DETERMINISTIC


def fail(checks: Checks, args: object, times: int = 3, signature: str = "wrong_arguments") -> None:
    """Calls of `search` that fail."""
    for _ in range(times):
        checks.finished("search", args, True, WRONG, signature)


def test_the_third_failure_of_a_kind_speaks_against_the_fourth() -> None:
    """It says what failed and, from the last call that went well, what to change."""
    checks = Checks(Settings())
    checks.finished("search", {"query": "paris", "limit": 5}, False)
    other = {"query": "oslo", "limit": "nine", "year": 1999}
    for limit in ("five", "ten", "many"):
        assert checks.of("search", other) == ()
        fail(checks, {"query": "rome", "limit": limit, "year": 2024}, 1)
    (found,) = checks.of("search", other)
    assert found.check == "learned"
    assert str(found) == (
        "'search' with arguments of this kind (limit: tiny text, query: tiny text, "
        "year: a number above 1,000) failed 3 times in a row: wrong arguments. "
        "As in the last call that went well: leave out `year`; "
        "make `limit` a number up to 1,000 instead of tiny text."
    )
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


@pytest.mark.parametrize("between", ["a success", "another", "not_found"])
def test_what_comes_between_starts_anew(between: str) -> None:
    """In a row means in a row, and of one kind."""
    checks = Checks(Settings())
    fail(checks, {"q": "a"}, 2)
    checks.finished("search", {"q": "c"}, between != "a success", WRONG, between)
    fail(checks, {"q": "b"}, 2)
    assert checks.of("search", {"q": "d"}) == ()


@pytest.mark.parametrize(
    ("exempt", "args", "kind"),
    [("", {"q": "a"}, ErrorClass.TRANSIENT), ("search", {"q": "a"}, WRONG), ("", None, WRONG)],
    ids=["an outage", "exempt", "not captured"],
)
def test_what_is_not_learned(exempt: str, args: object, kind: ErrorClass) -> None:
    """Outages are for breakers; of arguments that were not captured nothing is known."""
    checks = Checks(Settings(exempt_tools=exempt))
    for _ in range(9):
        checks.finished("search", args, True, kind, "x")
    assert checks.learned("search", args) is None


@pytest.mark.parametrize("said", [*rows(__file__, "by_value"), ""])
def test_what_depends_on_the_value_is_not_learned(guard: LoopGuard, said: str) -> None:
    """Ten good reads and three misses say nothing about the next read, in whatever session."""
    for number in range(10):
        guard.observe(call("read_file", {"path": f"{number}.txt"}, "text"), "one")
    for name in ("x.txt", "y.txt", "z.txt", "w.txt"):
        miss = call("read_file", {"path": name}, error=said)
        miss.error_type = None if said else "FileNotFoundError"
        guard.observe(miss, "one")
    found = execution.admit("read_file", {"path": "3.txt"}, session="two")
    assert (found.choice, found.warnings) == (execution.Choice.EXECUTE_SYNC, ())
    assert resilience.problems("read_file", {"path": "3.txt"}) == ()


def teach(guard: LoopGuard, tool: str = "search") -> None:
    said = "TypeError: search() got an unexpected keyword argument 'year'"
    for number in range(3):
        guard.observe(call(tool, {"q": "x", "year": 1}, error=said), f"run {number}")


def test_what_was_learned_warns(clock: Moved, guard: LoopGuard) -> None:
    """Of all runs, for ten minutes: whoever obeys makes no such call that could take it back.

    The call may be made. Of a shell, whose calls are alike, nothing is learned.
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
    clock.advance(590)
    assert resilience.problems("search", {"q": "y", "year": 2})
    clock.advance(11)
    assert resilience.problems("search", {"q": "y", "year": 2}) == ()
    assert execution.admit("search", {"q": "y", "year": 2}).warnings == ()


def test_a_call_that_has_just_ended_teaches_too(guard: LoopGuard) -> None:
    """It waits to be judged, and who asks has it judged first."""
    tracer = provider_with(LoopGuardSpanProcessor(guard)).get_tracer("my.agent")
    said = {"gen_ai.tool.name": "search", "gen_ai.tool.call.arguments": '{"q": "x"}'}
    for _ in range(3):
        span = tracer.start_span("execute_tool search", attributes=said)
        span.set_status(StatusCode.ERROR, "ValueError: invalid query")
        span.end()
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


@pytest.mark.parametrize(("words", "value"), rows(__file__, "kinds"))
def test_a_kind_is_names_types_and_sizes(words: str, value: str) -> None:
    """Of any value."""
    assert described(shape_of(eval(value))) == words


def test_a_file_has_to_be_there(guard: LoopGuard, tmp_path: Path) -> None:
    """For the tools it is registered for."""
    resilience.checks().register("there", resilience.file_exists(), tool="read_*")
    (tmp_path / "a.txt").write_text("x")

    def said(tool: str, name: str) -> list[str]:
        return [str(one) for one in resilience.problems(tool, {"path": str(tmp_path / name)})]

    assert said("read_file", "a.txt") == said("list", "b.txt") == []
    (found,) = said("read_file", "b.txt")
    assert found.startswith(
        "The file of `path` does not exist (its folder is there). Give a `path`"
    )
    assert "neither is its folder" in said("read_file", "c/b.txt")[0]


@pytest.mark.parametrize("path", [None, 3, "", "a\0b", "x" * 5000], ids=lambda path: repr(path)[:9])
def test_a_path_that_is_none_is_left_to_the_tool(path: object) -> None:
    """Nothing is raised."""
    check = resilience.file_exists()
    assert check({"path": path}) is None
    assert resilience.permitted("write")({"path": path}) is None


def test_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To write a new file its nearest folder is asked."""
    place, real = tmp_path / "locked", os.access
    place.mkdir()
    # Who runs the tests may be allowed everything.
    monkeypatch.setattr(os, "access", lambda path, mode: path != place and real(path, mode))
    check = resilience.permitted("write")
    (said, _) = check({"path": str(place / "deep" / "new.txt")}) or ("", "")
    assert said == "This process may not write the folder of `path`."
    assert check({"path": str(tmp_path / "new.txt")}) is None
    assert resilience.permitted("read")({"path": str(tmp_path / "gone.txt")}) is None


@pytest.mark.parametrize(("name", "good", "bad", "said"), rows(__file__, "syntax"))
@pytest.mark.filterwarnings("ignore:invalid escape")
def test_syntax(name: str, good: str, bad: str, said: str) -> None:
    """The line that is wrong is named, its text is not."""
    language: Any = name.rsplit(maxsplit=1)[-1]
    check, right, wrong = resilience.syntax(language), content(good), content(bad)
    given = ({"content": right.decode()}, {}, {"content": 3})
    assert [check(args) for args in given] == [None] * 3
    reason, _ = check({"content": wrong.decode()}) or ("", "")
    assert re.search(said, reason)
    assert "def f" not in reason


@pytest.mark.parametrize(("language", "before"), [("python", ""), ("json", ""), ("toml", "a = ")])
def test_what_is_nested_too_deeply_raises_nothing(language: Any, before: str) -> None:
    """Nor what is too long to be read in passing."""
    check = resilience.syntax(language)
    check({"content": before + "[" * 50_000 + "]" * 50_000})
    assert check({"content": "(" * 2_000_000}) is None


def test_resources(tmp_path: Path) -> None:
    """Enough memory and disk space, or how much is missing."""
    folder = str(tmp_path)
    assert resilience.resources(memory_mb=1, disk_mb=1, folder=folder)({}) is None
    memory = resilience.resources(memory_mb=1e9)({})
    assert "MB of memory are available, 1,000,000,000 are needed" in str(memory)
    assert "disk space" in str(resilience.resources(disk_mb=1e12, folder=folder)({}))


@pytest.mark.parametrize(
    ("said", "fault"),
    [
        (lambda _: 1 // 0, "ZeroDivisionError"),
        (lambda _: True, "TypeError"),
        (lambda _: "It is closed.", "ValueError"),
    ],
)
def test_a_check_that_raises_or_gives_no_pair_says_nothing(
    guard: LoopGuard, said: Any, fault: str
) -> None:
    """It is counted, and the others are asked."""
    raise_faults(False)
    # Of a tool that no other test calls: a guard may outlive its test.
    resilience.checks().register("broken", said, tool="shop")
    resilience.checks().register("no", lambda _: ("It is closed.", "Come tomorrow."), tool="shop")
    found = resilience.Problem("shop", "no", "It is closed.", "Come tomorrow.")
    assert resilience.problems("shop") == (found,)
    assert guard.faults.counts == {f"broken:{fault}": 1}


LATE = """
from otel_loopguard import LoopGuardSpanProcessor
from tests.agents import provider_with, tool_call

tracer = provider_with(LoopGuardSpanProcessor()).get_tracer("my.agent")
from otel_loopguard import resilience

for number in (1, 2, 3):
    tool_call(tracer, args=f'{{"q": {number}}}', error="TypeError: q must be a string")
print(len(resilience.problems("search", {"q": 4})))
"""


def test_a_guard_that_was_there_learns_once_this_is_imported() -> None:
    """Before, nobody could have asked."""
    assert ran(sys.executable, "-c", LATE).stdout == "1\n"
