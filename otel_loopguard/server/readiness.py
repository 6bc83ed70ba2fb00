"""Whether requests would be taken now."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

from otel_loopguard.server.forward import SIGNALS, NextHop, NextHopError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from otel_loopguard.server.engine import Engine

_LATE_S: Final = 15.0
_HOP_S: Final = 2.0
_KNOWN_S: Final = 1.0


class Readiness:
    """Checks what a request needs: the judging threads, the store and the next hop.

    Whoever can connect may ask, so a check costs next to nothing: the threads look at the store
    every second anyway, and the next hop gets an empty request once per second at most.
    """

    def __init__(self, engines: Mapping[str, Engine], hop: NextHop | None) -> None:
        self._engines = engines
        self._hop = hop
        self._hop_ready: asyncio.Task[bool] | None = None
        self._hop_asked = 0.0

    async def checks(self) -> dict[str, bool]:
        """Returns whether each works; what is not configured is left out."""
        engines, now = self._engines.values(), time.monotonic()
        found = {"judging": all(now - engine.ticked < _LATE_S for engine in engines)}
        stores = [engine.store_answers for engine in engines if engine.store_answers is not None]
        if stores:
            found["store"] = all(stores)
        if self._hop is not None:
            if self._hop_ready is None or (
                self._hop_ready.done() and now - self._hop_asked > _KNOWN_S
            ):
                self._hop_asked = now
                self._hop_ready = asyncio.create_task(_takes(self._hop))
            found["next_hop"] = await asyncio.shield(self._hop_ready)
        return found


async def _takes(hop: NextHop) -> bool:
    """Whether a next hop answers; many refuse an empty request."""
    traces = SIGNALS["traces"]
    try:
        await asyncio.wait_for(hop.send(traces, traces.request()), _HOP_S)
    except asyncio.TimeoutError:
        return False
    except NextHopError as error:
        return error.bad_request or error.unsupported
    return True
