"""The state of one user's hooks across processes, in SQLite."""

from __future__ import annotations

import os
import secrets
import sqlite3
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from otel_loopguard.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

_SCHEMA: Final = 1
_TABLES: Final = """
CREATE TABLE session (
  key TEXT PRIMARY KEY, mode TEXT NOT NULL, used INTEGER NOT NULL, allowed BLOB
);
CREATE TABLE entry (
  place INTEGER PRIMARY KEY, session TEXT NOT NULL, id TEXT NOT NULL, value BLOB NOT NULL,
  UNIQUE (session, id)
);
CREATE TABLE call (
  place INTEGER PRIMARY KEY, session TEXT NOT NULL, id TEXT NOT NULL, state TEXT NOT NULL,
  begun INTEGER NOT NULL, agent TEXT NOT NULL, said TEXT NOT NULL, UNIQUE (session, id)
);
CREATE TABLE told (
  place INTEGER PRIMARY KEY, session TEXT NOT NULL, decision TEXT NOT NULL, agent TEXT NOT NULL,
  what TEXT NOT NULL, UNIQUE (session, decision)
);
"""
_KEPT_S: Final = 7 * 24 * 3600
_MOST: Final = {"entry": 1000, "call": 500, "told": 200}
_TRIM_EVERY: Final = 256
_FORGET_EVERY_S: Final = 24 * 3600


class KnownCall(NamedTuple):
    """A call that an event reported.

    Attributes:
        state: `open`, `done`, `refused`, or `closed` where no answer came.
        begun: When it began, nanoseconds since the epoch.
        agent: The sub-agent that made it; empty for the main agent.
        said: Why it was refused.
    """

    state: str
    begun: int
    agent: str
    said: str = ""


class HookState:
    """The journals of sessions, their calls and sent decisions, of the newest seven days.

    What an agent read or wrote is not in it: journals hold digests. One process at a time uses it,
    from any thread, one at a time.

    Args:
        folder: Where it lies.

    Raises:
        StoreError: The file can neither be opened nor made anew.
    """

    def __init__(self, folder: Path) -> None:
        self.key = secret_of(folder / "key")
        self._path = folder / "hooks.sqlite"
        try:
            try:
                self._file = _opened(self._path)
            except sqlite3.DatabaseError as error:
                if not _is_damaged(error):
                    raise
                self._file = self._replace_file()
        except (OSError, sqlite3.Error) as error:
            msg = f"the state of the hooks, {str(self._path)!r}: {error}"
            raise StoreError(msg) from error
        self._writes = 0
        try:
            self.forget_old()
        except StoreError:
            self.forget_old()  # it was damaged inside, and is a new one now

    @contextmanager
    def together(self) -> Generator[None]:
        """Writes the block as one transaction."""
        with self._storing():
            self._file.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._rolled_back()
            raise
        try:
            self._file.execute("COMMIT")
        except sqlite3.Error as error:
            self._rolled_back()
            raise StoreError(str(error)) from error

    def submit(self, session: str, entries: Sequence[tuple[str, bytes]]) -> None:
        """Adds to the journal of a session; of the guard's `JournalStore`."""
        rows = [(session, name, value) for name, value in entries]
        with self._storing():
            self._file.executemany(
                "INSERT OR IGNORE INTO entry (session, id, value) VALUES (?, ?, ?)", rows
            )
            self._writes += 1
            if not self._writes % _TRIM_EVERY:
                self._trim(session)
            if time.time() - self._forgot > _FORGET_EVERY_S:
                self._forget_old()

    def journal(self, session: str, after: str | None = None) -> list[tuple[str, bytes]]:
        """The journal of a session; of the guard's `JournalStore`."""
        with self._storing():
            return self._file.execute(
                "SELECT id, value FROM entry WHERE session = ? AND place > coalesce("
                "(SELECT place FROM entry WHERE session = ? AND id = ?), 0) ORDER BY place",
                (session, session, after or ""),
            ).fetchall()

    def use(self, session: str, mode: str) -> None:
        """A session is in use now, by a guard in that mode."""
        with self._storing():
            self._file.execute(
                "INSERT INTO session (key, mode, used) VALUES (?, ?, ?)"
                " ON CONFLICT (key) DO UPDATE SET mode = excluded.mode, used = excluded.used",
                (session, mode, int(time.time())),
            )

    def mode(self, session: str) -> str | None:
        """The mode of the guard that used a session last; None where there is no such session."""
        with self._storing():
            found = self._file.execute("SELECT mode FROM session WHERE key = ?", (session,))
            row = found.fetchone()
        return None if row is None else row[0]

    def allow(self, session: str, calls: frozenset[int] | None) -> None:
        """Remembers the calls that a person allowed; None: the session, whatever it does."""
        data = b"*" if calls is None else b"".join(_bytes(call) for call in calls)
        with self._storing():
            self._file.execute("UPDATE session SET allowed = ? WHERE key = ?", (data, session))

    def allowed(self, session: str) -> frozenset[int] | None:
        """As given to `allow`; empty where nothing was."""
        with self._storing():
            found = self._file.execute("SELECT allowed FROM session WHERE key = ?", (session,))
            (data,) = found.fetchone() or (None,)
        if data == b"*":
            return None
        pieces = [data[place : place + 9] for place in range(0, len(data), 9)] if data else ()
        return frozenset(int.from_bytes(piece, "big", signed=True) for piece in pieces)

    def call(self, session: str, call_id: str) -> KnownCall | None:
        """Returns a call, if an event reported it."""
        with self._storing():
            found = self._file.execute(
                "SELECT state, begun, agent, said FROM call WHERE session = ? AND id = ?",
                (session, call_id),
            ).fetchone()
        return None if found is None else KnownCall(*found)

    def open_calls(self, session: str) -> dict[str, KnownCall]:
        """The calls of a session that have begun and not ended, by id, oldest first."""
        with self._storing():
            rows = self._file.execute(
                "SELECT id, state, begun, agent, said FROM call"
                " WHERE session = ? AND state = 'open' ORDER BY place",
                (session,),
            ).fetchall()
        return {row[0]: KnownCall(*row[1:]) for row in rows}

    def put_call(self, session: str, call_id: str, call: KnownCall) -> None:
        """Remembers a call as it is now."""
        with self._storing():
            self._file.execute(
                "INSERT INTO call (session, id, state, begun, agent, said)"
                " VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (session, id)"
                " DO UPDATE SET state = excluded.state, said = excluded.said",
                (session, call_id, *call),
            )

    def remember_replies(self, session: str, decision: str, agent: str, what: str) -> None:
        """Remembers the agent of a decision, and the replies sent for it."""
        with self._storing():
            self._file.execute(
                "INSERT INTO told (session, decision, agent, what) VALUES (?, ?, ?, ?)"
                " ON CONFLICT (session, decision) DO UPDATE SET what = excluded.what",
                (session, decision, agent, what),
            )

    def replies(self, session: str, decision: str) -> tuple[str, str]:
        """The agent of a decision, and the replies sent for it; both empty if unknown."""
        with self._storing():
            found = self._file.execute(
                "SELECT agent, what FROM told WHERE session = ? AND decision = ?",
                (session, decision),
            ).fetchone()
        return found or ("", "")

    def decisions(self, session: str, what: str) -> list[str]:
        """The decisions of a session for which a reply was sent."""
        with self._storing():
            rows = self._file.execute(
                "SELECT decision FROM told WHERE session = ? AND instr(what, ?) ORDER BY place",
                (session, what),
            ).fetchall()
        return [decision for (decision,) in rows]

    def forget_old(self) -> None:
        """Forgets the sessions that were not used for seven days."""
        with self.together(), self._storing():
            self._forget_old()

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

    def _forget_old(self) -> None:
        self._forgot = time.time()
        old = (int(self._forgot) - _KEPT_S,)
        self._file.execute("DELETE FROM session WHERE used < ?", old)
        for table in _MOST:
            self._file.execute(
                f"DELETE FROM {table} WHERE session NOT IN (SELECT key FROM session)"  # noqa: S608
            )

    @contextmanager
    def _storing(self) -> Generator[None]:
        try:
            yield
        except sqlite3.Error as error:
            if _is_damaged(error):
                with suppress(OSError, sqlite3.Error):
                    self._file.close()
                    self._file = self._replace_file()
            raise StoreError(str(error)) from error

    def _replace_file(self) -> sqlite3.Connection:
        """Replaces a file that is damaged or of another version; counts start at zero."""
        for left in self._path.parent.glob(f"{self._path.name}*"):
            left.rename(left.with_name(f"broken-{left.name}"))
        return _opened(self._path)

    def _trim(self, session: str) -> None:
        for table, most in _MOST.items():
            self._file.execute(
                f"DELETE FROM {table} WHERE session = ? AND place <= ("  # noqa: S608
                f"SELECT place FROM {table} WHERE session = ? ORDER BY place DESC"
                " LIMIT 1 OFFSET ?)",
                (session, session, most),
            )

    def _rolled_back(self) -> None:
        if self._file.in_transaction:
            with self._storing():
                self._file.execute("ROLLBACK")


def _opened(path: Path) -> sqlite3.Connection:
    """The file, with its tables."""
    file = sqlite3.connect(path, timeout=1, isolation_level=None, check_same_thread=False)
    try:
        file.execute("PRAGMA journal_mode = WAL")
        # Survives a killed process; a power failure may lose the newest rows.
        file.execute("PRAGMA synchronous = NORMAL")
        (version,) = file.execute("PRAGMA user_version").fetchone()
        if version == 0:
            file.executescript(f"BEGIN;{_TABLES}PRAGMA user_version = {_SCHEMA};COMMIT")
        file.execute("SELECT 1 FROM session, entry, call, told LIMIT 1")
    except BaseException:
        file.close()
        raise
    if version not in (0, _SCHEMA):
        file.close()
        msg = f"its version is {version}, not {_SCHEMA}"
        raise sqlite3.DatabaseError(msg)
    return file


def _is_damaged(error: sqlite3.Error) -> bool:
    """Whether a file is damaged or not ours, rather than locked or without room on the disk."""
    return type(error) is sqlite3.DatabaseError or str(error).startswith("no such table")


def secret_of(path: Path) -> str:
    """The secret in a file, made whole on first use."""
    for _ in range(2):
        try:
            found = path.read_text("ascii").strip()
        except (FileNotFoundError, ValueError):
            found = ""
        if len(found) >= 32:
            return found
        new = path.with_name(f".{path.name}-{os.getpid()}")
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(descriptor, "w", encoding="ascii") as stream:  # noqa: PTH123  # a descriptor
            stream.write(secrets.token_hex(32))
        new.replace(path)
    return secrets.token_hex(32)


def _bytes(call: int) -> bytes:
    return call.to_bytes(9, "big", signed=True)
