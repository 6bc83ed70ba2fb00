"""Where journals are put, and taken from."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final, Protocol

from otel_loopguard.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_loopguard.sessions.history import Written
    from otel_loopguard.stores import Writer

_LIMIT_S: Final = 30.0


class Shelf(Protocol):
    """Where the scribe puts journals, and takes them from."""

    def submit(self, session: str, entries: Sequence[Written]) -> None:
        """Takes entries to be stored. Called where steps end: it must not block."""
        ...

    def journal(self, session: str, after: str | None = None) -> list[Written]:
        """What is stored of a session, as `Store.journal`. May block; raises `StoreError`."""
        ...


class WriterShelf:
    """Journals in a store, written and read by its writer.

    Args:
        writer: Writes behind, and reads on its own thread.
        limit_s: Seconds that a reading waits at most.
    """

    def __init__(self, writer: Writer, limit_s: float = _LIMIT_S) -> None:
        self._writer = writer
        self._limit_s = limit_s

    def submit(self, session: str, entries: Sequence[Written]) -> None:
        """Gives entries to the writer, which counts what it has to drop."""
        self._writer.append(session, entries)

    def journal(self, session: str, after: str | None = None) -> list[Written]:
        """What is stored of a session, in the order in which it was stored. Blocks.

        Raises:
            StoreError: It cannot be read, or not within the limit.
        """
        found: list[list[Written]] = []
        answered = threading.Event()

        def take(entries: list[Written]) -> None:
            found.append(entries)
            answered.set()

        asked = self._writer.ask(lambda store: store.journal(session, after), take, answered.set)
        if asked:
            answered.wait(self._limit_s)
        if not found:
            msg = f"the journal of session {session!r} cannot be read"
            raise StoreError(msg)
        return found[0]
