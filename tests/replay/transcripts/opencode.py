"""A database that opencode wrote, as SQL: written anew, in whole or in the order in which it grew.

    AGENTS_HOME=FOLDER python -m tests.replay.transcripts.opencode

runs opencode (`npm install opencode-ai@1.18.33` in FOLDER) against a model with a script, and keeps
the tables that are read of its database.
"""

import json
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from otel_loopguard.replay.transcripts.opencode import SessionRows

CAPTURE: Final = Path(__file__).parent / "captures" / "opencode.sql"
SESSION: Final = "ses_de932a390ffedVR7PZukgywp45"
_TABLES: Final = ("session", "message", "part")


def tables(database: Path) -> sqlite3.Connection:
    """A database with the tables of the capture, and its sessions, just begun."""
    opened = sqlite3.connect(database)
    opened.execute("PRAGMA journal_mode = WAL")
    opened.executescript(CAPTURE.read_text("utf-8"))
    opened.execute("DELETE FROM part")
    opened.execute("DELETE FROM message")
    opened.execute("UPDATE session SET time_updated = ?", (int(time.time() * 1_000),))
    opened.commit()
    return opened


def whole(database: Path) -> Path:
    with closing(sqlite3.connect(database)) as opened:
        opened.executescript(CAPTURE.read_text("utf-8"))
    return database


def rows() -> list[str]:
    """The session without its sub-agent, as lines."""
    with tempfile.TemporaryDirectory() as folder:
        place = whole(Path(folder, "opencode.db")) / SESSION
        return [line.decode() for line in SessionRows(place).lines(growing=False)]


def changes() -> Iterator[tuple[str, tuple[Any, ...]]]:
    """What opencode did to the rows, one statement after the other, by their times.

    A message is written before its parts, and again with its end; a call is pending first.
    """
    with closing(sqlite3.connect(":memory:")) as opened:
        opened.executescript(CAPTURE.read_text("utf-8"))
        messages = opened.execute("SELECT * FROM message").fetchall()
        parts = opened.execute("SELECT * FROM part").fetchall()
    found: list[tuple[int, int, str, tuple[Any, ...]]] = []
    for key, session, made, updated, data in messages:
        begun = json.loads(data)
        begun["time"].pop("completed", None)
        begun.pop("finish", None)
        row = (key, session, made, made, json.dumps(begun))
        found.append((made, 0, "INSERT INTO message VALUES (?, ?, ?, ?, ?)", row))
        done = json.loads(data)["time"].get("completed", updated)
        change = "UPDATE message SET time_updated = ?, data = ? WHERE id = ?"
        found.append((done, 3, change, (updated, data, key)))
    for key, message, session, made, updated, data in parts:
        begun = json.loads(data)
        if "state" in begun:
            begun["state"] = {"status": "pending", "input": {}, "raw": ""}
        row = (key, message, session, made, made, json.dumps(begun))
        found.append((made, 1, "INSERT INTO part VALUES (?, ?, ?, ?, ?, ?)", row))
        change = "UPDATE part SET time_updated = ?, data = ? WHERE id = ?"
        found.append((updated, 2, change, (updated, data, key)))
    for _, _, statement, values in sorted(found, key=lambda one: one[:2]):
        yield statement, values


def main() -> None:
    from tests.dialects.agents import opencode  # what tests do without
    from tests.dialects.recording import recording

    look = ("bash", {"command": "cat missing.txt", "description": "Look"})
    inside = ("bash", {"command": "echo inside", "description": "Look"})
    ask = {"description": "sub task", "prompt": "sub task", "subagent_type": "general"}
    with tempfile.TemporaryDirectory() as home:
        work = Path(home, "work")
        work.mkdir()
        (work / "note.txt").write_text("hello there\n")
        read = [("read", {"filePath": str(work / name)}) for name in ("note.txt", "nope.txt")]
        script = [look, look, look, *read, ("task", ask)]
        with recording(script, home, [inside] * 2) as into:
            opencode(work, into.url, HOME=home)
        database = Path(home, ".local/share/opencode/opencode.db")
        with closing(sqlite3.connect(database)) as opened:
            dumped = "\n".join(_dumped(opened)) + "\n"
    for place in (str(work), str(work)[1:]):
        dumped = dumped.replace(place, "/app")
    CAPTURE.write_text(dumped, "utf-8")


def _dumped(opened: sqlite3.Connection) -> Iterator[str]:
    schema = "SELECT sql FROM sqlite_master WHERE tbl_name = ? AND sql IS NOT NULL"
    for name in _TABLES:
        for (statement,) in opened.execute(schema, (name,)):
            yield f"{statement};"
    for line in opened.iterdump():
        if line.startswith(tuple(f'INSERT INTO "{name}"' for name in _TABLES)):
            yield line


if __name__ == "__main__":
    main()
