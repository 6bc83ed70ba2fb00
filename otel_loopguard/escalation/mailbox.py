"""Mailboxes on a Redis: one for the requests to each process, one for the replies to a request."""

from __future__ import annotations

import secrets
import time
import weakref
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from otel_loopguard._control.replication import stopped
from otel_loopguard._util.errors import InternalErrors, swallow
from otel_loopguard._util.text import encoded, json_object
from otel_loopguard._util.worker import BackgroundThread, Pauses
from otel_loopguard.errors import StoreError
from otel_loopguard.escalation import protocol
from otel_loopguard.stores import open_store

if TYPE_CHECKING:
    from collections.abc import Callable

    from otel_loopguard._control.replication import ControlMessage
    from otel_loopguard.escalation.protocol import AdminHandlers
    from otel_loopguard.settings import Settings

_WAIT_S: Final = 1
"""Longest wait for a request in seconds: Redis 5 takes whole ones only."""
# Longer than anybody waits for a reply: a process that was slow finds a request, and answers it.
_KEPT_S: Final = 30
# Past that a request would take seconds to send; a fleet so large has more than one store.
_PROCESSES: Final = 10_000

_PUT: Final = """
redis.call('RPUSH', KEYS[1], ARGV[1])
return redis.call('EXPIRE', KEYS[1], ARGV[2])
"""
"""Keys: a mailbox. Arguments: a message, seconds that it is kept."""


class Mailboxes:
    """The processes on a Redis, and their mailboxes.

    Blocks, and raises `StoreError` where Redis does not answer.

    `PREFIX:desk` has the processes by the time of their last heartbeat, `PREFIX:desk:{PROCESS}:in`
    the requests to one, `PREFIX:desk:reply:{ID}` the replies to a request. All of it goes by
    itself, soon after a process ended.
    """

    def __init__(self, settings: Settings) -> None:
        # Requests are waited for a second at a time.
        self._store = store = open_store(settings, least_s=3.0 * _WAIT_S)
        self._redis, self._keys = store.connection, store.keys
        self._most = settings.tuning.admin.sessions
        self._kept_ms = int(max(3 * settings.tuning.admin.heartbeat_s, 5.0) * 1000)

    def register(self, process: str) -> None:
        """Records the heartbeat of a process."""
        self._redis.call("ZADD", self._keys.processes, str(time.time_ns() // 10**6), process)
        self._redis.call("PEXPIRE", self._keys.processes, max(self._kept_ms, 60_000))

    def withdraw(self, process: str) -> None:
        """Removes a process that ends."""
        self._redis.call("ZREM", self._keys.processes, process)
        self._redis.call("DEL", self._keys.requests(process))

    def processes(self) -> list[str]:
        """The processes with a recent heartbeat, 10,000 at most."""
        since = time.time_ns() // 10**6 - self._kept_ms
        self._redis.call("ZREMRANGEBYSCORE", self._keys.processes, "-inf", f"({since}")
        found: list[Any] = self._redis.call("ZRANGE", self._keys.processes, 0, _PROCESSES - 1)
        return [name.decode("utf-8", "backslashreplace") for name in found]

    def ask(
        self, request: protocol.Message, limit_s: float, *, but: str = "", most: int = _PROCESSES
    ) -> tuple[list[protocol.Message], str]:
        """Asks the newest processes `but` one; returns the replies in time, and who gave none."""
        reply_to = secrets.token_hex(8)
        processes = [one for one in self.processes() if one != but][-most:]
        data = encoded({**request, "reply_to": reply_to})
        self._redis.run_all(
            _PUT, [([self._keys.requests(one)], [data, _KEPT_S]) for one in processes]
        )
        until, replies, came = time.monotonic() + limit_s, list[protocol.Message](), 0
        while came < len(processes) and time.monotonic() < until:
            found = self._redis.call("BLPOP", self._keys.replies(reply_to), _WAIT_S)
            if found:
                came += 1
                reply = json_object(bytes(found[1]), protocol.MOST_REPLY)
                replies += [] if reply is None else [reply]
        lacking, asked = len(processes) - len(replies), len(processes)
        who = f"{lacking} of {asked} processes gave no reply within {limit_s:g} s"
        return replies, who if lacking else ""

    def stopped(
        self, replies: list[protocol.Message], known: Callable[[str], object]
    ) -> protocol.Message:
        """A list of the stopped sessions of the store that no process has listed, nor are known."""
        listed = {row["session"] for reply in replies for row in protocol.rows_of(reply)}
        found = stopped(self._store, self._most, lambda key: key in listed or known(key))
        return {"ok": True, "sessions": [_row(*one) for one in found], "omitted": 0}

    def next_request(self, process: str) -> tuple[str, bytes] | None:
        """The next request to a process, waited for up to a second: where to reply, and itself."""
        found = self._redis.call("BLPOP", self._keys.requests(process), _WAIT_S)
        if not found:
            return None
        request = json_object(bytes(found[1]), protocol.MOST_REQUEST) or {}
        reply_to = request.pop("reply_to", None)
        return (reply_to, encoded(request)) if isinstance(reply_to, str) else None

    def reply(self, reply_to: str, reply: bytes) -> None:
        """Puts a reply into the mailbox of its request."""
        self._redis.run(_PUT, [self._keys.replies(reply_to)], [reply, _KEPT_S])

    def close(self) -> None:
        """Closes the connection; the next call opens it again."""
        self._redis.close()


def _row(session: str, control: ControlMessage) -> protocol.Message:
    """The row of a session of which the store has the control alone."""
    return {
        "session": session, "process": "", "agent": None, "step": None, "steps": 0,
        "action": control.action.value, "by": protocol.cut(control.who),
        "reason": protocol.cut(control.reason), "detector": None, "tokens": None,
        "since": control.at, "last": control.at, "escalation": None,
    }  # fmt: skip


class MailboxServer:
    """Answers the requests in the mailbox of a process, on a thread that ends with the guard.

    Where the store does not answer it waits, at most for `tuning.stores.retry_s`, and registers the
    process anew as soon as it does.
    """

    def __init__(self, settings: Settings, admin: AdminHandlers, faults: InternalErrors) -> None:
        self._heartbeat_s = settings.tuning.admin.heartbeat_s
        self._process = admin.process
        self._admin = weakref.ref(admin)
        self._mailboxes = Mailboxes(settings)
        self._faults = faults
        self._next = 0.0
        self._pauses = Pauses(settings.tuning.stores.retry_s)
        self._ended = False
        self._thread = BackgroundThread("admin", self._turn, faults, weak=False)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.wake()

    def close(self) -> None:
        """Ends the thread, within about a second; it withdraws the process."""
        self._ended = True
        self._thread.wake()

    def _turn(self) -> float:
        if self._ended or self._admin() is None:
            with suppress(StoreError):
                self._mailboxes.withdraw(self._process)
                self._mailboxes.close()
            self._thread.stop()
            return 0
        # The writer of the store logs that it does not answer, and why.
        with swallow(self._faults, "admin"), suppress(StoreError):
            if time.monotonic() >= self._next:
                self._mailboxes.register(self._process)
                self._next = time.monotonic() + self._heartbeat_s
            found = self._mailboxes.next_request(self._process)
            # While it waits for a request the guard may be forgotten.
            admin = self._admin()
            if found is not None and admin is not None:
                self._mailboxes.reply(found[0], admin.answer(found[1], self._faults))
            self._pauses.failures = 0
            return 0
        self._next = 0.0
        return self._pauses.next_s()


class StoreTransport(protocol.Transport):
    """Asks all processes that share a store."""

    nobody = (
        "no process is registered in this store: servers are while they run, and agents from their "
        "first step on, with the same store_url (LOOPGUARD_STORE_URL) and store_prefix"
    )

    def __init__(self, settings: Settings) -> None:
        self._mailboxes = Mailboxes(settings)

    def replies(self, request: protocol.Message) -> list[protocol.Message]:
        """As of `Transport`."""
        replies, silent = self._mailboxes.ask(request, protocol.REPLY_S)
        if request.get("op") == "sessions":
            found = self._mailboxes.stopped(replies, lambda _: None)
            replies += [found] if found["sessions"] else ()
        elif replies and not silent and all(map(protocol.is_unknown, replies)):
            # Of a process that is gone: one looks into the store for it.
            sought = {**request, "stored": True}
            replies, silent = self._mailboxes.ask(sought, protocol.REPLY_S, most=1)
        return [*replies, *([protocol.refusal(protocol.SILENT, silent)] if silent else ())]
