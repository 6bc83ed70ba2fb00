"""Sessions of all processes on one Redis, and requests to them."""

from __future__ import annotations

import secrets
import time
import weakref
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, cast

from otel_loopguard._util.errors import swallow
from otel_loopguard._util.worker import BackgroundThread
from otel_loopguard.errors import StoreError
from otel_loopguard.escalation.admin.handlers import (
    MOST_REPLY,
    MOST_REQUEST,
    Message,
    decoded,
)
from otel_loopguard.escalation.payload import encoded
from otel_loopguard.stores.redis import quoted
from otel_loopguard.stores.redis_connection import Connection
from otel_loopguard.stores.redis_url import parse_redis_url

if TYPE_CHECKING:
    from otel_loopguard._util.errors import InternalErrors
    from otel_loopguard.escalation.admin.handlers import AdminHandlers
    from otel_loopguard.settings import Settings

_WAIT_S: Final = 1
"""Longest wait for a request in seconds: Redis 5 takes whole ones only."""
_ANSWER_S: Final = 30
_PROCESSES: Final = 10_000


class ProcessRegistry:
    """The processes on a Redis, their sessions, and requests to them.

    Blocks, and raises `StoreError` where Redis does not answer.

    `PREFIX:desk` has the processes by the time of their last heartbeat, `PREFIX:desk:{PROCESS}` the
    sessions of one, `…:in` the requests to it, `PREFIX:desk:reply:{ID}` the reply to one. All of it
    goes by itself, soon after a process ended.
    """

    def __init__(self, settings: Settings) -> None:
        self._prefix = f"{settings.store_prefix}:desk"
        # Requests are waited for a second at a time.
        limit_s = max(settings.store_timeout_s, 3.0 * _WAIT_S)
        self._redis = Connection(parse_redis_url(settings.store_url.get_secret_value()), limit_s)
        self._kept_ms = int(max(3 * settings.tuning.admin.heartbeat_s, 5.0) * 1000)

    def publish(self, process: str, changed: dict[str, bytes], gone: list[str]) -> None:
        """Says that a process lives, and what changed of its sessions."""
        key = self._sessions(process)
        if gone:
            self._redis.call("HDEL", key, *(_field(name) for name in gone))
        if changed:
            given = [part for name, row in changed.items() for part in (_field(name), row)]
            self._redis.call("HSET", key, *given)
        self._redis.call("PEXPIRE", key, self._kept_ms)
        self._redis.call("ZADD", self._prefix, str(time.time_ns() // 10**6), process)
        self._redis.call("PEXPIRE", self._prefix, max(self._kept_ms, 60_000))

    def withdraw(self, process: str) -> None:
        """A process ends."""
        self._redis.call("ZREM", self._prefix, process)
        self._redis.call("DEL", self._sessions(process))
        self._redis.call("DEL", self._box(process))

    def processes(self) -> list[str]:
        """The processes with a recent heartbeat, 10,000 at most."""
        since = time.time_ns() // 10**6 - self._kept_ms
        self._redis.call("ZREMRANGEBYSCORE", self._prefix, "-inf", f"({since}")
        found: list[Any] = self._redis.call("ZRANGE", self._prefix, 0, _PROCESSES - 1)
        return [_text(name) for name in found]

    def sessions(self) -> Iterator[Message]:
        """The rows of all sessions of all processes; what is no row is left out."""
        for process in self.processes():
            found: Any = self._redis.call("HGETALL", self._sessions(process))
            rows = cast("dict[bytes, bytes]", found)
            for value in rows.values():
                row = decoded(bytes(value), MOST_REQUEST)
                if row is not None:
                    yield row

    def next_request(self, process: str) -> tuple[str, bytes] | None:
        """The next request to a process, waited for up to a second: its id and itself."""
        found = self._redis.call("BLPOP", self._box(process), _WAIT_S)
        if not found:
            return None
        request = decoded(bytes(found[1]), MOST_REQUEST)
        reply_to = None if request is None else request.get("reply_to")
        return (reply_to, bytes(found[1])) if isinstance(reply_to, str) else None

    def send_reply(self, reply_to: str, reply: bytes) -> None:
        """Puts a reply where who asked looks for it."""
        self._redis.call("RPUSH", self._reply(reply_to), reply)
        self._redis.call("EXPIRE", self._reply(reply_to), _ANSWER_S)

    def ask(self, process: str, request: Message, limit_s: float) -> Message | None:
        """Sends a request to a process, and waits for its reply; None if there is none in time."""
        reply_to = secrets.token_hex(8)
        until = time.monotonic() + limit_s
        self._redis.call("RPUSH", self._box(process), encoded({**request, "reply_to": reply_to}))
        self._redis.call("EXPIRE", self._box(process), _ANSWER_S)
        while time.monotonic() < until:
            found = self._redis.call("BLPOP", self._reply(reply_to), _WAIT_S)
            if found:
                return decoded(bytes(found[1]), MOST_REPLY)
        return None

    def close(self) -> None:
        """Closes the connection; the next call opens it again."""
        self._redis.close()

    def _sessions(self, process: str) -> str:
        return f"{self._prefix}:{{{quoted(process)}}}"

    def _box(self, process: str) -> str:
        return f"{self._sessions(process)}:in"

    def _reply(self, reply_to: str) -> str:
        return f"{self._prefix}:reply:{{{quoted(reply_to)}}}"


def _field(key: str) -> bytes:
    return key.encode("utf-8", "surrogatepass")


def _text(data: object) -> str:
    return data.decode("utf-8", "backslashreplace") if isinstance(data, bytes) else str(data)


_FIRST_PAUSE_S: Final = 0.2


class RedisTransport:
    """Answers requests that come by a Redis, on a background thread that ends with the guard.

    Where the store does not answer it waits, at most for `tuning.stores.retry_s`, and publishes
    everything anew as soon as it does.
    """

    def __init__(self, settings: Settings, admin: AdminHandlers, faults: InternalErrors) -> None:
        self._heartbeat_s = settings.tuning.admin.heartbeat_s
        self._longest_s = settings.tuning.stores.retry_s
        self._process = admin.process
        self._admin = weakref.ref(admin)
        self._registry = ProcessRegistry(settings)
        self._faults = faults
        self._sent: dict[str, bytes] = {}
        self._next = 0.0
        self._pause_s = _FIRST_PAUSE_S
        self._ended = False
        self._thread = BackgroundThread("admin", self._turn, faults, weak=False)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.wake()

    def close(self) -> None:
        """Ends the thread, within about a second; it removes the process from the registry."""
        self._ended = True
        self._thread.wake()

    def _turn(self) -> float:
        if self._ended or self._admin() is None:
            with suppress(StoreError):
                self._registry.withdraw(self._process)
                self._registry.close()
            self._thread.stop()
            return 0
        # The writer of the store logs that it does not answer, and why.
        with swallow(self._faults, "admin"), suppress(StoreError):
            self._publish()
            self._answer_next()
            self._pause_s = _FIRST_PAUSE_S
            return 0
        self._sent = {}
        self._next = 0.0
        pause_s, self._pause_s = self._pause_s, min(2 * self._pause_s, self._longest_s)
        return pause_s

    def _publish(self) -> None:
        """Publishes the sessions that changed since the last time."""
        admin = self._admin()
        if admin is None or time.monotonic() < self._next:
            return
        rows = {row["session"]: encoded(row) for row in admin.rows()}
        changed = {key: row for key, row in rows.items() if self._sent.get(key) != row}
        gone = [key for key in self._sent if key not in rows]
        self._registry.publish(self._process, changed, gone)
        self._sent = rows
        self._next = time.monotonic() + self._heartbeat_s

    def _answer_next(self) -> None:
        """Waits for a request, without keeping the guard alive, and answers it."""
        found, admin = self._registry.next_request(self._process), self._admin()
        if found is None or admin is None:
            return
        reply_to, request = found
        self._registry.send_reply(reply_to, admin.answer(request, self._faults))
        self._next = 0.0
