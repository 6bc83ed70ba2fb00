"""Requests of OTLP out of Kafka; needs the extra `kafka`."""

from __future__ import annotations

import asyncio
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from random import uniform
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from otel_loopguard._util.errors import swallow
from otel_loopguard._util.logger import logger
from otel_loopguard.errors import LoopGuardError, LoopGuardSettingsError
from otel_loopguard.server.engine import Busy
from otel_loopguard.server.forward import SIGNALS, NextHopError, Signal
from otel_loopguard.server.otlp import JSON, PROTOBUF, BadRequest, decode
from otel_loopguard.server.receiver import aside

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from confluent_kafka import Consumer, KafkaError
    from confluent_kafka import Message as KafkaMessage
    from google.protobuf.message import Message

    from otel_loopguard._util.errors import InternalErrors
    from otel_loopguard.server.receiver import Receiver

_RECORDS: Final = 1_000
_TOGETHER: Final = 1024 * 1024
"""Bytes of records that are taken as one request: gRPC servers take 4 MiB."""
_POLL_S: Final = 1.0
_PATIENCE_S: Final = 10.0
_RETRY_S: Final = 0.2
_LONGEST_RETRY_S: Final = 10.0
_DEFAULTS: Final = {
    "client.id": "otel-loopguard",
    "log_level": "0",  # it logs each try to connect; the callback has the errors too
    "auto.offset.reset": "earliest",
    "queued.max.messages.kbytes": "16384",
}
_TENANT: Final = "{tenant}"
_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
_OWN: Final = ("bootstrap.servers", "enable.auto.commit", "group.id")

_T = TypeVar("_T")
Place = tuple[str, int]
"""Topic and partition."""


@dataclass(frozen=True, slots=True)
class KafkaSettings:
    """Which records a server reads, each a request of OTLP, protobuf or JSON.

    Attributes:
        brokers: Brokers to ask first, as `host:port,host:port`.
        topic: Topic of requests for traces; `{tenant}` in it stands for the name of each tenant.
        logs_topic: Topic of requests for logs, likewise; empty: none.
        group: Consumer group, whose workers share the partitions.
        properties: Further properties of librdkafka: TLS, SASL, time-outs.
    """

    brokers: str
    topic: str = "otlp_spans"
    logs_topic: str = ""
    group: str = "otel-loopguard"
    properties: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)

    def topics_of(self, tenants: Sequence[str]) -> dict[str, dict[str, Signal]]:
        """The topics of each tenant, and what the requests in them are.

        Raises:
            LoopGuardSettingsError: A name is that of no topic, or of two.
        """
        signals = {"traces": self.topic, "logs": self.logs_topic}
        given = {SIGNALS[signal]: name for signal, name in signals.items() if name}
        found = {
            tenant: {name.replace(_TENANT, tenant): signal for signal, name in given.items()}
            for tenant in tenants
        }
        names = [name for topics in found.values() for name in topics]
        for name in names:
            if not _TOPIC.fullmatch(name):
                msg = f"kafka: topic {name!r:.300}: expected letters, digits, '.', '_' and '-'"
                raise LoopGuardSettingsError(msg)
        if not names or len(set(names)) < len(given) * len(tenants):
            own = f"one of its own for each signal, and with {_TENANT} in it for each tenant"
            msg = f"kafka: topics {[*given.values()]} of {len(tenants)} tenants: expected {own}"
            raise LoopGuardSettingsError(msg)
        return found


def properties_of(path: Path) -> dict[str, str]:
    """Reads properties of librdkafka from a file of lines `name=value`; `#` begins a comment.

    Raises:
        LoopGuardSettingsError: It cannot be read, or has another line; values are not quoted.
    """
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        msg = f"kafka: {path}: cannot be read: {error}"
        raise LoopGuardSettingsError(msg) from None
    properties: dict[str, str] = {}
    for number, line in enumerate(map(str.strip, lines), 1):
        if not line or line.startswith("#"):
            continue
        name, equals, value = line.partition("=")
        if not equals or not name.strip():
            msg = f"kafka: {path}:{number}: expected name=value"
            raise LoopGuardSettingsError(msg)
        properties[name.strip()] = value.strip()
    return properties


class _Record(NamedTuple):
    place: Place
    offset: int
    body: bytes


@dataclass(slots=True)
class _Request:
    """Records of one signal, and the request that they make together."""

    signal: Signal
    message: Message
    size: int = 0
    records: list[_Record] = field(default_factory=list[_Record])


class KafkaConsumer:
    """Reads the records of a tenant, as one worker of a group.

    An offset is committed once its record is judged, stored, and taken by the next hop, which is
    when a request is acknowledged. Until then records are tried again, less and less often, and
    nothing else is read. A record that is no request, or that the next hop calls a bad one, is
    skipped.

    Small records are taken together, as one request: a Collector that partitions by trace writes
    one for each trace.

    The client is called on a thread of its own, one call at a time; only in these calls partitions
    are given and taken away.

    Args:
        settings: How it reads.
        topics: What it reads, and what the requests in each topic are.
        receiver: Takes the requests.
        tenant: Whose they are.
        faults: What is skipped is counted here.

    Raises:
        LoopGuardSettingsError: The extra `kafka` is missing, or a property cannot be used.
    """

    def __init__(
        self, settings: KafkaSettings, topics: Mapping[str, Signal], receiver: Receiver,
        tenant: str, faults: InternalErrors,
    ) -> None:  # fmt: skip
        self._topics = topics
        self._receiver = receiver
        self._tenant = tenant
        self._faults = faults
        self._client = _client(settings, list(topics), self._note)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="loopguard-kafka")
        self._stopping = asyncio.Event()
        self._paused = False
        self._early: list[KafkaMessage] = []
        self._done: dict[Place, int] = {}
        self._troubles: set[str] = set()

    async def run(self) -> None:
        """Reads until it is stopped, then commits what is done and leaves the group.

        Raises:
            LoopGuardError: The client cannot go on.
        """
        try:
            while not self._stopping.is_set():
                records = await self._call(self._read)
                await self._take(records)
        finally:
            await self._call(self._client.close)
            self._thread.shutdown()

    def stop(self) -> None:
        """Stops it after what it is doing."""
        self._stopping.set()

    async def _take(self, records: list[_Record]) -> None:
        """Handles records, with retries, until each is done or another worker's."""
        waiting, delay = records, _RETRY_S
        while waiting:
            waiting = await self._attempt(waiting)
            self._done |= _offsets(records, waiting)
            await self._call(self._commit)
            if not waiting:
                self._troubles.clear()
                return
            # Jitter: workers would take the same sessions from each other in step.
            await self._pause(uniform(delay / 2, delay))  # noqa: S311
            if self._stopping.is_set():
                return
            delay = min(2 * delay, _LONGEST_RETRY_S)
            places = await self._call(self._places)
            records = [one for one in records if one.place in places]
            waiting = [one for one in waiting if one.place in places]

    async def _attempt(self, records: Sequence[_Record]) -> list[_Record]:
        """Handles records once; returns those that still wait, in order."""
        size = sum(len(one.body) for one in records)
        requests = await aside(size, self._requests, records)
        taking = asyncio.gather(*map(self._take_request, requests))
        while not (await asyncio.wait([taking], timeout=_PATIENCE_S))[0]:
            await self._call(self._beat, 0.0)
        waiting = {(one.place, one.offset) for left in taking.result() for one in left}
        return [one for one in records if (one.place, one.offset) in waiting]

    def _requests(self, records: Iterable[_Record]) -> list[_Request]:
        """Merges records into requests; skips what is not one."""
        requests: list[_Request] = []
        newest: dict[str, _Request] = {}
        for record in records:
            signal = self._topics[record.place[0]]
            media = JSON if record.body.startswith(b"{") else PROTOBUF
            with swallow(self._faults, "kafka"):
                try:
                    message = decode(signal.request, record.body, media)
                except BadRequest as error:
                    self._skip(record, error)
                    continue
                request = newest.get(signal.name)
                if request is None or request.size + len(record.body) > _TOGETHER:
                    request = newest[signal.name] = _Request(signal, signal.request())
                    requests.append(request)
                request.message.MergeFrom(message)
                request.size += len(record.body)
                request.records.append(record)
        return requests

    async def _take_request(self, request: _Request) -> list[_Record]:
        """Handles a request once; returns those of its records that still wait."""
        size, records = request.size, request.records
        with swallow(self._faults, "kafka"):
            try:
                with self._receiver.holding() as hold:
                    hold(size)
                    await self._receiver.take(request.signal, request.message, self._tenant, size)
            except Busy:
                return records
            except NextHopError as error:
                if not error.bad_request:
                    return records
                if len(records) == 1:
                    self._skip(records[0], error)
                    return []
            else:
                return []
        if len(records) == 1:
            return records
        # Which of them it was shows when each goes alone.
        alone = (each for one in records for each in self._requests([one]))
        left = await asyncio.gather(*map(self._take_request, alone))
        return [one for each in left for one in each]

    def _skip(self, record: _Record, why: Exception) -> None:
        topic, partition = record.place
        msg = f"the record at offset {record.offset} of {topic}[{partition}]: {why}"
        self._faults.note("kafka", BadRequest(msg))

    def _warn(self, kind: str, why: str) -> None:
        """Logs a problem, once until it is over."""
        if kind not in self._troubles:
            self._troubles.add(kind)
            logger.warning("Kafka: %s", why)

    async def _pause(self, seconds: float) -> None:
        """Waits as a live member of the group, without reading on."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while not self._stopping.is_set() and (left := until - loop.time()) > 0:
            await self._call(self._beat, min(left, _POLL_S))

    async def _call(self, method: Callable[..., _T], *given: Any) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, method, *given)

    # What follows runs on the thread of the client.

    def _read(self) -> list[_Record]:
        """Returns the next records; none if none came within a second."""
        self._commit()
        if self._paused:
            self._client.resume(self._client.assignment())
            self._paused = False
        messages, self._early = self._early, []
        if not messages:
            first = self._client.poll(_POLL_S)
            messages = [] if first is None else [first]
        # `consume` waits for all that it is asked for, so ask only for what is here.
        messages += self._client.consume(_RECORDS - 1, 0) if messages else []
        for message in messages:
            error = message.error()
            if error is not None:
                self._note(error)
        return [_record(message) for message in messages if message.error() is None]

    def _beat(self, timeout: float) -> None:
        """Sends a heartbeat; partitions may be assigned and revoked here."""
        self._client.pause(self._client.assignment())
        self._paused = True
        message = self._client.poll(timeout)
        if message is not None:  # of a partition that was given just now
            self._early.append(message)

    def _note(self, error: KafkaError) -> None:
        if error.fatal():
            msg = f"kafka: {error.str()}"
            raise LoopGuardError(msg)
        self._warn(error.name(), error.str())

    def _places(self) -> set[Place]:
        return {(one.topic, one.partition) for one in self._client.assignment()}

    def _commit(self) -> None:
        """Commits what is done, or keeps it for the next time."""
        from confluent_kafka import KafkaException, TopicPartition  # noqa: PLC0415  # an extra

        places = self._places()
        self._done = {place: offset for place, offset in self._done.items() if place in places}
        if not self._done:
            return
        offsets = [TopicPartition(*place, offset) for place, offset in self._done.items()]
        try:
            self._client.commit(offsets=offsets, asynchronous=False)
        except KafkaException as error:
            self._warn("commit", f"offsets are not committed yet: {error.args[0].str()}")
        else:
            self._done.clear()


def _offsets(records: Sequence[_Record], waiting: Sequence[_Record]) -> dict[Place, int]:
    """The offset of each partition: the first record that waits, or after the last."""
    offsets = {record.place: record.offset + 1 for record in records}
    return offsets | {record.place: record.offset for record in reversed(waiting)}


def _record(message: KafkaMessage) -> _Record:
    place = message.topic() or "", message.partition() or 0
    return _Record(place, message.offset() or 0, message.value() or b"")


def _client(
    settings: KafkaSettings, topics: list[str], on_error: Callable[[KafkaError], None]
) -> Consumer:
    try:
        from confluent_kafka import Consumer, KafkaException  # noqa: PLC0415  # an extra
    except ModuleNotFoundError as missing:
        if missing.name != "confluent_kafka":
            raise
        msg = f"kafka = {settings.brokers!r:.200} needs: pip install 'otel-loopguard[kafka]'"
        raise LoopGuardSettingsError(msg) from None
    for name in _OWN:
        if name in settings.properties:
            msg = f"kafka: {name} is no property to be set: serve sets it itself"
            raise LoopGuardSettingsError(msg)
    properties = {
        **_DEFAULTS,
        **settings.properties,
        "bootstrap.servers": settings.brokers,
        "enable.auto.commit": False,
        "error_cb": on_error,
        "group.id": settings.group,
    }
    try:
        client = Consumer(properties, logger=logger)
        client.subscribe(topics)
    except KafkaException as error:
        msg = f"kafka: {error.args[0].str()}"
        raise LoopGuardSettingsError(msg) from error
    return client
