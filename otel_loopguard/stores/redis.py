"""The store of several processes: Redis."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

import xxhash

from otel_loopguard._util.bounded import BoundedDict
from otel_loopguard._util.errors import LogOnce
from otel_loopguard._util.locks import new_lock
from otel_loopguard._util.tables import read_parts
from otel_loopguard.errors import StoreError
from otel_loopguard.stores.redis_connection import Connection, RedisSubscription, parse_redis_url

if TYPE_CHECKING:
    from otel_loopguard.settings import Settings

SCRIPTS: Final = read_parts(__name__, "redis.lua")
"""Programs in Lua, which say what they take."""
RECORDS: Final = 100
"""Newest records kept of each tool: a profile needs no more, and a store holds a thousand tools."""
RECORDS_S: Final = 7 * 86_400
"""Seconds that a record is kept: what a tool took a week ago says little about today."""
_BUCKET: Final = 500
"""Ids in one set of ids: a set of up to 512 numbers takes 8 bytes for each."""
# Ids of sessions and names of tools are shorter; a longer name costs its reader a digest.
_LONGEST_NAME: Final = 200
_UNSAFE: Final = re.compile(r"[^\w.:@/+=~-]|^$", flags=re.ASCII)


class Keys:
    """Names of keys.

    `PREFIX:tool_profile:{TOOL}`, `PREFIX:{SESSION}:journal`, `PREFIX:KIND:{KEY}`. What stands in
    braces decides on which node of a Cluster a key lies, so that all that is written at once
    lies on one. In a name, other characters than letters, digits and `_.:@/+=~-` are
    written as `%` and their bytes; a name of more than 200 characters is cut, with a digest behind.
    """

    def __init__(self, prefix: str, entries: int) -> None:
        self._prefix = prefix
        self._buckets = -(-entries // _BUCKET) + 1

    def profile(self, tool: str) -> str:
        """The profile of a tool: a sorted set."""
        return f"{self._prefix}:tool_profile:{{{_quoted(tool)}}}"

    def journal(self, session: str) -> list[str]:
        """The journal of a session: a stream, and the sets of the ids that are in it."""
        ids = (f"ids:{number}" for number in range(self._buckets))
        return self.session(session, "journal", *ids)

    def session(self, session: str, *names: str) -> list[str]:
        """Other keys of a session, on the same node."""
        begin = f"{self._prefix}:{{{_quoted(session)}}}"
        return [f"{begin}:{name}" for name in names]

    def value(self, kind: str, key: str) -> str:
        """A value: a string."""
        return f"{self._prefix}:{_quoted(kind)}:{{{_quoted(key)}}}"

    def claim(self, kind: str, key: str) -> str:
        """The claim beside a value: a string."""
        return f"{self.value(kind, key)}:claim"

    def names(self, kind: str) -> str:
        """The listed names of a kind: a sorted set by when they go."""
        return f"{self._prefix}:{_quoted(kind)}:names"

    @property
    def processes(self) -> str:
        """The processes that people can reach: a sorted set."""
        return f"{self._prefix}:desk"

    def requests(self, process: str) -> str:
        """The mailbox of a process: a list."""
        return f"{self.processes}:{{{_quoted(process)}}}:in"

    def replies(self, request: str) -> str:
        """The mailbox of the replies to a request: a list."""
        return f"{self.processes}:reply:{{{_quoted(request)}}}"

    def topic(self, name: str) -> str:
        """A topic that is published to; no key."""
        return f"{self._prefix}:{_quoted(name)}:topic"


def _quoted(name: str) -> str:
    """A name, encoded for a key."""
    text = _UNSAFE.sub(_bytes_of, name)
    if len(text) <= _LONGEST_NAME:
        return text
    digest = hashlib.blake2b(_encoded(name), digest_size=16).hexdigest()
    return f"{text[:100]}~{digest}"


def _bytes_of(found: re.Match[str]) -> str:
    data = _encoded(found[0])
    return "".join(f"%{byte:02X}" for byte in data) or "%"


# As many sessions as a server knows by default.
_NAMES: Final = 10_000
_MARK: Final = b"\x01"
"""First byte of every value of this version."""

# As many as sessions are known by default. Without its place a journal is read whole.
_MOST_POSITIONS: Final = 10_000


class RedisStore:
    """Keeps what outlives a process in a Redis of version 5 or newer. Connects when first used.

    May block: called from the writer's thread, or where the application waits. Every method may be
    called from any thread and raises `StoreError` when it cannot do its work. Every write may be
    repeated: after a lost acknowledgement it has the same effect once more.

    Foreign data (a key of another type, a value of another version, another program's stream) is
    left as it is: reads take it as missing, writes raise `StoreError` with the reason `refused`,
    and one warning names the key.

    Attributes:
        connection: Runs commands and scripts.
        keys: Names the keys.
    """

    def __init__(self, settings: Settings, *, least_s: float = 0.0) -> None:
        place = parse_redis_url(settings.store_url.get_secret_value())
        self.connection = Connection(place, max(settings.tuning.stores.timeout_s, least_s))
        self.keys = Keys(settings.store_prefix, settings.tuning.journal.steps)
        self._entries = settings.tuning.journal.steps
        self._journal_ms = _milliseconds(settings.tuning.journal.days * 86_400)
        self._records_ms = _milliseconds(RECORDS_S)
        self._most_pause_s = settings.tuning.stores.retry_s
        self._log_once = LogOnce("store")
        self._positions: BoundedDict[str, tuple[str, bytes]] = BoundedDict(_MOST_POSITIONS)
        self._lock = new_lock()

    def add_records(self, tool: str, records: Sequence[bytes]) -> None:
        """Adds to the profile of a tool, of which the newest 100 of 7 days are kept.

        Each is a JSON list that starts with its time, nanoseconds since the epoch. Equal records
        are one.
        """
        if not records:
            return
        given: list[object] = [RECORDS, self._records_ms]
        for record in records:
            given += (f"{time_of(record) / 1e6:.3f}", record)
        self.connection.run(SCRIPTS["add_records"], [self.keys.profile(tool)], given)

    def records(self, tool: str) -> list[bytes]:
        """The profile of a tool, oldest first; empty if there is none."""
        key = self.keys.profile(tool)
        since = f"{time.time() * 1e3 - self._records_ms:.3f}"
        return self._read_list("ZRANGEBYSCORE", key, since, "+inf")

    def append(self, session: str, entries: Sequence[tuple[str, bytes]]) -> None:
        """Adds to the journal of a session, of which the newest 1000 entries are kept.

        An id that is in the journal is not stored again.
        """
        if not entries:
            return
        keys = self.keys.journal(session)
        stored = self.connection.run(SCRIPTS["append"], keys, self.packed(entries))
        if stored != len(entries):
            many = stored if isinstance(stored, int) else "who knows how many"
            msg = f"key {keys[0]!r}: {many} of {len(entries)} entries were stored"
            raise StoreError(msg, "down")

    def packed(self, entries: Sequence[tuple[str, bytes]]) -> list[object]:
        """Entries of a journal as the arguments of `APPEND`."""
        given: list[object] = [self._entries, self._journal_ms, _BUCKET]
        for entry_id, value in entries:
            # 64 bits, signed, stand for an id in the sets of ids.
            raw = _encoded(entry_id)
            given += (xxhash.xxh64_intdigest(raw) - (1 << 63), raw, value)
        return given

    def journal(self, session: str, after: str | None = None) -> list[tuple[str, bytes]]:
        """The journal of a session; if it has the entry `after`, what follows that."""
        key = self.keys.journal(session)[0]
        with self._lock:
            known, position = self._positions.get(session, (None, b"-"))
        start = position if after is not None and known == after else b"-"
        entries = self._entries_of(key, self._read_list("XRANGE", key, start, "+"))
        if start != b"-" and (not entries or entries[0][1] != after):
            # The stream was replaced since it was read last.
            entries = self._entries_of(key, self._read_list("XRANGE", key, "-", "+"))
        if entries:
            # The next read begins where the last entry lies.
            number, entry_id, _ = entries[-1]
            with self._lock:
                self._positions[session] = (entry_id, number)
        ids = [entry_id for _, entry_id, _ in entries]
        first = ids.index(after) + 1 if after is not None and after in ids else 0
        return [(entry_id, value) for _, entry_id, value in entries[first:]]

    def put(self, kind: str, key: str, value: bytes, ttl_s: float | None = None) -> None:
        """Stores a value for good, or `ttl_s`; what is there already is replaced."""
        ttl: int | str = "" if ttl_s is None else _milliseconds(ttl_s)
        self.connection.run(SCRIPTS["put"], [self.keys.value(kind, key)], [_MARK, value, ttl])

    def get(self, kind: str, key: str) -> bytes | None:
        """A value; None if there is none."""
        name = self.keys.value(kind, key)
        value = self._read("GET", name)
        if isinstance(value, bytes) and value.startswith(_MARK):
            return value[len(_MARK) :]
        if value is not None:
            self._log_once.log(
                name, f"key {name!r}: a value that this version did not write is left as it is"
            )
        return None

    def enlist(self, kind: str, name: str, ttl_s: float | None) -> None:
        """Lists a name of a kind for `ttl_s`, the newest 10,000 of them; None takes it off."""
        ttl: int | str = "" if ttl_s is None else _milliseconds(ttl_s)
        given = [_encoded(name), ttl, _NAMES]
        self.connection.run(SCRIPTS["enlist"], [self.keys.names(kind)], given)

    def enlisted(self, kind: str, most: int) -> list[str]:
        """The listed names of a kind, those that stay for longest."""
        key, now = self.keys.names(kind), time.time_ns() // 10**6
        found = self._read_list("ZREVRANGEBYSCORE", key, "+inf", now, "LIMIT", 0, most)
        return [_decoded(name) for name in found]

    def has_journal(self, session: str) -> bool:
        """True if a session has a journal."""
        return self._read("EXISTS", self.keys.journal(session)[0]) == 1

    def values(self, kind: str, keys: Sequence[str]) -> list[bytes | None]:
        """As `get`, of many at once."""
        calls = [([self.keys.value(kind, key)], ()) for key in keys]
        answers = self.connection.run_all("return redis.call('GET', KEYS[1])", calls)
        return [
            found[len(_MARK) :] if isinstance(found, bytes) and found.startswith(_MARK) else None
            for found in answers
        ]

    def claim(self, kind: str, key: str, owner: str, ttl_s: float) -> bool:
        """Claims a key for `ttl_s`; True if the owner has it now. Atomic.

        It lies beside the value of that name. Claiming it again succeeds, and does not extend it.
        """
        given = [_encoded(owner), _milliseconds(ttl_s)]
        return self.connection.run(SCRIPTS["claim"], [self.keys.claim(kind, key)], given) == 1

    def publish(self, topic: str, message: bytes) -> None:
        """Sends a message to all present subscribers of a topic, in any process; keeps none.

        With a `StoreError` it may have arrived all the same.
        """
        self.connection.call("PUBLISH", self.keys.topic(topic), message)

    def subscribe(
        self, topic: str, take: Callable[[bytes], None], joined: Callable[[], None] | None = None
    ) -> RedisSubscription:
        """Subscribes to a topic. Does not wait, and resumes after an outage of Redis.

        `take` gets each message, on a daemon thread; `joined` is called whenever messages begin to
        arrive: at the start, and after an outage in which some may have been missed. Neither may
        raise, nor hold this subscription.
        """
        name = self.keys.topic(topic)
        return RedisSubscription(self.connection, name, take, joined, self._most_pause_s)

    def ping(self) -> None:
        """Raises `StoreError` if Redis does not answer, or accepts no writes."""
        # A write that changes nothing: a full Redis and a replica answer any read.
        self.connection.call("ZADD", self.keys.processes, "XX", 0, "")

    def close(self) -> None:
        """Closes the connections; the next call opens new ones."""
        self.connection.close()

    def _read(self, command: str, key: str, *values: object) -> Any:
        """Runs a command; returns None if the key has another type."""
        try:
            return self.connection.call(command, key, *values)
        except StoreError as error:
            if error.reason != "refused":
                raise
            self._log_once.log(key, f"{error}; it is taken as missing, and left as it is")
            return None

    def _read_list(self, command: str, key: str, *values: object) -> list[Any]:
        """As `_read`; an answer of another type counts as empty."""
        found = self._read(command, key, *values)
        if found is not None and not isinstance(found, list):
            self._log_once.log(key, f"key {key!r}: the answer to {command} is no list: left out")
            return []
        return cast("list[Any]", found or [])

    def _entries_of(self, key: str, found: Sequence[Any]) -> list[tuple[bytes, str, bytes]]:
        """Number, id and value of each entry; anything else in the stream is left out."""
        entries = [entry for one in found if (entry := _entry_of(one)) is not None]
        if len(entries) < len(found):
            self._log_once.log(key, f"key {key!r}: what is no journal entry is left out")
        return entries


def _entry_of(found: Any) -> tuple[bytes, str, bytes] | None:
    try:
        number, fields = found
        ((entry_id, value),) = fields.items()
        return number, _decoded(entry_id), value
    except (TypeError, ValueError, AttributeError):
        return None


_TIME: Final = re.compile(rb"\A\s*\[\s*(\d{1,19})(?=[\s,\]])")
# The year 2116: Lua and floats still count milliseconds there exactly.
_LATEST: Final = 1 << 62


def time_of(record: bytes) -> int:
    """The time of a record, nanoseconds since the epoch; now, if it has none."""
    found = _TIME.match(record)
    return time.time_ns() if found is None else min(int(found[1]), _LATEST)


def _milliseconds(seconds: float) -> int:
    return max(1, int(seconds * 1000))


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _decoded(data: bytes) -> str:
    try:
        return data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return data.decode("utf-8", "backslashreplace")
