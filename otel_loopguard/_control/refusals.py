"""What sessions were told in place of results: the guard's own words, which are no evidence.

An adapter leaves a refused call as a span with `error.type` = `loopguard_deny`. Where a framework,
or the application, makes a failed call or a result of it, it is known by the type of the exception
or by the text, as the session was told it.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from otel_loopguard.core import Kind
from otel_loopguard.errors import BreakerOpenError, LoopGuardAbort, LoopGuardPaused
from otel_loopguard.semconv import ERROR_DENY

if TYPE_CHECKING:
    from collections.abc import Collection

    from otel_loopguard._control.flag import Flag
    from otel_loopguard.core import Step

_RAISED: Final = {kind.__name__ for kind in (BreakerOpenError, LoopGuardAbort, LoopGuardPaused)}
_CALLS: Final = (Kind.TOOL, Kind.HANDOFF)
# Refused calls whose answers are still on their way: of one answer of a model, as a rule.
_KEPT: Final = 16
_SHORT: Final = 20
"""Characters of a text, of a check of the application, that may stand in other texts by chance."""
_AROUND: Final = 200
"""Characters that frameworks put around what an exception says, as "Error: … Please fix it."."""


_unclaimed: deque[str] = deque(maxlen=_KEPT)
"""Told where no session was known: any session's call may have it."""


def told(flag: Flag | None, *texts: str | None) -> None:
    """Notes what a session was told in place of a result."""
    said = [text for text in texts if text]
    if flag is None:
        _unclaimed.extend(said)
        return
    flag.refusals = (*flag.refusals, *said)[-_KEPT:]


def recognise(step: Step, flag: Flag) -> None:
    """Marks the step of a call that the guard refused, as an adapter marks its span."""
    if step.kind not in _CALLS or (step.error and step.refused):
        return
    raised = step.error and (step.error_type or "").rpartition(".")[2] in _RAISED
    waiting = flag.refusals or _unclaimed
    if raised or (waiting and _says(step, (*flag.refusals, *_unclaimed))):
        step.error, step.error_type = True, ERROR_DENY
        step.reading = None


def _says(step: Step, known: Collection[str]) -> bool:
    """Whether a call answered what was told in its place, or failed with it."""
    said = step.error_text if step.error else None
    if said is None:
        # A hint may stand behind a result: only the text alone is no result.
        return isinstance(step.outcome, str) and step.outcome.strip() in known
    return any(
        said == one or (len(one) >= _SHORT and len(said) <= len(one) + _AROUND and one in said)
        for one in known
    )
