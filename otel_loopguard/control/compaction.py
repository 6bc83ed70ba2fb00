"""What an application says of its context: it was compacted."""

from __future__ import annotations

from otel_loopguard.control.context import current_flag, keepers


def compacted(session: str | None = None) -> bool:
    """Says that the context of a session was compacted: what was counted before weighs half (E13).

    A model that forgot what it did may do it again without being stuck. The guard notices most
    compactions by itself, by the input tokens of model calls.

    Args:
        session: Key of the session; by default the session of the current context.

    Returns:
        False if no session is known.
    """
    flag = None if session is not None else current_flag()
    key = session if flag is None else flag.control.session
    if key is None:
        return False
    known = [keeper.compacted(key) for keeper in keepers()]
    return any(known)
