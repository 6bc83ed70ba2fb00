"""The directory of all processes in a Redis: which sessions each has, and a letter box for each."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, cast

from otel_loopguard.desk.wire import MOST_REPLY, MOST_REQUEST, Message, decoded
from otel_loopguard.escalation.encoding import encoded
from otel_loopguard.stores.connection import Connection
from otel_loopguard.stores.keys import quoted
from otel_loopguard.stores.place import place_of

if TYPE_CHECKING:
    from otel_loopguard.settings import Settings

_WAIT_S: Final = 1
"""Seconds that one look into a letter box waits: Redis 5 takes whole ones only."""
_ANSWER_S: Final = 30
_PROCESSES: Final = 10_000


class Directory:
    """Reads and writes the directory. Blocks, and raises `StoreError` where Redis does not answer.

    `PREFIX:desk` has the processes by the time they were heard of last, `PREFIX:desk:{PROCESS}` the
    sessions of one, `…:in` the requests to it, `PREFIX:desk:reply:{ID}` the reply to one. All of it
    goes by itself, soon after a process ended.

    Args:
        settings: `store_url` and what begins so; `desk_heartbeat_s`.

    Raises:
        LoopGuardSettingsError: The address cannot be used.
    """

    def __init__(self, settings: Settings) -> None:
        self._prefix = f"{settings.store_prefix}:desk"
        # A letter box is looked into for a second at a time.
        limit_s = max(settings.store_timeout_s, 3.0 * _WAIT_S)
        self._redis = Connection(place_of(settings.store_url.get_secret_value()), limit_s)
        self._kept_ms = int(max(3 * settings.desk_heartbeat_s, 5.0) * 1000)

    def publish(self, process: str, changed: dict[str, bytes], gone: list[str]) -> None:
        """Says that a process lives, and what changed of its sessions.

        Args:
            process: Its name.
            changed: Rows of sessions by key.
            gone: Keys of sessions that are listed no more.
        """
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
        """The processes that were heard of lately, 10,000 at most."""
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

    def next_request(self, process: str) -> tuple[str, Message] | None:
        """The next request to a process, waited for up to a second: its id and itself."""
        found = self._redis.call("BLPOP", self._box(process), _WAIT_S)
        if not found:
            return None
        request = decoded(bytes(found[1]), MOST_REQUEST)
        reply_to = None if request is None else request.get("reply_to")
        if request is None or not isinstance(reply_to, str):
            return None
        return reply_to, request

    def send_reply(self, reply_to: str, reply: Message) -> None:
        """Puts a reply where who asked looks for it."""
        self._redis.call("RPUSH", self._reply(reply_to), encoded(reply))
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

    def forked(self) -> None:
        """In the child of a fork: connections are the parent's."""
        self._redis.forked()

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
