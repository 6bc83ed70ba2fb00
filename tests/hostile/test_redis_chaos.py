"""Four processes on a real Redis that is killed, frozen, filled, and lies."""

import json
import os
import random
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import redis

from otel_loopguard import Settings
from otel_loopguard.stores.redis import RedisStore
from tests.stores.servers import Server, wait_for

pytestmark = pytest.mark.rare

_ROOT = Path(__file__).parents[2]
_AGENTS = 4
_SEED = 11


class Agents:
    """The processes; each tells what Redis acknowledged to it."""

    def __init__(self, url: str) -> None:
        variables = {name: text for name, text in os.environ.items() if "LOOPGUARD" not in name}
        self._all = [
            subprocess.Popen(
                [sys.executable, "-m", "tests.hostile.redis_agent", url, f"agent{number}"],
                cwd=_ROOT, env=variables, text=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            )
            for number in range(_AGENTS)
        ]  # fmt: skip
        for one in self._all:
            assert one.stdout is not None
            assert one.stdout.readline() == "up\n"

    def are_well(self) -> bool:
        return all(one.poll() is None for one in self._all)

    def end(self) -> list[dict[str, Any]]:
        for one in self._all:
            assert one.stdin is not None
            one.stdin.close()
            one.stdin = None
        accounts: list[dict[str, Any]] = []
        for one in self._all:
            told, log = one.communicate(timeout=180)
            assert one.returncode == 0, log[-3000:]
            accounts.append(json.loads(told))
        return accounts

    def kill(self) -> None:
        for one in self._all:
            one.kill()
            one.communicate()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A server that has on its disk what it acknowledged."""
    found = Server(tmp_path / "redis", "--appendonly", "yes", "--appendfsync", "always").start()
    yield found
    found.kill()


@pytest.fixture
def agents(server: Server) -> Iterator[Agents]:
    found = Agents(server.url)
    yield found
    found.kill()


def lie(server: Server, draw: random.Random) -> None:
    """Puts what is of another type, or garbage, at keys that agents use, and says it on topics."""
    client = server.client
    texts = [*b' garbage {"v":1} \x01 \x01[[[[ -1'.split(b" "), b"\x00\xff" * 40, b"9" * 400]
    for key in client.scan_iter("loopguard:*", count=1000):
        # What agents have journals of is counted in the end; all else may be taken.
        counted = key.endswith(b":journal") or b":ids:" in key
        if (counted and b"lied" not in key) or draw.random() < 0.3:
            continue
        client.delete(key)
        text, number = draw.choice(texts), draw.choice(["*", "5-1", "7-0"])
        lies: list[Callable[[], Any]] = [
            partial(client.set, key, text),
            partial(client.rpush, key, text),
            partial(client.hset, key, text, text),
            partial(client.sadd, key, text),
            partial(client.zadd, key, {text: 1e300}),
            partial(client.xadd, key, {text: text, "more": text}, id=number),
        ]
        # An agent may have written there meanwhile.
        with suppress(redis.ResponseError):
            draw.choice(lies)()
    for topic in ("control", "keys", "breaker"):
        for text in texts:
            client.publish(f"loopguard:{topic}:topic", text)
    client.close()


def fill(server: Server) -> None:
    client = server.client
    client.config_set("maxmemory-policy", "noeviction")
    client.config_set("maxmemory", "1mb")
    time.sleep(1.5)
    client.config_set("maxmemory", "0")
    client.close()


def crash(server: Server) -> None:
    server.kill()
    time.sleep(1)
    server.start()


def hang(server: Server) -> None:
    server.freeze()
    time.sleep(1.5)
    server.thaw()


def test_what_was_acknowledged_is_there_and_nothing_was_raised(
    server: Server, agents: Agents
) -> None:
    """Killed, frozen, filled and lied to, twice over, while four agents work on it."""
    draw = random.Random(_SEED)
    for trouble in (crash, hang, fill, crash, hang, fill):
        time.sleep(1)
        trouble(server)
        lie(server, draw)
        assert agents.are_well()
    wait_for(server.client.ping)
    accounts = agents.end()
    kept: defaultdict[str, set[str]] = defaultdict(set)
    for told in accounts:
        for session, ids in told["acknowledged"].items():
            if "lied" not in session:
                kept[session].update(ids)
    store = RedisStore(Settings(store_url=server.url, tuning={"journal": {"steps": 100_000}}))
    found = {name: [entry for entry, _ in store.journal(name)] for name in kept}
    store.close()
    assert sum(map(len, kept.values())) > 1000
    assert [name for name, ids in kept.items() if ids - set(found[name])] == []
    assert [name for name, ids in found.items() if len(ids) != len(set(ids))] == []
    for told in accounts:
        assert told["flushed"], told["why"]
        assert told["dropped"] == 0
        # Garbage that is heard is counted; nothing else of it is.
        assert set(told["faults"]) <= {"sharing:ValueError"}, told["faults"]
    # Figures for the notes of a release.
    steps, longest = sum(t["steps"] for t in accounts), max(t["longest_s"] for t in accounts)
    print(f"{sum(map(len, kept.values()))} entries found; {steps} steps, longest {longest:.3f} s")
