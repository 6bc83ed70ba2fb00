"""What a live guard keeps outside of its process: the store that its settings name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from otel_loopguard.quiet import untraced_thread
from otel_loopguard.sessions import WriterShelf
from otel_loopguard.stores import open_writer

if TYPE_CHECKING:
    from otel_loopguard.faults import Faults
    from otel_loopguard.sessions import Shelf
    from otel_loopguard.settings import Settings
    from otel_loopguard.stores import Store, Writer


class Backing:
    """The store of one guard and its one writer; nothing, where no store is named.

    A replay has none: what it shows is long over.

    Args:
        settings: Settings of the guard.
        faults: Where faults are counted.
        live: Whether its steps happen now.
        shelf: Where journals are put instead, if somebody says so.

    Attributes:
        writer: Writes behind; None without a store.
        shelf: Where the journals of sessions are put; None for nowhere.

    Raises:
        LoopGuardSettingsError: `store_url` cannot be used, or needs an extra.
    """

    def __init__(
        self, settings: Settings, faults: Faults, *, live: bool, shelf: Shelf | None = None
    ) -> None:
        named = live and bool(settings.store_url)
        self.writer: Writer | None = (
            open_writer(settings, faults, begin=untraced_thread) if named else None
        )
        self.shelf = shelf
        if shelf is None and self.writer is not None:
            self.shelf = WriterShelf(self.writer)

    @property
    def store(self) -> Store | None:
        """The store itself, for what does its own waiting."""
        return None if self.writer is None else self.writer.store

    def close(self) -> None:
        """Writes what waits, at most for `store_flush_s`. It may be used further."""
        if self.writer is not None:
            self.writer.close()
