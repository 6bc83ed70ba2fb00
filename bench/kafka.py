# ruff: noqa: E402
"""How fast `serve --kafka` reads: `python -m bench.kafka --write` fills `bench/kafka.json`.

A real broker (`make kafka`), a Redis and workers, each a process of its own. A record has spans of
one session, whose id is its key, and the topic eight partitions:

- rate: calls of healthy sessions, from the first record's writing to the last one's commit;
- delay: calls at half that rate, and among them, some times a second, the last call that shows a
  loop: from its writing until a client that waits for the flag over HTTP has it.

Sender, broker, workers and Redis share the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from itertools import count, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "collector-config")]

import httpx
from confluent_kafka import ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from stack.ports import Ports
from stack.programs import wait_for
from stack.stack import Stack

from bench.fleet import cpu_s, healthy_call, machine, markdown
from tests.server.serving import call, request
from tests.stores.servers import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

RESULTS: Final = HERE / "kafka.json"
TOPIC: Final = "otlp_spans"
GROUP: Final = "otel-loopguard"
PARTITIONS: Final = 8
DELAY_S: Final = 30
LOOPS_PER_S: Final = 5
HEAD: Final = (
    "workers", "spans a record", "spans/s", "spans/s for each core of workers", "p50, s", "p99, s",
)  # fmt: skip


@dataclass(frozen=True)
class Row:
    """What was measured of that many workers."""

    workers: int
    spans_per_record: int
    spans_per_s: float
    spans_per_worker_core_s: float
    p50_s: float
    p99_s: float


class Topic:
    """The topic, what is written to it, and what its readers are done with."""

    def __init__(self, brokers: str) -> None:
        given = {"bootstrap.servers": brokers, "log_level": 0}
        self._admin = AdminClient(given)
        self._producer = Producer({**given, "linger.ms": 1})
        self._partitions = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
        self._written = 0
        self._admin.create_topics([NewTopic(TOPIC, PARTITIONS)])[TOPIC].result(60)

    def write(self, session: str, *spans: dict[str, Any]) -> None:
        """Writes spans of a session as a record."""
        self._producer.produce(TOPIC, request(*spans).SerializeToString(), session)
        self._producer.poll(0)
        self._written += 1

    def wait(self) -> None:
        """Waits until all that was written is committed."""
        self._producer.flush()
        wait_for(lambda: self._committed() == self._written, "all is committed", 600)

    def _committed(self) -> int:
        asked = [ConsumerGroupTopicPartitions(GROUP, list(self._partitions))]
        found = self._admin.list_consumer_group_offsets(asked)[GROUP].result(60)
        return sum(max(0, one.offset) for one in found.topic_partitions)


def measure(workers: int, per_record: int, spans: int) -> Row:
    """What that many workers do with records of that many spans."""
    with tempfile.TemporaryDirectory() as folder, Stack(Path(folder), Ports.free()) as stack:
        stack.redis()
        stack.kafka()
        brokers = f"127.0.0.1:{stack.ports.kafka}"
        topic, ports = Topic(brokers), [free_port() for _ in range(workers)]
        running = [
            stack.worker(f"worker-{port}", port, free_port(), "", "--kafka", brokers)
            for port in ports
        ]
        records = _records(per_record)
        for session, made in islice(records, 1_000 // per_record):
            topic.write(session, *made)
        for number in range(DELAY_S * LOOPS_PER_S):
            for nth in range(2):
                topic.write(_stuck(number), _equal_call(number, nth))
        topic.wait()
        used, begun = sum(cpu_s(one.pid) for one in running), time.perf_counter()
        for session, made in islice(records, spans // per_record):
            topic.write(session, *made)
        topic.wait()
        rate = spans / (time.perf_counter() - begun)
        used = sum(cpu_s(one.pid) for one in running) - used
        every_s = 2 * per_record / rate
        urls = [f"http://127.0.0.1:{port}" for port in ports]
        delays = asyncio.run(_delays(topic, urls, records, every_s))
    cuts = statistics.quantiles(delays, n=100, method="inclusive")
    return Row(
        workers=workers,
        spans_per_record=per_record,
        spans_per_s=round(rate),
        spans_per_worker_core_s=round(spans / max(used, 0.01)),
        p50_s=round(cuts[49], 2),
        p99_s=round(cuts[98], 2),
    )


def _records(per_record: int) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Sessions, and calls of theirs, all different."""
    for session in count():
        yield f"chat-{session}", [healthy_call(session, step) for step in range(per_record)]


def _stuck(number: int) -> str:
    return f"stuck-{number}"


def _equal_call(number: int, nth: int) -> dict[str, Any]:
    """A call of a session that is stuck; the third one shows it."""
    trace_id = f"stuck {number}".encode().ljust(16)
    return call(number * 3 + nth, _stuck(number), trace_id=trace_id)


async def _delays(
    topic: Topic, urls: Sequence[str], records: Iterator[tuple[str, list[dict[str, Any]]]],
    every_s: float,
) -> list[float]:  # fmt: skip
    """Seconds from the writing of each third equal call to its flag."""
    written: dict[int, float] = {}
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(timeout=90, limits=limits) as client:

        async def asked(url: str, number: int) -> None:
            at = f"{url}/v1/sessions/{_stuck(number)}/control?wait=60"
            while (await client.get(at)).json()["action"] == "allow":
                pass

        async def flagged(number: int) -> float:
            # A hint is told by the worker that has the session, whichever that is.
            asking = [asyncio.create_task(asked(url, number)) for url in urls]
            _, others = await asyncio.wait(asking, return_when=asyncio.FIRST_COMPLETED)
            for other in others:
                other.cancel()
            return time.perf_counter() - written[number]

        waiting = [asyncio.create_task(flagged(number)) for number in range(DELAY_S * LOOPS_PER_S)]
        await asyncio.sleep(2)  # until all are asked
        begun = time.perf_counter()
        for number in range(len(waiting)):
            until = begun + (number + 1) / LOOPS_PER_S
            while (now := time.perf_counter()) < until:
                session, made = next(records)
                topic.write(session, *made)
                await asyncio.sleep(min(every_s, until - now))
            written[number] = time.perf_counter()
            topic.write(_stuck(number), _equal_call(number, 2))
        return await asyncio.gather(*waiting)


def table(rows: Sequence[Row]) -> str:
    """The figures as a table in Markdown."""
    return markdown(HEAD, rows)


def main() -> None:
    """Measures all that was asked for, and prints it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--per-record", type=int, nargs="+", default=[1, 10])
    parser.add_argument("--spans", type=int, default=20_000)
    parser.add_argument("--write", action="store_true", help=f"writes {RESULTS.name}")
    asked = parser.parse_args()
    about = machine()
    rows: list[Row] = []
    for per_record in asked.per_record:
        for workers in asked.workers:
            rows.append(measure(workers, per_record, asked.spans))
            print(json.dumps(asdict(rows[-1])), file=sys.stderr, flush=True)
    print(table(rows))
    if asked.write:
        found = {"machine": about, "rows": [asdict(row) for row in rows]}
        RESULTS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
