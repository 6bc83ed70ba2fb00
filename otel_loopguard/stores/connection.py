"""The connection to a Redis: one server, one that Sentinels know, or a Cluster."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, Literal
from urllib.parse import quote

import redis
from redis.backoff import NoBackoff
from redis.cluster import ClusterNode, RedisCluster
from redis.exceptions import (
    NoPermissionError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisClusterException,
    RedisError,
)
from redis.retry import Retry
from redis.sentinel import Sentinel

from otel_loopguard.errors import LoopGuardSettingsError, StoreError
from otel_loopguard.locks import new_lock

if TYPE_CHECKING:
    from otel_loopguard.stores.place import Place
    from otel_loopguard.stores.scripts import Script

# redis-py says only in part what it takes and gives.
_redis: Final[Any] = redis
_cluster: Final[Any] = RedisCluster

_OLDEST: Final = (5, 0)
"""Streams, and scripts that may ask for the time before they write."""

_FULL: Final = re.compile(r"\bOOM\b|\bMISCONF\b|maxmemory")
_READ_ONLY: Final = re.compile(r"\bREADONLY\b|\bNOREPLICAS\b|read only replica")
_CODE: Final = re.compile(r"\A([A-Z]{3,}) ")
_LASTING: Final = re.compile(r": (?:-?WRONGTYPE|-?LOOPGUARD) ")
_FINAL: Final = frozenset({"WRONGTYPE", "LOOPGUARD"})
"""Codes of errors that come again however often one asks."""

_REPEATED: Final = "with args beginning with"
"""What a server says of a command that it does not know; what follows may be half a password."""

_Reason = Literal["down", "slow", "full", "read_only", "refused"]


class Connection:
    """Asks one Redis. Opened by the first call; may be used from any thread.

    Args:
        place: Where it is.
        timeout_s: Seconds that a call may take, and an attempt to connect.

    Raises:
        LoopGuardSettingsError: The address has an option that redis-py does not know.
    """

    def __init__(self, place: Place, timeout_s: float) -> None:
        self._place = place
        self._options, self._secrets = _options(place, timeout_s)
        self._client: Any = None
        self._lock = new_lock()

    def forked(self) -> None:
        """In the child of a fork: the connections are the parent's."""
        self._lock = new_lock()
        self._client = None

    def run(self, script: Script, keys: Sequence[str], values: Sequence[object]) -> Any:
        """Runs a script.

        Args:
            script: The script.
            keys: The keys that it uses.
            values: Its other arguments: bytes, text or numbers.

        Raises:
            StoreError: It did not run, or said that it cannot.
        """
        with self._told(keys[0]):
            client = self._open()
            try:
                return client.evalsha(script.sha, len(keys), *keys, *values)
            except NoScriptError:
                return client.eval(script.text, len(keys), *keys, *values)

    def call(self, command: str, key: str, *values: object) -> Any:
        """Gives a command.

        Args:
            command: Its name.
            key: The key that it uses.
            *values: Its other arguments.

        Raises:
            StoreError: It was not carried out.
        """
        with self._told(key):
            return self._open().execute_command(command, key, *values)

    def hear(self, topic: str) -> Hearing:
        """Subscribes to a topic, on a connection of its own.

        Args:
            topic: Its name in Redis.

        Raises:
            StoreError: It could not be subscribed to.
        """
        with self._told(topic):
            client = self._connect()
            hearing = Hearing(client, self._told, topic)
        hearing.begin()
        return hearing

    def ping(self) -> None:
        """Asks whether anybody is there; see `Store.ping`."""
        with self._told(""):
            self._open().ping()

    def close(self) -> None:
        """Closes what is open. The next call opens it again."""
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            with self._told(""):
                client.close()

    def _open(self) -> Any:
        with self._lock:
            if self._client is None:
                client = self._connect()
                self._check(client)
                self._client = client
            return self._client

    def _connect(self) -> Any:
        place, options = self._place, self._options
        if place.mode == "cluster":
            nodes = [ClusterNode(host, port) for host, port in place.hosts]
            # A second attempt goes by the newest map of the slots.
            return _cluster(startup_nodes=nodes, **{**options, "retry": Retry(NoBackoff(), 1)})
        if place.mode == "sentinel":
            sentinel: Any = _sentinel(place, options)
            return sentinel.master_for(place.service, **options)
        return _redis.Redis.from_url(place.url, **options)

    def _check(self, client: Any) -> None:
        """Whether the server is new enough; where it does not tell, it is taken to be."""
        cluster = isinstance(client, RedisCluster)
        more: dict[str, Any] = {"target_nodes": _cluster.RANDOM} if cluster else {}
        try:
            said = client.info("server", **more)
        except NoPermissionError:
            return
        version = str(said.get("redis_version", ""))
        found = re.match(r"(\d+)\.(\d+)", version)
        if found is not None and (int(found[1]), int(found[2])) < _OLDEST:
            msg = f"{self._place.shown}: Redis {version} is too old: 5.0 or newer is needed"
            raise StoreError(msg, "down")

    @contextmanager
    def _told(self, key: str) -> Generator[None, None, None]:
        try:
            yield
        except (RedisError, RedisClusterException, OSError) as error:
            where = f"{self._place.shown}, key {key!r}" if key else self._place.shown
            said = _said(error, self._secrets)
            msg = f"{where}: {type(error).__name__}: {said}"
            told = StoreError(msg, _reason(error))
            # With its cause a traceback would print the secret all the same.
            raise told from (error if said == str(error) else None)


class Hearing:
    """A topic that is subscribed to, on a connection of its own. For one thread.

    Args:
        client: The client.
        told: Turns what redis-py raises into a `StoreError` that names the topic.
        topic: Its name in Redis.
    """

    def __init__(
        self, client: Any, told: Callable[[str], AbstractContextManager[None]], topic: str
    ) -> None:
        self._client = client
        self._told = told
        self._topic = topic
        self._pubsub: Any = client.pubsub()

    def begin(self) -> None:
        """Subscribes; the first message says that it is done.

        Raises:
            StoreError: It could not.
        """
        try:
            with self._told(self._topic):
                self._pubsub.subscribe(self._topic)
        except StoreError:
            self.close()
            raise

    def next(self, limit_s: float) -> Any:
        """The next message as redis-py has it; None if none came within the limit.

        Raises:
            StoreError: The connection failed.
        """
        with self._told(self._topic):
            return self._pubsub.get_message(timeout=limit_s)

    def ask(self) -> None:
        """Asks whether the server is there; its answer is a message.

        Raises:
            StoreError: The connection failed.
        """
        with self._told(self._topic):
            self._pubsub.ping()

    def close(self) -> None:
        """Closes the connection."""
        with suppress(StoreError), self._told(self._topic):
            self._pubsub.close()
            self._client.close()


def _said(error: Exception, secrets: frozenset[str]) -> str:
    """What an error says, unless it holds a secret: servers without AUTH repeat what they got."""
    said = str(error)
    if secrets and (_REPEATED in said or any(secret in said for secret in secrets)):
        return "its text is not shown, for it holds a password"
    return said


def _options(place: Place, timeout_s: float) -> tuple[dict[str, Any], frozenset[str]]:
    """What redis-py is told beside the address, in a Cluster and for Sentinels that too; secrets.

    Raises:
        LoopGuardSettingsError: The address has an option that redis-py does not know.
    """
    options: dict[str, Any] = {
        "socket_timeout": timeout_s,
        "socket_connect_timeout": timeout_s,
        # The writer tries again by itself, and must not wait longer than it knows.
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
        msg = f"store_url (LOOPGUARD_STORE_URL) = {place.shown!r}: {_said(error, _secret(said))}"
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
    """The passwords among options, as they are and as an address has them."""
    found = {str(value) for name, value in said.items() if "password" in name and value}
    spelled = {spelling for one in found for spelling in (quote(one, safe=""), repr(one)[1:-1])}
    return frozenset(found | spelled)


def _sentinel(place: Place, options: dict[str, Any]) -> Sentinel:
    """The Sentinels; they have a user and a password of their own."""
    their = {name: options[name] for name in options if name.startswith(("ssl", "socket", "retry"))}
    for name in ("username", "password"):
        if f"sentinel_{name}" in options:
            their[name] = options.pop(f"sentinel_{name}")
    return Sentinel(list(place.hosts), sentinel_kwargs=their)


def _reason(error: Exception) -> _Reason:
    text = str(error)
    if isinstance(error, OutOfMemoryError) or _FULL.search(text):
        return "full"
    if isinstance(error, ReadOnlyError) or _READ_ONLY.search(text):
        return "read_only"
    if isinstance(error, (redis.TimeoutError, TimeoutError)):
        return "slow"
    if type(error) not in (redis.ResponseError, redis.DataError):
        # Not reached, not let in, a Cluster that finds itself: redis-py has a class for each.
        return "down"
    # Redis before 7 puts `ERR Error running script` before the code.
    code = _CODE.match(text)
    return "refused" if code is None or code[1] in _FINAL or _LASTING.search(text) else "down"
