"""Files made to hurt end with one clear report each and an exit code, in little memory."""

import gzip
import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.hostile.conftest import Attacked
from tests.hostile.rig import TOOL, ended

pytestmark = pytest.mark.rare

MILLION = 1_000_000
REPORTS = 11
"""Ten reports, and how many more there were."""

COMMANDS = ("replay", "steps", "report", "eval", "learn")
"""Those that read recordings."""

Pieces = list[tuple[bytes, int]]
"""Bytes, and how often they stand one after another."""

BOMBS: dict[str, Pieces] = {
    "lists that never end": [(b"[", 240 * MILLION)],
    "objects that never end": [(b'{"a":', 48 * MILLION)],
    "a deep attribute": [
        (b'{"name":"n","context":{"trace_id":"0x1","span_id":"0x1"},"attributes":{"a":', 1),
        (b"[", 3 * MILLION), (b"]", 3 * MILLION), (b"}}\n", 1),
    ],
    "a step for two bytes": [(b'{"steps":[0', 1), (b",0", 20 * MILLION), (b"]}\n", 1)],
    "a map for three bytes": [(b'{"data":[{}', 1), (b",{}", 13 * MILLION), (b"]}\n", 1)],
    "spans that are none": [(b'{"resourceSpans":[0', 1), (b",0", 20 * MILLION), (b"]}\n", 1)],
    "blank lines": [(b"\n", 300 * MILLION)],
    "one blank line": [(b" ", 300 * MILLION)],
    "lines of one digit": [(b"1\n", 100 * MILLION)],
    "empty requests": [(b"{}\n", 60 * MILLION)],
    "a document that never ends": [(b"[\n", 1), (b"1,\n", 60 * MILLION)],
    "documents that never end": [(b"{\n", 60 * MILLION)],
    "a text that never ends": [(b'{"id":"', 1), (b"a", 300 * MILLION)],
    "quotes": [(b'"', 300 * MILLION)],
    "escaped quotes": [(b'["', 1), (b'\\"', 150 * MILLION)],
    "backslashes": [(b'["', 1), (b"\\", 300 * MILLION)],
    "zeros after a beginning": [(b"{\n", 1), (b"\0", 300 * MILLION)],
}  # fmt: skip


def written(path: Path, pieces: Pieces, opened: Callable[..., object]) -> Path:
    with opened(path, "wb") as out:  # type: ignore[attr-defined]
        for piece, count in pieces:
            block = max(1, MILLION // len(piece))
            for _ in range(count // block):
                out.write(piece * block)
            out.write(piece * (count % block))
    return path


def reports(stderr: str) -> list[str]:
    """What was said; the end of a traceback is no report."""
    assert "Traceback" not in stderr, stderr[-2000:]
    return stderr.splitlines()


SMALL = ("a step for two bytes", "a deep attribute", "blank lines")
READ = [
    *(("replay", name, gzip.open) for name in BOMBS),
    # What reads recordings reads them within the same bounds.
    *((command, name, gzip.open) for command in COMMANDS[1:5] for name in SMALL),
    # It reads its files more than once, and says what is wrong with them once.
    ("calibrate --false-stops 0.1", SMALL[0], gzip.open),
    # A file that is large without being compressed.
    *(("replay", name, open) for name in ("lists that never end", "a document that never ends")),
]


@pytest.mark.parametrize(("command", "name", "opened"), READ)
def test_a_bomb_ends_with_a_clear_report(
    tmp_path: Path, attacked: Attacked, command: str, name: str, opened: Callable[..., object]
) -> None:
    """A few hundred kilobytes of gzip end with file, line and reason, and an exit code."""
    path = written(tmp_path / "bomb", BOMBS[name], opened)
    if opened is gzip.open:
        assert path.stat().st_size < 500_000
    done = attacked(*command.split(), path)
    found = reports(done.stderr)
    calibrates = command.startswith("calibrate")
    assert done.returncode == 1 + calibrates
    assert 1 <= len(found) <= REPORTS + calibrates
    if command == "replay":
        assert re.match(rf"{path}:\d+:", found[0])
        assert len(max(found, key=len)) < 300


def test_what_stands_after_a_bomb_in_a_line_is_read(tmp_path: Path, attacked: Attacked) -> None:
    """A line too large costs that line, and no other."""
    run = json.dumps({"id": "r", "steps": [{"kind": "tool", "tool": "t", "output": "o"}]})
    path = tmp_path / "runs.jsonl"
    path.write_text(f"{run}\n" + '{"steps":[0' + ",0" * 5 * MILLION + f"]}}\n{run}\n")
    done = attacked("replay", path, "--format", "json")
    assert len(done.stdout.splitlines()) == 2
    assert done.stderr == f"{path}:2: the line has more than 4,000,000 values\n"


def test_empty_members_of_gzip_take_linear_time(tmp_path: Path, attacked: Attacked) -> None:
    """20 MB of empty members are an empty file."""
    path = tmp_path / "members.gz"
    path.write_bytes(gzip.compress(b"") * MILLION)
    done = attacked("replay", path)
    assert done.returncode == 1
    assert "the file is empty" in done.stderr


def test_an_honest_file_is_read_whole(tmp_path: Path, attacked: Attacked) -> None:
    """26 MB of spans of an agent, many times as long as compressed, are read to the last."""
    path = tmp_path / "honest.jsonl.gz"
    with gzip.open(path, "wt") as out:
        for number in range(12_000):
            args, trace_id = json.dumps({"q": os.urandom(30).hex()}), number // 30 + 1
            said = {"gen_ai.tool.call.arguments": args, "gen_ai.tool.call.result": "found " * 300}
            span = ended({**TOOL, **said}, span_id=number + 1, trace_id=trace_id, at=number)
            out.write(span.to_json(indent=None) + "\n")
    done = attacked("replay", path, "--format", "json")
    assert (done.returncode, done.stderr) == (0, "")
    assert sum(json.loads(line)["steps"] for line in done.stdout.splitlines()) == 12_000


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("place", ["/dev/zero", "/dev/urandom", "a folder without transcripts"])
def test_what_is_no_recording_is_refused(
    tmp_path: Path, attacked: Attacked, command: str, place: str
) -> None:
    """With exit code 2 and one line that names it.

    What else is in a folder is not followed: links, devices, and pipes that nobody writes to.
    """
    (tmp_path / "everything").symlink_to("/")
    (tmp_path / "itself").symlink_to(tmp_path)
    (tmp_path / "zero.jsonl").symlink_to("/dev/zero")
    os.mkfifo(tmp_path / "pipe.jsonl")
    path, said = (place, "cannot be read: it is a device")
    if not place.startswith("/dev"):
        path, said = str(tmp_path), "folder"
    done = attacked(command, path)
    assert done.returncode == 2
    [line] = reports(done.stderr)
    assert line.startswith(f"otel-loopguard: {path}: ")
    assert said in line
