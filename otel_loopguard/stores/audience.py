"""Who listens to the topics of a store in memory."""

from __future__ import annotations

from collections.abc import Callable

from otel_loopguard.locks import new_lock

Take = Callable[[bytes], None]


class Audience:
    """Listeners by topic. Thread-safe; a listener is called without a lock."""

    def __init__(self) -> None:
        self._takes: dict[str, tuple[Take, ...]] = {}
        # Re-entrant: a finalizer may end a subscription while it is held.
        self._lock = new_lock()

    def forked(self) -> None:
        """In the child of a fork: another thread may have held the lock."""
        self._lock = new_lock()

    def tell(self, topic: str, message: bytes) -> None:
        """Calls all who listen, on the caller's thread."""
        for take in self._takes.get(topic, ()):
            take(message)

    def add(self, topic: str, take: Take) -> Seat:
        """Adds a listener."""
        with self._lock:
            self._takes[topic] = (*self._takes.get(topic, ()), take)
        return Seat(self, topic, take)

    def remove(self, topic: str, take: Take) -> None:
        """Removes a listener."""
        with self._lock:
            left = tuple(one for one in self._takes.get(topic, ()) if one is not take)
            if left:
                self._takes[topic] = left
            else:
                self._takes.pop(topic, None)


class Seat:
    """One listener's place; see `Subscription`.

    Args:
        audience: Where it is.
        topic: What it listens to.
        take: The listener.
    """

    def __init__(self, audience: Audience, topic: str, take: Take) -> None:
        self._audience = audience
        self._topic = topic
        self._take = take

    def close(self) -> None:
        """Ends it."""
        self._audience.remove(self._topic, self._take)
