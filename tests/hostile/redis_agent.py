"""An agent of `test_redis_chaos.py`: it works on a Redis until its input ends, and gives account.

Arguments: the address of the Redis, and a name of its own. Whatever a call of the guard raises ends
it with a traceback.
"""

import itertools
import json
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress

from opentelemetry.sdk.trace import TracerProvider

import otel_loopguard
from otel_loopguard import LoopGuard, LoopGuardSpanProcessor, LoopGuardStop, Settings, control
from otel_loopguard.resilience import partial
from otel_loopguard.stores.redis import RedisStore
from tests.agents import provider_with, tool_call

_STEPS = 200
_LIED = 5
_ROOM = {"queue": 1_000_000, "queue_bytes": 1 << 30}
_acknowledged: defaultdict[str, set[str]] = defaultdict(set)
_append = RedisStore.append


def _noted(self: RedisStore, session: str, entries: Sequence[tuple[str, bytes]]) -> None:
    _append(self, session, entries)
    _acknowledged[session].update(entry_id for entry_id, _ in entries)


def _work(name: str, provider: TracerProvider, ended: threading.Event) -> tuple[int, float]:
    """Steps in sessions of its own, in one of all agents, and in some that are lied about."""
    tracer, longest, done = provider.get_tracer("agent"), 0.0, 0
    for number in itertools.count():
        if ended.is_set():
            return done, longest
        own = f"{name}-{number}"
        for step in range(_STEPS):
            session = ("shared", f"lied-{step // 3 % _LIED}", own)[min(step % 6, 2)]
            began = time.perf_counter()
            args, found = json.dumps({"n": number, "step": step}), f"{name} found {number * step}"
            with otel_loopguard.session(session):
                tool_call(tracer, f"tool-{step % 7}", args, found)
                control.current()
            longest = max(longest, time.perf_counter() - began)
            done += 1
            if not step % 50:
                _ask_people(session, step)
            time.sleep(0.001)
    raise AssertionError


def _ask_people(session: str, step: int) -> None:
    """What an application does about a session: nothing of it may raise for the store's sake."""
    control.pause(session, "to be looked at", by="ada", limit_s=5)
    control.resume(session, by="ada")
    partial(step)
    # Another agent may have paused it just now.
    with otel_loopguard.session(session), suppress(LoopGuardStop):
        control.check()


def _main() -> None:
    RedisStore.append = _noted  # type: ignore[method-assign]
    settings = Settings(
        store_url=sys.argv[1],
        digest_key="the same for all agents",
        tuning={
            "stores": {"timeout_s": 0.3, "retry_s": 0.3, "delay_s": 0.02} | _ROOM,
            "journal": {"flush_s": 0.1, "read_s": 0.2, "steps": 100_000},
            "admin": {"heartbeat_s": 0.5},
        },
        exempt_tools=frozenset(f"tool-{number}" for number in range(7)),
    )
    guard = LoopGuard(settings)
    provider = provider_with(LoopGuardSpanProcessor(guard))
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    print("up", flush=True)
    steps, longest = _work(sys.argv[2], provider, ended)
    writer = guard._writer
    assert writer is not None
    # The journal's thread hands on what it has every 0.1 s.
    time.sleep(1)
    flushed = writer.flush(60)
    acknowledged = {session: sorted(ids) for session, ids in _acknowledged.items()}
    told = {"steps": steps, "longest_s": longest, "flushed": flushed, "acknowledged": acknowledged}
    told |= {"why": writer.why, "dropped": writer.dropped, "faults": dict(guard.faults.counts)}
    provider.shutdown()
    print(json.dumps(told), flush=True)


if __name__ == "__main__":
    _main()
