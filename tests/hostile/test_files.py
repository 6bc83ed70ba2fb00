"""Files made to hurt end with one clear report each and an exit code, in little memory."""

import gzip
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.hostile.conftest import Attacked
from tests.tables import rows

pytestmark = pytest.mark.rare

MILLION = 1_000_000
REPORTS = 11
"""Ten reports, and how many more there were."""

COMMANDS = ("replay", "steps", "report", "eval", "learn")
"""Those that read recordings."""

Pieces = list[tuple[bytes, int]]
"""Bytes, and how often they stand one after another."""


def pieces(text: str) -> Pieces:
    """Those of a text with `<9 times x>` in it, of which no bytes are repeated here."""
    first, *more = re.split(
        r"<(\d+) times (.+?)>", text.encode().decode("unicode_escape"), flags=re.DOTALL
    )
    found = [(first, 1)]
    for count, unit, after in zip(more[::3], more[1::3], more[2::3], strict=True):
        found += [(unit, int(count)), (after, 1)]
    return [(piece.encode(), count) for piece, count in found if piece]


BOMBS = {name: pieces(text) for name, text in (row.values for row in rows(__file__, "bombs"))}


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


def test_empty_members_of_gzip_take_linear_time(tmp_path: Path, attacked: Attacked) -> None:
    """20 MB of empty members are an empty file."""
    path = tmp_path / "members.gz"
    path.write_bytes(gzip.compress(b"") * MILLION)
    done = attacked("replay", path)
    assert done.returncode == 1
    assert "the file is empty" in done.stderr


@pytest.mark.parametrize("command", COMMANDS)
def test_what_is_no_recording_is_refused(tmp_path: Path, attacked: Attacked, command: str) -> None:
    """With exit code 2 and one line that names it.

    What else is in a folder is not followed: links, devices, and pipes that nobody writes to.
    """
    (tmp_path / "everything").symlink_to("/")
    (tmp_path / "itself").symlink_to(tmp_path)
    (tmp_path / "zero.jsonl").symlink_to("/dev/zero")
    os.mkfifo(tmp_path / "pipe.jsonl")
    for path, said in ((tmp_path, "folder"), ("/dev/urandom", "cannot be read: it is a device")):
        done = attacked(command, path)
        assert done.returncode == 2
        [line] = reports(done.stderr)
        assert line.startswith(f"otel-loopguard: {path}: ")
        assert said in line
