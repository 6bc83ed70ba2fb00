"""The ways to a desk: the directory of a store, and a socket; opened by the first session."""

from __future__ import annotations

from typing import TYPE_CHECKING

from otel_loopguard.locks import new_lock

if TYPE_CHECKING:
    from otel_loopguard.desk.desk import Desk
    from otel_loopguard.desk.letterbox import Letterbox
    from otel_loopguard.desk.server import Server
    from otel_loopguard.faults import Faults
    from otel_loopguard.settings import Settings


class Doors:
    """Opens what the settings name, once: `store_url`, `control_socket`.

    Args:
        settings: Settings of the guard.
        desk: What is behind the doors.
        faults: Where faults are counted.

    Attributes:
        closed: Whether nothing is open yet, and there is something to open.
        server: The socket; None without one.
    """

    def __init__(self, settings: Settings, desk: Desk, faults: Faults) -> None:
        self._settings = settings
        self._desk = desk
        self._faults = faults
        self._opening = new_lock()
        self._letterbox: Letterbox | None = None
        self.server: Server | None = None
        self.closed = bool(settings.store_url or settings.control_socket)

    def open(self) -> None:
        """Opens them, if they are not open. Starts threads; waits for nothing but a local file."""
        with self._opening:
            if not self.closed:
                return
            self.closed = False
            settings = self._settings
            if settings.store_url:
                self._open_letterbox()
            if settings.control_socket:
                # A program that nobody looks into has no sockets.
                from otel_loopguard.desk.server import Server  # noqa: PLC0415

                self.server = Server(settings.control_socket, self._desk, self._faults)
                self.server.start()

    def close(self) -> None:
        """Closes them. They may be opened again."""
        with self._opening:
            if self._letterbox is not None:
                self._letterbox.close()
            if self.server is not None:
                self.server.close()
            self._letterbox = self.server = None
            self.closed = bool(self._settings.store_url or self._settings.control_socket)

    def _open_letterbox(self) -> None:
        from otel_loopguard.desk.directory import Directory  # noqa: PLC0415  # redis is an extra
        from otel_loopguard.desk.letterbox import Letterbox  # noqa: PLC0415

        directory = Directory(self._settings)
        self._letterbox = Letterbox(self._settings, self._desk, directory, self._faults)
        self._letterbox.start()
