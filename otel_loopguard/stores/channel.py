"""What stores can do that tell each other's users of something at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable


class Subscription(Protocol):
    """What is listened to, until it is closed."""

    def close(self) -> None:
        """Ends it, soon. Does not wait; may be called twice."""
        ...


@runtime_checkable
class Channel(Protocol):
    """A store that hands messages on to whoever listens at this moment; it keeps none of them."""

    def publish(self, topic: str, message: bytes) -> None:
        """Hands a message to all that listen to a topic, in this process and in others.

        Args:
            topic: What it is about.
            message: The message.

        Raises:
            StoreError: It could not be sent. It may have arrived all the same.
        """
        ...

    def subscribe(
        self,
        topic: str,
        take: Callable[[bytes], None],
        joined: Callable[[], None] | None = None,
    ) -> Subscription:
        """Listens to a topic. Does not wait, and goes on when the store was away.

        Args:
            topic: What is listened to.
            take: Gets each message, on any thread. It must not raise, nor hold
                this subscription.
            joined: Called whenever messages begin to arrive: at the start, and after an outage in
                which some may have been missed. It must not raise.
        """
        ...
