"""The address of a Redis, the connection to it, and its subscriptions."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from functools import cache, partial
from math import inf
from typing import Any, Final, Literal, NamedTuple
from urllib.parse import quote

import redis
from redis.backoff import NoBackoff
from redis.cluster import ClusterNode, RedisCluster
from redis.exceptions import InvalidResponse, NoScriptError, RedisClusterException, RedisError
from redis.retry import Retry
from redis.sentinel import Sentinel

from otel_loopguard._util.errors import InternalErrors, logger
from otel_loopguard._util.locks import reset_after_fork
from otel_loopguard._util.worker import BackgroundThread, Pauses
from otel_loopguard.errors import LoopGuardSettingsError, StoreError

_URL: Final = re.compile(
    r"(?P<scheme>rediss?|unix|rediss?\+sentinel|rediss?\+cluster)://"
    r"(?:(?P<who>[^@/?#]*)@)?(?P<hosts>[^@/?#]*)(?P<path>/[^@?#]*)?(?:\?(?P<query>[^@#]*))?"
)
"""Matches nothing if a password has a raw `@/?#`: its end is unknown then."""
_SCHEME: Final = re.compile(r"[a-z]{1,6}(?:\+[a-z]{1,8})?(?=://)")
_HOST: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^:\[\]\s]+)(?::(\d{1,5}))?")
_EXPECTED: Final = (
    "expected redis://HOST:PORT/DB, rediss://…, unix:///PATH, "
    "redis+sentinel://HOST:PORT,…/SERVICE or redis+cluster://HOST:PORT,…; in a user, a password or "
    "an option @ is written %40, / %2F, ? %3F and # %23"
)
_PORTS: Final = {"single": 6379, "sentinel": 26379, "cluster": 6379}

Mode = Literal["single", "sentinel", "cluster"]


class RedisUrl(NamedTuple):
    """The address of a Redis: one server, one that Sentinels know, or a Cluster."""

    mode: Mode
    url: str  # of one server, as redis-py reads it: with the password, so it is secret
    hosts: tuple[tuple[str, int], ...]
    service: str  # the name that Sentinels know it by
    shown: str  # the address without user, password and options

    def __repr__(self) -> str:
        return f"RedisUrl({self.shown!r})"


def parse_redis_url(url: str) -> RedisUrl:
    """Parses a `store_url`.

    Raises:
        LoopGuardSettingsError: It is empty, or cannot be read.
    """
    if not url.strip():
        raise LoopGuardSettingsError(f"store_url (LOOPGUARD_STORE_URL) is empty: {_EXPECTED}")
    found = _URL.fullmatch(url.strip())
    if found is None or (found["scheme"] == "unix" and found["hosts"]):
        raise _wrong(url, _EXPECTED)
    scheme, _, kind = found["scheme"].partition("+")
    mode: Mode = "sentinel" if kind == "sentinel" else "cluster" if kind else "single"
    if scheme == "unix":
        return RedisUrl(mode, url.strip(), (), "", _shown(url))
    hosts = [_host(url, part, _PORTS[mode]) for part in found["hosts"].split(",")]
    path, service, database = found["path"] or "", "", "0"
    parts = path.strip("/").split("/") if path.strip("/") else []
    if mode == "sentinel":
        if not parts:
            raise _wrong(url, "the name of the service is missing: …/SERVICE")
        service = parts.pop(0)
    if parts and mode != "cluster":
        database = parts.pop(0)
    if parts or not database.isdecimal():
        raise _wrong(url, f"{path!r} is no number of a database")
    who = "" if found["who"] is None else f"{found['who']}@"
    query = "" if found["query"] is None else f"?{found['query']}"
    host, port = hosts[0]
    host = f"[{host}]" if ":" in host else host
    one = f"{scheme}://{who}{host}:{port}/{database}{query}"
    return RedisUrl(mode, one, tuple(hosts), service, _shown(url))


def _shown(url: str) -> str:
    """An address without its secrets; only the scheme if it cannot be parsed."""
    found = _URL.fullmatch(url.strip())
    # Of a password without its host the end is a port that is none.
    if found is None or (found["hosts"] and None in map(_place, found["hosts"].split(","))):
        scheme = _SCHEME.match(url.strip())
        return f"{scheme[0]}://***" if scheme else "***"
    who = "" if found["who"] is None else "***@"
    return f"{found['scheme']}://{who}{found['hosts']}{found['path'] or ''}"


def _host(url: str, text: str, port: int) -> tuple[str, int]:
    found = _place(text)
    if found is None:
        raise _wrong(url, f"there is no HOST:PORT in it; {_EXPECTED}")
    return found[1].strip("[]"), int(found[2] or port)


def _place(text: str) -> re.Match[str] | None:
    """A host, with its port if it has one; None for what may be half a password."""
    found = _HOST.fullmatch(text)
    return found if found is not None and int(found[2] or 0) <= 65535 else None


def _wrong(url: str, why: str) -> LoopGuardSettingsError:
    msg = f"store_url (LOOPGUARD_STORE_URL) = {_shown(url)!r}: {why}"
    return LoopGuardSettingsError(msg)


# redis-py is only partly typed.
_redis: Final[Any] = redis
_cluster: Final[Any] = RedisCluster

_FULL: Final = re.compile(r"\bOOM\b|\bMISCONF\b|maxmemory")
_READ_ONLY: Final = re.compile(r"\bREADONLY\b|\bNOREPLICAS\b|read only replica")
_CODE: Final = re.compile(r"\A([A-Z]{3,}) ")
_LASTING: Final = re.compile(r": (?:-?WRONGTYPE|-?LOOPGUARD) ")
_FINAL: Final = frozenset({"WRONGTYPE", "LOOPGUARD"})
"""Codes of errors that no retry changes."""

_REPEATED: Final = "with args beginning with"
"""Servers reject an unknown command with this; the rest of the text may be half a password."""

_SAID: Final = (RedisError, RedisClusterException, OSError)
"""Errors of redis-py whose text may be shown."""

_Reason = Literal["down", "slow", "full", "read_only", "refused"]


# Calls in one pipeline: a round trip for each hundred is cheap, and bounds what is held at once.
_PIPELINED: Final = 100


class Connection:
    """A connection to one Redis, opened by the first call. May be used from any thread."""

    def __init__(self, place: RedisUrl, timeout_s: float) -> None:
        self._place = place
        self._options, self._secrets = _options(place, timeout_s)
        self._client: Any = None
        reset_after_fork(self)

    def forked(self) -> None:
        """In the child of a fork: the connections are the parent's."""
        self._client = None

    def run(self, script: str, keys: Sequence[str], values: Sequence[object]) -> Any:
        """Runs a Lua script."""
        with self.translated(keys[0]):
            client = self._open()
            try:
                return client.evalsha(_sha(script), len(keys), *keys, *values)
            except NoScriptError:
                return client.eval(script, len(keys), *keys, *values)

    def run_all(
        self, script: str, calls: Sequence[tuple[Sequence[str], Sequence[object]]]
    ) -> list[Any]:
        """Runs a Lua script for each of some keys and arguments, in pipelines of a hundred.

        A call that is `refused` has its `StoreError` as its answer: others have other keys.
        """
        found: list[Any] = []
        for begin in range(0, len(calls), _PIPELINED):
            some = calls[begin : begin + _PIPELINED]
            with self.translated(some[0][0][0]):
                client = self._open()
                if isinstance(client, RedisCluster):
                    answers = (partial(self.run, script, *each) for each in some)
                else:
                    pipeline = client.pipeline(transaction=False)
                    pipeline.script_load(script)
                    for keys, values in some:
                        pipeline.evalsha(_sha(script), len(keys), *keys, *values)
                    loaded, *said = pipeline.execute(raise_on_error=False)
                    _answer(loaded)
                    answers = (partial(_answer, one) for one in said)
            found += (
                self._or_refusal(keys[0], answer)
                for (keys, _), answer in zip(some, answers, strict=True)
            )
        return found

    def _or_refusal(self, key: str, answer: Callable[[], Any]) -> Any:
        try:
            with self.translated(key):
                return answer()
        except StoreError as error:
            if error.reason != "refused":
                raise
            return error

    def call(self, command: str, key: str, *values: object) -> Any:
        """Runs a command."""
        with self.translated(key):
            return self._open().execute_command(command, key, *values)

    def close(self) -> None:
        """Closes what is open. The next call opens it again."""
        client, self._client = self._client, None
        if client is not None:
            with self.translated(""):
                client.close()

    def _open(self) -> Any:
        # No lock: of two threads that connect at once, one connection is dropped soon.
        client = self._client = self._client or self.connect()
        return client

    def connect(self) -> Any:
        """A separate client of redis-py."""
        place, options = self._place, self._options
        if place.mode == "cluster":
            nodes = [ClusterNode(host, port) for host, port in place.hosts]
            # The second attempt uses the newest map of slots.
            return _cluster(startup_nodes=nodes, **{**options, "retry": Retry(NoBackoff(), 1)})
        if place.mode == "sentinel":
            sentinel: Any = _sentinel(place, options)
            return sentinel.master_for(place.service, **options)
        return _redis.Redis.from_url(place.url, **options)

    @contextmanager
    def translated(self, key: str) -> Generator[None]:
        """Raises `StoreError` for any error of redis-py."""
        try:
            yield
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001  # an odd answer raises any error of Python
            where = f"{self._place.shown}, key {key!r}" if key else self._place.shown
            said = isinstance(error, _SAID) and not isinstance(error, InvalidResponse)
            # Any other error may quote a part of the answer.
            text = _without_secrets(error, self._secrets) if said else "not understood"
            msg = f"{where}: {type(error).__name__}: {text}"
            translated = StoreError(msg, _reason(error))
            # With its cause a traceback would print the secret all the same.
            raise translated from (error if text == str(error) else None)


def _answer(said: Any) -> Any:
    """What a pipeline has of a call, raised if it is an error."""
    if isinstance(said, Exception):
        raise said
    return said


@cache
def _sha(script: str) -> str:
    """The name of a script in Redis."""
    return hashlib.sha1(script.encode(), usedforsecurity=False).hexdigest()


def _without_secrets(error: Exception, secrets: frozenset[str]) -> str:
    """The text of an error, unless it may hold a secret: servers without AUTH repeat commands."""
    text = str(error)
    if secrets and (_REPEATED in text or any(secret in text for secret in secrets)):
        return "its text is not shown, for it holds a password"
    return text


def _options(place: RedisUrl, timeout_s: float) -> tuple[dict[str, Any], frozenset[str]]:
    """Arguments of redis-py beside the address; secrets."""
    options: dict[str, Any] = {
        "socket_timeout": timeout_s,
        "socket_connect_timeout": timeout_s,
        # The writer retries by itself, and must not wait longer than its own limit.
        "retry": Retry(NoBackoff(), 0),
        "protocol": 2,
    }
    said: dict[str, Any] = {}
    try:
        said = dict(_redis.connection.parse_url(place.url))
        own = {name: value for name, value in said.items() if not name.startswith("sentinel_")}
        kind = own.pop("connection_class", redis.Connection)
        kind(**{**own, **options})
    except (TypeError, ValueError) as error:
        text = _without_secrets(error, _secret(said))
        msg = f"store_url (LOOPGUARD_STORE_URL) = {place.shown!r}: {text}"
        raise LoopGuardSettingsError(msg) from None
    hidden = _secret(said)
    if place.mode == "single":
        return options, hidden
    for name in ("host", "port", "path"):
        said.pop(name, None)
    if place.mode == "cluster":
        said.pop("db", None)
    secure = said.pop("connection_class", None) is not None
    return {**said, **options, **({"ssl": True} if secure else {})}, hidden


def _secret(said: dict[str, Any]) -> frozenset[str]:
    """The passwords among options, plain and as they are written in an address."""
    found = {str(value) for name, value in said.items() if "password" in name and value}
    spelled = {spelling for one in found for spelling in (quote(one, safe=""), repr(one)[1:-1])}
    return frozenset(found | spelled)


def _sentinel(place: RedisUrl, options: dict[str, Any]) -> Sentinel:
    """The Sentinels; they have a user and a password of their own."""
    their = {name: options[name] for name in options if name.startswith(("ssl", "socket", "retry"))}
    for name in ("username", "password"):
        if f"sentinel_{name}" in options:
            their[name] = options.pop(f"sentinel_{name}")
    return Sentinel(list(place.hosts), sentinel_kwargs=their)


def _reason(error: Exception) -> _Reason:
    text = str(error)
    if _FULL.search(text):
        return "full"
    if _READ_ONLY.search(text):
        return "read_only"
    if isinstance(error, (redis.TimeoutError, TimeoutError)):
        return "slow"
    if type(error) not in (redis.ResponseError, redis.DataError):
        # Unreachable, login refused, a Cluster that reorganises: redis-py has a class for each.
        return "down"
    # Redis before 7 puts `ERR Error running script` before the code.
    code = _CODE.match(text)
    return "refused" if code is None or code[1] in _FINAL or _LASTING.search(text) else "down"


# Seconds that a subscription's thread waits for a message before it checks whether to end.
_WAIT_S: Final = 1.0
# A connection that a firewall dropped says nothing: it is noticed after twice as long.
_SILENT_S: Final = 5.0


class RedisSubscription:
    """A subscription to one topic of a Redis; see `RedisStore.subscribe`.

    Its thread ends within two seconds of `close`, or of the last reference to this object. After
    five silent seconds it pings the server, and after five more it connects anew.
    """

    def __init__(
        self, connection: Connection, topic: str, take: Callable[[bytes], None],
        joined: Callable[[], None] | None, most_pause_s: float,
    ) -> None:  # fmt: skip
        self._connection = connection
        self._topic = topic
        self._take = take
        self._joined = joined
        self._most_pause_s = most_pause_s
        self._pauses = Pauses(most_pause_s)
        self._client: Any = None
        self._pubsub: Any = None
        self._joined_at = inf
        self._pinged = self._received = 0.0
        self._told = False  # it was logged that it fails
        self._closed = False
        self._thread = BackgroundThread("listening", self._turn, InternalErrors(), idle_s=0)
        self._thread.wake()

    def close(self) -> None:
        """Ends it, soon. Does not wait; may be called twice."""
        self._closed = True
        self._thread.wake()

    def _turn(self) -> float | None:
        """Waits for one message; returns the seconds until the next turn."""
        if self._closed:
            self._leave()
            return None
        try:
            with self._connection.translated(self._topic):
                self._listen()
        except StoreError as error:
            self._leave()
            if time.monotonic() - self._joined_at > self._most_pause_s:
                self._pauses.failures = 0
            self._joined_at = inf
            if not self._pauses.failures:
                logger.warning("other processes are not heard while the store fails: %s", error)
                self._told = True
            return self._pauses.next_s()
        return 0

    def _listen(self) -> None:
        if self._pubsub is None:
            self._client = self._connection.connect()
            self._pubsub = self._client.pubsub()
            self._pubsub.subscribe(self._topic)
            self._pinged = self._received = time.monotonic()
        message = self._pubsub.get_message(timeout=_WAIT_S)
        now = time.monotonic()
        if message is not None:
            self._pinged = self._received = now
            if message["type"] == "subscribe":
                self._joined_at = now
                if self._told:
                    logger.warning("other processes are heard again")
                    self._told = False
                if self._joined is not None:
                    self._joined()
            elif message["type"] == "message" and isinstance(message["data"], bytes):
                self._take(message["data"])
        elif now - self._received > 2 * _SILENT_S:
            raise StoreError(f"no answer for {2 * _SILENT_S:.0f} s", "down")
        elif now - self._pinged > _SILENT_S:
            self._pubsub.ping()
            self._pinged = now

    def _leave(self) -> None:
        """Closes the connection of its own."""
        for each in (self._pubsub, self._client):
            with suppress(Exception):
                each.close()
        self._client = self._pubsub = None
