"""What commands print and end with, as `commands.txt` has it; its head says how it is read."""

import json
import os
import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from otel_loopguard.cli.app import app
from otel_loopguard.replay.fields import is_list, is_map
from tests.cli.conftest import CALL, RUNS, line, spans, timed, tried
from tests.replay.transcripts.reading import cases

SECRET = "hunter2-hunter2-hunter2"
SAMPLE = Path(__file__).parents[2] / "otel_loopguard/cli/data/intercode-sql.otlp.jsonl.gz"
CASES = cases(Path(__file__).with_name("commands.txt"))

VARIABLES = (
    "LOOPGUARD_", "CLAUDE_", "CODEX_", "GEMINI_", "XDG_", "OTEL_", "OPENINFERENCE_", "TRACELOOP_"
)  # fmt: skip

MADE: dict[str, Callable[[], str]] = {
    "runs.jsonl": lambda: RUNS,
    "past.jsonl": lambda: "\n".join(map(tried, range(99), [5, 9] + [0] * 97)),
    "other.jsonl": lambda: "\n".join([
        tried(1000, 30, loop=True),
        tried(1001, 30, label={"success": False}),
        tried(1002, 30, label={}),
        tried(1003, 30, loop=True, label={"success": True}),
        tried(1004, 0, loop=False, label={"success": False}),
    ]),
    "endless.jsonl": lambda: tried(0, 400),
    "long.jsonl": lambda: "\n".join([
        line("alarm", loop=True, calls=6).replace('"loop": true', '"loop": false'),
        line("missed", loop=False, calls=9).replace('"loop": false', '"loop": true'),
        line("well", loop=False),
        line("found", loop=True),
        line("unknown", loop=None, calls=9),
    ]),
    "calls.otlp": lambda: spans(8, 2, 2, 2, **CALL),
    "work.otlp": lambda: spans(1, 1, 1),
    "apart.otlp": lambda: spans(1, 1, 1, **CALL | {"gen_ai.tool.call.result": SECRET}),
    "chat.otlp": lambda: spans(1, 1, 1, **{"gen_ai.operation.name": "chat"}),
    "timed.jsonl": lambda: "\n".join([
        timed("a", [*(10.0 + (place % 7) / 10 for place in range(30)), 95.0], 10_000),
        timed("b", [1000.0], 90_000),
        line("c", loop=None),
    ]),
}  # fmt: skip


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder and a home without settings, agents or processes."""
    for name in list(os.environ):
        if name.startswith(VARIABLES):
            monkeypatch.delenv(name)
    for name in ("HOME", "XDG_RUNTIME_DIR", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", CASES)
def test_a_command(name: str, here: Path, request: pytest.FixtureRequest) -> None:
    text = CASES[name]
    for file, content in MADE.items():
        if file in text:
            (here / file).write_text(content())
    if "sample.gz" in text:
        (here / "sample.gz").symlink_to(SAMPLE)
    if name.startswith("transcripts"):
        request.getfixturevalue("home")
    if "shared/" in text:
        (here / "shared").symlink_to(request.getfixturevalue("shared"))
    before, *commands = re.split(r"^\$ ", text, flags=re.MULTILINE)
    for file, content in re.findall(r"^> (\S+) (.*)$", before, re.MULTILINE):
        with (here / file).open("a") as opened:
            opened.write(f"{content}\n")
    for command in commands:
        words, *wanted = command.rstrip().splitlines()
        check(*run(words), wanted)


def run(words: str) -> tuple[Result, int]:
    """Runs a line; gives the exit code that it wants, too."""
    written, _, code = words.partition(" => ")
    arguments, stdin = shlex.split(written), b""
    environment: dict[str, str | None] = {
        "LOOPGUARD_SETTINGS_FILE": None
    }  # which `--settings` sets
    while "=" in arguments[0]:
        name, _, environment[name] = arguments.pop(0).partition("=")
    if "<" in arguments:
        stdin = Path(arguments.pop()).read_bytes()
        arguments.pop()
    return CliRunner().invoke(app, arguments, stdin, env=environment), int(code or 0)


def check(done: Result, code: int, wanted: list[str]) -> None:
    assert done.exit_code == code, done.output
    assert "\x1b" not in done.output
    assert SECRET not in done.output
    if code == 2:
        assert done.stdout == ""
    rows = [row for row in wanted if row.startswith("{")]
    if rows:
        found = [json.loads(row) for row in done.stdout.splitlines()]
        assert len(found) == len(rows), done.stdout
        for row, one in zip(rows, found, strict=True):
            assert picked(one, json.loads(row)) == json.loads(row), one
    wanted = [row for row in wanted if not row.startswith("{")]
    for row in wanted:
        if row.startswith("- "):
            assert row[2:] not in done.output
    stand_in_order(done.stdout, (row for row in wanted if not row.startswith(("- ", "! "))))
    stand_in_order(done.stderr, (row[2:] for row in wanted if row.startswith("! ")))


def stand_in_order(text: str, parts: Iterator[str]) -> None:
    """Whatever the blanks and the borders between words."""
    place, plain = 0, " ".join(text.replace("│", " ").split())
    for part in parts:
        place = plain.find(part, place)
        assert place >= 0, f"{part!r} is not in its place in:\n{text}"
        place += len(part)


def picked(found: object, wanted: object) -> object:
    """Of what was found what is asked for: fields of objects, numbers as they are rounded."""
    if is_map(wanted) and is_map(found):
        return {key: picked(found.get(key, "nothing"), wanted[key]) for key in wanted}
    if is_list(wanted) and is_list(found) and len(wanted) == len(found):
        return [picked(*pair) for pair in zip(found, wanted, strict=True)]
    if isinstance(wanted, float) and isinstance(found, float):
        return wanted if found == pytest.approx(wanted, abs=0.001) else found
    return found
