"""Redis as a store: speed, size, and what is left of it after a kill.

`python bench/stores.py [sessions]` starts a redis-server of its own with `appendonly yes`, writes
100 steps of each of 10,000 sessions through the writer, kills the server in the middle, starts it
again, and looks whether every acknowledged entry is there, and none twice. Then it times how long a
hook would wait for `append` with a healthy and with a frozen server.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

import redis

from otel_loopguard import Settings
from otel_loopguard._util.errors import InternalErrors
from otel_loopguard.stores import Writer
from otel_loopguard.stores.redis import RedisStore

STEPS, ENTRY_BYTES, ROUNDS, CALLS = 100, 110, 9, 4_000


class Server:
    def __init__(self, folder: str) -> None:
        program = shutil.which("redis-server")
        if program is None:
            sys.exit("redis-server is missing")
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            self.port = taken.getsockname()[1]
        self.command = [program, "--port", str(self.port), "--bind", "127.0.0.1", "--save", ""]
        self.command += ["--dir", folder, "--appendonly", "yes"]
        self.client = redis.Redis(port=self.port, protocol=2)
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(self.command, stdout=subprocess.DEVNULL)
        wait_for(self.answers)

    def answers(self) -> bool:
        try:
            return bool(self.client.ping())
        except redis.RedisError:
            return False

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


def wait_for(true: Callable[[], object]) -> None:
    until = time.monotonic() + 120
    while not true():
        if time.monotonic() > until:
            sys.exit("gave up waiting")
        time.sleep(0.01)


def survive(server: Server, writer: Writer, sessions: int) -> dict[str, object]:
    """Ten steps of each session at a time; the server dies when half of all are acknowledged."""
    total, began, killed, at_kill = sessions * STEPS, time.perf_counter(), 0.0, 0
    for first in range(0, STEPS, 10):
        for session in range(sessions):
            made = [(f"p:{n}", b"%3d" % n + b"x" * ENTRY_BYTES) for n in range(first, first + 10)]
            while writer.waiting > 9_000:
                time.sleep(0.001)
                if not killed and writer.stored > total // 2:
                    server.kill()
                    killed, at_kill = time.perf_counter(), writer.stored
                    wait_for(lambda: writer.state == "down")
                    server.start()
                    killed = time.perf_counter() - killed
            if not writer.append(f"s{session}", made):
                sys.exit("a write was dropped")
    if not writer.flush(120):
        sys.exit(f"not everything was stored: {writer.why}")
    took = time.perf_counter() - began - killed
    wanted = [f"p:{number}" for number in range(STEPS)]
    missing = twice = 0
    for session in range(sessions):
        found = [entry_id for entry_id, _ in writer.store.journal(f"s{session}")]
        missing += len(set(wanted) - set(found))
        twice += len(found) - len(set(found))
    used = server.client.info("memory")["used_memory_dataset"]
    return {
        "sessions": sessions,
        "steps_acknowledged": writer.stored,
        "acknowledged_before_the_kill": at_kill,
        "retries": writer.retries,
        "missing": missing,
        "twice": twice,
        "steps_per_s": round(total / took),
        "bytes_of_an_entry": ENTRY_BYTES + 3,
        "bytes_a_step_in_redis": round(used / total),
    }


def waiting(server: Server, writer: Writer) -> dict[str, object]:
    """Microseconds of one `append`, median of rounds that take turns."""
    figures: dict[str, list[tuple[float, float]]] = {"healthy": [], "frozen": []}
    for turn in range(ROUNDS):
        for name, seen in figures.items():
            if name == "frozen":
                server.process.send_signal(signal.SIGSTOP)
            took: list[float] = []
            for number in range(CALLS):
                began = time.perf_counter()
                writer.append("speed", [(f"{name}:{turn}:{number}", b"x" * ENTRY_BYTES)])
                took.append(time.perf_counter() - began)
                time.sleep(0.0001)
            took.sort()
            seen.append((took[CALLS // 2] * 1e6, took[CALLS * 99 // 100] * 1e6))
            server.process.send_signal(signal.SIGCONT)
            writer.flush(30)
    found: dict[str, object] = {}
    for name, seen in figures.items():
        found[f"{name}_p50_us"] = round(sorted(p50 for p50, _ in seen)[ROUNDS // 2], 2)
        found[f"{name}_p99_us"] = round(sorted(p99 for _, p99 in seen)[ROUNDS // 2], 2)
    return found


def main() -> None:
    sessions = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    with tempfile.TemporaryDirectory(prefix="loopguard-stores-") as folder:
        server = Server(folder)
        settings = Settings(
            store_url=f"redis://127.0.0.1:{server.port}/0",
            tuning={"stores": {"delay_s": 0.05, "retry_s": 0.5}},
        )
        writer = Writer(RedisStore(settings), settings, InternalErrors())
        try:
            found = {"cpus": os.cpu_count(), **survive(server, writer, sessions)}
            found |= waiting(server, writer)
        finally:
            server.process.send_signal(signal.SIGCONT)
            server.kill()
            writer.close(0)
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
