"""What goes wrong in a server, and what its log says of it: refusals, and late judgements."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from otel_loopguard import semconv
from otel_loopguard._util.bounded import BoundedDict
from otel_loopguard._util.logger import logger

if TYPE_CHECKING:
    from collections.abc import Iterable

    from otel_loopguard.engine import Engine, Step
    from otel_loopguard.server.metrics import Cause, ServerMetrics

QUIET_S: Final = 60.0
"""Seconds without a trouble after which it is over: exporters try again within that."""
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
