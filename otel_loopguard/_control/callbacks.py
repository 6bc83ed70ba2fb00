"""The application's callbacks for decisions and escalations, each on a thread of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from otel_loopguard._util.errors import InternalErrors, swallow
from otel_loopguard._util.worker import BackgroundWorker

if TYPE_CHECKING:
    from otel_loopguard.core import Decision

# A burst of a large fleet; one that takes longer for each than they come loses the oldest.
_WAITING_EVENTS: Final = 1000
_Notice = tuple[Any, InternalErrors, Callable[[object], object] | None]


class Callbacks:
    """The callbacks for one kind of event. May be called from any thread; nobody waits for them.

    Each has a thread of its own, and is called with one event after the other. At most 1000 wait
    for it; beyond that the oldest are dropped. What it raises, and what is dropped, is counted.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        # Adding and removing are atomic; `notify` iterates over a copy.
        self._workers: dict[BackgroundWorker[_Notice], str | None] = {}

    def __bool__(self) -> bool:
        return bool(self._workers)

    def add(self, callback: Callable[[Any], object], session: str | None) -> Callable[[], None]:
        """Adds a callback, of one session or of all; returns what removes it."""

        def deliver(notice: _Notice) -> None:
            event, faults, then = notice
            with swallow(faults, self._name):
                try:
                    said = callback(event)
                except Exception:
                    raise
                except BaseException as fault:  # noqa: BLE001  # it would end the thread
                    faults.note(self._name, fault)
                else:
                    if then is not None:
                        then(said)

        worker = BackgroundWorker(
            "listener",
            deliver,
            InternalErrors(),
            maximum=_WAITING_EVENTS,
            drop_oldest=True,
            suppress=False,
        )
        self._workers[worker] = session

        def remove() -> None:
            self._workers.pop(worker, None)
            worker.stop()

        return remove

    def notify(
        self, event: object, session: str, faults: InternalErrors,
        then: Callable[[object], object] | None = None,
    ) -> None:  # fmt: skip
        """Queues an event of a session for every callback; `then` gets what each gave back."""
        for worker, only in tuple(self._workers.items()):
            if only in {None, session} and not worker.put((event, faults, then)):
                faults.note(self._name, OverflowError("a callback is too slow"))


DECISIONS: Final = Callbacks("on_decision")
ESCALATIONS: Final = Callbacks("on_escalation")


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
    return DECISIONS.add(callback, session)


def notify_listeners(decision: Decision, faults: InternalErrors) -> None:
    """Queues a decision for every callback."""
    DECISIONS.notify(decision, decision.session, faults)
