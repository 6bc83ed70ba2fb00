"""Buckets replayed by Ray: on a cluster whose machines share a folder, or on this machine."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from otel_loopguard.backtest.buckets import Bucket, Notes, notes_of, replay_bucket
from otel_loopguard.backtest.extras import load
from otel_loopguard.errors import LoopGuardError

if TYPE_CHECKING:
    from collections.abc import Mapping

_OBJECTS: Final = 100_000_000
"""Bytes for Ray's objects on this machine: rows here are names of files."""

Prepare = Callable[[], object]


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
