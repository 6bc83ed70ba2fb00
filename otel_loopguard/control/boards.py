"""What is said of sessions that no step was seen of yet: milestones, results so far."""

from __future__ import annotations

from collections import OrderedDict, deque
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


_EARLY: Final = 256
_PARTS: Final = 20
_early: OrderedDict[str, deque[object]] = OrderedDict()


def keep_early(key: str, result: object) -> None:
    """Keeps a result for a session until its first step is seen; of the newest 256 sessions.

    Args:
        key: Key of the session, or the id of its trace in 32 hex digits.
        result: The result.
    """
    _early.setdefault(key, deque(maxlen=_PARTS)).append(result)
    while len(_early) > _EARLY:
        _early.pop(next(iter(list(_early)), ""), None)


def early(key: str) -> deque[object] | None:
    """The results that wait for a session, which has them from now on; None if there are none.

    Args:
        key: As of `keep_early`.
    """
    return _early.pop(key, None) if _early else None
