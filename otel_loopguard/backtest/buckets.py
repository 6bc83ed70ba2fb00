"""Buckets: a source is parted once by session, and each bucket is replayed by itself."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, groupby, islice
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from otel_loopguard.backtest.extras import load
from otel_loopguard.backtest.rows import BrokenRow, parsed
from otel_loopguard.backtest.session import BacktestResult, replay_session
from otel_loopguard.backtest.sources import Source, connect, relation, stage
from otel_loopguard.engine import Engine
from otel_loopguard.errors import LoopGuardError
from otel_loopguard.replay.fields import is_map
from otel_loopguard.version import __version__

if TYPE_CHECKING:
    from otel_loopguard.engine import Settings

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
            msg = f"{source.name}: cannot be read: {str(error).splitlines()[0]}"
            raise LoopGuardError(msg) from error
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
    target = str(to).replace("'", "''")
    run(
        f"COPY (SELECT {session} AS session, moment, seq, form, body, source.source AS source,"
        f" (hash({session}) % {count})::INTEGER AS bucket FROM source LEFT JOIN named USING (unit))"
        f" TO '{target}' (FORMAT parquet, COMPRESSION zstd, PARTITION_BY (bucket))"
    )
    return run("SELECT count(*) FROM source").fetchone()[0]


def replay_bucket(bucket: Bucket) -> Notes:
    """Replays the sessions of a bucket in order of time; writes their results as one file."""
    arrow, files = load("pyarrow"), load("pyarrow.parquet")
    notes, schema, part = Notes(), _schema(arrow), Path(bucket.part)
    results = _results(bucket, notes)
    temporary = part.with_suffix(f".{uuid4().hex}.tmp")
    with files.ParquetWriter(temporary, schema, compression="zstd") as writer:
        while batch := list(islice(results, _BATCH)):
            notes.sessions += len(batch)
            writer.write_table(arrow.Table.from_pylist(batch, schema))
        noted = {"sessions": notes.sessions, "rows": notes.rows, "broken": notes.broken}
        writer.add_key_value_metadata({_NOTES: json.dumps(noted).encode()})
    temporary.replace(part)
    return notes


def _results(bucket: Bucket, notes: Notes) -> Iterator[dict[str, object]]:
    like = Engine(bucket.settings, clock="replay")
    for session, source, rows in _sessions(bucket, notes):
        for found in replay_session(
            rows, bucket.settings, session=session, source=source, broken=notes.broken, like=like
        ):
            yield {**result_row(found), "settings_hash": bucket.digest}


def notes_of(part: Path) -> Notes:
    """Reads the counts that a result file carries."""
    noted = json.loads(load("pyarrow.parquet").read_metadata(part).metadata[_NOTES])
    return Notes(noted["sessions"], noted["rows"], Counter(noted["broken"]))


_Streamed = Iterator[tuple[str, Mapping[str, object]]]


def _sessions(bucket: Bucket, notes: Notes) -> Iterator[tuple[str, str, _Streamed]]:
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


def _bodies(rows: Iterable[tuple[Any, ...]], notes: Notes) -> _Streamed:
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
            notes.broken["a row is no object"] += 1


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
    return {
        "session": found.session,
        "guard_version": __version__,
        "source": found.source,
        "strongest": found.strongest.value,
        "steps": spent.steps,
        "calls": spent.calls,
        "tokens": spent.tokens,
        "cost": spent.cost,
        "seconds": spent.seconds,
        "started": spent.start // 1000 or None,
        "loop": found.loop,
        "tier": found.tier or None,
        "decisions": [
            {
                "action": decision.action.value,
                "detector": decision.detector,
                "rule": decision.reason,
                "tool": decision.tool or None,
                "step": decision.step,
                "time": decision.time // 1000 or None,
                "count": float(decision.count),
                "confidence": float(decision.confidence),
                "message": decision.message,
            }
            for decision in found.decisions
        ],
        "stop_step": None if stopped is None else stopped.step,
        "stop_action": None if stopped is None else stopped.action.value,
        "stop_detector": None if stopped is None else stopped.detector,
        "stop_rule": None if stopped is None else stopped.reason,
        **{f"{name}_after": after.get(name) for name in _AFTER},
    }


_AFTER: Final = ("steps", "calls", "tokens", "cost", "seconds")


def _schema(arrow: Any) -> Any:
    text, whole, real = arrow.string(), arrow.int64(), arrow.float64()
    # Not nanoseconds: pyarrow converts them to Python values only if pandas is installed.
    moment = arrow.timestamp("us", "UTC")
    decision = {
        "action": text, "detector": text, "rule": text, "tool": text, "step": whole,
        "time": moment, "count": real, "confidence": real, "message": text,
    }  # fmt: skip
    return arrow.schema(
        {
            "session": text, "guard_version": text, "settings_hash": text, "source": text,
            "strongest": text, "steps": whole, "calls": whole, "tokens": whole, "cost": real,
            "seconds": real, "started": moment, "loop": arrow.bool_(),
            "tier": text, "decisions": arrow.list_(arrow.struct(list(decision.items()))),
            "stop_step": whole, "stop_action": text, "stop_detector": text, "stop_rule": text,
            "steps_after": whole, "calls_after": whole, "tokens_after": whole,
            "cost_after": real, "seconds_after": real,
        }.items()
    )  # fmt: skip
