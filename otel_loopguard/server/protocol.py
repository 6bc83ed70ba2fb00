"""HTTP of uvicorn, with limits for how long a head may take and how many connections are kept."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import ClassVar, Final, cast

from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

try:
    import resource
except ImportError:  # Windows
    resource = None

# A head is one packet or two, also over slow lines; each that is waited for holds a descriptor.
HEAD_S: Final = 10.0
BACKLOG: Final = 128
"""Connections that asyncio takes at once, before anything looks at them."""
# The rest is for the store, the next hop, gRPC and files.
_SHARE: Final = 0.8
_SHORTAGE: Final = "out of system resource"
# asyncio tells of it up to once a second, with a traceback each.
_AGAIN_S: Final = 60.0


def most_connections() -> float:
    """How many connections are kept: of the descriptors of this process four fifths."""
    if resource is None:
        return math.inf
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return math.inf if most == resource.RLIM_INFINITY else most * _SHARE


@contextmanager
def shortage_told_once_a_minute() -> Generator[None]:
    """Of the tracebacks that asyncio logs where descriptors are short, passes one a minute."""
    last = -math.inf

    def passes(record: logging.LogRecord) -> bool:
        nonlocal last
        if _SHORTAGE not in str(record.msg):
            return True
        now = time.monotonic()
        if now - last < _AGAIN_S:
            return False
        last = now
        return True

    asyncios = logging.getLogger("asyncio")
    asyncios.addFilter(passes)
    try:
        yield
    finally:
        asyncios.removeFilter(passes)


class HttpProtocol(H11Protocol):
    """Shuts a connection on which no request begins, or whose head never ends.

    uvicorn has a limit for what comes after an answer only: whoever can connect, without a token
    too, could keep all descriptors of the process. Where they grow short, the connection that has
    been idle for longest goes, or the new one where none is idle.
    """

    # Of all servers of the process, for its descriptors are counted; the oldest first.
    _idle: ClassVar[dict[HttpProtocol, None]] = {}
    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # of the base
        """A client has connected."""
        super().connection_made(transport)
        if len(self.connections) > most_connections():
            oldest = next(iter(self._idle), self)
            self._idle.pop(oldest, None)
            oldest.transport.abort()
        self._look()

    def data_received(self, data: bytes) -> None:
        """A part of a request, or more than one request."""
        super().data_received(data)
        self._look()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone."""
        super().connection_lost(exc)
        self._idle.pop(self, None)
        if self._late is not None:
            self._late.cancel()

    def _look(self) -> None:
        """Begins to wait for a head that has not come, and ends that where it has."""
        # Its base has no cycle before the first request, whatever its type says.
        cycle = cast("RequestResponseCycle | None", self.cycle)
        answered = cycle is None or cycle.response_complete
        if not answered and self._late is not None:
            self._late.cancel()
            self._late = None
            self._idle.pop(self, None)
        elif answered and self._late is None and not self.transport.is_closing():
            self._idle[self] = None
            self._late = self.loop.call_later(HEAD_S, self.transport.close)
