"""Which calls are refused, and what sessions were told in place of results.

Those are the guard's own words, which are no evidence. An adapter leaves a refused call as a span
with `error.type` = `loopguard_deny`. Where a framework, or the application, makes a failed call or
a result of it, it is known by the type of the exception or by the text that the session was told.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final, cast

from opentelemetry import trace

from otel_loopguard._control.context import asked_session, guard_of
from otel_loopguard._control.flag import Control
from otel_loopguard.core import Action, Kind
from otel_loopguard.errors import BreakerOpenError, LoopGuardAbort, LoopGuardPaused
from otel_loopguard.semconv import ERROR_DENY

if TYPE_CHECKING:
    from collections.abc import Collection

    from otel_loopguard._control.context import SessionHandle
    from otel_loopguard._control.flag import Flag
    from otel_loopguard.core import Step

_RAISED: Final = {kind.__name__ for kind in (BreakerOpenError, LoopGuardAbort, LoopGuardPaused)}
_CALLS: Final = (Kind.TOOL, Kind.HANDOFF)
# Refused calls whose answers are still on their way: of one answer of a model, as a rule.
_UNANSWERED: Final = 16
_SHORT: Final = 20
"""Characters of a text, of a check of the application, that may stand in other texts by chance."""
_AROUND: Final = 200
"""Characters that frameworks put around what an exception says, as "Error: … Please fix it."."""


_unclaimed: deque[str] = deque(maxlen=_UNANSWERED)
"""Told where no session was known: any session's call may have it."""


def told(flag: Flag | None, *texts: str | None) -> None:
    """Notes what a session was told in place of a result."""
    said = [text for text in texts if text]
    if flag is None:
        _unclaimed.extend(said)
        return
    flag.refusals = (*flag.refusals, *said)[-_UNANSWERED:]


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
    """True if a call answered what was told in its place, or failed with it."""
    said = step.error_text if step.error else None
    if said is None:
        # A hint may stand behind a result: only the text alone is no result.
        return isinstance(step.outcome, str) and step.outcome.strip() in known
    return any(
        said == one or (len(one) >= _SHORT and len(said) <= len(one) + _AROUND and one in said)
        for one in known
    )


_REASONS = {"breaker_open": "breaker", "check_failed": "check"}


def refused(tool: str, args: object = None) -> Control | None:
    """Returns the control that refuses a call of the current session; None if it may run.

    Everything that may forbid a call is asked, from memory:

    * the flag: a session that is paused or aborted makes no call;
    * the loop: while a session is denied, calls of the denied loop are refused, and others may run,
      for they are what the model was told to do instead;
    * breakers: one that code named (`resilience.breaker`), and with the setting `breaker` those of
      the host that the call names, or of the same call;
    * checks before a call that were registered; what was learned from failures only warns.

    In mode `shadow`, and where `max_action` is below `deny`, nothing is refused but what a person
    paused or aborted. A refused call must leave a failed span, or the guard does not learn that its
    deny was heeded; `otel_loopguard.turn` does all of it.

    ::

        if refusal := control.refused("search", args):
            return refusal.hint or refusal.reason

    Args:
        tool: Name of the tool.
        args: Its arguments, a JSON value or text; None if they are not known: then every call of
            the tool is refused that the decision is about.

    Returns:
        The control that refuses. Its `by` is `breaker` or `check` where no flag does; its `hint` is
        what to tell the model.
    """
    found = asked_session()
    by_flag = (flag_refuses(found, tool, variant) for variant in spellings(args))
    return next(filter(None, by_flag), None) or objected(found, tool, args)


def flag_refuses(found: SessionHandle | None, tool: str, args: object = None) -> Control | None:
    """Checks the flag alone: it refuses all calls of a stopped session, or of a denied loop.

    A loop stays denied while other calls lower the flag.
    """
    if found is None:
        return None
    flag, control = found.flag, found.flag.read()
    if control.action in (Action.PAUSE, Action.ABORT):
        told(flag, control.hint, control.reason)
        return control
    denial = control if control.action is Action.DENY else flag.denial
    if denial is None or not found.denies(tool, args, span_id=_span()):
        return None
    told(flag, denial.hint, denial.reason)
    return denial


def objected(found: SessionHandle | None, tool: str, args: object = None) -> Control | None:
    """Checks breakers and checks, whatever the flag says."""
    guard, session = guard_of(found), None if found is None else found.key
    if guard is None:
        return None
    objection = guard.objection(tool, args, session=session, span_id=_span())
    if objection is None:
        return None
    by = _REASONS.get(objection.reason, objection.reason)
    # The message of a check may contain arguments: for the model, not for a log.
    reason = objection.message if by == "breaker" else f"a check speaks against {tool!r}"
    told(None if found is None else found.flag, objection.message)
    return Control(session, Action.DENY, reason, objection.message, by=by)


def spellings(args: object) -> Iterator[object]:
    """Arguments as they are, and as an instrumentation may have written them.

    OpenInference writes a single text in place of the map that has nothing else.
    """
    yield args
    if isinstance(args, Mapping):
        values = list(cast("Mapping[object, object]", args).values())
        if len(values) == 1 and isinstance(values[0], str):
            yield values[0]


def _span() -> int:
    return trace.get_current_span().get_span_context().span_id
