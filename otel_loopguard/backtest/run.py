"""A whole backtest: its identity, its folder, its buckets, how it resumes, and who replays them.

A source is parted once by session, and each bucket is replayed by itself.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, groupby, islice
from operator import itemgetter
from pathlib import Path
from typing import Any, Final, cast
from uuid import uuid4

from otel_loopguard._util.fields import is_map
from otel_loopguard._util.tables import read_table
from otel_loopguard.backtest import BacktestResult, Rows, replay_session
from otel_loopguard.backtest.rows import BrokenRow, load, parsed
from otel_loopguard.backtest.sources import Source, connect, open_source, quoted, relation, stage
from otel_loopguard.engine import Engine, Settings, decision_row
from otel_loopguard.errors import LoopGuardError
from otel_loopguard.replay.file import unreadable
from otel_loopguard.replay.workers import spread
from otel_loopguard.version import __version__

# Each bucket is a file that DuckDB writes at once with the others; descriptors are 1,024.
_MOST_BUCKETS: Final = 256
_SIZES: Final = {
    "parquet": 4_000_000, "lines": 40_000_000, "recorded": 4_000_000, "clickhouse": 40_000,
}  # fmt: skip
"""Size of a source that makes one bucket: some 40,000 rows."""
# Rows of DuckDB, and results, in memory at once: one row may hold a megabyte.
_FETCH: Final = 500
_BATCH: Final = 1_000
_NOTES: Final = b"otel_loopguard"


@dataclass(frozen=True, slots=True)
class Bucket:
    """One bucket and how to replay it; pickled for workers."""

    number: int
    folder: str  # of its rows
    part: str  # the file that is to be written
    settings: Settings
    digest: str  # of the settings
    memory: str


@dataclass(slots=True)
class Notes:
    """Counts of replayed buckets."""

    sessions: int = 0
    rows: int = 0
    broken: Counter[str] = field(default_factory=Counter[str])

    def add(self, other: Notes) -> None:
        """Adds those of another bucket."""
        self.sessions += other.sessions
        self.rows += other.rows
        self.broken.update(other.broken)


def partition(source: Source, folder: Path, memory: str, threads: int) -> tuple[int, Notes]:
    """Splits a source into buckets, unless that is done already; returns how many there are.

    All spans of a conversation are in one bucket: the conversation of a trace is that of its
    earliest span that names one. An unfinished partition starts again.
    """
    manifest = folder / "source.json"
    if manifest.is_file():
        known = json.loads(manifest.read_text("utf-8"))
        return known["buckets"], Notes(rows=known["rows"], broken=Counter(known["broken"]))
    shutil.rmtree(folder, ignore_errors=True)
    staged, spill = folder / "staged", folder / "spill"
    for each in (staged, spill):
        each.mkdir(parents=True)
    with connect(spill, memory, threads) as connection:
        broken = stage(source, staged)
        query = relation(connection, source, staged)
        count = max(
            1, min(_MOST_BUCKETS, round(source.size / _SIZES[source.form]) or 1), threads * 2
        )
        try:
            rows = _part(connection, query, folder / "rows", count)
        except Exception as error:  # duckdb's own, of many classes
            raise unreadable(source.name, str(error).splitlines()[0]) from error
    for each in (staged, spill):
        shutil.rmtree(each)
    noted = {"source": source.name, "buckets": count, "rows": rows, "broken": broken}
    temporary = manifest.with_suffix(".tmp")
    temporary.write_text(json.dumps(noted), "utf-8")
    temporary.replace(manifest)
    return count, Notes(rows=rows, broken=Counter(broken))


def _part(connection: Any, query: str, to: Path, count: int) -> int:
    run = connection.execute
    run(f"SET partitioned_write_max_open_files = {count}")
    run("SET partitioned_write_flush_threshold = 20000")
    run(f"CREATE VIEW source AS {query}")
    run(
        # Not WHERE: by a filter over JSON lines, DuckDB takes memory for all of them at once.
        "CREATE TABLE named AS SELECT unit, arg_min(conversation, moment::HUGEINT * 1000000000000"
        " + seq) AS known FROM source GROUP BY unit HAVING known IS NOT NULL"
    )
    session = "coalesce(named.known, source.unit, '')"
    run(
        f"COPY (SELECT {session} AS session, moment, seq, form, body, source.source AS source,"
        f" (hash({session}) % {count})::INTEGER AS bucket FROM source LEFT JOIN named USING (unit))"
        f" TO {quoted(str(to))} (FORMAT parquet, COMPRESSION zstd, PARTITION_BY (bucket))"
    )
    return run("SELECT count(*) FROM source").fetchone()[0]


def replay_bucket(bucket: Bucket) -> Notes:
    """Replays the sessions of a bucket in order of time; writes their results as one file."""
    arrow, files = load("pyarrow"), load("pyarrow.parquet")
    notes, schema, part = Notes(), _schema(arrow), Path(bucket.part)
    like = Engine(bucket.settings, clock="replay")
    results = (
        {**result_row(found), "settings_hash": bucket.digest}
        for session, source, rows in _sessions(bucket, notes)
        for found in replay_session(
            rows, bucket.settings, session=session, source=source, broken=notes.broken, like=like
        )
    )
    temporary = part.with_suffix(f".{uuid4().hex}.tmp")
    with files.ParquetWriter(temporary, schema, compression="zstd") as writer:
        while batch := list(islice(results, _BATCH)):
            notes.sessions += len(batch)
            writer.write_table(arrow.Table.from_pylist(batch, schema))
        noted = {"sessions": notes.sessions, "rows": notes.rows, "broken": notes.broken}
        writer.add_key_value_metadata({_NOTES: json.dumps(noted).encode()})
    temporary.replace(part)
    return notes


def notes_of(part: Path) -> Notes:
    """Reads the counts that a result file carries."""
    noted = json.loads(load("pyarrow.parquet").read_metadata(part).metadata[_NOTES])
    return Notes(noted["sessions"], noted["rows"], Counter(noted["broken"]))


def _sessions(bucket: Bucket, notes: Notes) -> Iterator[tuple[str, str, Rows]]:
    """The sessions of a bucket: name, source, rows. DuckDB sorts, and spills what is too much."""
    folder = Path(bucket.folder)
    if not folder.is_dir():
        return
    spill = Path(bucket.part).with_suffix(f".{uuid4().hex}.spill")
    with connect(spill, bucket.memory, 1) as connection:
        connection.execute(
            "SELECT session, source, form, body FROM"
            " read_parquet($1, hive_partitioning = false) ORDER BY session, moment, source, seq",
            [str(folder / "*.parquet")],
        )
        fetched = iter(lambda: connection.fetchmany(_FETCH), [])
        stream = (row for batch in fetched for row in batch)
        for session, group in groupby(stream, key=itemgetter(0)):
            first = next(group)
            rows = chain((first,), group)  # noqa: B031  # the group goes on behind its first
            yield session, first[1] or "", _bodies(rows, notes)
    shutil.rmtree(spill, ignore_errors=True)


def _bodies(rows: Iterable[tuple[Any, ...]], notes: Notes) -> Rows:
    for _, _, form, text in rows:
        notes.rows += 1
        try:
            body = parsed(text or "")
        except BrokenRow as error:
            notes.broken[str(error)] += 1
            continue
        if is_map(body):
            yield form, body
        else:
            notes.broken["a row is not an object"] += 1


def result_row(found: BacktestResult) -> dict[str, object]:
    """A result as a row of the Parquet file; without content of the session."""
    spent, until, stopped = found.spent, found.until, found.stopped
    after: dict[str, object] = {}
    if until is not None:
        after = {
            "steps": spent.steps - until.steps,
            "calls": spent.calls - until.calls,
            "tokens": None if spent.tokens is None else spent.tokens - (until.tokens or 0),
            "cost": None if spent.cost is None else spent.cost - (until.cost or 0.0),
            "seconds": max(0.0, spent.end - max(until.end, 0)) / 1e9 if spent.start else None,
        }
    stop = {} if stopped is None else decision_row(stopped, *_STOP)
    return {
        "session": found.session,
        "guard_version": __version__,
        "source": found.source,
        "strongest": found.strongest.value,
        **{name: getattr(spent, name) for name in _AFTER},
        "started": spent.start // 1000 or None,
        "loop": found.loop,
        "tier": found.tier or None,
        "decisions": [
            {**decision_row(each, *_COLUMNS["decisions"]), "time": each.time // 1000 or None}
            for each in found.decisions
        ],
        **{f"stop_{name}": stop.get(name) for name in _STOP},
        **{f"{name}_after": after.get(name) for name in _AFTER},
    }


_COLUMNS: Final = {
    row.name: dict(line.split() for line in row.lines)
    for row in read_table(__name__, "columns.txt")
}
_STOP: Final = ("step", "action", "detector", "rule")
_AFTER: Final = ("steps", "calls", "tokens", "cost", "seconds")


def _schema(arrow: Any) -> Any:
    types = {
        "text": arrow.string(),
        "whole": arrow.int64(),
        "real": arrow.float64(),
        "truth": arrow.bool_(),
        # Not nanoseconds: pyarrow converts them to Python values only if pandas is installed.
        "moment": arrow.timestamp("us", "UTC"),
    }
    made = [(name, types[kind]) for name, kind in _COLUMNS["decisions"].items()]
    types["decisions"] = arrow.list_(arrow.struct(made))
    return arrow.schema([(name, types[kind]) for name, kind in _COLUMNS["results"].items()])


ENGINES: Final = ("duckdb", "ray")
_MEMORY: Final = "1GB"
_OBJECTS: Final = 100_000_000
"""Bytes for Ray's objects on this machine: rows here are names of files."""
Prepare = Callable[[], object]
Notify = Callable[[str, int, int], object]
"""Called with the phase, the number of finished buckets and of all."""


@dataclass(frozen=True, slots=True)
class Backtest:
    """A finished backtest.

    Attributes:
        source: What was replayed.
        digest: Digest of the settings.
        folder: Folder of the parts of the result.
        notes: Sessions, rows, and what was broken.
    """

    source: Source
    digest: str
    folder: Path
    notes: Notes

    @property
    def parts(self) -> str:
        """The Parquet files of the result, as a pattern."""
        return str(self.folder / "part-*.parquet")


def settings_hash(settings: Settings) -> str:
    """Digest of all settings and tuning values."""
    written = json.dumps(settings.model_dump(), sort_keys=True, default=_plain)
    return hashlib.sha256(written.encode()).hexdigest()[:12]


def _plain(value: object) -> object:
    """A form for values that JSON lacks, equal in every process; a secret decides nothing."""
    if isinstance(value, (set, frozenset)):
        return sorted(map(str, cast("frozenset[object]", value)))
    if isinstance(value, Mapping):
        return dict(cast("Mapping[str, object]", value))
    return dump() if (dump := getattr(value, "model_dump", None)) else type(value).__name__


def run(  # noqa: PLR0913
    name: str,
    settings: Settings,
    out: Path,
    *,
    where: str = "",
    engine: str = "duckdb",
    jobs: int = 0,
    memory: str = _MEMORY,
    notify: Notify | None = None,
    prepare: Prepare | None = None,
) -> Backtest:
    """Replays all sessions of a source, or resumes an unfinished run.

    Source, version of the guard and digest of the settings identify a run: parts that exist
    already are kept.

    Args:
        name: File, folder, pattern, or address of a table of ClickHouse.
        settings: Settings of the guard.
        out: Folder for buckets and results.
        where: Condition in SQL that rows have to meet; empty for all rows.
        engine: `duckdb`: processes of this machine; `ray`: tasks of a Ray cluster.
        jobs: Worker processes; 0: one per processor.
        memory: Memory of DuckDB for splitting, and of each worker for sorting, before it spills.
        notify: Called for every bucket.
        prepare: Called first in each worker process.
    """
    if engine not in ENGINES:
        raise LoopGuardError(f"--engine {engine}: expected one of {', '.join(ENGINES)}")
    Engine(settings, clock="replay").shutdown()  # what is wrong in them is said before the work
    notify = notify or (lambda _what, _done, _total: None)
    out = out.resolve()  # also for processes that work elsewhere
    source = open_source(name, where)
    digest = settings_hash(settings)
    threads = jobs or os.cpu_count() or 1
    buckets = out / f"buckets-{source.identity}"
    notify("partitioning", 0, 1)
    count, notes = partition(source, buckets, memory, threads)
    folder = out / f"decisions-{source.identity}-{__version__}-{digest}"
    folder.mkdir(parents=True, exist_ok=True)
    for left in folder.glob("*.tmp"):
        left.unlink(missing_ok=True)
    for left in folder.glob("*.spill"):
        shutil.rmtree(left, ignore_errors=True)
    todo: list[Bucket] = []
    total = Notes(broken=notes.broken.copy())
    for number in range(count):
        part = folder / f"part-{number:05}.parquet"
        if part.is_file():
            total.add(notes_of(part))
            continue
        rows = buckets / "rows" / f"bucket={number}"
        todo.append(Bucket(number, str(rows), str(part), settings, digest, memory))
    notify("replaying", count - len(todo), count)
    if engine == "ray":
        replayed = replay_by_ray(todo, jobs, prepare)
    else:
        replayed = spread(replay_bucket, todo, jobs, prepare)
    for done, each in enumerate(replayed, count - len(todo) + 1):
        total.add(each)
        notify("replaying", done, count)
    return Backtest(source, digest, folder, total)


def replay_by_ray(
    buckets: Sequence[Bucket], jobs: int, prepare: Prepare | None = None
) -> Iterator[Notes]:
    """Yields the notes of each bucket, as it is done; 0 jobs: all processors that Ray has.

    A Ray that runs already is used, then the cluster that `RAY_ADDRESS` names, else one is started
    on this machine for as long as this takes.
    """
    ray, data = load("ray"), load("ray.data")
    if not buckets:
        return
    ours = not ray.is_initialized()
    if ours:
        _start(ray, jobs)
    data.DataContext.get_current().enable_progress_bars = False
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    known = {bucket.number: bucket for bucket in buckets}

    def replay(row: Mapping[str, Any]) -> dict[str, object]:
        bucket = known[row["number"]]
        return {"part": bucket.part, "error": _error(bucket, prepare)}

    numbers = [{"number": number} for number in known]
    # A block, and so a task, for each bucket.
    rows = data.from_items(numbers, override_num_blocks=len(numbers))
    strategy = data.TaskPoolStrategy(size=min(jobs, len(numbers))) if jobs else None
    try:
        for row in _readable(rows.map(replay, compute=strategy)):
            if row["error"]:
                raise LoopGuardError(row["error"])
            yield notes_of(Path(row["part"]))
    finally:
        if ours:
            ray.shutdown()


def _readable(rows: Any) -> Iterator[Mapping[str, Any]]:
    try:
        yield from rows.iter_rows()
    except Exception as error:  # Ray's own, of many classes
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise LoopGuardError(f"--engine ray: {lines[0]}") from error


def _start(ray: Any, jobs: int) -> None:
    address = os.environ.get("RAY_ADDRESS")
    if address:
        try:
            ray.init(log_to_driver=False, logging_level="ERROR")
        except ConnectionError as error:
            msg = f"--engine ray: RAY_ADDRESS = {address!r:.200}: no cluster answers there"
            raise LoopGuardError(msg) from error
        return
    # A Ray that nobody asked for by name does not report to its makers.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    ray.init(
        address="local", num_cpus=jobs or None, object_store_memory=_OBJECTS,
        include_dashboard=False, log_to_driver=False, logging_level="ERROR",
    )  # fmt: skip


def _error(bucket: Bucket, prepare: Prepare | None) -> str:
    """Replays a bucket on a machine of the cluster; returns its notes, or what went wrong."""
    if not Path(bucket.folder).parents[1].is_dir():
        return f"{bucket.folder}: not on this machine: all machines have to share --out"
    if prepare is not None:
        prepare()
    try:
        replay_bucket(bucket)
    except Exception as error:  # noqa: BLE001  # the driver raises it
        return f"{type(error).__name__}: {error}"
    return ""
