"""Delivers items in the background, and again where that failed and may pass."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from otel_loopguard._util.worker import BackgroundWorker

if TYPE_CHECKING:
    from otel_loopguard._util.errors import InternalErrors

# An address that is down for minutes is tried once a minute: it is back for a minute at most
# before it is found.
_LONGEST_PAUSE_S: Final = 60.0
# While the process ends: attempts do not count, and the last spans may reach a backend meanwhile.
_CLOSING_PAUSE_S: Final = 0.2

_Item = TypeVar("_Item")


class DeliveryError(Exception):
    """An item was not delivered.

    Attributes:
        again: True if another attempt may help.
    """

    def __init__(self, why: str, *, again: bool) -> None:
        super().__init__(why)
        self.again = again


class DeliveryQueue(Generic[_Item]):
    """A bounded queue whose items are delivered on a thread of its own; `put` never blocks.

    The pause after a failure doubles from `retry_s` to a minute.

    Args:
        name: Name of the thread.
        deliver: Delivers one item; may block, and raises `DeliveryError`.
        errors: Counts what else it raises.
        failed: Called for each failure, with the item, why, and whether it is tried again.
        maximum: Items that wait at most; more are refused.
        attempts: Attempts to deliver one item.
        retry_s: Seconds between the first two attempts.
        until: After this time, nanoseconds since the epoch, an item is not tried again.
    """

    def __init__(  # noqa: PLR0913
        self, name: str, deliver: Callable[[_Item], None], errors: InternalErrors,
        failed: Callable[[_Item, str, bool], None], *, maximum: int, attempts: int,
        retry_s: float, until: Callable[[_Item], int] | None = None,
    ) -> None:  # fmt: skip
        self._deliver = deliver
        self._failed = failed
        self._attempts = attempts
        self._retry_s = retry_s
        self._until = until
        self._closing = False
        self._worker = BackgroundWorker[tuple[int, _Item]](
            name, self._attempt, errors, maximum=maximum
        )
        self.flush = self._worker.flush

    def put(self, item: _Item) -> bool:
        """Adds an item; False if too many wait."""
        return self._worker.put((1, item))

    def close(self, limit_s: float) -> None:
        """Delivers everything now, again and again, for at most `limit_s`."""
        self._closing = True
        try:
            self._worker.hasten()
            self._worker.flush(limit_s)
        finally:
            self._closing = False

    def _attempt(self, entry: tuple[int, _Item]) -> None:
        attempt, item = entry
        try:
            self._deliver(item)
        except DeliveryError as error:
            pause_s = min(self._retry_s * 2 ** (attempt - 1), _LONGEST_PAUSE_S)
            if self._closing:
                attempt, pause_s = attempt - 1, _CLOSING_PAUSE_S
            again = error.again and attempt < self._attempts
            if again and self._until is not None:
                again = time.time_ns() + pause_s * 1e9 < self._until(item)
            again = again and self._worker.put((attempt + 1, item), pause_s)
            self._failed(item, str(error), again)
