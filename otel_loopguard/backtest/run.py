"""A whole backtest: its identity, its folder, how it resumes, and who replays its buckets."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from otel_loopguard.backtest.buckets import Bucket, Notes, notes_of, partition, replay_bucket
from otel_loopguard.backtest.extras import load
from otel_loopguard.backtest.sources import open_source
from otel_loopguard.errors import LoopGuardError
from otel_loopguard.replay.workers import spread
from otel_loopguard.version import __version__

if TYPE_CHECKING:
    from otel_loopguard.backtest.sources import Source
    from otel_loopguard.engine import Settings

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
    """What JSON has no form for, equal in every process; a secret decides nothing."""
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
        msg = f"--engine {engine}: expected one of {', '.join(ENGINES)}"
        raise LoopGuardError(msg)
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
        msg = f"--engine ray: {lines[0]}"
        raise LoopGuardError(msg) from error


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
