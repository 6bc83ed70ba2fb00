"""Sources: where rows come from, as one relation of DuckDB.

Whatever the source, its relation has these columns: `unit` (trace id, or the id of a run),
`conversation` (its id, if the row says it), `moment` and `seq` (its place), `form` and `body`
(`rows.py`; the body is JSON), `source` (name of the file).

The rows of ClickHouse come as one stream of Parquet, so that nothing but the answer is held: of a
server by its HTTP interface, of a folder by chdb, which is ClickHouse in the process. An address is
`clickhouse://HOST[:PORT]/DATABASE?table=TABLE[&secure=true]` or
`clickhouse:///FOLDER?table=DATABASE.TABLE`.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from base64 import b64encode
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from glob import glob, has_magic
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final
from urllib.parse import parse_qs, unquote, urlsplit

import orjson

from otel_loopguard.backtest.rows import (
    LABEL,
    RUN,
    SPAN,
    STEP,
    TRUTHS,
    entry_of,
    load,
    row_of,
    written,
)
from otel_loopguard.engine import Reader, RecordedSpan, session_keys
from otel_loopguard.errors import RecordingError
from otel_loopguard.replay import Recording, Run
from otel_loopguard.replay.exports import export_reader_of
from otel_loopguard.replay.file import RecordedFile, unreadable, untold

SCHEME: Final = "clickhouse://"
_NEEDED: Final = frozenset({"Timestamp", "TraceId", "SpanId", "SpanAttributes"})
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
        """Number of rows that meet the condition, and the newest time in them.

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
    secure = TRUTHS.get(given.get("secure", "false").lower())
    shown = f"{SCHEME}{parts.netloc.rpartition('@')[2]}{parts.path}?{parts.query}"
    if not given.get("table") or secure is None or not given.keys() <= {"table", "secure"}:
        raise RecordingError(f"{shown}: expected ?table=TABLE, and maybe &secure=true")
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


COLUMNS: Final = ("unit", "conversation", "moment", "seq", "form", "body", "source")
_SPANS: Final = (
    "Timestamp", "TraceId", "SpanId", "ParentSpanId", "SpanName", "SpanKind", "ScopeName",
    "SpanAttributes", "Duration", "StatusCode", "StatusMessage", "Events", "Events.Name",
    "Events.Attributes", *LABEL,
)  # fmt: skip
_NESTED: Final = ("SpanAttributes", "ResourceAttributes", "Events")
_TEAMS: Final = (
    "gen_ai.agent.id", "recipient_agent_type", "sender_agent_type", "messaging.destination",
)  # fmt: skip
_UUID: Final = "_([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})(?:[/.]|$)"
_LINE: Final = 16 * 1024 * 1024
"""Buffers of DuckDB have this size, some for each thread: 64 MB took all of `--memory`."""
# Rows of a recording that are written to Parquet at once, some megabytes.
_BATCH: Final = 2_000
# Rows of an export in memory at once; one may hold a conversation of megabytes.
_EXPORT_ROWS: Final = 200
_PARQUET: Final = (".parquet", ".pq")
_RECORDED: Final = (".jsonl", ".json", ".ndjson", ".gz")
EXPECTED: Final = (
    "expected spans (TraceId, SpanId, Timestamp, SpanAttributes, …), or an export of Phoenix"
    " (context.span_id, span_kind, …) or LangSmith (id, run_type, …)"
)


@dataclass(frozen=True, slots=True)
class Source:
    """The files of a source.

    Attributes:
        name: As it was given.
        files: The files, in order of their names.
        form: `parquet`, `lines` (JSON lines of rows), `recorded` (`otel_loopguard.replay`, and
            Parquet of an export) or `clickhouse`.
        size: Bytes of all files; rows of a table.
        identity: Digest of what the files are (paths, sizes, times of change) or the table (its
            address, rows and newest time), and of the condition.
        where: Condition in SQL that rows have to meet; empty for all rows.
        table: The table of ClickHouse, without files.
    """

    name: str
    files: tuple[str, ...]
    form: str
    size: int
    identity: str
    where: str = ""
    table: Table | None = None


def open_source(name: str, where: str = "") -> Source:
    """The source of a file, a folder, a pattern or an address of ClickHouse.

    Raises:
        RecordingError: There is nothing, or nothing that can be read.
    """
    if name.startswith(SCHEME):
        table = table_of(name, where)
        rows, newest = table.size()
        parts = [table.name, where, rows, newest]
        return Source(table.name, (), "clickhouse", rows, _digest(parts), where, table)
    files = _files(name)
    if not files:
        raise unreadable(name, "there is no such file")
    forms = {_form(file) for file in files}
    if len(forms) > 1:
        raise unreadable(name, f"files of several forms ({', '.join(sorted(forms))})")
    form = forms.pop()
    if where and form == "recorded":
        raise RecordingError(f"--where {where}: recorded files have no columns")
    found = [(file, Path(file).stat()) for file in files]
    parts: list[object] = [
        (str(Path(file).resolve()), each.st_size, each.st_mtime_ns) for file, each in found
    ]
    digest = _digest([*parts, where] if where else parts)
    return Source(name, files, form, sum(each.st_size for _, each in found), digest, where)


def _digest(parts: list[object]) -> str:
    return hashlib.sha256(json.dumps(parts).encode("utf-8", "surrogatepass")).hexdigest()[:12]


def _files(name: str) -> tuple[str, ...]:
    path = Path(name)
    if path.is_dir():
        held = (each for each in path.rglob("*") if each.name.endswith((".parquet", *_RECORDED)))
        return tuple(sorted(str(each) for each in held if each.is_file()))
    if path.is_file():
        return (name,)
    if not has_magic(name):
        return ()
    found = glob(name, recursive=True)  # noqa: PTH207  # a pattern may be absolute
    return tuple(sorted(each for each in found if Path(each).is_file()))


def _form(file: str) -> str:
    if file.endswith(_PARQUET):
        return "recorded" if _is_export(file) else "parquet"
    # Broken lines are reported when all are read.
    first = next(RecordedFile(file, untold).lines(), (0, b""))[1]
    try:
        row: object = json.loads(first)
    except (ValueError, RecursionError):
        row = None
    return "lines" if isinstance(row, dict) and {"TraceId", "SpanId"} <= row.keys() else "recorded"


def _is_export(file: str) -> bool:
    """True of a Parquet file whose columns are those of an export that is read."""
    try:
        names: list[str] = load("pyarrow.parquet").read_schema(file).names
    except (OSError, load("pyarrow").ArrowException):
        return False  # DuckDB says what is wrong with it
    return export_reader_of(dict.fromkeys(names)) is not None


def relation(connection: Any, source: Source, staged: Path) -> str:
    """The query of a source's relation; recordings and tables are staged as Parquet before."""
    if source.form == "lines":
        return _lines(connection, source)
    if source.form == "parquet":
        return _parquet(connection, source, source.files)
    held = sorted(str(each) for each in staged.iterdir())
    if source.form == "clickhouse":
        return _parquet(connection, replace(source, where=""), held)
    return f"SELECT {', '.join(COLUMNS)} FROM read_parquet({_listed(held)})"


def _parquet(connection: Any, source: Source, files: Sequence[str]) -> str:
    read = (
        f"read_parquet({_listed(files)}, union_by_name = true, filename = '_file',"
        " file_row_number = true)"
    )
    try:
        described = connection.execute(f"DESCRIBE SELECT * FROM {read}").fetchall()
    except Exception as error:  # duckdb's own, of many classes
        raise unreadable(source.name, str(error).splitlines()[0]) from error
    types: dict[str, str] = {row[0]: row[1] for row in described}
    if {"TraceId", "SpanId", "Timestamp", "SpanAttributes"} <= types.keys():
        return _span_query(_filtered(connection, source, read), types)
    raise unreadable(source.name, f"it has the columns {', '.join(types)}; {EXPECTED}")


def _filtered(connection: Any, source: Source, read: str) -> str:
    """The rows that meet the condition of a source, which may call all of them `spans`."""
    if not source.where:
        return read
    picked = f"SELECT * FROM spans WHERE (\n{source.where}\n)"
    found = f"(WITH spans AS (SELECT * FROM {read}) {picked})"
    query = f"DESCRIBE SELECT * FROM {found}"
    try:
        # DuckDB runs all statements of a text: a condition is to read, and to write nothing.
        single = len(connection.extract_statements(query)) == 1
        if single:
            connection.execute(query)
    except Exception as error:  # duckdb's own, of many classes
        raise RecordingError(f"--where {source.where}: {str(error).splitlines()[0]}") from error
    if not single:
        raise RecordingError(f"--where {source.where}: expected one condition, without ';'")
    return found


def _span_query(read: str, types: dict[str, str], body: str = "") -> str:
    """Spans from columns of these types; `body` is an expression, by default all of them."""
    held = {name: _name(name) for name in _SPANS if name in types}
    held["Timestamp"] = _epoch(held["Timestamp"], types["Timestamp"])
    attributes, kind = held["SpanAttributes"], types["SpanAttributes"]
    if kind.startswith("MAP"):
        found = _conversation(lambda key: f"{attributes}[{quoted(key)}]::VARCHAR", types)
    else:
        # JSON may be that of a text, which is JSON.
        text = {"VARCHAR": attributes, "JSON": f"({attributes}->>'$')"}.get(kind)
        valid = f"CASE WHEN json_valid({text}) THEN {text} END"
        found = _conversation(_within(valid if text else f"to_json({attributes})"), types)
    length = f"try_cast({held['Duration']} AS BIGINT)" if "Duration" in held else "0"
    at = f"coalesce({held['Timestamp']}, 0) + coalesce({length}, 0)"
    columns = ", ".join(f"{_name(name)} := {value}" for name, value in held.items())
    body = body or f"to_json(struct_pack({columns}))::VARCHAR"
    return (
        f"SELECT TraceId::VARCHAR AS unit, {found} AS conversation, {at} AS moment,"
        f" file_row_number AS seq, '{SPAN}' AS form, {body} AS body,"
        f" parse_filename(_file) AS source FROM {read}"
    )


def _lines(connection: Any, source: Source) -> str:
    """Spans from JSON lines, whose members are columns: maps and lists are JSON, all else text."""
    names = [name for name in (*_SPANS, "ServiceName", "ResourceAttributes") if "." not in name]
    types = {name: "JSON" if name in _NESTED else "VARCHAR" for name in names}
    del types[LABEL[1]]  # columns of DuckDB have no case
    columns = ", ".join(
        f"json{'->' if kind == 'JSON' else '->>'}'$.{name}' AS {_name(name)}"
        for name, kind in types.items()
    )
    read = (
        f"(SELECT json, {columns}, row_number() OVER () AS file_row_number, filename AS _file FROM"
        f" read_json_objects({_listed(source.files)}, format = 'newline_delimited',"
        f" ignore_errors = true, filename = true, maximum_object_size = {_LINE}))"
    )
    return _span_query(_filtered(connection, source, read), types, "json::VARCHAR")


def _conversation(read: Callable[[str], str], columns: Container[str]) -> str:
    """The conversation of a span: the keys that dialects declare, and what some work out.

    It says which traces are replayed together. To whom a step belongs, the guard says by itself.
    """
    found = [read(key) for key in session_keys()]
    found += [_within(f"CASE WHEN json_valid({read('metadata')}) THEN {read('metadata')} END")(key)
              for key in ("session_id", "thread_id")]  # fmt: skip
    if "ScopeName" in columns:
        found += [
            f"CASE WHEN \"ScopeName\" LIKE '{start}%' THEN {value} END"
            for start, value in (
                ("logfire", read("group_id")),
                ("openinference", read("team_id")),
                *(
                    ("autogen", f"regexp_extract({read(key)}, {quoted(_UUID)}, 1)")
                    for key in _TEAMS
                ),
            )
        ]
    return "coalesce(" + ", ".join(f"nullif({each}, '')" for each in found) + ")"


def _within(value: str) -> Callable[[str], str]:
    """Reads a key of a JSON object."""

    def read(key: str) -> str:
        path = '$."' + key.replace('"', '\\"') + '"'
        return f"json_extract_string({value}, {quoted(path)})"

    return read


def _epoch(value: str, kind: str) -> str:
    if kind.startswith("TIMESTAMP"):
        return f"epoch_ns({value})"
    if kind == "VARCHAR":
        known = f"try_cast({value} AS TIMESTAMP_NS)"
        return f"coalesce(try_cast({value} AS BIGINT), epoch_ns({known}))"
    return f"try_cast({value} AS BIGINT)"


def _name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def quoted(value: str) -> str:
    """A text as SQL has it."""
    return "'" + value.replace("'", "''") + "'"


def _listed(files: Sequence[str]) -> str:
    return "[" + ", ".join(map(quoted, files)) + "]"


def stage(source: Source, folder: Path) -> dict[str, int]:
    """Writes recordings and tables as Parquet; returns what is broken in them."""
    if source.table is not None:
        # The name of the file is that of the source in the results.
        source.table.write(_SPANS, folder / re.sub(r"[^\w.-]", "_", source.table.title))
        return {}
    if source.form != "recorded":
        return {}
    arrow, files = load("pyarrow"), load("pyarrow.parquet")
    places = {"moment", "seq"}
    schema = arrow.schema(
        [(name, arrow.int64() if name in places else arrow.string()) for name in COLUMNS]
    )
    # By file and reason: the number of the first line, and how many there are.
    broken: dict[tuple[str, str], list[int]] = {}

    def report(file: str, line: int, why: str) -> None:
        broken.setdefault((file, why), [line, 0])[1] += 1

    for number, file in enumerate(source.files):
        entries: Iterable[RecordedSpan | Run] = (
            export_spans(file, partial(report, file, 0))
            if file.endswith(_PARQUET)
            else Recording(file, report)
        )
        with files.ParquetWriter(folder / f"{number:06}.parquet", schema) as writer:
            rows = _staged(entries, Path(file).name, number)
            while batch := list(islice(rows, _BATCH)):
                columns = zip(*batch, strict=True)
                table = arrow.table(dict(zip(COLUMNS, map(list, columns), strict=True)), schema)
                writer.write_table(table)
    return {
        f"{why} ({file}{f', first in line {line}' if line else ''})": count
        for (file, why), (line, count) in broken.items()
    }


def export_spans(file: str, report: Callable[[str], None]) -> Iterator[RecordedSpan]:
    """The spans of the rows of an export, in their order.

    Raises:
        RecordingError: The file cannot be read further.
    """
    try:
        for batch in load("pyarrow.parquet").ParquetFile(file).iter_batches(_EXPORT_ROWS):
            for row in _export_rows(batch):
                reads = export_reader_of(row)
                if reads is not None:
                    yield from reads(row, report)
    except (OSError, load("pyarrow").ArrowException) as error:
        raise unreadable(file, str(error).splitlines()[0]) from error


def _export_rows(batch: Any) -> Iterator[Mapping[str, object]]:
    """The rows as JSON would have them: times as text, nothing that is no number."""
    arrow = load("pyarrow")
    columns = [
        # Python's own times have no nanoseconds, and pandas writes them.
        column.cast(arrow.timestamp("us", column.type.tz), safe=False)
        if arrow.types.is_timestamp(column.type)
        else column
        for column in batch.columns
    ]
    plain = arrow.RecordBatch.from_arrays(columns, names=batch.schema.names)
    for row in plain.to_pylist():
        yield orjson.loads(orjson.dumps(row, default=str))


_Staged = tuple[str, str | None, int, int, str, str, str]


def _staged(entries: Iterable[RecordedSpan | Run], name: str, number: int) -> Iterator[_Staged]:
    """The rows of a recording, in its order."""
    read, seq = Reader().read, 0
    for place, entry in enumerate(entries):
        seq += 1
        if not isinstance(entry, Run):
            step = read(entry)
            body, unit = written(row_of(entry)), f"{entry.trace_id:032x}"
            yield unit, None if step is None else step.session, 0, seq, SPAN, body, name
            continue
        unit = f"{number}:{place}"
        head = {"id": entry.id, "source": entry.source, "tier": entry.tier, "loop": entry.loop}
        yield unit, None, 0, seq, RUN, written(head), name
        for step in entry.steps:
            seq += 1
            yield unit, None, 0, seq, STEP, written(entry_of(step)), name


def connect(folder: Path, memory: str, threads: int) -> Any:
    """A connection to DuckDB that spills to a folder; needs the extra `backtest`.

    Raises:
        RecordingError: The memory is no size.
    """
    duckdb = load("duckdb")
    connection = duckdb.connect()
    try:
        connection.execute(f"SET memory_limit = {quoted(memory)}")
    except duckdb.Error as error:
        msg = f"--memory {memory}: {error}"
        raise RecordingError(msg) from None
    for name, value in (
        ("threads", threads),
        ("temp_directory", str(folder)),
        ("preserve_insertion_order", "false"),
        ("enable_progress_bar", "false"),
    ):
        connection.execute(f"SET {name} = {quoted(str(value))}")
    return connection
