"""Warnings about what the guard cannot see, once per process and reason, each with its remedy."""

from __future__ import annotations

from otel_loopguard.forks import renew_after_fork
from otel_loopguard.locks import new_lock
from otel_loopguard.logger import logger
from otel_loopguard.rehearsal import off


class _Warned:
    """The reasons that were warned of. Reasons are literals of ours, so there are few."""

    def __init__(self) -> None:
        self.reasons: set[str] = set()
        self.forked()

    def forked(self) -> None:
        # Re-entrant: a finalizer may end a span, and so come back here, while it is held.
        self.lock = new_lock()


_warned = _Warned()
renew_after_fork(_warned)


def warn_blind(reason: str, message: str, *args: object) -> bool:
    """Logs a warning, the first time that this process has this reason.

    Never call it while the guard's lock is held: a log handler may wait for whom the guard waits.

    Args:
        reason: A short literal that names the blind spot; it never holds data of a user's.
        message: What is not seen, and what to do about it; a format for `args`.
        *args: Values for the message.

    Returns:
        Whether it was logged now.
    """
    if off():
        return False
    with _warned.lock:
        if reason in _warned.reasons:
            return False
        _warned.reasons.add(reason)
    logger.warning(message, *args)
    return True


def forget_warnings() -> None:
    """Lets every reason be warned of again, for tests."""
    with _warned.lock:
        _warned.reasons.clear()
