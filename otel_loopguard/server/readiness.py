"""Whether requests would be taken now, and why not."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from otel_loopguard.server.forward import SIGNALS, NextHop, NextHopError
from otel_loopguard.server.troubles import TroubleLog

if TYPE_CHECKING:
    from collections.abc import Mapping

    from otel_loopguard.server.tenant_guard import TenantGuard
    from otel_loopguard.server.troubles import Refusals

OK: Final = "ok"
_SILENT_S: Final = 15.0
"""Without a sign of the judging thread, which gives one each second: past any pause for garbage."""
_HOP_S: Final = 2.0
"""For the next hop: orchestrators give up after a few seconds themselves."""
_KNOWN_S: Final = 1.0
"""Seconds for which the next hop is not asked again, whoever asks here."""
_IDLE_S: Final = 15.0
"""Seconds after which a next hop that took nothing is asked though nobody sends."""
_RECENT_S: Final = 5.0
"""Seconds after a refusal for which too much waits: senders come again after one."""


class Readiness:
    """Checks what a request needs: the judging threads, room, the store and the next hop.

    Whoever can connect may ask, so a check costs next to nothing: the threads look at the store
    every second anyway, and the next hop gets an empty request once per second at most.

    Attributes:
        stopping: True once the server is being shut down.
    """

    def __init__(
        self, engines: Mapping[str, TenantGuard], hop: NextHop | None, refusals: Refusals
    ) -> None:
        self._engines = engines
        self._hop = hop
        self._refusals = refusals.log
        self._log = TroubleLog("not ready")
        self._asking: asyncio.Task[None] | None = None
        self._asked_at = 0.0
        self.stopping = False

    async def checks(self) -> dict[str, str]:
        """Asks the next hop, and returns `ok` or a reason for each check.

        What is not configured is left out.
        """
        if self._hop is not None:
            await asyncio.shield(self._ask(self._hop))
        found = self.known()
        if found.get("store", OK) != OK:
            # Whoever can connect may ask, and what the store says has its address.
            found["store"] = "the store does not answer; the log says why"
        return found

    def known(self) -> dict[str, str]:
        """The same without asking anybody; from any thread."""
        engines, now = tuple(self._engines.values()), time.monotonic()
        works = all(now - engine.ticked < _SILENT_S for engine in engines)
        troubles = [engine.store_trouble for engine in engines]
        found = {
            "running": OK if not self.stopping else "the server is shutting down",
            "judging": OK if works else f"nothing was judged for {_SILENT_S:g} s",
            "queue": self._refusals.newest("busy", _RECENT_S) or OK,
        }
        if troubles and None not in troubles:
            found["store"] = next(filter(None, troubles), OK)
        if self._hop is not None and self._hop.trouble is not None:
            found["next_hop"] = self._hop.trouble or OK
        return found

    def tick(self) -> None:
        """Logs what began, or is over; asks a next hop that nobody asks."""
        hop = self._hop
        if hop is not None and hop.trouble != "" and time.monotonic() - hop.asked_at > _IDLE_S:
            self._ask(hop)
        for check, said in self.known().items():
            if said != OK:
                self._log.note(check, said)
        self._log.tick()

    def close(self) -> None:
        """Logs what is not over."""
        self._log.close()

    def _ask(self, hop: NextHop) -> asyncio.Task[None]:
        asking, now = self._asking, time.monotonic()
        if asking is None or (asking.done() and now - self._asked_at > _KNOWN_S):
            self._asked_at = now
            asking = self._asking = asyncio.create_task(_ask(hop))
        return asking


async def _ask(hop: NextHop) -> None:
    """Sends a next hop an empty request; many refuse one, which is an answer, too."""
    traces = SIGNALS["traces"]
    with suppress(NextHopError):
        try:
            await asyncio.wait_for(hop.send(traces, traces.request()), _HOP_S)
        except asyncio.TimeoutError:
            hop.trouble = f"the next hop did not answer within {_HOP_S:g} s"
