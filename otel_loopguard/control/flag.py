"""The flag of a session, as its runtime sees it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from dataclasses import dataclass

from otel_loopguard.control.boards import claimed
from otel_loopguard.core import Action, Decision


@dataclass(frozen=True, slots=True)
class Control:
    """What the runtime of a session should do, at this moment.

    Attributes:
        session: Key of the session; None where no session is known.
        action: What to do; `allow` where nothing is known.
        reason: Why, in a sentence; None for `allow`.
        hint: What to tell the model, ready to be put into its next messages; None for `allow`.
        decision: The decision behind it; None for `allow` and where a person set it.
    """

    session: str | None = None
    action: Action = Action.ALLOW
    reason: str | None = None
    hint: str | None = None
    decision: Decision | None = None

    @property
    def decision_id(self) -> str | None:
        """Id of the decision behind it."""
        return self.decision.id if self.decision else None


NOTHING = Control()
"""The control where no session is known."""


class Flag:
    """Holds the `Control` of one session; readers take no lock.

    An abort is final: nothing but `clear` takes it down.

    Attributes:
        limit_s: Seconds that a gate waits at most, by default.
        stops: Whether it says deny, pause or abort.
        cleared: How often it was cleared.
        milestones: Board of its milestones.
    """

    __slots__ = (
        "_changed", "_control", "_waiters", "cleared", "limit_s", "milestones", "stops",
    )  # fmt: skip

    def __init__(self, session: str, limit_s: float) -> None:
        self._control = Control(session)
        self._changed: threading.Condition | None = None
        self._waiters: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = []
        self.limit_s = limit_s
        self.stops = False
        self.cleared = 0
        self.milestones = claimed(session)

    @property
    def control(self) -> Control:
        """The control as it is now."""
        return self._control

    @property
    def held(self) -> bool:
        """Whether the session is paused."""
        return self._control.action is Action.PAUSE

    @property
    def raised(self) -> bool:
        """Whether it says anything but `allow`."""
        return self._control.action is not Action.ALLOW

    def rename(self, session: str) -> None:
        """Gives the session its final key."""
        with _changing:
            now = self._control
            self._control = Control(session, now.action, now.reason, now.hint, now.decision)

    def set(
        self,
        action: Action,
        *,
        reason: str | None = None,
        hint: str | None = None,
        decision: Decision | None = None,
    ) -> None:
        """Sets the control and wakes whoever waits, unless what stands goes before.

        An abort does, and a pause before every decision but an abort: a person set it.
        """
        with _changing:
            now = self._control.action
            paused = now is Action.PAUSE and decision is not None
            if now is Action.ABORT or (paused and action is not Action.ABORT):
                return
            self._put(Control(self._control.session, action, reason, hint, decision))
        self._wake()

    def lower(self) -> None:
        """Takes a hint or a deny down; a pause or an abort stays."""
        with _changing:
            if self._control.action not in (Action.PAUSE, Action.ABORT):
                self.set(Action.ALLOW)

    def clear(self) -> None:
        """Takes everything down, an abort too."""
        with _changing:
            self.cleared += 1
            self._put(Control(self._control.session))
        self._wake()

    def wait(self, limit_s: float) -> bool:
        """Blocks while the session is paused, at most `limit_s` seconds; False at the limit."""
        changed = self._condition()
        deadline = time.monotonic() + limit_s
        with changed:
            while self.held:
                left = deadline - time.monotonic()
                if left <= 0 or not changed.wait(left):
                    return not self.held
        return True

    async def wait_async(self, limit_s: float) -> bool:
        """As `wait`, without blocking the event loop. Costs no thread."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + limit_s
        while self.held:
            future = loop.create_future()
            entry = (loop, future)
            with self._condition():
                self._waiters.append(entry)
                held = self.held
            try:
                if held:
                    await asyncio.wait_for(future, deadline - loop.time())
            except (TimeoutError, asyncio.TimeoutError):  # two classes on Python 3.10
                return not self.held
            finally:
                with self._condition():
                    if entry in self._waiters:
                        self._waiters.remove(entry)
        return True

    def _put(self, control: Control) -> None:
        global _stopping  # noqa: PLW0603
        self._control = control
        stops = control.action.stops
        _stopping += stops - self.stops
        self.stops = stops

    def _condition(self) -> threading.Condition:
        # Made on first use: most of ten thousand sessions are never waited for.
        if self._changed is None:
            with _changing:
                self._changed = self._changed or threading.Condition()
        return self._changed

    def _wake(self) -> None:
        if self._changed is None:
            return
        with self._changed:
            self._changed.notify_all()
            waiters, self._waiters = self._waiters, []
        for loop, future in waiters:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(_finish, future)


# One for all flags, held for an assignment or two. Re-entrant: a finalizer may end a span in there.
_changing = threading.RLock()
_stopping = 0


def _renew() -> None:
    """In the child of a fork: another thread may have held it."""
    global _changing  # noqa: PLW0603
    _changing = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)


def any_stops() -> bool:
    """Whether any session of this process is denied, paused or aborted.

    While none is, which is nearly always, nobody has to look for the flag of a session.
    """
    return _stopping > 0


def _finish(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
