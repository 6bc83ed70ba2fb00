"""Effects of calls."""

from __future__ import annotations

import pytest

from otel_loopguard.core.evidence import Effect
from otel_loopguard.evidence.effects import effect_of, is_compound, is_runner


@pytest.mark.parametrize(
    ("tool", "arguments", "effect"),
    [
        ("get_weather", {}, Effect.READ),
        ("searchFlights", {}, Effect.READ),
        ("update_order", {}, Effect.WRITE),
        ("str_replace_edit", {}, Effect.WRITE),
        ("sleep", {}, Effect.WAIT),
        ("wait_for_user", {}, Effect.WAIT),
        ("frobnicate", {}, Effect.UNKNOWN),
        ("bash", {"command": "ls -l src"}, Effect.READ),
        ("bash", {"command": "pytest -q 2>&1 | tail -3"}, Effect.READ),
        ("bash", {"command": "grep x > /dev/null"}, Effect.READ),
        ("bash", {"command": "echo a > b.txt"}, Effect.WRITE),
        ("bash", {"command": "sed -i s/a/b/ x.py"}, Effect.WRITE),
        ("bash", {"command": "cat <<'EOF' > a.py\nx\nEOF"}, Effect.WRITE),
        ("bash", {"command": "cd repo && git checkout main"}, Effect.WRITE),
        ("bash", "pip install numpy", Effect.WRITE),
        ("bash", {"command": "sleep 30"}, Effect.WAIT),
        ("sql", "SELECT * FROM t", Effect.READ),
        ("sql", "update t set a = 1", Effect.WRITE),
        ("run_query", {"sql": "-- totals\nSELECT 1"}, Effect.READ),
        ("execute_statement", {"statement": "select name from t"}, Effect.READ),
        ("run_query", {"sql": "INSERT INTO t VALUES (1)"}, Effect.WRITE),
        ("run_query", {"name": "totals"}, Effect.WRITE),
        ("python", "print(1)", Effect.UNKNOWN),
        ("python", "open('a.txt', 'w').write('x')", Effect.WRITE),
    ],
    ids=str,
)
def test_effect(tool: str, arguments: object, effect: Effect) -> None:
    """The effect is told from the tool's name and, for shells, the command."""
    assert effect_of(tool, arguments) is effect


def test_compound_commands() -> None:
    """A command that does several things may have changed something before it failed."""
    assert is_compound({"command": "echo a > b; false"})
    assert not is_compound({"command": "rm a"})


@pytest.mark.parametrize(
    ("tool", "runs"),
    [("bash", True), ("execute_sql", True), ("python_interpreter", True),
     ("ComputerTerminal", True), ("search", False), ("run_tests", False), ("get_page", False)],
)  # fmt: skip
def test_tools_that_run_what_the_agent_wrote(tool: str, runs: bool) -> None:
    """Shells, interpreters and databases, told by a word of their name."""
    assert is_runner(tool) is runs


@pytest.mark.parametrize(
    ("tool", "arguments", "effect"),
    [
        ("open", "open src/a.py", Effect.READ),
        ("open", {"path": "src/a.py", "line_number": 12}, Effect.READ),
        ("goto", "goto 120", Effect.READ),
        ("goto_line", {"line": 120}, Effect.READ),
        ("close_file", {"path": "a.py"}, Effect.READ),
        ("open_browser", {"path": "a.html"}, Effect.WRITE),
        ("goto", {"url": "https://a.example/x.html"}, Effect.WRITE),
        ("open", "open https://a.example/x.html", Effect.WRITE),
        ("scroll_down", {"pixels": 600}, Effect.WRITE),
        ("scroll_down", {}, Effect.WRITE),
        ("open_ticket", {"path": "queue", "line": 1}, Effect.WRITE),
        ("edit_file", {"path": "a.py"}, Effect.WRITE),
    ],
)
def test_moving_through_files_reads_and_in_a_browser_acts(
    tool: str, arguments: object, effect: Effect
) -> None:
    """`open`, `goto`, `scroll` and `close` are told apart by what they name."""
    assert effect_of(tool, arguments) is effect
