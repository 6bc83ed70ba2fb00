"""Receives requests of OTLP, over HTTP and gRPC: judges their spans, and sends them on."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, Literal, ParamSpec, TypeVar, cast

import grpc
import grpc.aio
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from otel_loopguard import semconv
from otel_loopguard._util.errors import LogOnce
from otel_loopguard.server import otlp
from otel_loopguard.server.access import HEAD_S, KEEP_ALIVE_S, Tenants, most_connections
from otel_loopguard.server.forward import SIGNALS, NextHop, NextHopError, Signal
from otel_loopguard.server.tenant_guard import Busy, TenantGuard

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from google.protobuf.message import Message
    from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    from otel_loopguard.server.metrics import ServerMetrics, TroubleLog

_P = ParamSpec("_P")
_R = TypeVar("_R")

Mode = Literal["annotated", "untouched"]
# Decoded in 0.1 ms, as long as it takes to hand a request to a thread and back.
_SMALL: Final = 16 * 1024
# 16 MiB come in that time over 5 Mbit/s; exporters give up after ten seconds anyway.
BODY_S: Final = 30.0
_DROPPED: Final = 10
"""Bodies of the largest size that are read of a refused one, 160 MB by default: most clients read
no answer before they have sent everything."""
_Export = Callable[
    ["AsyncIterator[bytes]", "grpc.aio.ServicerContext[Any, Any]"], Awaitable["Message"]
]
_INVALID: Final = "spans without a valid trace id and span id"


async def aside(size: int, do: Callable[_P, _R], *args: _P.args, **named: _P.kwargs) -> _R:
    """Processes a large request on a thread, so that others are answered."""
    if size < _SMALL:
        return do(*args, **named)
    return await asyncio.to_thread(do, *args, **named)


class Receiver:
    """Receives the requests of all tenants.

    A request is answered once it is judged, the store that workers share has the result,
    and the next hop took it: what is acknowledged is not lost if the process dies. What it holds
    meanwhile is bounded; beyond that it is busy.

    Args:
        engines: The engine of each tenant.
        refusals: The log of what is refused.
        hop: Where requests go on to; None: nowhere.
        mode: Whether spans go on `annotated` with decisions, or `untouched`.
        most_bytes: Bytes of requests that are held at once.

    Attributes:
        refusals: The log of what is refused.
        held: Bytes of requests that are not answered yet.
    """

    def __init__(
        self, engines: Mapping[str, TenantGuard], refusals: TroubleLog, hop: NextHop | None, *,
        mode: Mode, most_bytes: int,
    ) -> None:  # fmt: skip
        self._engines = engines
        self._hop = hop
        self._annotates = mode == "annotated"
        self._most = most_bytes
        self.held = 0
        self._log_once = LogOnce("decisions are not forwarded as log records")
        self._sending: dict[str, asyncio.Task[bool]] = {}
        self.refusals = refusals

    @contextmanager
    def holding(self, tenant: str) -> Generator[Callable[[int], None]]:
        """Counts a request of a tenant and what it takes, from its first byte to its answer.

        Yields a function to call with the number of bytes received; it raises `Busy` if too much is
        held. A request that is alone may have any size.
        """
        own = 0

        def hold(size: int) -> None:
            nonlocal own
            if size > 0 and self.held > own and self.held + size > self._most:
                raise Busy(f"more than {self._most:,} bytes of requests would be held")
            own += size
            self.held += size

        try:
            with self._engines[tenant].taking():
                yield hold
        except otlp.Refused as error:
            self.refusals.note(error.cause, error.logged)
            raise
        finally:
            self.held -= own

    async def take(self, signal: Signal, request: Message, tenant: str, size: int) -> Message:
        """Judges a request and sends it on; returns the response.

        Args:
            signal: What kind of request it is.
            request: The request; decisions are written on its spans.
            tenant: Whose it is.
            size: Bytes that it takes.

        Raises:
            Busy: The store does not answer, or another worker has the session.
            NextHopError: The next hop did not take it.
        """
        rejected = 0
        if signal is SIGNALS["traces"]:
            traces = cast("ExportTraceServiceRequest", request)
            rejected = await aside(size, otlp.drop_invalid, traces)
            found = await aside(size, lambda: list(otlp.spans_of(traces)))
            judged = await self._engines[tenant].judge([span for _, span in found]) if found else {}
            if self._annotates and judged:
                for span, view in found:
                    annotation = judged.get((view.trace_id, view.span_id))
                    if annotation is not None:
                        otlp.annotate(span, annotation)
            await self.send_decisions(tenant)
        elif signal is SIGNALS["logs"]:
            views = await aside(size, otlp.log_views, cast("ExportLogsServiceRequest", request))
            if views:
                await self._engines[tenant].judge(views)
                await self.send_decisions(tenant)
        response = signal.response() if self._hop is None else await self._hop.send(signal, request)
        if rejected:
            partial: Any = cast("Any", response).partial_success
            # A span takes a byte: what is more than that is made up, and may not fit.
            partial.rejected_spans = min(partial.rejected_spans, size) + rejected
            partial.error_message = "; ".join(filter(None, (partial.error_message, _INVALID)))
        return response

    async def send_decisions(self, tenant: str) -> None:
        """Sends the next hop the decisions of a tenant that it has not taken yet.

        Requests that are taken at once tell of them together, and fail together. What it refuses
        for good does not keep spans waiting: many a next hop takes no log records at all, and then
        decisions are left out. Where a token is wrong they wait.

        Raises:
            NextHopError: It did not take them; they wait.
        """
        engine = self._engines[tenant]
        while engine.log:
            sending = self._sending.get(tenant)
            # To wait for a task that is done lets nothing else run: this would never end.
            if sending is None or sending.done():
                sending = asyncio.create_task(self._send_decisions(engine))
                self._sending[tenant] = sending
            if not await asyncio.shield(sending):
                return

    async def send_rest(self, tenant: str, limit_s: float) -> None:
        """Sends what is left when the server ends, and logs what is lost then."""
        with suppress(NextHopError, asyncio.TimeoutError):
            await asyncio.wait_for(self.send_decisions(tenant), limit_s)
        if (sending := self._sending.get(tenant)) is not None:
            sending.cancel()
        engine = self._engines[tenant]
        if lost := engine.log.unstored:
            msg = "the server ends: the next hop has not taken %d log events, which are lost"
            engine.guard.log.warning(msg, lost)

    async def _send_decisions(self, engine: TenantGuard) -> bool:
        """Sends pending decisions; returns False if they are still pending."""
        request, ids = engine.log.request()
        if self._hop is not None and request is not None:
            try:
                await self._hop.send(SIGNALS["logs"], request)
            except NextHopError as error:
                if error.retryable:
                    raise
                self._log_once.log("", str(error))
                if not error.refused:
                    return False
        await engine.sent(ids)
        return True


class SlowBody(otlp.Refused):
    """The body of a request did not come in time."""

    cause = "slow"
    status = 408
    code = 4  # DEADLINE_EXCEEDED
    headers: Mapping[str, str] = {"connection": "close"}


class Unauthorized(otlp.Refused):
    """A request has no valid token."""

    cause = "token"
    status = 401
    code = 16  # UNAUTHENTICATED
    headers: Mapping[str, str] = {"www-authenticate": "Bearer"}


def endpoint(
    signal: Signal, receiver: Receiver, most_bytes: int
) -> Callable[[Request], Awaitable[Response]]:
    """The endpoint of a signal over HTTP.

    Args:
        signal: The signal.
        receiver: Takes its requests.
        most_bytes: Bytes of the largest request, also when decompressed.
    """

    async def take(request: Request) -> Response:
        headers = request.headers
        try:
            tenant = request.state.tenant
            with receiver.holding(tenant) as hold:
                body = await body_of(request, most_bytes, hold)
                encoding = headers.get("content-encoding", "").lower()
                data = await aside(len(body), otlp.decompressed, body, encoding, most_bytes)
                hold(len(data) - len(body))
                media = otlp.media_of(headers.get("content-type", ""))
                message = await aside(len(data), otlp.decode, signal.request, data, media)
                response = await receiver.take(signal, message, tenant, len(data))
        except ClientDisconnect:
            return Response(status_code=400)
        except otlp.Refused as error:
            return refusal(request, error)
        except asyncio.CancelledError:
            # At its end, by uvicorn. Of an error of the server's own a sender drops its spans.
            return refusal(request, Busy("the server is shutting down"))
        media = _media(request)
        return Response(otlp.encode(response, media), media_type=media)

    return take


def refusal(request: Request, error: otlp.Refused) -> Response:
    """An error of OTLP/HTTP, in the encoding of its request."""
    media = _media(request)
    body = otlp.encode(Status(code=error.code, message=str(error)), media)
    return Response(body, error.status, dict(error.headers), media)


async def body_of(
    request: Request, most_bytes: int, hold: Callable[[int], object] = lambda _: None
) -> bytes:
    """The body of a request.

    Args:
        request: The request.
        most_bytes: Its bytes at most.
        hold: Called with the number of bytes that came; may refuse them.

    Raises:
        Refused: It is too large, or did not come in time.
        ClientDisconnect: The client is gone.
    """
    return await _in_time(_read(request, most_bytes, hold))


async def _in_time(reading: Awaitable[bytes]) -> bytes:
    """What is read, unless that takes too long."""
    try:
        return await asyncio.wait_for(reading, BODY_S)
    except asyncio.TimeoutError:
        raise SlowBody(f"the body did not come within {BODY_S:g} seconds") from None


async def _read(request: Request, most_bytes: int, hold: Callable[[int], object]) -> bytes:
    """The body of a request.

    What is refused is read on, up to a limit, and dropped: most clients read no answer before they
    have sent everything, and take a closed connection for a reason to send it all again.
    """
    parts: list[bytes] = []
    size = 0
    refused: otlp.Refused | None = None
    async for chunk in request.stream():
        size += len(chunk)
        if refused is None:
            try:
                if size > most_bytes:
                    raise otlp.TooLarge(f"the body has more than {most_bytes:,} bytes")
                hold(len(chunk))
                parts.append(chunk)
            except otlp.Refused as error:
                refused = error
                hold(-sum(map(len, parts)))
                parts.clear()
        elif size > _DROPPED * most_bytes:
            break
    if refused is not None:
        raise refused
    return b"".join(parts)


def _media(request: Request) -> str:
    is_json = otlp.media_of(request.headers.get("content-type", "")) == otlp.JSON
    return otlp.JSON if is_json else otlp.PROTOBUF


def grpc_server(
    receiver: Receiver, tenants: Tenants, metrics: ServerMetrics, most_bytes: int
) -> grpc.aio.Server:
    """A gRPC server of the three services of OTLP; without a port."""
    options = [
        ("grpc.max_receive_message_length", most_bytes),
        ("grpc.so_reuseport", 0),  # a second server on the port is an error, no partner
        ("grpc.server_handshake_timeout_ms", int(HEAD_S * 1000)),
        ("grpc.max_connection_idle_ms", int(KEEP_ALIVE_S * 1000)),
    ]
    if (most := most_connections()) < math.inf:
        # It tells nobody which of them is idle: who comes later is turned away, and tries again.
        options.append(("grpc.max_allowed_incoming_connections", int(most)))
    server = grpc.aio.server(options=options)
    for signal in SIGNALS.values():
        _, service, method = signal.method.split("/")
        # Of a unary call gRPC reads the message before it asks who calls, however long it takes.
        handler: grpc.RpcMethodHandler[bytes, Message] = grpc.stream_unary_rpc_method_handler(
            _measured(signal, _exporting(signal, receiver, tenants), metrics),
            response_serializer=signal.response.SerializeToString,
        )
        generic = grpc.method_handlers_generic_handler(service, {method: handler})
        server.add_generic_rpc_handlers((generic,))
    return server


def _measured(signal: Signal, export: _Export, metrics: ServerMetrics) -> _Export:
    """The same, with duration and status of each request."""
    method = signal.method.removeprefix("/")

    async def measured(
        messages: AsyncIterator[bytes], context: grpc.aio.ServicerContext[Any, Any]
    ) -> Message:
        began = time.monotonic()
        status = grpc.StatusCode.OK
        try:
            return await export(messages, context)
        except asyncio.CancelledError:
            status = grpc.StatusCode.CANCELLED
            raise
        except BaseException:
            # What it was aborted with; 0 is that of one that was not.
            status = context.code() or grpc.StatusCode.UNKNOWN
            raise
        finally:
            name, took = semconv.METRIC_SERVER_REQUEST_DURATION, time.monotonic() - began
            metrics.add(name, took, "", "", method, status.name)

    return measured


def _exporting(signal: Signal, receiver: Receiver, tenants: Tenants) -> _Export:
    # In bytes, and once who calls is known: nothing is read of a request without a token.
    async def export(
        messages: AsyncIterator[bytes], context: grpc.aio.ServicerContext[Any, Any]
    ) -> Message:
        metadata = dict(context.invocation_metadata() or ())
        tenant = tenants.tenant(str(metadata.get("authorization", "")) or None)
        if tenant is None:
            receiver.refusals.note("token", f"no valid token came with a call of {context.peer()}")
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "a bearer token is needed")
        try:
            with receiver.holding(tenant) as hold:
                body = await _in_time(anext(messages, b""))
                hold(len(body))
                request = await aside(len(body), otlp.decode, signal.request, body, otlp.PROTOBUF)
                return await receiver.take(signal, request, tenant, len(body))
        except otlp.Refused as error:
            slow, why = isinstance(error, SlowBody), str(error)
            code = grpc.StatusCode.DEADLINE_EXCEEDED if slow else grpc.StatusCode.INVALID_ARGUMENT
            if error.status == 503:
                code, details = grpc.StatusCode.UNAVAILABLE, AnyMessage()
                details.Pack(RetryInfo(retry_delay=Duration(seconds=otlp.RETRY_S)))
                status = Status(code=code.value[0], message=why, details=[details])
                told = ("grpc-status-details-bin", status.SerializeToString())
                context.set_trailing_metadata((told,))
            await context.abort(code, why)

    return export
