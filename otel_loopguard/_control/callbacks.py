"""Callbacks of the application: told of every decision, on a thread of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from otel_loopguard._util.errors import InternalErrors, swallow
from otel_loopguard._util.worker import BackgroundWorker

if TYPE_CHECKING:
    from otel_loopguard.core import Decision

_MOST: Final = 1000
_Notice = tuple["Decision", InternalErrors]
# To add and to remove one is atomic; who notifies reads a copy.
_listeners: Final[dict[BackgroundWorker[_Notice], str | None]] = {}


def on_decision(
    callback: Callable[[Decision], object], *, session: str | None = None
) -> Callable[[], None]:
    """Has a callback told of every decision of every guard in this process.

    It is called on a thread of its own, one decision after the other: what it does holds nobody
    up. Whatever it raises is logged and counted. Of more than 1000 decisions that wait for it the
    oldest are lost, and counted.

    ::

        stop_listening = control.on_decision(lambda decision: page_somebody(decision.message))

    Args:
        callback: Called with a `Decision`.
        session: Key of a session; all by default.

    Returns:
        A function that ends it.
    """

    def deliver(notice: _Notice) -> None:
        decision, faults = notice
        with swallow(faults, "on_decision"):
            try:
                callback(decision)
            except Exception:
                raise
            except BaseException as fault:  # noqa: BLE001  # it would end the thread
                faults.note("on_decision", fault)

    worker = BackgroundWorker(
        "listener", deliver, InternalErrors(), maximum=_MOST, drop_oldest=True, suppress=False
    )
    _listeners[worker] = session

    def forget() -> None:
        _listeners.pop(worker, None)
        worker.stop()

    return forget


def notify_listeners(decision: Decision, faults: InternalErrors) -> None:
    """Has every callback called with a decision, soon."""
    for worker, session in tuple(_listeners.items()):
        if session in {None, decision.session} and not worker.put((decision, faults)):
            faults.note("on_decision", OverflowError("a callback is too slow"))
