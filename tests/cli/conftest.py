"""Fixtures for the command line."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from otel_loopguard.cli.app import app
from tests.replay.transcripts.reading import CAPTURES

Command = Callable[..., Result]


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Command:
    """Runs the command line inside the test; what it sets in the process is taken back."""
    monkeypatch.setenv("LOOPGUARD_SETTINGS_FILE", "unset")
    monkeypatch.delenv("LOOPGUARD_SETTINGS_FILE")

    def run(*arguments: object, stdin: bytes | None = None) -> Result:
        return CliRunner().invoke(app, [str(each) for each in arguments], input=stdin)

    return run


@pytest.fixture
def objects(command: Command) -> Callable[..., list[dict[str, Any]]]:
    """Runs a command that has to go well, and gives the objects that it prints."""

    def run(*arguments: object, **options: Any) -> list[dict[str, Any]]:
        result = command(*arguments, "--format", "json", **options)
        assert result.exit_code == 0, result.output
        return [json.loads(line) for line in result.stdout.splitlines()]

    return run


def call(**fields: object) -> dict[str, Any]:
    known = {"kind": "tool", "agent": "a", "tool": "search", "args": {"q": "x"}}
    outcome = {"output": "nothing was found for this query, sorry", "error": False}
    rest = {"t_start": None, "t_end": None, "tokens": None, "text": None}
    return {**known, **outcome, **rest, **fields}


def line(name: str, *, loop: bool | None, calls: int = 8, **fields: object) -> str:
    """A labelled run: the same call again and again, or always another one."""
    steps = [
        call() if loop else call(args={"q": i}, output=f"result {i}" * 9) for i in range(calls)
    ]
    label = {"tier": "pos_x" if loop else "neg_x", "success": not loop}
    known = {"id": name, "source": "src", "label": label, "loop": loop, "onset_step": 0}
    return json.dumps({**known, "steps": steps, **fields})


def timed(name: str, durations: list[float], start: float) -> str:
    """A labelled run whose calls take these seconds, one every 100 s."""
    times = [(start + 100 * place, seconds) for place, seconds in enumerate(durations)]
    steps = [call(args={"q": at}, t_start=at, t_end=at + seconds) for at, seconds in times]
    return line(name, loop=None, steps=steps)


def tried(number: int, times: int, **fields: object) -> str:
    """A run that went well, in which one call is made some times after four others."""
    others = [
        call(args={"q": f"{number} {i}"}, output=f"result {i} of {number} " * 9) for i in range(4)
    ]
    known = {"id": f"run {number}", "source": "s", "label": {"success": True}, "loop": None}
    return json.dumps({**known, "steps": [*others, *[call()] * times], **fields})


def spans(*traces: int, name: str = "work", **attributes: str) -> str:
    """A line of OTLP with a trace of so many equal spans for each of the numbers."""
    keyed = [{"key": key, "value": {"stringValue": value}} for key, value in attributes.items()]
    made = [
        {
            "traceId": f"{number:032x}", "spanId": f"{number * 100 + place:016x}", "name": name,
            "startTimeUnixNano": str(10**18 + place * 10**7),
            "endTimeUnixNano": str(10**18 + place * 10**7 + 1), "attributes": keyed,
        }
        for number, count in enumerate(traces, 1)
        for place in range(1, count + 1)
    ]  # fmt: skip
    scope = {"scope": {"name": "my.app"}, "spans": made}
    return json.dumps({"resourceSpans": [{"scopeSpans": [scope]}]})


CALL = {
    "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search",
    "gen_ai.tool.call.arguments": '{"q": "x"}',
    "gen_ai.tool.call.result": "nothing was found for this query, sorry",
}  # fmt: skip
"""Attributes of a tool call."""


RUNS = "\n".join([line("stuck", loop=True), line("well", loop=False), line("who", loop=None)])


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """A file with one run that loops and two that do not."""
    path = tmp_path / "runs.jsonl"
    path.write_text(RUNS)
    return path


KEY = "996c115b-4f4b-4a0e-9161-c4e20b794525"
"""Session of Claude Code in the captures."""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home in which three agents have kept a session each."""
    for agent, place in (("gemini", "."), ("codex", ".codex"), ("claude", ".claude")):
        shutil.copytree(CAPTURES / agent, tmp_path / place, dirs_exist_ok=True)
    for age, agent in enumerate((".gemini", ".codex", ".claude")):
        for path in (tmp_path / agent).rglob("*.jsonl"):
            os.utime(path, (2_000_000_000 - age, 2_000_000_000 - age))
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "GEMINI_CLI_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path
