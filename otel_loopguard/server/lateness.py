"""Which agents ask for decisions that come too late to warn them, and what is told of it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from otel_loopguard._util.bounded import BoundedDict
from otel_loopguard.server.refusals import TroubleLog

if TYPE_CHECKING:
    from collections.abc import Iterable

    from otel_loopguard.core import Step
    from otel_loopguard.guard.guard import LoopGuard

LATE_S: Final = 2.0
"""From the end of a step to its judgement: below the 5 s that exporters wait by default, above the
0.2 s that they should, `--lateness`, and what a busy machine adds."""
_MOST: Final = 10_000
_ADVICE: Final = (
    "export spans sooner (OTEL_BSP_SCHEDULE_DELAY=200 for the agent), or compare the clocks of "
    "agent and server"
)


class Lateness:
    """Notes sessions whose runtime asks, and went on before their steps were judged.

    Of sessions that nobody asks for it does not matter. Noted by one thread, read by any.

    Args:
        guard: The guard that judges them.
    """

    def __init__(self, guard: LoopGuard) -> None:
        self._guard = guard
        self._late_s: BoundedDict[str, float] = BoundedDict(_MOST)
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
