"""HTTP of uvicorn, with a limit for how long the head of a request may take."""

from __future__ import annotations

import asyncio
from typing import Final, cast

from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

HEAD_S: Final = 10.0


class HttpProtocol(H11Protocol):
    """Shuts a connection on which no request begins, or whose head never ends.

    uvicorn has a limit for what comes after an answer only: whoever can connect, without a token
    too, could keep all descriptors of the process.
    """

    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # of the base
        """A client has connected."""
        super().connection_made(transport)
        self._look()

    def data_received(self, data: bytes) -> None:
        """A part of a request, or more than one request."""
        super().data_received(data)
        self._look()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone."""
        super().connection_lost(exc)
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
        elif answered and self._late is None:
            self._late = self.loop.call_later(HEAD_S, self.transport.close)
