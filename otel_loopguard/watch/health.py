"""Whether what a guard knows about open spans agrees with itself."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from otel_loopguard.opens import Open
    from otel_loopguard.sessions import Session
    from otel_loopguard.watch.runs import Run


class InconsistentState(RuntimeError):  # noqa: N818  # it is noted, never raised
    """What a guard knows does not agree with itself; it was put right as far as it can be."""


class Health:
    """Looks for what cannot be, every `stall_health_s` (300 s) while spans are open.

    An ended span among the open ones, a session that is kept no more while its span is open, and a
    run whose count of open steps is not the number of its open steps (which is put right).

    Source: FEATURES E11.

    Args:
        opens: The open spans.
        kept: Whether a session is still the one of its key.
    """

    def __init__(self, opens: Iterable[Open], kept: Callable[[Session], bool]) -> None:
        self._opens = opens
        self._kept = kept

    def check(self) -> list[str]:
        """What is wrong, a sentence each; empty where all is well. O(open spans)."""
        spans = list(self._opens)
        ended = sum(opened.ended for opened in spans)
        lost = sum(one.session is not None and not self._kept(one.session) for one in spans)
        wrong: list[str] = []
        if ended:
            wrong.append(f"{ended} ended spans are kept as open ones")
        if lost:
            wrong.append(f"{lost} open spans belong to sessions that are not kept any more")
        counted = _counted(spans).items()
        wrong += [_put_right(run, busy) for run, busy in counted if run.busy != busy]
        return wrong


def _counted(spans: list[Open]) -> dict[Run, int]:
    busy: Counter[Run] = Counter(
        one.run for one in spans if one.run is not None and not one.runs and not one.ended
    )
    runs = {one.run for one in spans if one.run is not None and not one.run.opened.ended}
    return {run: busy[run] for run in runs}


def _put_right(run: Run, busy: int) -> str:
    said = f"a run counts {run.busy} open steps and has {busy}"
    run.busy = busy
    return said
