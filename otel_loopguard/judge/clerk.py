"""Takes questions to the judge, on a thread of its own."""

from __future__ import annotations

import asyncio
import inspect
import os
import time
from collections.abc import Awaitable
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Final

from otel_loopguard.faults import attempt
from otel_loopguard.judge.question import Answer, Opinion, Question, opinion
from otel_loopguard.locks import start_thread
from otel_loopguard.quiet import untraced_thread

if TYPE_CHECKING:
    from otel_loopguard.faults import Faults
    from otel_loopguard.judge.question import Judge
    from otel_loopguard.settings import Settings

_IDLE_S: Final = 10
_LEFT_BEHIND: Final = 3
_FAILED: Final = object()


class Ticket:
    """One question on its way.

    Attributes:
        question: The question.
        opinion: The answer, once it is there; None if the judge cannot tell.
        done: Whether it was answered, in whatever way.
        failed: Whether the judge threw, gave no answer in time, or gave one of no use.
    """

    __slots__ = ("done", "failed", "opinion", "question")

    def __init__(self, question: Question) -> None:
        self.question = question
        self.opinion: Opinion | None = None
        self.done = False
        self.failed = False

    def close(self, answer: Opinion | None, *, failed: bool = False) -> None:
        """Takes the answer; the first one counts."""
        if not self.done:
            self.opinion, self.failed = answer, failed
            self.done = True


class Clerk:
    """Asks the judge, one question at a time, on one daemon thread that ends when it is idle.

    `take` and `watch` are called under the guard's lock and wait for nothing. A judge that takes
    longer than `judge_timeout_s` (30 s) is left behind with its thread (an async one is cancelled);
    when that has happened three times, it is not asked any more. Spans that the judge makes are
    suppressed, so that they do not look like steps of an agent.

    Args:
        judge: The judge.
        settings: Settings of the guard.
        faults: Where failures are counted.
    """

    def __init__(self, judge: Judge, settings: Settings, faults: Faults) -> None:
        self._judge = judge
        self._faults = faults
        self._limit_s = settings.judge_timeout_s
        self._most = settings.judge_queue
        self._process = 0
        self._left_behind = 0
        self._renew()

    def take(self, question: Question) -> Ticket | None:
        """Takes a question to the judge; None if too many wait, or the judge is not asked now."""
        if self._process != os.getpid():
            # In the child of a fork: its thread is not here, and its queue may be locked.
            self._renew()
        if self._left_behind >= _LEFT_BEHIND or self._waiting.qsize() >= self._most:
            return None
        ticket = Ticket(question)
        # A SimpleQueue may be put to by a finalizer that runs inside of its own `put`.
        self._waiting.put(ticket)
        if self._idle:
            self._hire()
        return ticket

    def watch(self) -> None:
        """Leaves a judge behind that has taken too long, and goes on with the next question."""
        current = self._current
        if current is None or time.monotonic() - current[1] <= self._limit_s:
            return
        self._current = None
        self._left_behind += 1
        current[0].close(None, failed=True)
        self._faults.note("judge", TimeoutError(f"no answer within {self._limit_s:g} s"))
        self._hire()

    def _renew(self) -> None:
        self._process = os.getpid()
        self._waiting: SimpleQueue[Ticket] = SimpleQueue()
        self._current: tuple[Ticket, float] | None = None
        self._idle = True
        self._shift = 0

    def _hire(self) -> None:
        self._shift += 1
        self._idle = False
        if not start_thread("judge", self._work, self._shift):
            self._idle = True

    def _work(self, shift: int) -> None:
        untraced_thread()
        while shift == self._shift:
            try:
                ticket = self._waiting.get(timeout=_IDLE_S)
            except Empty:
                self._idle = True
                # One may have been put before that was seen.
                if self._waiting.empty() or shift != self._shift:
                    return
                self._idle = False
                continue
            self._ask(ticket, shift)

    def _ask(self, ticket: Ticket, shift: int) -> None:
        current = (ticket, time.monotonic())
        if shift == self._shift:
            self._current = current
        try:
            answer = attempt(self._faults, "judge", self._answer, ticket.question, _FAILED)
            late = time.monotonic() - current[1] > self._limit_s
            known = answer if isinstance(answer, Opinion) and not late else None
            ticket.close(known, failed=late or answer is _FAILED)
        finally:
            # Whatever ends this thread, the session does not wait for it.
            ticket.close(None, failed=True)
            if self._current is current:
                self._current = None

    def _answer(self, question: Question) -> object:
        answer = self._judge(question)
        if inspect.isawaitable(answer):
            answer = asyncio.run(self._awaited(answer))
        return opinion(answer)

    async def _awaited(self, answer: Awaitable[Answer]) -> Answer:
        return await asyncio.wait_for(answer, self._limit_s)
