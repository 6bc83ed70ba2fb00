"""A backtest over synthetic sessions: how long it takes, what memory, and at what price.

`python -m bench.backtest --sessions N [--jobs N] [--keep DIR] [--core-hour USD]` makes N sessions
of 30 steps (every twentieth gets stuck half-way) as Parquet in the columns of the ClickHouse
exporter, and replays them by the command line. With `--keep`, what was killed goes on where it was,
and what it had taken counts. What is said per million is extrapolated unless N is a million.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import duckdb
import psutil

STEPS = 30
# One file holds at most so many sessions.
FILE = 50_000
QUERY = """
COPY (
  SELECT
    make_timestamp_ns(1767225600000000000 + i * 1000000000 + k * 2000000000) AS Timestamp,
    md5('t' || i) AS TraceId,
    left(md5(i || '-' || k), 16) AS SpanId,
    CASE WHEN k = 0 THEN '' ELSE left(md5(i || '-0'), 16) END AS ParentSpanId,
    CASE WHEN k = 0 THEN 'invoke_agent bench' WHEN k % 2 = 1 THEN 'chat gpt'
      ELSE 'execute_tool search' END AS SpanName,
    'Internal' AS SpanKind,
    'bench' AS ScopeName,
    CASE
      WHEN k = 0 THEN MAP {{'gen_ai.operation.name': 'invoke_agent',
        'gen_ai.conversation.id': 'session-' || i}}
      WHEN k % 2 = 1 THEN MAP {{'gen_ai.operation.name': 'chat', 'gen_ai.request.model': 'gpt',
        'gen_ai.usage.input_tokens': (900 + 40 * k)::VARCHAR,
        'gen_ai.usage.output_tokens': '60', 'gen_ai.usage.cost': '0.004'}}
      ELSE MAP {{'gen_ai.operation.name': 'execute_tool', 'gen_ai.tool.name': 'search',
        'gen_ai.tool.call.arguments':
          '{{"query": "' || md5(i || 'q' || CASE WHEN stuck AND k > 10 THEN 0 ELSE k END) || '"}}',
        'gen_ai.tool.call.result':
          CASE WHEN stuck AND k > 10 THEN 'No results.' ELSE repeat(md5(i || 'r' || k), 8) END}}
    END AS SpanAttributes,
    CASE WHEN k = 0 THEN 61500000000 ELSE 1500000000 END::UBIGINT AS Duration,
    'Unset' AS StatusCode,
    '' AS StatusMessage,
    stuck AS "Loop"
  FROM (SELECT i, i % 20 = 0 AS stuck FROM range({first}, {last}) AS r(i)), range({steps}) AS s(k)
) TO '{path}' (FORMAT parquet, COMPRESSION zstd)
"""


def make(sessions: int, folder: Path) -> int:
    """Writes the spans, but for files that are there; gives the bytes of all."""
    folder.mkdir(parents=True, exist_ok=True)
    temporary = folder / "spans.tmp"
    with duckdb.connect() as connection:
        connection.execute("SET memory_limit = '1GB'")
        connection.execute("SET enable_progress_bar = false")
        for first in range(0, sessions, FILE):
            last = min(sessions, first + FILE)
            path = folder / f"spans-{first:08}-{last:08}.parquet"
            if not path.exists():
                connection.execute(
                    QUERY.format(first=first, last=last, steps=STEPS + 1, path=temporary)
                )
                temporary.rename(path)
    return sum(path.stat().st_size for path in folder.glob("*.parquet"))


@dataclass
class Used:
    """What a backtest took, over all its runs."""

    seconds: float = 0.0
    cpu: float = 0.0
    memory: int = 0  # bytes, of all processes together, at most


def replay(source: Path, out: Path, jobs: int) -> Used:
    """Backtests a folder of spans; what it took is kept with the result after each part."""
    out.mkdir(parents=True, exist_ok=True)
    record = out / "used.json"
    before = Used(**json.loads(record.read_bytes())) if record.exists() else Used()
    command = "from otel_loopguard.cli import main; main()"
    arguments = ["backtest", str(source), "--out", str(out), "--jobs", str(jobs)]
    with subprocess.Popen([sys.executable, "-c", command, *arguments]) as child:
        known, used = -1, before
        for used in _watch(psutil.Process(child.pid), before):
            parts = len(list(out.glob("decisions-*/part-*.parquet")))
            if parts > known:
                known = parts
                _keep(used, record)
                if not parts % 10:
                    print(f"{parts} parts, {_told(used)}", file=sys.stderr, flush=True)
    if child.returncode:
        sys.exit(child.returncode)
    _keep(used, record)
    return used


def _keep(used: Used, record: Path) -> None:
    temporary = record.with_suffix(".tmp")
    temporary.write_text(json.dumps(asdict(used)), encoding="utf-8")
    temporary.replace(record)


def _watch(child: psutil.Process, before: Used) -> Iterator[Used]:
    """What it has taken so far, a few times a second, until it ends."""
    began, cpu, memory = time.perf_counter(), 0.0, before.memory
    while True:
        now = held = 0.0
        ended = child.status() == psutil.STATUS_ZOMBIE
        # Workers that ended count in the times of their parent; one may end while it is looked at.
        with suppress(psutil.NoSuchProcess):
            for each in (child, *child.children(recursive=True)):
                times = each.cpu_times()
                now += times.user + times.system + times.children_user + times.children_system
                held += each.memory_info().rss
        cpu, memory = max(cpu, now), max(memory, int(held))
        yield Used(before.seconds + time.perf_counter() - began, before.cpu + cpu, memory)
        if ended:
            return
        time.sleep(0.2)


def _told(used: Used) -> str:
    return f"{used.seconds:,.0f} s, {used.cpu:,.0f} s of CPU, {used.memory / 1e6:,.0f} MB at most"


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.backtest", description=__doc__)
    parser.add_argument("--sessions", type=int, default=20_000)
    parser.add_argument("--jobs", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="folder for spans and result, kept afterwards")
    parser.add_argument("--core-hour", type=float, default=0.04, help="US dollars (0.04)")
    given = parser.parse_args()
    with TemporaryDirectory() as temporary:
        folder = given.keep or Path(temporary)
        spans, out = (folder / f"{name}-{given.sessions}" for name in ("spans", "out"))
        size = make(given.sessions, spans)
        used = replay(spans, out, given.jobs)
    million = 1e6 / given.sessions
    hours = used.cpu * million / 3600
    steps = given.sessions * STEPS
    print(f"{given.sessions:,} sessions of {STEPS} steps, {size / 1e6:,.0f} MB of Parquet")
    print(f"{_told(used)}, of all processes together")
    rate = f"{steps / used.cpu:,.0f} steps a second"
    print(f"{1e6 * used.cpu / steps:,.0f} microseconds of CPU for a step: {rate} of one core")
    print(
        f"a million{'' if given.sessions == 1_000_000 else ', extrapolated'}: "
        f"{used.seconds * million / 3600:.2f} h, {hours:.2f} hours of CPU, "
        f"${hours * given.core_hour:.2f} at ${given.core_hour:.3f} a core-hour"
    )


if __name__ == "__main__":
    main()
