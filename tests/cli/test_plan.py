"""`otel-loopguard plan` checks a plan."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

SOUND = [
    {"id": "fetch", "tool": "web_search", "estimate_ms": 3000},
    {"id": "read", "tool": "file_read", "estimate_ms": 500},
    {"id": "merge", "depends_on": ["fetch", "read"]},
    {"id": "write", "depends_on": ["merge"], "parallel_safe": False},
]
WRONG = [{"id": "a", "depends_on": ["b"]}, {"id": "b", "depends_on": ["a", "x"]}]

Command = Callable[..., Result]


@pytest.fixture
def file(tmp_path: Path) -> Callable[[object], Path]:
    """Writes a plan to a file."""

    def write(plan: object) -> Path:
        path = tmp_path / "plan.json"
        path.write_text(json.dumps(plan), encoding="utf-8")
        return path

    return write


def test_a_sound_plan_as_a_table(
    command: Command, file: Callable[[object], Path], tmp_path: Path
) -> None:
    """Phases, complexity, advice; settings say how many tasks run side by side."""
    done = command("plan", file(SOUND))
    assert done.exit_code == 0
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert "1 0 fetch, read" in lines
    assert "4 tasks, 3 groups by depth, 3 phases" in lines
    assert any(line.startswith("complexity 0.22 (count 0.13, tools 0.20") for line in lines)
    assert "no need to split" in lines[-1]
    settings = tmp_path / "own.toml"
    settings.write_text("[tuning.plans]\nmax_parallel = 1\n", encoding="utf-8")
    done = command("plan", file(SOUND), "--settings", settings)
    assert "4 tasks, 3 groups by depth, 4 phases" in done.stdout


def test_a_sound_plan_as_json(command: Command) -> None:
    """From standard input, with everything that is known."""
    done = command("plan", "-", "--format", "json", stdin=json.dumps({"tasks": SOUND}).encode())
    assert done.exit_code == 0
    row: dict[str, Any] = json.loads(done.stdout)
    assert list(row) == "tasks sound problems groups phases complexity advice".split()
    assert (row["tasks"], row["sound"], row["problems"]) == (4, True, [])
    assert row["groups"] == row["phases"] == [["fetch", "read"], ["merge"], ["write"]]
    assert row["complexity"]["dependencies"] == pytest.approx(0.3)
    assert row["advice"]["strategy"] == "none"


def test_what_is_wrong_is_printed(command: Command, file: Callable[[object], Path]) -> None:
    """And the exit code is 1; of many problems ten, and how many more there are."""
    done = command("plan", file(WRONG))
    assert done.exit_code == 1
    assert "unknown: task 'b' depends on 'x', and there is no such task" in done.stdout
    assert "cycle: tasks depend on each other in a circle: a -> b -> a" in done.stdout
    assert "2 tasks; the plan cannot run as it is" in done.stdout
    row = json.loads(command("plan", file(WRONG), "--format", "json").stdout)
    assert [problem["kind"] for problem in row["problems"]] == ["unknown", "cycle"]
    assert (row["sound"], row["groups"], row["phases"]) == (False, [], [])
    done = command("plan", file([{"id": "a", "depends_on": [f"x{n}" for n in range(30)]}]))
    assert done.exit_code == 1
    assert sum(line.startswith("unknown:") for line in done.stdout.splitlines()) == 10
    assert "more problems left out; --format json has them" in done.stdout


def test_advice_to_split_and_risks(command: Command, file: Callable[[object], Path]) -> None:
    """For a plan that is much work."""
    said = "Migrate, rewrite, replace and update all of it; add tests"
    tasks = [{"id": n, "description": f"{said} in part{n}/a{n}.py"} for n in range(9)]
    done = command("plan", file(tasks))
    assert done.exit_code == 0
    assert "split by_component, about" in done.stdout
    assert "risk: many files are touched" in done.stdout


@pytest.mark.parametrize(
    ("written", "said"),
    [
        pytest.param(None, "No such file", id="no file"),
        pytest.param(b"[", "expected a JSON list of tasks", id="cut"),
        pytest.param(b"\xff", "expected a JSON list of tasks", id="no text"),
        pytest.param(b'{"x": 1}', "expected a list of tasks, got a map without 'tasks'", id="none"),
        pytest.param(b"[" * 5_000, "is nested deeper than 1,024 levels", id="deep"),
        pytest.param(b'[%s{"id": "a"}]' % (b'{"id": "a"},' * 10_000), "10,001 tasks", id="many"),
        pytest.param(b" " * 16_777_217, "more than 16,777,216 bytes", id="long"),
    ],
)
def test_what_is_no_plan_is_refused(
    command: Command, tmp_path: Path, written: bytes | None, said: str
) -> None:
    """In one line, with the file's name, and no figures about nothing."""
    path = tmp_path / "plan.json"
    if written is not None:
        path.write_bytes(written)
    done = command("plan", path)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith(f"otel-loopguard: {path}: ")
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1
