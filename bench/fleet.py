# ruff: noqa: E402
"""How `serve` workers on one Redis grow: `python -m bench.fleet --write` fills `bench/fleet.json`.

For each number of live sessions and of workers, with processes of their own:

- fill: calls of each session but its last, so that all of them are live;
- rate: the last call of each, as fast as they are taken;
- delay: calls at half that rate, sent on time whether or not those before are answered.

A request is answered once the flags of its sessions are set and stored, so the time to the answer
is that from a span's arrival to its flag; that the flag is set by then is looked at once. Each
session stays with one worker, as behind the Collector. The sender takes a part of the same cores;
what is told of a core is told by the processor time of the workers, and of Redis, alone.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any, Final

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "collector-config")]

import httpx
import redis
from stack.ports import Ports
from stack.stack import Stack

from tests.server.serving import PROTOBUF, call, request
from tests.stores.servers import free_port

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from stack.programs import Program

RESULTS: Final = HERE / "fleet.json"
PER_REQUEST: Final = 200
PER_TIMED_REQUEST: Final = 50
DELAY_S: Final = 30
STEP_EVERY_S: Final = 10
"""How often a live agent makes a span, for the estimate of a million."""
MILLION: Final = 1_000_000
HEAD: Final = (
    "live sessions", "of calls", "workers", "spans/s", "spans/s for each core of workers",
    "spans/s for each core of Redis", "p50, s", "p99, s", "kB a session in workers",
    "kB a session in Redis",
)  # fmt: skip


@dataclass(frozen=True)
class Row:
    """What was measured of that many sessions and workers."""

    sessions: int
    steps: int
    workers: int
    spans_per_s: float
    spans_per_worker_core_s: float
    spans_per_redis_core_s: float
    p50_s: float
    p99_s: float
    worker_kb_per_session: float
    redis_kb_per_session: float


class Fleet:
    """A Redis and workers, which spans are sent to over HTTP."""

    def __init__(self, stack: Stack, workers: int, sessions: int) -> None:
        self.redis = stack.redis()
        self._store: Any = redis.Redis(port=stack.ports.redis)
        self._urls: list[str] = []
        self.workers: list[Program] = []
        more = {"LOOPGUARD_MAX_SESSIONS": str(2 * sessions)}
        for number in range(workers):
            port = free_port()
            self._urls.append(f"http://127.0.0.1:{port}")
            self.workers.append(stack.worker(f"worker-{number}", port, free_port(), **more))

    def send(self, client: httpx.Client, block: int, body: bytes) -> None:
        """Sends a request of a block of sessions to the worker that has them."""
        url = self._url(block)
        client.post(f"{url}/v1/traces", content=body, headers=PROTOBUF).raise_for_status()

    def is_flagged_with_the_answer(self, client: httpx.Client) -> bool:
        """Whether the flag of a session that loops is up as soon as its spans are answered."""
        calls = (call(number, "looping", trace_id=b"looping ".ljust(16)) for number in range(3))
        self.send(client, 0, request(*calls).SerializeToString())
        found = client.get(f"{self._url(0)}/v1/sessions/looping/control").json()
        return found["action"] != "allow"

    def worker_bytes(self) -> int:
        """Bytes of memory that the workers have."""
        return sum(_resident_bytes(one.pid) for one in self.workers)

    def memory(self) -> str:
        """Memory of each process, as it is now."""
        workers = ((f"worker {at}", one) for at, one in enumerate(self.workers))
        of = [*workers, ("Redis", self.redis)]
        return ", ".join(f"{name} {_resident_bytes(one.pid) / 1e9:.2f} GB" for name, one in of)

    def redis_bytes(self) -> int:
        """Bytes that Redis has for what it keeps."""
        return self._store.info("memory")["used_memory_dataset"]

    def cpu_s(self) -> tuple[float, float]:
        """Seconds of processor time that the workers took, and that Redis did."""
        return sum(cpu_s(one.pid) for one in self.workers), cpu_s(self.redis.pid)

    def _url(self, block: int) -> str:
        return self._urls[block % len(self._urls)]


def measure(sessions: int, steps: int, workers: int) -> Row:
    """What that many workers do with that many live sessions of so many calls."""
    with (
        tempfile.TemporaryDirectory() as folder,
        Stack(Path(folder), Ports.free()) as stack,
        httpx.Client(timeout=300, limits=httpx.Limits(max_connections=64)) as client,
        ThreadPoolExecutor(64) as pool,
    ):
        fleet = Fleet(stack, workers, sessions)
        idle = fleet.worker_bytes(), fleet.redis_bytes()
        for step in range(steps - 1):
            _rate(fleet, client, list(_bodies(sessions, step, PER_REQUEST)), 4 * workers)
        last = list(_bodies(sessions, steps - 1, PER_REQUEST))
        before = fleet.cpu_s()
        rate = _rate(fleet, client, last, 4 * workers)
        after = fleet.cpu_s()
        used = fleet.worker_bytes(), fleet.redis_bytes()
        if not fleet.is_flagged_with_the_answer(client):
            sys.exit("a request was answered before its flag was set")
        timed = _bodies(sessions, steps, PER_TIMED_REQUEST)
        p50, p99 = _delay(fleet, client, pool, timed, rate / 2)
        print(f"{sessions:,} live sessions: {fleet.memory()}", file=sys.stderr, flush=True)
    worker_s, redis_s = (end - begin for begin, end in zip(before, after, strict=True))
    worker_bytes, redis_bytes = (end - begin for begin, end in zip(idle, used, strict=True))
    return Row(
        sessions=sessions,
        steps=steps,
        workers=workers,
        spans_per_s=round(rate),
        spans_per_worker_core_s=round(sessions / max(worker_s, 0.01)),
        spans_per_redis_core_s=round(sessions / max(redis_s, 0.01)),
        p50_s=round(p50, 2),
        p99_s=round(p99, 2),
        worker_kb_per_session=round(worker_bytes / sessions / 1e3, 1),
        redis_kb_per_session=round(redis_bytes / sessions / 1e3, 1),
    )


def _bodies(sessions: int, step: int, size: int) -> Iterator[tuple[int, bytes]]:
    """Requests with one call of each session, and the block of sessions that each is of."""
    for begin in range(0, sessions, size):
        made = request(
            *(healthy_call(one, step) for one in range(begin, min(begin + size, sessions)))
        )
        yield begin // PER_REQUEST, made.SerializeToString()


def healthy_call(session: int, step: int) -> dict[str, Any]:
    """A call of a healthy session, unlike those before."""
    span = call(step, f"chat-{session}")
    span |= {
        "trace_id": (session + 1).to_bytes(16, "big"),
        "span_id": (session << 16 | step + 1).to_bytes(8, "big"),
    }
    span["attributes"] |= {
        "gen_ai.tool.call.arguments": json.dumps({"q": f"part {step} of {session}"}),
        "gen_ai.tool.call.result": f"what is known of part {step} of {session}: " + "word " * 50,
    }
    return span


def _rate(
    fleet: Fleet, client: httpx.Client, bodies: Sequence[tuple[int, bytes]], at_once: int
) -> float:
    """Spans a second, as fast as they are taken."""

    def send(one: tuple[int, bytes]) -> None:
        fleet.send(client, *one)

    begun = time.perf_counter()
    with ThreadPoolExecutor(at_once) as pool:
        list(pool.map(send, bodies))
    return len(bodies) * PER_REQUEST / (time.perf_counter() - begun)


def _delay(
    fleet: Fleet,
    client: httpx.Client,
    pool: ThreadPoolExecutor,
    timed: Iterator[tuple[int, bytes]],
    rate: float,
) -> tuple[float, float]:
    """Seconds from when a request was due to its answer: the median, and of 99 in 100."""
    every_s = PER_TIMED_REQUEST / rate
    most = int(DELAY_S / every_s) + 2
    bodies = list(islice(timed, most))
    begun = time.perf_counter()

    def send(number: int) -> float:
        due = begun + number * every_s
        time.sleep(max(0.0, due - time.perf_counter()))
        fleet.send(client, *bodies[number])
        return time.perf_counter() - due

    took = list(pool.map(send, range(len(bodies))))
    cuts = statistics.quantiles(took, n=100, method="inclusive")
    return cuts[49], cuts[98]


def cpu_s(pid: int) -> float:
    """Seconds of processor time that a process took."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _resident_bytes(pid: int) -> int:
    pages = Path(f"/proc/{pid}/statm").read_text(encoding="utf-8").split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def table(rows: Sequence[Row]) -> str:
    """The figures as a table in Markdown."""
    return markdown(HEAD, rows)


def markdown(head: Sequence[str], rows: Iterable[Any]) -> str:
    """A table in Markdown, a line for each dataclass."""
    lines = [head, ("---:",) * len(head)]
    lines += [tuple(_shown(value) for value in asdict(row).values()) for row in rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def paper(rows: Sequence[Row]) -> str:
    """What the row of most sessions and fewest workers comes to with a million sessions."""
    row = min(rows, key=lambda row: (-row.sessions, row.workers))
    spans = MILLION / STEP_EVERY_S
    say: Callable[[float], str] = lambda value: f"{value:,.0f}"  # noqa: E731
    return (
        f"On paper, from the row of {row.sessions:,} sessions and {row.workers} "
        f"worker{'s' if row.workers > 1 else ''}: a million live sessions that make a span every "
        f"{STEP_EVERY_S} s are {say(spans)} spans/s. They take "
        f"{say(spans / row.spans_per_worker_core_s)} cores and "
        f"{say(row.worker_kb_per_session)} GB of workers, and "
        f"{say(spans / row.spans_per_redis_core_s)} cores and {say(row.redis_kb_per_session)} GB "
        "of Redis, which has one core for each node of a Cluster. All keys of a session lie on "
        "one node, and no worker needs another: both are taken to grow in proportion."
    )


def _shown(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,g}"


def machine() -> dict[str, object]:
    """What it was measured on."""
    return {
        "when": time.strftime("%Y-%m-%d"), "python": platform.python_version(),
        "system": platform.system(), "cpus": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
    }  # fmt: skip


def main() -> None:
    """Measures all that was asked for, and prints it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--sessions", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--write", action="store_true", help=f"writes {RESULTS.name}")
    parser.add_argument("--steps", type=int, default=2, help="calls of each session, at least 2")
    asked = parser.parse_args()
    about = machine()
    rows: list[Row] = []
    for sessions in asked.sessions:
        for workers in asked.workers:
            rows.append(measure(sessions, max(asked.steps, 2), workers))
            print(json.dumps(asdict(rows[-1])), file=sys.stderr, flush=True)
    print(f"{table(rows)}\n{fill(paper(rows), 100)}")
    if asked.write:
        found = {"machine": about, "rows": [asdict(row) for row in rows]}
        RESULTS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
