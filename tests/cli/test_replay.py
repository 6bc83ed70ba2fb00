"""`otel-loopguard replay` prints what the guard would have decided."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from otel_loopguard.replay import workers
from otel_loopguard.version import __version__

if TYPE_CHECKING:
    import pytest

KEYS = ["source", "session", "steps", "decisions", "strongest", "outcome"]
DECISION = "step action detector severity confidence loop count reason message id period".split()


def test_labelled_runs(objects: Any, runs: Path) -> None:
    """Every run appears, under its id and source; the run that repeats a call is stopped."""
    stuck, well, who, *again = objects("replay", runs, runs)
    assert [list(row) for row in (stuck, well, who)] == [KEYS] * 3
    assert (stuck["session"], stuck["source"], stuck["steps"]) == ("stuck", "src", 8)
    assert (stuck["strongest"], stuck["outcome"]) == ("abort", "loop")
    assert [decision["action"] for decision in stuck["decisions"]][:2] == ["hint", "deny"]
    assert list(stuck["decisions"][0]) == DECISION
    assert stuck["decisions"][0]["step"] == 2
    for quiet in (well, who):
        assert (quiet["decisions"], quiet["strongest"], quiet["outcome"]) == ([], "allow", None)
    # Runs of one id do not meet.
    assert [(row["session"], row["strongest"]) for row in again] == [
        ("stuck", "abort"), ("well", "allow"), ("who", "allow"),
    ]  # fmt: skip


def test_worker_processes_change_nothing(
    command: Any, runs: Path, tmp_path: Path, shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With runs, files of spans, both in one and broken lines; only ids are drawn anew."""
    monkeypatch.setattr(workers, "_STEPS_WORTH_WORKERS", 10)
    spans = shared / "spans/langgraph__openinference.otlp.jsonl"
    first, mixed, empty = tmp_path / "first.jsonl", tmp_path / "mixed.jsonl", tmp_path / "empty"
    first.write_text(f"no json\n{spans.read_text()}no json\n")
    mixed.write_text(f"no json\n{runs.read_text()}\n{spans.read_text()}{runs.read_text()}")
    empty.write_text("")
    files = (runs, first, mixed, empty, spans, runs)
    done = [command("replay", *files, "--format", "json", "--jobs", jobs) for jobs in (1, 2)]
    ids = re.compile(r'"(?:id|loop)":"[0-9a-f]{16}"')
    said = [ids.sub("", one.stdout) for one in done]
    assert len(said[0].splitlines()) == 3 + 1 + 7 + 1 + 3
    assert said[0] == said[1]
    assert [one.exit_code for one in done] == [1, 1]
    assert sorted(done[0].stderr.splitlines()) == sorted(done[1].stderr.splitlines())
    assert len(done[0].stderr.splitlines()) == 4


def test_the_version(command: Any) -> None:
    """`--version` prints name and version."""
    result = command("--version")
    assert (result.exit_code, result.stdout) == (0, f"otel-loopguard {__version__}\n")


def test_the_table(command: Any, runs: Path) -> None:
    """A row per session with its strongest action and decisions, by steps from 1; no colour."""
    result = command("replay", runs)
    assert result.exit_code == 0
    rows = [line.split()[:4] for line in result.stdout.splitlines()[1:] if line.strip()]
    assert rows == [["stuck", "src", "8", "abort"], ["well", "src", "8"], ["who", "src", "8"]]
    assert "hint at step 3 (identical_call, 3 times)" in result.stdout
    assert "\x1b" not in result.stdout


def test_the_tree(command: Any) -> None:
    """`--tree` shows decisions below the span they are about, inside the trace."""
    sample = Path("otel_loopguard/cli/data/intercode-sql.otlp.jsonl.gz")
    result = command("replay", "--tree", Path(__file__).parents[2] / sample)
    lines = result.stdout.splitlines()
    assert lines[1].endswith("invoke_agent gpt-3.5")
    hint = next(number for number, line in enumerate(lines) if "◆ hint" in line)
    # Below its error.
    assert "execute_tool sql" in lines[hint - 2]


def test_a_real_process(runs: Path) -> None:
    """The installed command works in a pipe: objects on stdout, nothing but reports on stderr."""
    program = "from otel_loopguard.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program, "replay", "-", "--format", "json"],
        input=runs.read_bytes() + b"\n{broken\n",
        capture_output=True,
        check=False,
    )
    assert done.returncode == 1
    assert len(done.stdout.splitlines()) == 3
    assert done.stderr.decode().splitlines() == [
        "-:4: no valid JSON at column 2: Expecting property name enclosed in double quotes"
    ]


def test_without_the_extra(tmp_path: Path) -> None:
    """Without typer the command says in one line what to install, and ends with 2."""
    (tmp_path / "typer.py").write_text("raise ModuleNotFoundError('no typer', name='typer')")
    root = str(Path(__file__).parents[2])
    program = f"import sys; sys.path[:0] = [{str(tmp_path)!r}, {root!r}]\n"
    program += "from otel_loopguard.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr == (
        "the command line needs the extra `cli`: pip install 'otel-loopguard[cli]'\n"
    )
