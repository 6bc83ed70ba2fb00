"""The application's callbacks for decisions, each on a thread of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from otel_loopguard._util.errors import InternalErrors, swallow
from otel_loopguard._util.worker import BackgroundWorker

if TYPE_CHECKING:
    from otel_loopguard.core import Decision

_MOST: Final = 1000
_Notice = tuple["Decision", InternalErrors]
# Adding and removing are atomic; `notify_listeners` iterates over a copy.
_listeners: Final[dict[BackgroundWorker[_Notice], str | None]] = {}


def on_decision(
    callback: Callable[[Decision], object], *, session: str | None = None
) -> Callable[[], None]:
    """Calls a callback with every decision of every guard in this process.

    It runs on a thread of its own, one decision after the other, and delays nothing else. What it
    raises is logged and counted. At most 1000 decisions wait for it; beyond that the oldest are
    dropped and counted.

    ::

        stop_listening = control.on_decision(lambda decision: page_somebody(decision.message))

    Args:
        callback: Called with a `Decision`.
        session: Key of a session; all by default.

    Returns:
        A function that removes the callback.
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
    """Queues a decision for every callback."""
    for worker, session in tuple(_listeners.items()):
        if session in {None, decision.session} and not worker.put((decision, faults)):
            faults.note("on_decision", OverflowError("a callback is too slow"))
