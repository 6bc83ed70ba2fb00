"""Forwards requests and decisions to the next hop, by OTLP over HTTP or gRPC."""

from __future__ import annotations

import asyncio
import gzip
import re
import secrets
import time
from abc import ABC, abstractmethod
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import grpc
import grpc.aio
import httpx
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2 as logs  # pyright: ignore[reportMissingTypeStubs]
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as metrics
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as traces
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from otel_loopguard import semconv
from otel_loopguard._util.bounded import BoundedDict
from otel_loopguard._util.locks import new_lock
from otel_loopguard.errors import LoopGuardSettingsError
from otel_loopguard.server.otlp import PROTOBUF, RETRY_S, Refused, key_values
from otel_loopguard.version import __version__

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord

    from otel_loopguard.server.metrics import ServerMetrics

# OTLP's own default for exporters.
TIMEOUT_S: Final = 10.0
# A response of OTLP is a count and a sentence; longer ones are not read.
_MOST_REPLY: Final = 64 * 1024
# A date of HTTP has 29 characters.
_LONGEST_AFTER: Final = 40
# As many as a tenant decides within minutes; some megabytes. Beyond that the newest count.
MOST_EVENTS: Final = 10_000
# Half a megabyte or so: many a next hop takes 4 MiB over gRPC, and would refuse all for ever.
_AT_ONCE: Final = 500
_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,200}")
_RETRYABLE: Final = frozenset({429, 502, 503, 504})
_REFUSED: Final = frozenset({400, 404, 405, 413, 415, 422, 501})
_REFUSED_CODES: Final = (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.UNIMPLEMENTED)
_RETRYABLE_CODES: Final = frozenset({
    grpc.StatusCode.CANCELLED, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.ABORTED,
    grpc.StatusCode.OUT_OF_RANGE, grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DATA_LOSS,
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Signal:
    """A signal of OTLP: its path over HTTP, its method over gRPC, and its messages."""

    name: str
    path: str
    method: str
    request: type[Message]
    response: type[Message]


def _signal(name: str, module: Any) -> Signal:
    """The signal of a module that protoc made for its service."""
    (service,) = module.DESCRIPTOR.services_by_name.values()
    export = service.methods_by_name["Export"]
    messages = GetMessageClass(export.input_type), GetMessageClass(export.output_type)
    return Signal(name, f"/v1/{name}", f"/{service.full_name}/{export.name}", *messages)


_SERVICES: Final = {"traces": traces, "logs": logs, "metrics": metrics}
SIGNALS: Final = {name: _signal(name, module) for name, module in _SERVICES.items()}


class NextHopError(Refused):
    """The next hop did not take a request.

    Attributes:
        retryable: True if the sender may try again.
        refused: True if only this request, or any of its kind, is not taken; else none is now.
        kind: Its status, or the exception.
        detail: What the exception says, such as that a certificate is not trusted.
    """

    cause = "next_hop"

    def __init__(  # noqa: PLR0913
        self, why: str, kind: str, *, retryable: bool, retry_after: str = "",
        refused: bool = False, detail: str = "",
    ) -> None:  # fmt: skip
        super().__init__(why)
        self.kind = kind
        self.detail = detail
        self.retryable = retryable
        self.refused = refused
        if retryable:
            self.status, self.code = 503, 14  # UNAVAILABLE
            self.headers = {"retry-after": retry_after or str(RETRY_S)}


class NextHop(ABC):
    """A next hop, whose answers are counted.

    Args:
        url: Its URL.
        headers: Headers for it.
        metrics: What counts.

    Attributes:
        trouble: Why it would not take requests, as its newest answer has it; empty if it would,
            None before the first.
        detail: The same for the log.
        asked_at: When it was asked last, by the monotonic clock; at first when it was made.
    """

    def __init__(self, url: str, headers: Mapping[str, str], metrics: ServerMetrics) -> None:
        self._metrics = metrics
        self.trouble: str | None = None
        self.detail = ""
        self.asked_at = time.monotonic()
        self._connect(url, headers)

    async def send(self, signal: Signal, request: Message) -> Message:
        """Sends a request on; returns the response.

        Raises:
            NextHopError: It was not taken.
        """
        began = self.asked_at = time.monotonic()
        kind = "CancelledError"  # nobody waits for it any more
        try:
            response = await self._send(signal, request)
        except NextHopError as error:
            kind = error.kind
            self.trouble = "" if error.refused else str(error)
            self.detail = error.logged
            raise
        else:
            kind = self.trouble = ""
            return response
        finally:
            took = time.monotonic() - began
            name = semconv.METRIC_SERVER_FORWARD_DURATION
            self._metrics.add(name, took, signal.name, kind)

    @abstractmethod
    def _connect(self, url: str, headers: Mapping[str, str]) -> None:
        """Makes a client, which connects when it is used."""

    @abstractmethod
    async def _send(self, signal: Signal, request: Message) -> Message:
        """Sends a request, or raises `NextHopError`."""

    @abstractmethod
    async def close(self) -> None:
        """Closes connections."""


def hop_to(url: str) -> type[NextHop]:
    """Returns the class for the next hop at a URL: `http(s)://` or `grpc(s)://`.

    Raises:
        LoopGuardSettingsError: The URL has another scheme, or no host.
    """
    known = {"http": HttpHop, "https": HttpHop, "grpc": GrpcHop, "grpcs": GrpcHop}
    try:
        parts = urlsplit(url)
        scheme = parts.scheme if parts.hostname and parts.port != 0 else ""
    except ValueError:  # an invalid port or address
        scheme = ""
    if scheme not in known:
        expected = "expected http://, https://, grpc:// or grpcs:// and a host"
        raise LoopGuardSettingsError(f"forward = {place_of(url)!r:.200}: {expected}")
    return known[scheme]


def authority(host: str, port: int) -> str:
    """Joins a host and a port as in a URL."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def place_of(url: str) -> str:
    """Scheme, host and port of a URL: what else it has may be secret."""
    with suppress(ValueError):
        parts = urlsplit(url)
        if parts.hostname and parts.port != 0:
            return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
    return "***"


def check_headers(headers: Mapping[str, str]) -> None:
    """Refuses headers that cannot be sent.

    Raises:
        LoopGuardSettingsError: A name or a value has characters that no header may have.
    """
    for name, value in headers.items():
        if not _NAME.fullmatch(name):
            # Not the rest: of `authorization: Bearer KEY=` it is a part of the key.
            begin = _NAME.match(name)
            shown = f"{begin[0] if begin else ''}…"
            msg = f"headers: {shown!r}: expected a name of letters, digits, '-', '_' and '.'"
            raise LoopGuardSettingsError(msg)
        if not value.isascii() or not value.isprintable():
            # Not the value: it may be a key.
            what = "a value of printable ASCII characters on one line"
            raise LoopGuardSettingsError(f"headers: {name!r:.100}: expected {what}")


class HttpHop(NextHop):
    """A next hop that takes OTLP over HTTP."""

    def _connect(self, url: str, headers: Mapping[str, str]) -> None:
        parts = httpx.URL(url.rstrip("/"))
        # Not in the URL: httpx logs that of every request.
        identity = httpx.BasicAuth(parts.username, parts.password) if parts.userinfo else None
        self._base = str(parts.copy_with(userinfo=b"")).rstrip("/")
        # Uncompressed: a short reply may be very long when unpacked.
        own = {"accept-encoding": "identity", **headers}
        self._client = httpx.AsyncClient(timeout=TIMEOUT_S, headers=own, auth=identity)

    async def _send(self, signal: Signal, request: Message) -> Message:
        pack = asyncio.to_thread(lambda: gzip.compress(request.SerializeToString(), 1))
        headers = {"content-type": PROTOBUF, "content-encoding": "gzip"}
        url = self._base + signal.path
        try:
            reply = self._client.stream("POST", url, content=await pack, headers=headers)
            async with reply as answer:
                said = await asyncio.wait_for(_read(answer), TIMEOUT_S)
        except (httpx.HTTPError, asyncio.TimeoutError) as error:
            kind = type(error).__name__
            msg = f"the next hop cannot be reached: {kind}"
            raise NextHopError(msg, kind, retryable=True, detail=str(error)) from error
        if not answer.is_success:
            msg = f"the next hop answered {answer.status_code}"
            after = answer.headers.get("retry-after", "")
            retry_after = after if after.isascii() and len(after) <= _LONGEST_AFTER else ""
            raise NextHopError(
                msg, str(answer.status_code),
                retryable=answer.status_code in _RETRYABLE, retry_after=retry_after,
                refused=answer.status_code in _REFUSED,
            )  # fmt: skip
        try:
            return signal.response.FromString(said)
        except DecodeError:
            return signal.response()  # accepted; some servers answer in plain text

    async def close(self) -> None:  # noqa: D102
        await self._client.aclose()


async def _read(answer: httpx.Response) -> bytes:
    """Reads a reply; empty if it is long or compressed."""
    said = bytearray()
    async for piece in answer.aiter_raw():
        said += piece
        if len(said) > _MOST_REPLY:
            return b""
    return b"" if "content-encoding" in answer.headers else bytes(said)


class GrpcHop(NextHop):
    """A next hop that takes OTLP over gRPC."""

    def _connect(self, url: str, headers: Mapping[str, str]) -> None:
        parts = urlsplit(url)
        target = authority(parts.hostname or "", parts.port or 4317)
        secure = parts.scheme == "grpcs"
        self._channel = (
            grpc.aio.secure_channel(target, grpc.ssl_channel_credentials())
            if secure
            else grpc.aio.insecure_channel(target)
        )
        self._methods: dict[str, Any] = {
            name: self._channel.unary_unary(
                signal.method,
                request_serializer=signal.request.SerializeToString,
                response_deserializer=signal.response.FromString,
            )
            for name, signal in SIGNALS.items()
        }
        self._metadata = tuple((name.lower(), value) for name, value in headers.items())

    async def _send(self, signal: Signal, request: Message) -> Message:
        try:
            return await self._methods[signal.name](
                request, timeout=TIMEOUT_S, metadata=self._metadata,
                compression=grpc.Compression.Gzip,
            )  # fmt: skip
        except grpc.aio.AioRpcError as error:
            code = error.code()
            msg = f"the next hop answered {code.name}"
            # What is too large for it stays so; OTLP has it say if it will take more later.
            full = code is grpc.StatusCode.RESOURCE_EXHAUSTED and _says_when(error)
            raise NextHopError(
                msg, code.name, retryable=full or code in _RETRYABLE_CODES,
                refused=code in _REFUSED_CODES,
                detail=error.details() or "",
            ) from error  # fmt: skip

    async def close(self) -> None:  # noqa: D102
        await self._channel.close()


def _says_when(error: grpc.aio.AioRpcError) -> bool:
    """True if a hop says after what time it takes requests again."""
    details = error.trailing_metadata().get_all("grpc-status-details-bin")
    return any(b"google.rpc.RetryInfo" in one for one in details if isinstance(one, bytes))


class EventLog:
    """The log events of one tenant that the next hop has not taken yet; the newest 10,000."""

    def __init__(self, tenant: str) -> None:
        self._tenant = tenant
        self._lock = new_lock()
        self._waiting: BoundedDict[str, tuple[str, LogRecord]] = BoundedDict(MOST_EVENTS)

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def unstored(self) -> int:
        """How many events wait that no store keeps, too."""
        with self._lock:
            return sum(not session for session, _ in self._waiting.values())

    def add(self, record: LogRecord, name: str = "", session: str = "") -> None:
        """Adds an event.

        Args:
            record: The event.
            name: The id of its decision; empty: it is of none.
            session: The session, where a store keeps the event for all workers.
        """
        with self._lock:
            self._waiting[name or secrets.token_hex(8)] = session, record

    def request(self) -> tuple[logs.ExportLogsServiceRequest | None, Sequence[str]]:
        """Returns the oldest events as a request, and their ids for `sent`; None for none."""
        with self._lock:
            waiting = dict(islice(self._waiting.items(), _AT_ONCE))
        if not waiting:
            return None, ()
        named = key_values({"service.name": "otel-loopguard", "tenant": self._tenant})
        request = logs.ExportLogsServiceRequest()
        group = request.resource_logs.add(resource=Resource(attributes=named)).scope_logs.add(
            scope=InstrumentationScope(name="otel_loopguard", version=__version__)
        )
        group.log_records.extend(record for _, record in waiting.values())
        return request, tuple(waiting)

    def sent(self, ids: Sequence[str]) -> dict[str, list[str]]:
        """Removes events that the next hop took; returns the ids of decisions by session."""
        by_session: dict[str, list[str]] = {}
        with self._lock:
            for decision_id in ids:
                known = self._waiting.pop(decision_id, None)
                if known is not None and known[0]:
                    by_session.setdefault(known[0], []).append(decision_id)
        return by_session

    def forget(self, session: str) -> None:
        """Removes the decisions of a session that another worker has: it sends them."""
        with self._lock:
            for decision_id in [one for one, (of, _) in self._waiting.items() if of == session]:
                del self._waiting[decision_id]
