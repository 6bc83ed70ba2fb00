"""Receives requests of OTLP: judges their spans, and sends them on."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Literal, ParamSpec, TypeVar, cast

from otel_loopguard._util.logger import logger
from otel_loopguard.server.forward import SIGNALS, NextHop, NextHopError, Signal
from otel_loopguard.server.otlp import BadRequest, annotate, drop_invalid, log_views, spans_of
from otel_loopguard.server.tenant_guard import Busy

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    from google.protobuf.message import Message
    from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    from otel_loopguard.server.forward import DecisionLog
    from otel_loopguard.server.tenant_guard import TenantGuard
    from otel_loopguard.server.troubles import Refusals

_P = ParamSpec("_P")
_R = TypeVar("_R")

Mode = Literal["annotated", "untouched"]
# Decoded in 0.1 ms, as long as it takes to hand a request to a thread and back.
_SMALL: Final = 16 * 1024
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
        logs: The decisions of each tenant that go on as log records.

    Attributes:
        refusals: The log of what is refused.
        held: Bytes of requests that are not answered yet.
    """

    def __init__(  # noqa: PLR0913
        self, engines: Mapping[str, TenantGuard], refusals: Refusals, hop: NextHop | None, *,
        mode: Mode, most_bytes: int, logs: Mapping[str, DecisionLog],
    ) -> None:  # fmt: skip
        self._engines = engines
        self._hop = hop
        self._annotates = mode == "annotated"
        self._most = most_bytes
        self.held = 0
        self._logs = logs
        self._logged = False
        self._sending: dict[str, asyncio.Task[bool]] = {}
        self.refusals = refusals

    @contextmanager
    def holding(self) -> Generator[Callable[[int], None]]:
        """Counts what one request takes, from its first byte to its answer.

        Yields a function to call with the number of bytes received; it raises `Busy` if too much is
        held. A request that is alone may have any size.
        """
        own = 0

        def hold(size: int) -> None:
            nonlocal own
            if size > 0 and self.held > own and self.held + size > self._most:
                msg = f"more than {self._most:,} bytes of requests would be held"
                raise Busy(msg)
            own += size
            self.held += size

        try:
            yield hold
        except (BadRequest, Busy, NextHopError) as error:
            self.refusals.note(error.cause, str(error))
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
            rejected = await aside(size, drop_invalid, traces)
            found = await aside(size, lambda: list(spans_of(traces)))
            judged = await self._engines[tenant].judge([span for _, span in found]) if found else {}
            if self._annotates and judged:
                for span, view in found:
                    annotation = judged.get((view.trace_id, view.span_id))
                    if annotation is not None:
                        annotate(span, annotation)
            await self.send_decisions(tenant)
        elif signal is SIGNALS["logs"]:
            views = await aside(size, log_views, cast("ExportLogsServiceRequest", request))
            if views:
                await self._engines[tenant].judge(views)
                await self.send_decisions(tenant)
        response = signal.response() if self._hop is None else await self._hop.send(signal, request)
        if rejected:
            partial: Any = cast("Any", response).partial_success
            partial.rejected_spans += rejected
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
        log = self._logs.get(tenant)
        while log:
            sending = self._sending.get(tenant)
            if sending is None:
                sending = asyncio.create_task(self._send_decisions(tenant, log))
                self._sending[tenant] = sending
                sending.add_done_callback(lambda _: self._sending.pop(tenant))
            if not await asyncio.shield(sending):
                return

    async def _send_decisions(self, tenant: str, log: DecisionLog) -> bool:
        """Sends pending decisions; returns False if they are still pending."""
        request, ids = log.request()
        if self._hop is not None and request is not None:
            try:
                await self._hop.send(SIGNALS["logs"], request)
            except NextHopError as error:
                if error.retryable:
                    raise
                if not self._logged:
                    self._logged = True
                    logger.warning("decisions do not go on as log records: %s", error)
                if not (error.unsupported or error.bad_request):
                    return False
        await self._engines[tenant].sent(ids)
        return True
