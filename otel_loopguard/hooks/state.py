"""The state of one user's hooks across processes, in SQLite."""

from __future__ import annotations

import json
import os
import secrets
import sqlite3
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from otel_loopguard._util.bounded import BoundedDict
from otel_loopguard._util.tables import read_parts
from otel_loopguard.errors import StoreError

# Of the tables; a file of another version is put aside, and counts start at zero.
_SCHEMA: Final = 2
_SQL: Final = read_parts(__name__, "state.sql")
# A session that is taken up again after a week is not the task it was.
_KEPT_S: Final = 7 * 24 * 3600
_MOST: Final = {"entry": 1000, "call": 500, "told": 200}
"""Items of a session: entries of its journal, calls, and decisions with what was told of them. The
guard itself looks back 50 calls; the rest is for turns of many calls side by side."""
# Trimming reads an index; a session has this many items more at most. The first write of a process
# trims, too: each event may have a process of its own.
_TRIM_EVERY: Final = 256
# Sessions whose writes are counted; one more is trimmed sooner.
_MOST_COUNTED: Final = 256
# If several hooks report an event, the last one does within the time that an agent gives a hook.
_TOGETHER_S: Final = 10
# Sessions are kept for days, and forgetting reads the whole file.
_FORGET_EVERY_S: Final = 24 * 3600
# `secrets.token_hex(32)` has 64 digits; a file with fewer was cut.
_SHORTEST_SECRET: Final = 32


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
        self._path = folder / "hooks.sqlite"
        try:
            self.key = secret_of(folder / "key")
            try:
                self._file = _opened(self._path)
            except sqlite3.DatabaseError as error:
                if not _is_damaged(error):
                    raise
                self._file = self._replace_file()
        except (OSError, sqlite3.Error) as error:
            raise StoreError(f"the state of the hooks, {str(self._path)!r}: {error}") from error
        self._writes: BoundedDict[str, int] = BoundedDict(_MOST_COUNTED)
        try:
            self.forget_old()
        except StoreError:
            self.forget_old()  # a damaged file was replaced by a new one

    @contextmanager
    def together(self) -> Generator[None]:
        """Writes the block as one transaction."""
        self._run("begin")
        try:
            yield
            self._run("commit")
        except BaseException:
            if self._file.in_transaction:
                self._run("rollback")
            raise

    def submit(self, session: str, entries: Sequence[tuple[str, bytes]]) -> None:
        """Adds to the journal of a session; of the guard's `JournalStore`."""
        for name, value in entries:
            self._run("add", session=session, id=name, value=value)
        writes = self._writes.get(session, 0)
        self._writes[session] = writes + 1
        if not writes % _TRIM_EVERY:
            for kind, most in _MOST.items():
                self._run("trim", session=session, kind=kind, most=most)
        if time.time() - self._forgot > _FORGET_EVERY_S:
            self._forget_old()

    def journal(self, session: str, after: str | None = None) -> list[tuple[str, bytes]]:
        """The journal of a session; of the guard's `JournalStore`."""
        return self._items(session, "entry", after or "")

    def use(self, session: str, mode: str) -> None:
        """A session is in use now, by a guard in that mode."""
        self._run("use", session=session, mode=mode, now=int(time.time()))

    def mode(self, session: str) -> str | None:
        """The mode of the guard that used a session last; None where there is no such session."""
        rows = self._run("mode", session=session)
        return rows[0][0] if rows else None

    def is_enforced(self, session: str) -> bool:
        """True if hooks that enforce report the events of a session, too, as others observe it.

        They are gone if none of them came in time after an event that was left to them.
        """
        rows = self._run("mode", session=session)
        mode, used = rows[0] if rows else ("", 0)
        if mode != "guard":
            return False
        now, (left,) = int(time.time()), self._item(session, "left", "") or (0,)
        if left <= used:
            self._put(session, "left", "", (now,))
            return True
        return abs(now - left) <= _TOGETHER_S

    def allow(self, session: str, calls: frozenset[int] | None) -> None:
        """Remembers the calls that a person allowed; None: the session, whatever it does."""
        data = json.dumps(None if calls is None else sorted(calls))
        self._run("allow", session=session, calls=data)

    def allowed(self, session: str) -> frozenset[int] | None:
        """The calls given to `allow`; empty if it was not called."""
        rows = self._run("allowed", session=session)
        found: str | None = rows[0][0] if rows else None
        calls = json.loads(found or "[]")
        return None if calls is None else frozenset(calls)

    def call(self, session: str, call_id: str) -> KnownCall | None:
        """Returns a call, if an event reported it."""
        found = self._item(session, "call", call_id)
        return None if found is None else KnownCall(*found)

    def calls(self, session: str, *states: str) -> dict[str, KnownCall]:
        """The calls of a session that are in one of these states, by id, oldest first."""
        found = {name: KnownCall(*json.loads(row)) for name, row in self._items(session, "call")}
        return {name: call for name, call in found.items() if call.state in states}

    def put_call(self, session: str, call_id: str, call: KnownCall) -> None:
        """Remembers a call as it is now."""
        self._put(session, "call", call_id, call)

    def remember_replies(self, session: str, decision: str, agent: str, what: str) -> None:
        """Remembers the agent of a decision, and the replies sent for it."""
        self._put(session, "told", decision, (agent, what))

    def replies(self, session: str, decision: str) -> tuple[str, str]:
        """The agent of a decision, and the replies sent for it; both empty if unknown."""
        agent, what = self._item(session, "told", decision) or ("", "")
        return agent, what

    def decisions(self, session: str, what: str) -> dict[str, str]:
        """The decisions of a session for which a reply was sent, with all that were."""
        found = {name: json.loads(told)[1] for name, told in self._items(session, "told")}
        return {name: told for name, told in found.items() if what in told}

    def forget_old(self) -> None:
        """Forgets the sessions that were not used for seven days."""
        with self.together():
            self._forget_old()

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

    def _item(self, session: str, kind: str, name: str) -> Any:
        rows = self._run("item", session=session, kind=kind, id=name)
        return json.loads(rows[0][0]) if rows else None

    def _items(self, session: str, kind: str, after: str = "") -> list[tuple[str, bytes]]:
        """Ids and values, oldest first; those behind an id, if it is known."""
        return self._run("items", session=session, kind=kind, after=after)

    def _put(self, session: str, kind: str, name: str, value: tuple[object, ...]) -> None:
        self._run("put", session=session, kind=kind, id=name, value=json.dumps(value))

    def _forget_old(self) -> None:
        self._forgot = time.time()
        self._run("forget_sessions", until=int(self._forgot) - _KEPT_S)
        self._run("forget_items")

    def _run(self, statement: str, **values: object) -> list[Any]:
        """Runs a statement of `state.sql`; returns its rows."""
        try:
            return self._file.execute(_SQL[statement], values).fetchall()
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


def _opened(path: Path) -> sqlite3.Connection:
    """The file, with its tables."""
    file = sqlite3.connect(path, timeout=1, isolation_level=None, check_same_thread=False)
    try:
        file.execute("PRAGMA journal_mode = WAL")
        # Survives a killed process; a power failure may lose the newest rows.
        file.execute("PRAGMA synchronous = NORMAL")
        (version,) = file.execute("PRAGMA user_version").fetchone()
        if version == 0:
            file.executescript(f"BEGIN;{_SQL['tables']}PRAGMA user_version = {_SCHEMA};COMMIT")
        file.execute("SELECT 1 FROM session, item LIMIT 1")
    except BaseException:
        file.close()
        raise
    if version not in (0, _SCHEMA):
        file.close()
        raise sqlite3.DatabaseError(f"its version is {version}, not {_SCHEMA}")
    return file


def _is_damaged(error: sqlite3.Error) -> bool:
    """True if a file is damaged or not ours, rather than locked or without room on the disk."""
    return type(error) is sqlite3.DatabaseError or str(error).startswith("no such table")


def secret_of(path: Path) -> str:
    """The secret in a file, made whole on first use."""
    for _ in range(2):
        try:
            found = path.read_text("ascii").strip()
        except (FileNotFoundError, ValueError):
            found = ""
        if len(found) >= _SHORTEST_SECRET:
            return found
        new = path.with_name(f".{path.name}-{os.getpid()}")
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            with open(descriptor, "w", encoding="ascii") as stream:  # noqa: PTH123  # a descriptor
                stream.write(secrets.token_hex(32))
            new.replace(path)
        except OSError:
            # On a full disk each event would leave a file.
            new.unlink(missing_ok=True)
            raise
    return secrets.token_hex(32)
