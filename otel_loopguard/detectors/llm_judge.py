"""An optional judge: a model of the user's, asked on a thread of its own."""

from __future__ import annotations

import asyncio
import inspect
import math
import os
import pkgutil
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from otel_loopguard._util.errors import attempt
from otel_loopguard._util.locks import start_thread
from otel_loopguard._util.suppress import suppress_instrumentation_in_thread
from otel_loopguard.core import Action, Detection, Kind, Severity, Step
from otel_loopguard.core.text import truncate
from otel_loopguard.errors import LoopGuardSettingsError

if TYPE_CHECKING:
    from otel_loopguard._util.errors import InternalErrors
    from otel_loopguard.settings import Settings


@dataclass(frozen=True, slots=True)
class Glance:
    """One step, in short. It has content of calls, which is given to the judge only.

    Attributes:
        number: Number of the step within the session, from 0.
        kind: What it is: `tool`, `model`, `handoff`, …
        name: Name of the tool, model or agent; empty if it is not known.
        said: Arguments of a call, text of a model, instruction of a hand-off; at most 300
            characters, empty if it was not captured.
        answer: Outcome or error text of a call; at most 300 characters.
        error: Whether it failed.
    """

    number: int
    kind: str
    name: str
    said: str
    answer: str
    error: bool

    @property
    def line(self) -> str:
        """The step as one line."""
        mark = " failed:" if self.error else " ->" if self.answer else ""
        parts = (f"{self.number} {self.kind} {self.name}", self.said, f"{mark} {self.answer}")
        return " ".join(part.strip() for part in parts if part.strip())


@dataclass(frozen=True, slots=True)
class Question:
    """What is known of a session that shows weak signs of being stuck.

    Attributes:
        step: Number of the newest step within the session.
        signs: What was noticed, as sentences with counts.
        steps: The newest 20 steps, the oldest first.
    """

    step: int
    signs: tuple[str, ...]
    steps: tuple[Glance, ...]

    @property
    def text(self) -> str:
        """All of it as plain text for a model: at most about 14,000 characters."""
        signs = "\n".join(f"- {sign}" for sign in self.signs)
        lines = "\n".join(step.line for step in self.steps)
        return (
            "These are the newest steps of an agent's run. Is it stuck, so that going on like this "
            "gets it nowhere? Different items of one list being worked off, and waiting for "
            f"something that changes, are no loops.\n\nNoticed:\n{signs}\n\nSteps:\n{lines}"
        )


@dataclass(frozen=True, slots=True)
class Opinion:
    """What a judge answers.

    Attributes:
        confidence: How sure it is that the run is stuck, 0 to 1.
        advice: What to tell the model, if anything; it stays in the process.
    """

    confidence: float
    advice: str = ""

    def __post_init__(self) -> None:
        if not math.isfinite(self.confidence) or not 0 <= self.confidence <= 1:
            msg = f"confidence of a judge must be a number from 0 to 1, got {self.confidence!r}"
            raise ValueError(msg)


Answer = Opinion | float | None
"""An opinion, a bare confidence, or None for "I cannot tell"."""

Judge = Callable[[Question], Answer | Awaitable[Answer]]
"""A callable of the user's, plain or async; it may take its time, and ask a model."""


def opinion(answer: object) -> Opinion | None:
    """The opinion in an answer."""
    if answer is None or isinstance(answer, Opinion):
        return answer
    if isinstance(answer, (int, float)):
        return Opinion(float(answer))
    msg = f"a judge answers with an Opinion, a number or None, got {type(answer).__name__}"
    raise TypeError(msg)


_STEPS: Final = 20
_CHARS: Final = 300
_FEW: Final = 4
_SHORT: Final = 16
_HALF: Final = 0.5


class _Keys(NamedTuple):
    call: int | None
    answer: int | None
    text: int | None


class Window:
    """The newest 20 steps of a session, in O(1) per step.

    A weak sign is one that is common in healthy runs too, so that no detector acts on it: at least
    half of the calls failed, were made before, or got an answer that was given before, or at least
    half of the model's texts were said before; all of it within these steps, and from four on.
    """

    __slots__ = ("_answers", "_calls", "_errors", "_keys", "_steps", "_texts")

    def __init__(self) -> None:
        self._steps: deque[Glance] = deque()
        self._keys: deque[_Keys] = deque()
        self._calls: Counter[int] = Counter()
        self._answers: Counter[int] = Counter()
        self._texts: Counter[int] = Counter()
        self._errors = 0

    @property
    def steps(self) -> tuple[Glance, ...]:
        """The steps, the oldest first."""
        return tuple(self._steps)

    def add(self, number: int, step: Step) -> None:
        """Takes one step."""
        glance = _glance(number, step)
        keys = _keys(step.kind, glance)
        self._steps.append(glance)
        self._keys.append(keys)
        self._count(glance, keys, 1)
        if len(self._steps) > _STEPS:
            self._count(self._steps.popleft(), self._keys.popleft(), -1)

    def signs(self) -> tuple[str, ...]:
        """The weak signs, as sentences; empty if there are none."""
        calls = sum(glance.kind == "tool" for glance in self._steps)
        found: list[str] = []
        if calls >= _FEW and self._errors >= _HALF * calls:
            found.append(f"{self._errors} of {calls} calls failed")
        for counted, what in (
            (self._calls, "calls were made before"),
            (self._answers, "answers were given before"),
            (self._texts, "texts of the model were said before"),
        ):
            among = counted.total()
            again = among - len(counted)
            if among >= _FEW and again >= _HALF * among:
                found.append(f"{again} of {among} {what}")
        return tuple(found)

    def _count(self, glance: Glance, keys: _Keys, by: int) -> None:
        if glance.kind == "tool":
            self._errors += by * glance.error
        counters = (self._calls, self._answers, self._texts)
        for counter, key in zip(counters, keys, strict=True):
            if key is None:
                continue
            counter[key] += by
            if not counter[key]:
                del counter[key]


def _glance(number: int, step: Step) -> Glance:
    said = step.text if step.kind is Kind.MODEL else step.args
    answer = step.error_text if step.error and step.error_text is not None else step.outcome
    return Glance(
        number, step.kind.value, truncate(step.name, 100), truncate(said, _CHARS),
        truncate(answer, _CHARS), step.error,
    )  # fmt: skip


def _keys(kind: Kind, glance: Glance) -> _Keys:
    """What can be compared; short answers coincide, and what was not captured is unknown."""
    said = hash((glance.name, glance.said)) if glance.said else None
    if kind is Kind.MODEL:
        return _Keys(None, None, said)
    if kind is not Kind.TOOL:
        return _Keys(None, None, None)
    answer = hash(glance.answer) if len(glance.answer) >= _SHORT else None
    return _Keys(said, answer, None)


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


class JudgeWorker:
    """Asks the judge, one question at a time, on one daemon thread that ends when it is idle.

    `take` and `watch` are called under the guard's lock and wait for nothing. A judge that takes
    longer than `judge_timeout_s` (30 s) is left behind with its thread (an async one is cancelled);
    when that has happened three times, it is not asked any more. Spans that the judge makes are
    suppressed, so that they do not look like steps of an agent.
    """

    def __init__(self, judge: Judge, settings: Settings, faults: InternalErrors) -> None:
        self._judge = judge
        self._faults = faults
        self._limit_s = settings.judge_timeout_s
        self._most = settings.tuning.judge.queue
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
        suppress_instrumentation_in_thread()
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


_KEY: Final = 0x6A75_6467_65
_ADVICE: Final = 500


class JudgeDetector:
    """Asks the judge about one session, and takes its word when it gave it twice.

    Asked from step `judge_from_step` (30) on, when weak signs were there for
    `tuning.judge.patience` (10) steps in a row; then every 5 to 15 steps (`tuning.judge.every_min`,
    `tuning.judge.every_max`), the sooner the surer it was. An opinion of `tuning.judge.confidence`
    (0.9) or more given `tuning.judge.times` (2) times in a row is a detection; each further one
    confirms it. It leads to `judge_max_action` (ask) at most. A judge that fails is not asked again
    in this session.

    Nothing waits: a step only looks whether the answer to the question before has come. An answer
    that comes more than twice `tuning.judge.every_max` steps late is not used.

    Source: FEATURES D15; `notes/detectors.md` (gemini-cli).
    """

    name = "judge"
    family = "judge"
    takes = Step
    __slots__ = (
        "_clerk", "_interval", "_number", "_off", "_settings", "_signed", "_sure", "_ticket",
        "_wait_until", "_window",
    )  # fmt: skip

    def __init__(self, settings: Settings, clerk: JudgeWorker) -> None:
        self._settings = settings
        self._clerk = clerk
        self._number = 0
        self._off = False
        self._start_over()

    def user_turn(self) -> None:
        """A user spoke: what was seen and said before is over."""
        self._start_over()

    def observe(self, step: Step) -> Detection | None:
        """Takes one step; a detection if a confident opinion has come since the step before."""
        if self._off:
            return None
        found = self._heard()
        if step.name not in self._settings.exempt:
            self._window.add(self._number, step)
        self._number += 1
        self._look()
        return found

    def _look(self) -> None:
        """Asks, if it is time to."""
        signs = self._window.signs()
        self._signed = self._signed + 1 if signs else 0
        if (
            self._ticket is not None
            or self._number < max(self._settings.judge_from_step, self._wait_until)
            or self._signed < self._settings.tuning.judge.patience
        ):
            return
        question = Question(self._number - 1, signs, self._window.steps)
        self._ticket = self._clerk.take(question)
        self._wait_until = self._number + self._settings.tuning.judge.every_max

    def _heard(self) -> Detection | None:
        """What follows from the answer, if it has come."""
        ticket = self._ticket
        if ticket is None:
            return None
        if not ticket.done:
            self._clerk.watch()
            return None
        self._ticket = None
        self._off = ticket.failed
        if ticket.failed or self._is_late(ticket):
            return None
        return self._weighed(ticket.opinion)

    def _is_late(self, ticket: Ticket) -> bool:
        return self._number - ticket.question.step > 2 * self._settings.tuning.judge.every_max

    def _weighed(self, opinion: Opinion | None) -> Detection | None:
        settings = self._settings
        confidence = 0.0 if opinion is None else opinion.confidence
        fewest = min(settings.tuning.judge.every_min, settings.tuning.judge.every_max)
        spread = settings.tuning.judge.every_max - fewest
        self._wait_until = self._number + fewest + round(spread * (1 - confidence))
        if opinion is None or confidence < settings.tuning.judge.confidence:
            self._sure = 0
            return None
        self._sure += 1
        return self._detection(opinion) if self._sure >= settings.tuning.judge.times else None

    def _detection(self, opinion: Opinion) -> Detection:
        return Detection(
            detector=self.name,
            reason="judged_stuck",
            severity=Severity.WARNING,
            confidence=opinion.confidence,
            keys=frozenset({_KEY}),
            count=self._sure,
            threshold=self._settings.tuning.judge.times,
            message=f"the judge said {self._sure} times in a row that the run is stuck, at last "
            f"with confidence {opinion.confidence:.2f}",
            max_action=Action(self._settings.judge_max_action),
            advice=opinion.advice[:_ADVICE],
        )

    def _start_over(self) -> None:
        self._window = Window()
        self._ticket = None
        self._signed = 0
        self._sure = 0
        self._wait_until = 0


class JudgeSeats:
    """Makes the detector of each session that asks one judge, to be registered like any other."""

    name = JudgeDetector.name
    family = JudgeDetector.family
    takes = JudgeDetector.takes

    def __init__(self, clerk: JudgeWorker) -> None:
        self._clerk = clerk

    def __call__(self, settings: Settings) -> JudgeDetector:
        """The detector of one session."""
        return JudgeDetector(settings, self._clerk)


__all__ = ["Glance", "Judge", "JudgeDetector", "JudgeSeats", "Opinion", "Question", "judges"]


def judges(
    settings: Settings, faults: InternalErrors, given: Judge | None, *, live: bool
) -> tuple[JudgeSeats, ...]:
    """The judge as something to register beside the detectors; nothing if there is none."""
    place = settings.judge if live else ""
    judge = cast("Judge", _imported(place)) if given is None and place else given
    if judge is None:
        return ()
    if not callable(judge):
        raise LoopGuardSettingsError(_refused(place or judge, "expected a callable"))
    return (JudgeSeats(JudgeWorker(judge, settings, faults)),)


def _imported(place: str) -> object:
    try:
        return pkgutil.resolve_name(place)
    except (ImportError, AttributeError, ValueError) as error:
        raise LoopGuardSettingsError(_refused(place, f"cannot be imported: {error}")) from None


def _refused(place: object, why: str) -> str:
    return f"judge (LOOPGUARD_JUDGE) = {place!r}: {why}"
