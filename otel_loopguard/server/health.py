"""How a server fares: what it refuses, whether it would take requests, and whom it judges late."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from otel_loopguard import semconv
from otel_loopguard._util.bounded import BoundedDict
from otel_loopguard._util.logger import logger
from otel_loopguard.server.forward import SIGNALS, NextHop, NextHopError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from otel_loopguard.engine import Engine, Step
    from otel_loopguard.server.metrics import Cause, ServerMetrics
    from otel_loopguard.server.tenant_guard import TenantGuard

OK: Final = "ok"
QUIET_S: Final = 60.0
"""Seconds without a trouble after which it is over: exporters try again within that."""
_SILENT_S: Final = 15.0
"""Without a sign of the judging thread, which gives one each second: past any pause for garbage."""
_IDLE_S: Final = 15.0
"""Seconds after which a next hop that took nothing is asked though nobody sends."""
_HOP_S: Final = 2.0
"""For the next hop: orchestrators give up after a few seconds themselves."""
_KNOWN_S: Final = 1.0
"""Seconds for which the next hop is not asked again, whoever asks here."""
_RECENT_S: Final = 5.0
"""Seconds after a refusal for which too much waits: senders come again after one."""
LATE_S: Final = 2.0
"""From the end of a step to its judgement: below the 5 s that exporters wait by default, above the
0.2 s that they should, `--lateness`, and what a busy machine adds."""
# As many as `max_sessions` by default; who is forgotten is noted again with the next late step.
_LATE_SESSIONS: Final = 10_000
_ADVICE: Final = (
    "export spans sooner (OTEL_BSP_SCHEDULE_DELAY=200 for the agent), or compare the clocks of "
    "agent and server"
)


@dataclass(slots=True)
class _Episode:
    """A trouble, from its first time on."""

    why: str
    first: float
    last: float = 0.0
    count: int = 0


class TroubleLog:
    """Logs a trouble once when it begins, and once when it is over: how often, and how long.

    Args:
        what: What happens then, as `requests are refused`.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._episodes: dict[str, _Episode] = {}

    def note(self, cause: str, why: str) -> None:
        """Notes that it happens.

        Args:
            cause: One of few names, whatever is sent.
            why: What the log says about it.
        """
        now = time.monotonic()
        episode = self._episodes.get(cause)
        if episode is None:
            episode = self._episodes[cause] = _Episode(why, now)
            logger.warning("%s: %s (%s; told again when it is over)", self._what, why, cause)
        episode.count += 1
        episode.last = now

    def newest(self, cause: str, within_s: float) -> str:
        """Why it happened lately by a cause; empty if it did not."""
        episode = self._episodes.get(cause)
        if episode is None or time.monotonic() - episode.last >= within_s:
            return ""
        return episode.why

    def tick(self) -> None:
        """Logs what is over."""
        now = time.monotonic()
        for cause, episode in list(self._episodes.items()):
            if now - episode.last >= QUIET_S:
                del self._episodes[cause]
                self._end(f"over for {QUIET_S:g} s", cause, episode)

    def close(self) -> None:
        """Logs what is not over when the server ends."""
        while self._episodes:
            self._end("the server ends", *self._episodes.popitem())

    def _end(self, now: str, cause: str, episode: _Episode) -> None:
        logger.warning(
            "%s: %s: %s (%s, %d times within %.0f s)",
            now, self._what, episode.why, cause, episode.count, episode.last - episode.first,
        )  # fmt: skip


class Refusals:
    """Logs and counts refusals by their cause.

    Args:
        metrics: What counts them.

    Attributes:
        log: What logs them.
    """

    def __init__(self, metrics: ServerMetrics) -> None:
        self._metrics = metrics
        self.log = TroubleLog("requests are refused")

    def note(self, cause: Cause, why: str) -> None:
        """Notes a refusal."""
        self._metrics.add(semconv.METRIC_SERVER_REFUSALS, 1, cause)
        self.log.note(cause, why)


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


class Lateness:
    """Notes sessions whose runtime asks, and went on before their steps were judged.

    Of sessions that nobody asks for it does not matter. Noted by one thread, read by any.

    Args:
        guard: The guard that judges them.
    """

    def __init__(self, guard: Engine) -> None:
        self._guard = guard
        self._late_s: BoundedDict[str, float] = BoundedDict(_LATE_SESSIONS)
        self.log = TroubleLog("agents hear of decisions too late")

    def note(self, steps: Iterable[tuple[int, str | None, Step]]) -> None:
        """Notes the steps of a batch once they are judged.

        Args:
            steps: Of each its trace, its session if it says one, and itself.
        """
        now = time.time_ns()
        ended: dict[str, int] = {}
        began: dict[str, int] = {}
        for trace_id, named, step in steps:
            if step.end is None or (not self._late_s and now - step.end < LATE_S * 1e9):
                continue
            guard = self._guard
            flag = guard.flag_of(named) if named else guard.flag_in(trace_id)
            if flag is None or not flag.asked:
                continue
            session = flag.control.session or ""
            ended[session] = min(step.end, ended.get(session, step.end))
            began[session] = max(step.start or 0, began.get(session, 0))
        for session, end in ended.items():
            late_s = (now - end) / 1e9
            if late_s < LATE_S:
                self._late_s.pop(session, None)
            elif began[session] >= end:  # the next step, of which nobody could warn
                self._late_s[session] = late_s
                self.log.note("late", f"a step was judged {late_s:.1f} s after its end; {_ADVICE}")

    def warning(self, session: str) -> str | None:
        """What the runtime of a session should know, if its steps are judged late."""
        late_s = self._late_s.get(session)
        if late_s is None:
            return None
        return f"steps are judged up to {late_s:.1f} s after their end, too late to warn; {_ADVICE}"
