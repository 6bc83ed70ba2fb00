"""OTLP over gRPC."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, NoReturn

import grpc
import grpc.aio
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status

from otel_loopguard import semconv
from otel_loopguard.server.forward import SIGNALS, NextHopError, Signal
from otel_loopguard.server.otlp import PROTOBUF, BadRequest, decode
from otel_loopguard.server.receiver import aside
from otel_loopguard.server.tenant_guard import RETRY_S, Busy

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from otel_loopguard.server.access import Tenants
    from otel_loopguard.server.metrics import ServerMetrics
    from otel_loopguard.server.receiver import Receiver

_Export = Callable[[bytes, "grpc.aio.ServicerContext[Any, Any]"], Awaitable["Message"]]


def grpc_server(
    receiver: Receiver, tenants: Tenants, metrics: ServerMetrics, most_bytes: int
) -> grpc.aio.Server:
    """A gRPC server of the three services of OTLP; without a port."""
    options = [
        ("grpc.max_receive_message_length", most_bytes),
        ("grpc.so_reuseport", 0),  # a second server on the port is an error, no partner
    ]
    server = grpc.aio.server(options=options)
    for signal in SIGNALS.values():
        _, service, method = signal.method.split("/")
        handler: grpc.RpcMethodHandler[bytes, Message] = grpc.unary_unary_rpc_method_handler(
            _measured(signal, _exporting(signal, receiver, tenants), metrics),
            response_serializer=signal.response.SerializeToString,
        )
        generic = grpc.method_handlers_generic_handler(service, {method: handler})
        server.add_generic_rpc_handlers((generic,))
    return server


def _measured(signal: Signal, export: _Export, metrics: ServerMetrics) -> _Export:
    """The same, with how long each request took, and its status."""
    method = signal.method.removeprefix("/")

    async def measured(body: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> Message:
        began = time.monotonic()
        status = grpc.StatusCode.OK
        try:
            return await export(body, context)
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
    # In bytes: nothing is read of a request without a token.
    async def export(body: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> Message:
        metadata = dict(context.invocation_metadata() or ())
        tenant = tenants.tenant(str(metadata.get("authorization", "")) or None)
        if tenant is None:
            receiver.refusals.note("token", f"no valid token came with a call of {context.peer()}")
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "a bearer token is needed")
        try:
            with receiver.holding() as hold:
                hold(len(body))
                request = await aside(len(body), decode, signal.request, body, PROTOBUF)
                return await receiver.take(signal, request, tenant, len(body))
        except BadRequest as error:
            await _abort(context, str(error), retryable=False)
        except Busy as error:
            await _abort(context, str(error), retryable=True)
        except NextHopError as error:
            await _abort(context, str(error), retryable=error.retryable)

    return export


async def _abort(
    context: grpc.aio.ServicerContext[Any, Any], why: str, *, retryable: bool
) -> NoReturn:
    code = grpc.StatusCode.UNAVAILABLE if retryable else grpc.StatusCode.INVALID_ARGUMENT
    if retryable:
        details = AnyMessage()
        details.Pack(RetryInfo(retry_delay=Duration(seconds=RETRY_S)))
        status = Status(code=code.value[0], message=why, details=[details])
        context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
    await context.abort(code, why)
