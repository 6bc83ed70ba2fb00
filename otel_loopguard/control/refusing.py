"""Whether a call that is about to run is one that the guard refuses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opentelemetry import trace

from otel_loopguard.control.context import current_flag, keepers
from otel_loopguard.core import Action

if TYPE_CHECKING:
    from otel_loopguard.control.flag import Control, Flag


def refused(tool: str, args: object = None) -> Control | None:
    """The control that refuses a call of the current session; None if the call may run.

    While a session is denied, calls of the denied loop are refused, and others may run: they are
    what the model was told to do instead. A refused call must leave a failed span, or the guard
    does not learn that its deny was heeded.

    ::

        if refusal := control.refused("search", args):
            return refusal.hint

    Args:
        tool: Name of the tool.
        args: Its arguments, a JSON value or text; None if they are not known: then every call of
            the tool is refused that the decision is about.
    """
    flag = current_flag()
    return None if flag is None else refused_at(flag, tool, args)


def refused_at(flag: Flag, tool: str, args: object = None) -> Control | None:
    """As `refused`, for the session of a flag."""
    if not flag.stops or flag.control.action is not Action.DENY:
        return None
    control = flag.control
    session, span = control.session or "", trace.get_current_span().get_span_context().span_id
    knowing = [one for one in keepers() if one.flag_of(session) is flag]
    denied = any(one.denies(session, tool, args, span_id=span) for one in knowing)
    return control if denied else None
