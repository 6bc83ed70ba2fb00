"""An optional judge: a model of the user's, asked on a thread of its own."""

from __future__ import annotations

import asyncio
import inspect
import math
import time
from collections import deque
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final, TypeAlias

from otel_loopguard._util.text import truncate
from otel_loopguard._util.worker import BackgroundWorker
from otel_loopguard.core import Action, Kind, Step
from otel_loopguard.detectors.base import BaseDetector
from otel_loopguard.settings import imported

if TYPE_CHECKING:
    from otel_loopguard._util.errors import InternalErrors
    from otel_loopguard.core import Detection
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
    """A session with weak signs of being stuck, as a judge sees it.

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
    """Answer of a judge.

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


# Of a step, as much as says what it is about: twenty of them make a page for a model.
_CHARS: Final = 300
_STEPS: Final = 20
# Fewer calls that have something in common are chance.
_FEW: Final = 4
# Shorter answers coincide.
_SHORT: Final = 16


_CALLS, _ANSWERS, _TEXTS = "calls were made", "answers were given", "texts of the model were said"
_Seen: TypeAlias = tuple[Glance, dict[str, int]]
"""A step, and what of it can be compared."""


def _seen(number: int, step: Step) -> _Seen:
    said = step.text if step.kind is Kind.MODEL else step.args
    answer = step.error_text if step.error and step.error_text is not None else step.outcome
    glance = Glance(
        number, step.kind.value, truncate(step.name, 100), truncate(said, _CHARS),
        truncate(answer, _CHARS), step.error,
    )  # fmt: skip
    keys: dict[str, int] = {}
    if glance.said and step.kind in (Kind.MODEL, Kind.TOOL):
        keys[_CALLS if step.kind is Kind.TOOL else _TEXTS] = hash((glance.name, glance.said))
    if step.kind is Kind.TOOL and len(glance.answer) >= _SHORT:
        keys[_ANSWERS] = hash(glance.answer)
    return glance, keys


def weak_signs(steps: Collection[_Seen]) -> tuple[str, ...]:
    """Weak signs that healthy runs have too, so that no detector acts on them, as sentences.

    From four on: at least half of the calls failed, were made before, or got an earlier answer, or
    at least half of the model's texts had been written before.
    """
    calls = [int(glance.error) for glance, _ in steps if glance.kind == "tool"]
    found = [(sum(calls), calls, "calls failed")]
    for what in (_CALLS, _ANSWERS, _TEXTS):
        known = [keys[what] for _, keys in steps if what in keys]
        found.append((len(known) - len(set(known)), known, f"{what} before"))
    return tuple(
        f"{count} of {len(known)} {what}"
        for count, known, what in found
        if len(known) >= _FEW and 2 * count >= len(known)
    )


# A judge that hangs three times hangs always: each time costs a thread.
_ABANDONED: Final = 3
# Questions that wait at most. A judge that is slower than its sessions need not be asked them all.
_WAITING: Final = 16


@dataclass(slots=True)
class PendingQuestion:
    """One question on its way: `done` once it was answered, or `failed`."""

    question: Question
    opinion: Opinion | None = None
    done: bool = False
    failed: bool = False

    def close(self, answer: Opinion | None = None, *, failed: bool = False) -> None:
        """Sets the answer; the first one counts."""
        if not self.done:
            self.opinion, self.failed = answer, failed
            self.done = True


class JudgeWorker:
    """Asks the judge in the background, one question at a time.

    `submit` and `check` are called under the guard's lock and wait for nothing. A judge that takes
    longer than `tuning.judge.timeout_s` is abandoned with its thread (an async one is cancelled);
    when that has happened three times, it is not asked any more. Spans that the judge makes are
    suppressed, so that they do not look like steps of an agent.
    """

    def __init__(self, judge: Judge, settings: Settings, faults: InternalErrors) -> None:
        self._judge = judge
        self._faults = faults
        self._limit_s = settings.tuning.judge.timeout_s
        self._worker = BackgroundWorker("judge", self._ask, faults, maximum=_WAITING)
        self._current: tuple[PendingQuestion, float] | None = None
        self._abandoned = 0

    def submit(self, question: Question) -> PendingQuestion | None:
        """Queues a question; None if too many wait, or the judge is not asked any more."""
        pending = PendingQuestion(question)
        asked = self._abandoned < _ABANDONED and self._worker.put(pending)
        return pending if asked else None

    def check(self) -> None:
        """Abandons a judge that has taken too long, and goes on with the next question."""
        current = self._current
        if current is None or time.monotonic() - current[1] <= self._limit_s:
            return
        self._current = None
        self._abandoned += 1
        current[0].close(failed=True)
        self._faults.note("judge", TimeoutError(f"no answer within {self._limit_s:g} s"))
        self._worker.abandon()

    def _ask(self, pending: PendingQuestion) -> None:
        self._current = current = (pending, time.monotonic())
        try:
            if self._abandoned < _ABANDONED:
                answer = self._answer(pending.question)
                pending.close(answer, failed=time.monotonic() - current[1] > self._limit_s)
        finally:
            # Whatever ends this thread, the session does not wait for it.
            pending.close(failed=True)
            if self._current is current:
                self._current = None

    def _answer(self, question: Question) -> Opinion | None:
        answer: object = self._judge(question)
        if inspect.isawaitable(answer):
            answer = asyncio.run(asyncio.wait_for(answer, self._limit_s))
        if answer is None or isinstance(answer, Opinion):
            return answer
        if isinstance(answer, (int, float)):  # pyright: ignore[reportUnnecessaryIsInstance]
            return Opinion(float(answer))
        msg = f"a judge answers with an Opinion, a number or None, got {type(answer).__name__}"
        raise TypeError(msg)


# Steps in a row with weak signs before a question: healthy runs have them for a few.
_PERSIST: Final = 10
# A surer judge is asked again sooner, but not about the same steps.
_SOONEST: Final = 5
# One confident opinion may be chance.
_TIMES: Final = 2
_KEY: Final = 0x6A75_6467_65


class JudgeDetector(BaseDetector):
    """Does a model of yours consider the run stuck?

    Counts: confident answers in a row, asked for while weak signs persist.
    Leaves alone: runs without such signs; off by default.
    Cannot see: more than the newest 20 steps.
    """

    name = family = "judge"
    takes = Step
    worker: ClassVar[JudgeWorker]
    __slots__ = ("_number", "_off", "_pending", "_signed", "_steps", "_sure", "_wait_until")

    def __init__(self, settings: Settings) -> None:
        self._number, self._off = 0, False
        super().__init__(settings)

    def reset(self) -> None:
        self._steps: deque[_Seen] = deque(maxlen=_STEPS)
        self._pending: PendingQuestion | None = None
        self._signed = self._sure = self._wait_until = 0

    def observe(self, step: Step) -> Detection | None:
        if self._off:
            return None
        found = self._receive()
        if step.name not in self._settings.exempt:
            self._steps.append(_seen(self._number, step))
        self._number += 1
        signs = weak_signs(self._steps)
        self._signed = self._signed + 1 if signs else 0
        tuning = self._settings.tuning.judge
        if (
            self._pending is None
            and self._number >= max(tuning.from_step, self._wait_until)
            and self._signed >= _PERSIST
        ):
            glances = tuple(glance for glance, _ in self._steps)
            self._pending = self.worker.submit(Question(self._number - 1, signs, glances))
            self._wait_until = self._number + tuning.every_max
        return found

    def _receive(self) -> Detection | None:
        """Returns the detection that follows from the judge's answer, if it has come."""
        pending = self._pending
        if pending is None:
            return None
        if not pending.done:
            self.worker.check()
            return None
        self._pending = None
        self._off = pending.failed
        tuning = self._settings.tuning.judge
        late = self._number - pending.question.step > 2 * tuning.every_max
        if pending.failed or late:
            return None
        opinion = pending.opinion
        confidence = 0.0 if opinion is None else opinion.confidence
        fewest = min(_SOONEST, tuning.every_max)
        spread = tuning.every_max - fewest
        self._wait_until = self._number + fewest + round(spread * (1 - confidence))
        if opinion is None or confidence < tuning.confidence:
            self._sure = 0
            return None
        self._sure += 1
        if self._sure < _TIMES:
            return None
        return self.found(
            "judged_stuck", self._sure, _TIMES, _KEY, confidence=confidence,
            max_action=Action(tuning.max_action), advice=opinion.advice[:500],
        )  # fmt: skip


__all__ = ["Glance", "Judge", "JudgeDetector", "Opinion", "Question", "judges"]


def judges(
    settings: Settings, faults: InternalErrors, given: Judge | None, *, live: bool
) -> tuple[type[JudgeDetector], ...]:
    """The judge as something to register beside the detectors; nothing if there is none."""
    if given is None and not (live and settings.judge):
        return ()
    judge = imported("judge", settings.judge if given is None else given, "a callable")

    class OneJudge(JudgeDetector):
        worker = JudgeWorker(judge, settings, faults)
        __slots__ = ()

    return (OneJudge,)
