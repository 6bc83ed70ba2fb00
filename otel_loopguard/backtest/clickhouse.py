"""ClickHouse as a source: a table of spans at a server, or in a folder of chdb.

The rows come as one stream of Parquet, so that nothing but the answer is held: of a server by its
HTTP interface, of a folder by chdb, which is ClickHouse in the process. An address is
`clickhouse://HOST[:PORT]/DATABASE?table=TABLE[&secure=true]` or
`clickhouse:///FOLDER?table=DATABASE.TABLE`.
"""

from __future__ import annotations

import json
import os
import shutil
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final
from urllib.parse import parse_qs, unquote, urlsplit

from otel_loopguard.backtest.rows import load
from otel_loopguard.errors import RecordingError
from otel_loopguard.replay.file import unreadable

SCHEME: Final = "clickhouse://"
_NEEDED: Final = frozenset({"Timestamp", "TraceId", "SpanId", "SpanAttributes"})
_TRUE: Final = {"1": True, "true": True, "0": False, "false": False}
_WAIT: Final = 300.0
"""Seconds without a byte after which a server is given up."""
# Of an error the first line is shown; a stack trace follows it.
_ANSWER: Final = 4_000


@dataclass(frozen=True, slots=True)
class Table:
    """A table of ClickHouse.

    Attributes:
        name: Its address, as people may read it: without user and password.
        host: Of the server; empty for a folder.
        port: Of the server's HTTP interface.
        secure: True if the server is reached by TLS.
        folder: Of chdb's data; empty for a server.
        title: Of the table, as it is given.
        table: Database and name, quoted.
        user: At the server.
        password: Of the user.
        where: A condition in SQL that rows have to meet; empty for all rows.
    """

    name: str
    host: str
    port: int
    secure: bool
    folder: str
    title: str
    table: str
    user: str = field(repr=False)
    password: str = field(repr=False)
    where: str = ""

    def size(self) -> tuple[int, str]:
        """How many rows meet the condition, and the newest time in them.

        Raises:
            RecordingError: The table cannot be read, or holds no spans.
        """
        columns = self._columns()
        if not columns.keys() >= _NEEDED:
            missing = ", ".join(sorted(_NEEDED - columns.keys()))
            raise unreadable(self.name, f"it has no column {missing}")
        ((rows, newest),) = self._answer(
            self._select(("count()", "toString(max(Timestamp))")) + " FORMAT JSONCompact"
        )
        return int(rows), str(newest)

    def write(self, columns: Sequence[str], to: Path) -> None:
        """Writes the columns that the table has of these as Parquet."""
        known = self._columns()
        wanted = [_quoted(name) for name in columns if name in known]
        self._run(self._select(wanted) + " FORMAT Parquet", to)

    def _select(self, wanted: Sequence[str]) -> str:
        # `spans` is a name that the condition can use, as for files.
        condition = f" WHERE (\n{self.where}\n)" if self.where else ""
        of = f"WITH spans AS (SELECT * FROM {self.table})"
        return f"{of} SELECT {', '.join(wanted)} FROM spans{condition}"

    def _columns(self) -> Mapping[str, str]:
        described = self._answer(f"DESCRIBE TABLE {self.table} FORMAT JSONCompact")
        return {row[0]: row[1] for row in described}

    def _answer(self, query: str) -> list[list[Any]]:
        with TemporaryDirectory(prefix="loopguard-") as folder:
            path = Path(folder) / "answer.json"
            self._run(query, path)
            try:
                answer: list[list[Any]] = json.loads(path.read_bytes())["data"]
            except (ValueError, KeyError, TypeError) as error:
                raise unreadable(self.name, "its answer is not one of ClickHouse") from error
            return answer

    def _run(self, query: str, to: Path) -> None:
        run: Callable[[str, Path], None] = self._in_process if self.folder else self._ask
        try:
            run(query, to)
        except (OSError, HTTPException) as error:
            raise unreadable(self.name, error or type(error).__name__) from error

    def _ask(self, query: str, to: Path) -> None:
        """Asks the server, with one request, and writes what it answers."""
        connect = HTTPSConnection if self.secure else HTTPConnection
        identity = b64encode(f"{self.user}:{self.password}".encode()).decode()
        headers = {"Authorization": f"Basic {identity}"}
        with closing(connect(self.host, self.port, timeout=_WAIT)) as connection:
            connection.request("POST", "/", query.encode(), headers)
            with closing(connection.getresponse()) as answer:
                if answer.status != 200:
                    why = answer.read(_ANSWER).decode("utf-8", "replace").strip()
                    msg = f"{answer.status} {why.splitlines()[0] if why else answer.reason}"
                    raise OSError(msg)
                with to.open("wb") as file:
                    shutil.copyfileobj(answer, file, 1 << 20)

    def _in_process(self, query: str, to: Path) -> None:
        session = load("chdb.session").Session(self.folder)
        head, _, form = query.rpartition(" FORMAT ")
        place = _quoted(str(to), "'")
        try:
            session.query(f"{head} INTO OUTFILE {place} TRUNCATE FORMAT {form}")
        except RuntimeError as error:  # chdb's own
            raise OSError(str(error).splitlines()[0]) from error
        finally:
            session.close()


def table_of(address: str, where: str = "") -> Table:
    """The table that an address names.

    User and password are those of the address, else of `CLICKHOUSE_USER` and `CLICKHOUSE_PASSWORD`.

    Raises:
        RecordingError: It is no such address, or there is no such folder.
    """
    try:
        parts = urlsplit(address)
        given = {key: values[-1] for key, values in parse_qs(parts.query, True).items()}
        port = parts.port
    except ValueError as error:
        raise unreadable(SCHEME + "…", error) from None
    host, path = parts.hostname or "", unquote(parts.path)
    secure = _TRUE.get(given.get("secure", "false").lower())
    shown = f"{SCHEME}{parts.netloc.rpartition('@')[2]}{parts.path}?{parts.query}"
    if not given.get("table") or secure is None or not given.keys() <= {"table", "secure"}:
        msg = f"{shown}: expected ?table=TABLE, and maybe &secure=true"
        raise RecordingError(msg)
    if not host and not Path(path).is_dir():
        raise unreadable(shown, "there is no such folder")
    database = path.strip("/") if host else ""
    names = [database, given["table"]] if database else given["table"].split(".", 1)
    return Table(
        shown,
        host,
        port or (8443 if secure else 8123),
        secure,
        "" if host else path,
        given["table"],
        ".".join(map(_quoted, names)),
        unquote(parts.username or "") or os.environ.get("CLICKHOUSE_USER") or "default",
        unquote(parts.password or "") or os.environ.get("CLICKHOUSE_PASSWORD") or "",
        where,
    )


def _quoted(name: str, mark: str = "`") -> str:
    """A name, or by another mark a text, as SQL has it."""
    return mark + name.replace("\\", "\\\\").replace(mark, "\\" + mark) + mark
