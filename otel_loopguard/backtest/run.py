"""A whole backtest: its identity, its folder, and how it resumes."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from otel_loopguard.backtest.buckets import Bucket, Notes, notes_of, partition, replay_bucket
from otel_loopguard.backtest.cluster import replay_by_ray
from otel_loopguard.backtest.sources import open_source
from otel_loopguard.errors import LoopGuardError
from otel_loopguard.replay.workers import spread
from otel_loopguard.settings._group import Group
from otel_loopguard.version import __version__

if TYPE_CHECKING:
    from otel_loopguard.backtest.sources import Source
    from otel_loopguard.settings import Settings

ENGINES: Final = ("duckdb", "ray")
_MEMORY: Final = "1GB"
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
    values = {name: _plain(value) for name, value in settings.values().items()}
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:12]


def _plain(value: object) -> object:
    """The value as JSON has it; equal in every process, in which sets have orders of their own."""
    if isinstance(value, (set, frozenset)):
        return sorted(json.dumps(_plain(each)) for each in cast("frozenset[object]", value))
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in cast("list[object]", value)]
    if isinstance(value, Mapping):
        known = cast("Mapping[object, object]", value)
        return {str(key): _plain(each) for key, each in known.items()}
    if isinstance(value, Group):
        return {name: _plain(each) for name, each in value}
    # A secret decides nothing.
    return value if isinstance(value, (str, int, float, type(None))) else type(value).__name__


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
    prepare: Callable[[], object] | None = None,
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
