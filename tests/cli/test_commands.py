"""What commands print and end with, as `commands.txt` has it; its head says how it is read."""

import json
import os
import pty
import re
import shlex
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from fcntl import ioctl
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from otel_loopguard._util.fields import is_list, is_map
from otel_loopguard.cli.app import app
from tests.cli.conftest import CALL, RUNS, line, spans, timed, tried
from tests.replay.transcripts.reading import cases
from tests.tables import rows

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
    "three.otlp": lambda: spans(3, 1, 1, **CALL),
    "two.otlp": lambda: spans(3, 1, **CALL),
    "one.otlp": lambda: spans(1, **CALL),
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


def commands(group: Any, *above: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command with its words, those of groups too."""
    for name, command in group.commands.items():
        yield (*above, name), command
        if hasattr(command, "commands"):
            yield from commands(command, *above, name)


ALL = dict(commands(typer.main.get_command(app)))


@pytest.mark.parametrize("words", ALL, ids=" ".join)
def test_every_option_is_explained(words: tuple[str, ...]) -> None:
    """The text of each option stands there, whole: rich takes words in brackets for markup."""
    shown = CliRunner().invoke(app, [*words, "--help"], env={"COLUMNS": "500"}).output
    plain = re.sub(r"\s+", " ", shown)
    helps = [text for one in ALL[words].params if (text := getattr(one, "help", None))]
    assert [text for text in helps if text not in plain] == []
    assert ALL[words].help


PROGRAM = "from otel_loopguard.cli import main; main()"
ID = "session-of-a-customer-0123456789-0123456789-0123456789-0123456789-01234567"


COMMANDS = ("steps", "replay", "report", "explain", "learn", "eval")
EACH = """
import sys
from otel_loopguard.cli import main
_, file, *names = sys.argv
for name in names:
    print("==", name, flush=True)
    sys.argv[1:] = name, file
    try:
        main()
    except SystemExit as end:
        assert not end.code
"""


@pytest.mark.parametrize("width", [80, 140])
def test_a_real_terminal(width: int, runs: Path) -> None:
    """Nothing is wider than the terminal, and nothing but content is cut: no heading and no id."""
    runs.write_text(f"{runs.read_text()}\n{line(ID, loop=True)}")
    outer, inner = pty.openpty()
    ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
    known = {each: value for each, value in os.environ.items() if each != "COLUMNS"}
    process = subprocess.Popen(
        [sys.executable, "-c", EACH, str(runs), *COMMANDS],
        stdin=inner, stdout=inner, stderr=subprocess.DEVNULL,
        env={**known, "TERM": "xterm", "NO_COLOR": "1"},
    )  # fmt: skip
    os.close(inner)
    said = b""
    while True:
        try:
            part = os.read(outer, 65_536)
        except OSError:  # Linux: the other end is closed
            break
        if not part:
            break
        said += part
    os.close(outer)
    assert process.wait() == 0
    before, *pieces = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", said.decode()).split("== ")
    assert before == ""
    found = {name: lines for name, *lines in map(str.splitlines, pieces)}
    assert (*found,) == COMMANDS
    for name, lines in found.items():
        assert lines
        assert all(len(row) <= width for row in lines), lines
        assert not any("…" in row for row in lines if name != "steps")
        assert any(ID in row for row in lines) or name in ("learn", "eval")


@pytest.mark.parametrize("words", ["-h", "replay -h", "hook -h", "hook run -h"])
def test_the_module_helps_as_the_command_does(words: str) -> None:
    """By the short option, too."""
    command = [sys.executable, "-m", "otel_loopguard", *words.split()]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "--help" in done.stdout


def ran(
    redirected: str, *arguments: object, at: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """The command line in a shell that redirects its streams."""
    command = [sys.executable, "-c", PROGRAM, *map(str, arguments)]
    shell = ["sh", "-c", f'exec "$@" {redirected}', "sh", *command]
    return subprocess.run(shell, capture_output=True, text=True, check=False, cwd=at)


@pytest.mark.parametrize(
    ("_name", "redirected", "words", "code", "said"), rows(__file__, "streams")
)
def test_a_full_disk_is_one_line_and_a_closed_stream_no_fault(
    _name: str, redirected: str, words: str, code: str, said: str, runs: Path
) -> None:
    if "/dev/full" in redirected and not Path("/dev/full").exists() and "CI" not in os.environ:
        pytest.skip("there is no /dev/full")
    done = ran(redirected, *words.split(), at=runs.parent)
    assert (done.returncode, done.stderr.splitlines()) == (int(code), [said] * bool(said))


@pytest.mark.parametrize("command", ["doctor", "transcripts", "hook status"])
def test_a_folder_that_was_deleted_meanwhile_is_named(tmp_path: Path, command: str) -> None:
    program = f"import os; os.rmdir(os.getcwd()); {PROGRAM}"
    words = [sys.executable, "-c", program, *command.split()]
    # The installed program does not import from the current folder either.
    safe = {**os.environ, "PYTHONSAFEPATH": "1"}
    done = subprocess.run(
        words, cwd=tmp_path, env=safe, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr == "otel-loopguard: the current folder: No such file or directory\n"


def test_a_path_that_is_none_is_told_without_its_signs(runs: Path) -> None:
    """A terminal would do what they say."""
    done = ran("", "replay", runs, "--settings", "\x1b]0;title\x07\x1b[2Jnowhere.toml")
    assert done.returncode == 2
    assert "nowhere.toml" in done.stderr
    assert "\x1b" not in done.stderr
    assert "\x07" not in done.stderr


def test_without_the_extra(tmp_path: Path) -> None:
    """Without typer the command says in one line what to install, and ends with 2."""
    (tmp_path / "typer.py").write_text("raise ModuleNotFoundError('no typer', name='typer')")
    root = str(Path(__file__).parents[2])
    program = f"import sys; sys.path[:0] = [{str(tmp_path)!r}, {root!r}]\n{PROGRAM}"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr == (
        "the command line needs the extra `cli`: pip install 'otel-loopguard[cli]'\n"
    )
