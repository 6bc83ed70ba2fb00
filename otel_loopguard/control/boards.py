"""Boards of milestones for sessions that no step was seen of yet."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from otel_loopguard.core import Milestones

_MOST: Final = 1024
_waiting: OrderedDict[str, Milestones] = OrderedDict()


def waiting(key: str) -> Milestones:
    """The board that a session will get when its first step is seen; the newest 1024 are kept.

    Args:
        key: Key of the session, or the id of its trace in 32 hex digits.
    """
    board = _waiting.setdefault(key, Milestones())
    while len(_waiting) > _MOST:
        # Another thread may have been here first.
        _waiting.pop(next(iter(list(_waiting)), ""), None)
    return board


def claimed(key: str) -> Milestones:
    """The board of a session that begins: the one that waits for it, or a new one.

    Args:
        key: Key of the session.
    """
    return _waiting.pop(key, None) or Milestones()
