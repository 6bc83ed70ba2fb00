"""Listens to a topic of a Redis, on a daemon thread, through outages."""

from __future__ import annotations

import random
import time
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from otel_loopguard.errors import StoreError
from otel_loopguard.locks import Signal, start_thread
from otel_loopguard.logger import logger

if TYPE_CHECKING:
    from otel_loopguard.stores.connection import Hearing

_NAP_S: Final = 1.0
_SILENT_S: Final = 5.0
_FIRST_PAUSE_S: Final = 0.05
_SPREAD: Final = random.SystemRandom()
"""Spreads processes over time; the state of `random` is the application's."""


class Listening:
    """A subscription to one topic of a Redis; see `Channel.subscribe`.

    Its thread ends within two seconds of `close`, or when nobody holds this object any more. Where
    nothing is heard for five seconds it asks whether the server is there, and connects anew after
    as long without an answer.

    Args:
        hear: Subscribes, on a connection of its own.
        take: Gets each message.
        joined: Called whenever messages begin to arrive.
        most_pause_s: Longest pause between two attempts to connect, in seconds.
    """

    def __init__(
        self,
        hear: Callable[[], Hearing],
        take: Callable[[bytes], None],
        joined: Callable[[], None] | None,
        most_pause_s: float,
    ) -> None:
        self._closed = Signal()
        # The thread does not hold this object, so that it ends with it.
        ear = _Ear(hear, take, joined, most_pause_s, self._closed)
        weakref.finalize(self, self._closed.set).atexit = False
        start_thread("listening", ear.run)

    def close(self) -> None:
        """Ends it, soon."""
        self._closed.set()


class _Ear:
    """The thread of a subscription."""

    def __init__(
        self,
        hear: Callable[[], Hearing],
        take: Callable[[bytes], None],
        joined: Callable[[], None] | None,
        most_pause_s: float,
        closed: Signal,
    ) -> None:
        self._hear = hear
        self._take = take
        self._joined = joined
        self._most_pause_s = most_pause_s
        self._closed = closed
        self._failures = 0

    def run(self) -> None:
        """Hears until it is closed."""
        while not self._closed.is_set():
            try:
                hearing = self._hear()
                try:
                    self._attend(hearing)
                finally:
                    hearing.close()
            except StoreError as error:
                self._fails(error)
            self._closed.wait(self._pause_s())

    def _attend(self, hearing: Hearing) -> None:
        asked = heard = time.monotonic()
        while not self._closed.is_set():
            if self._takes(hearing.next(_NAP_S)):
                asked = heard = time.monotonic()
            elif time.monotonic() - heard > 2 * _SILENT_S:
                msg = f"no answer for {2 * _SILENT_S:.0f} s"
                raise StoreError(msg, "down")
            elif time.monotonic() - asked > _SILENT_S:
                hearing.ask()
                asked = time.monotonic()

    def _takes(self, message: Any) -> bool:
        """Takes what came; False if nothing did."""
        if message is None:
            return False
        if message["type"] == "subscribe":
            self._failures = 0
            if self._joined is not None:
                self._joined()
        elif message["type"] == "message" and isinstance(message["data"], bytes):
            self._take(message["data"])
        return True

    def _fails(self, error: StoreError) -> None:
        """Says once of an outage that nothing is heard."""
        self._failures += 1
        if self._failures == 1:
            logger.warning("other processes are not heard while the store fails: %s", error)

    def _pause_s(self) -> float:
        pause = min(_FIRST_PAUSE_S * 2 ** min(self._failures, 16), self._most_pause_s)
        return pause * _SPREAD.uniform(0.5, 1)
