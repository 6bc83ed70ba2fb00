"""opencode: the sessions in `~/.local/share/opencode/opencode.db`, or `opencode-CHANNEL.db`.

Read off sessions of 1.18.33, and its code: `session`, `message` and `part`, whose `data` is JSON. A
session in the database is named by a path, `opencode.db/SESSION`, and read as lines: one for the
session, then one for each part of a message and one for the message; an answer is one, with its
calls and their results. A sub-agent has a session of its own, which names the one above it. The
database is opened to be read, for a moment each time: opencode writes it in WAL mode, where a
reader neither waits for a writer nor keeps one waiting.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from operator import itemgetter
from pathlib import Path
from typing import Final, NamedTuple

from otel_loopguard._util.fields import JsonObject, integer, is_map, kind_of, mapping, text, time
from otel_loopguard._util.tables import read_parts
from otel_loopguard.replay.file import RecordedFile, unreadable
from otel_loopguard.replay.transcripts.session import Ending, Reader, Transcript, tokens

_PATIENCE_S: Final = 0.5
"""A recovery after a crash locks readers out for a moment; the next look tries again."""
_LONGEST: Final = 16 * 1024 * 1024
"""Characters of a row that is read, as of a line of a transcript."""
_AT_ONCE: Final = 16
"""Messages that are held at once."""
_QUERIES: Final = read_parts(__name__, "opencode.sql")
_ID: Final = re.compile(r"[\w-]{1,200}")


class TranscriptFile(NamedTuple):
    """A file that may be a transcript, or a session of a database.

    Attributes:
        path: Of the file; of a session, the one that names it.
        size: Its bytes; of a session, its messages.
        modified: When it changed last, seconds since the epoch.
    """

    path: Path
    size: int
    modified: float


def is_database(path: Path) -> bool:
    """True if a file is a database of opencode, by its name."""
    return path.suffix == ".db" and path.name.startswith("opencode") and path.is_file()


def is_session(path: Path) -> bool:
    """True if a path names a session of a database."""
    return is_database(path.parent)


def stored_sessions(database: Path) -> list[TranscriptFile]:
    """The sessions that have messages; none if the database cannot be read."""
    try:
        with _opened(database) as opened:
            rows = opened.execute(_QUERIES["sessions"]).fetchall()
    except sqlite3.Error:
        return []
    return [
        TranscriptFile(database / _decoded(key), count, _seconds(time))
        for key, count, time in rows
        if _ID.fullmatch(_decoded(key))
    ]


def session_above(path: Path) -> tuple[str | None, float]:
    """The session that one works for, if it does, and when it changed last."""
    try:
        with _opened(path.parent) as opened:
            found = opened.execute(_QUERIES["session"], (path.name,)).fetchone()
    except sqlite3.Error:
        found = None
    return (None, 0.0) if found is None else (_decoded(found[0]) or None, _seconds(found[3]))


class SessionRows:
    """The rows of a session as lines, read on from where the last look ended.

    Args:
        path: The path that names the session.

    Attributes:
        messages: How many were read.
    """

    def __init__(self, path: Path) -> None:
        self.messages = 0
        self._path = path
        self._begun = False
        self._given = {  # the newest message that was given, and what else the queries ask for
            "session": path.name, "time": -1, "message": "", "count": _AT_ONCE, "longest": _LONGEST
        }  # fmt: skip

    def lines(self, *, growing: bool) -> Iterator[bytes]:
        """The lines that came since.

        Args:
            growing: Whether to wait for the rest of a message that is being written.

        Raises:
            sqlite3.Error: The database cannot be read.
        """
        with _opened(self._path.parent) as opened:
            if not self._begun:
                self._begun = True
                found = opened.execute(_QUERIES["session"], (self._path.name,)).fetchone()
                above, folder, version = map(_decoded, (found or (None,) * 3)[:3])
                said = {"parentID": above, "directory": folder, "version": version}
                yield _line("session", self._path.name, json.dumps(said).encode())
            before = None
            messages, parts = _QUERIES["messages"], _QUERIES["parts"]
            while (rows := opened.execute(messages, self._given).fetchall()) and rows != before:
                before = rows  # the same again if an id is no text that can be asked for
                for number, (name, time, data, role, completed) in enumerate(rows):
                    # A prompt gets its parts after it; an answer is complete when it says so, or,
                    # where opencode was killed, when another one follows.
                    whole = role == b"assistant" and completed is not None
                    followed = any(row[3] == b"assistant" for row in rows[number + 1 :])
                    if growing and not whole and not followed:
                        return
                    key = _decoded(name)
                    self._given |= {"time": time, "message": key}
                    self.messages += 1
                    if _ID.fullmatch(key):
                        for part, content in opened.execute(parts, self._given):
                            yield _line("part", _decoded(part), content)
                        yield _line("message", key, data)


class RecordedRows(RecordedFile):
    """A session of a database, by its lines."""

    def _measured(self) -> int | None:
        return None

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """The lines, each with its number from 1."""
        try:
            for number, line in enumerate(SessionRows(Path(self._path)).lines(growing=False), 1):
                self.empty = False
                yield number, line
        except sqlite3.Error as error:
            raise unreadable(self._path, error) from error


@contextmanager
def _opened(database: Path) -> Generator[sqlite3.Connection]:
    address = f"{database.resolve().as_uri()}?mode=ro"
    with closing(sqlite3.connect(address, uri=True, timeout=_PATIENCE_S)) as opened:
        opened.text_factory = bytes  # what is no UTF-8 fails where it is read, not the whole query
        if opened.execute(_QUERIES["stored"]).fetchone() != (3,):
            raise sqlite3.DatabaseError("it has other tables than opencode makes")
        yield opened


def _line(kind: str, key: str, data: object) -> bytes:
    """A row as a line; what is no JSON in it makes a line that is none."""
    head = json.dumps({"opencode": kind, "id": key})[:-1].encode()
    return b'%s, "data": %s}' % (head, data if isinstance(data, bytes) else b"null")


def _decoded(value: object) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return value if isinstance(value, str) else ""


def _seconds(time: object) -> float:
    return time / 1_000 if isinstance(time, int) else 0.0


_ROWS: Final = frozenset(("session", "message", "part"))
_MOST_PARTS: Final = 1_000
"""Parts of a message that are held: an answer with its calls, of which agents make a few."""
_STOPPED: Final = (
    "The user rejected permission",
    "The user dismissed",
    "Tool execution aborted",
    "Cancelled",
)
"""Beginnings of the errors of calls that a person refused or interrupted."""


class OpenCode(Reader):
    """Reads one session."""

    agent = "opencode"

    def _begin(self) -> None:
        super()._begin()
        self._agent: str | None = None
        self._parts: list[tuple[str, JsonObject]] = []  # of the message that follows

    @staticmethod
    def begins(line: JsonObject) -> bool:
        """True if a line is a row of a session."""
        return text(line.get("opencode")) in _ROWS and "data" in line

    def take(self, line: JsonObject) -> Transcript | None:
        """Takes a line; that of another session starts a new one."""
        kind, key = text(line.get("opencode")), text(line.get("id"))
        data = line.get("data")
        if kind not in _ROWS or not is_map(data):
            self.report(f"`data` of a row is {kind_of(data)}, expected an object")
            return None
        before = None
        if kind == "session":
            before = self._named(key)
            self.session.cwd = text(data.get("directory"))
            self.session.version = text(data.get("version"))
            self._agent = key if text(data.get("parentID")) else None
        elif kind == "message":
            self._message(key, data)
            self._parts.clear()
        elif len(self._parts) >= _MOST_PARTS:
            self.report(f"the message has more than {_MOST_PARTS:,} parts, the rest is left out")
        elif data.get("type") in ("text", "tool"):
            self._parts.append((key, data))
        return before

    def _message(self, key: str, message: JsonObject) -> None:
        made = _moment(mapping(message.get("time")), "created")
        if message.get("role") == "assistant":
            self._answer(message, made)
        elif message.get("role") == "user":
            written = (part for _, part in self._parts if part.get("type") == "text")
            # opencode itself writes in a user's name, too: to go on after a compaction.
            if self._agent is None and any(not part.get("synthetic") for part in written):
                self.session.prompt(made)
        else:
            self.report(f"the `role` of message {key[:40]} is neither `user` nor `assistant`")

    def _answer(self, message: JsonObject, made: int) -> None:
        session = self.session
        texts = [part for _, part in self._parts if part.get("type") == "text"]
        calls = [
            (key, part, self._map(part, "state"))
            for key, part in self._parts
            if part.get("type") == "tool"
        ]
        # A message is complete when its calls are; the model was, when they began.
        times = [_moment(mapping(part.get("time")), "end") for part in texts]
        times += [_moment(mapping(state.get("time")), "start") for _, _, state in calls]
        over = max(times, default=0) or _moment(mapping(message.get("time")), "completed")
        model = text(message.get("modelID")) or None
        step = session.answer(model, made, max(made, over), self._agent)
        for part in texts:
            session.say(step, text(part.get("text")))
        used = mapping(message.get("tokens"))
        read, written = (tokens(mapping(used.get("cache")), name) for name in ("read", "write"))
        whole = tokens(used, "input") + read + written
        session.used(step, whole, tokens(used, "output", "reasoning"), read, written)
        ended: list[tuple[int, str, JsonObject]] = []
        for key, part, state in calls:
            moments = mapping(state.get("time"))
            begun = _moment(moments, "start") or made
            session.call(key, part.get("tool"), state.get("input"), begun, self._agent)
            if state.get("status") in ("completed", "error"):
                ended.append((_moment(moments, "end"), key, state))
        for end, key, state in sorted(ended, key=itemgetter(0)):
            self._result(key, state, end)
        session.ending = _ending(message)

    def _result(self, key: str, state: JsonObject, end: int) -> None:
        if state.get("status") == "error":
            why = text(state.get("error"))
            self.session.result(key, None, end, error=why, stopped=why.startswith(_STOPPED))
            return
        # A command that failed is a success to opencode.
        code = integer(mapping(state.get("metadata")).get("exit"))
        self.session.result(key, state.get("output"), end, error="" if code else None)


def _ending(message: JsonObject) -> Ending:
    """The end of the turn, if this message is its last."""
    error = mapping(message.get("error"))
    if error:
        return "interrupted" if error.get("name") == "MessageAbortedError" else "unknown"
    return "finished" if message.get("finish") == "stop" else "unknown"


def _moment(moments: JsonObject, name: str) -> int:
    return time(moments.get(name), 1_000_000) or 0  # milliseconds
