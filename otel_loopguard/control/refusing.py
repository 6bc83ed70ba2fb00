"""Whether a call that is about to run may run: the one question that asks flag, loop and checks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, cast

from opentelemetry import trace

from otel_loopguard.control.context import asked_flag, keepers
from otel_loopguard.control.flag import Control
from otel_loopguard.core import Action

if TYPE_CHECKING:
    from otel_loopguard.control.context import Keeper
    from otel_loopguard.control.flag import Flag

_REASONS = {"breaker_open": "breaker", "check_failed": "check"}


def refused(tool: str, args: object = None) -> Control | None:
    """Whether a call of the current session may run: None, or the control that refuses it.

    Everything that may forbid a call is asked, from memory:

    * the flag: a session that is paused or aborted makes no call;
    * the loop: while a session is denied, calls of the denied loop are refused, and others may run,
      for they are what the model was told to do instead;
    * the breaker of the tool, where it is open (E5);
    * checks before a call, learned and registered (C14).

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
    return refused_at(asked_flag(), tool, args)


def refused_at(flag: Flag | None, tool: str, args: object = None) -> Control | None:
    """As `refused`, for the session of a flag; None where none is known."""
    by_flag = (flag_refuses(flag, tool, spelled) for spelled in spellings(args))
    return next(filter(None, by_flag), None) or objected(flag, tool, args)


def flag_refuses(flag: Flag | None, tool: str, args: object = None) -> Control | None:
    """What the flag alone refuses: any call in a session that is held, calls of a denied loop."""
    if flag is None or not flag.stops:
        return None
    control = flag.control
    if control.action in (Action.PAUSE, Action.ABORT):
        return control
    if control.action is not Action.DENY:
        return None
    session, span = control.session or "", _span()
    denied = any(one.denies(session, tool, args, span_id=span) for one in _knowing(flag))
    return control if denied else None


def objected(flag: Flag | None, tool: str, args: object = None) -> Control | None:
    """What breakers and checks refuse, whatever the flag says."""
    asked = _knowing(flag) or keepers()[-1:]
    for keeper in asked:
        found = keeper.objection(tool, args, span_id=_span())
        if found is not None:
            by = _REASONS.get(found.reason, found.reason)
            # A check may say what the arguments are, which is for the model and not for a log.
            reason = found.message if by == "breaker" else f"a check speaks against {tool!r}"
            session = None if flag is None else flag.control.session
            return Control(session, Action.DENY, reason, found.message, by=by)
    return None


def spellings(args: object) -> Iterator[object]:
    """Arguments as they are, and as an instrumentation may have written them.

    OpenInference writes a single text in place of the map that has nothing else.
    """
    yield args
    if isinstance(args, Mapping):
        values = list(cast("Mapping[object, object]", args).values())
        if len(values) == 1 and isinstance(values[0], str):
            yield values[0]


def _knowing(flag: Flag | None) -> list[Keeper]:
    """The guards that the flag is one of."""
    session = None if flag is None else flag.control.session
    if session is None:
        return []
    return [one for one in keepers() if one.flag_of(session) is flag]


def _span() -> int:
    return trace.get_current_span().get_span_context().span_id
