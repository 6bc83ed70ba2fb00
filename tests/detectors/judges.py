"""Judges for tests, and runs that show weak signs."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count

from opentelemetry import context

from otel_loopguard.core import Kind, Step
from otel_loopguard.detectors.llm_judge import JudgeWorker, Question
from tests.calls import Run, call

WORDS = (
    "amber birch cedar delta ember fjord grove heath inlet jetty kelp larch mango night ocean "
    "pearl quartz river stone tulip"
).split()


@dataclass
class Bench:
    """A judge that answers what it is told to, and keeps what it was asked."""

    answer: object = 0.95
    questions: list[Question] = field(default_factory=list)
    threads: set[tuple[str, object]] = field(default_factory=set)
    """Names of the threads that ask, and whether spans are suppressed there."""

    def __call__(self, question: Question) -> object:
        self.questions.append(question)
        name = threading.current_thread().name
        self.threads.add((name, context.get_value("suppress_instrumentation")))
        answer = self.answer
        if isinstance(answer, Exception):
            raise answer
        return answer(question) if callable(answer) else answer


@dataclass
class Judged(Run):
    """A session with a judge; after each step the answer is waited for."""

    patience_s: float = 2

    def steps(self, steps: Iterator[Step], number: int, session: str = "run") -> list[str]:
        """Observes so many steps, with time to answer between them; the actions so far."""
        for _ in range(number):
            self.guard.observe(next(steps), session)
            self.settled(self.patience_s)
        return self.actions

    def settled(self, limit_s: float = 0) -> bool:
        """Whether no question is on its way, within so many seconds."""
        return self.worker._worker.flush(limit_s)

    @property
    def worker(self) -> JudgeWorker:
        (entry,) = [one for one in self.guard._registry.entries if one.name == "judge"]
        return entry.make.worker


def failing() -> Iterator[Step]:
    """Every call another one, and most of them fail in another way."""
    for number in count():
        error = None if number % 4 == 3 else f"{WORDS[number % 20]} went {WORDS[number // 20 % 20]}"
        yield call(f"tool{number % 7}", {"n": f"{number}"}, f"answer {number}" * 3, error=error)


def healthy() -> Iterator[Step]:
    """Every call another one, with another answer."""
    for number in count():
        yield call("read", {"n": f"{number}"}, f"page {number} of the book")


def talking() -> Iterator[Step]:
    """A model that says one of two things."""
    for number in count():
        yield Step(Kind.MODEL, "m", text=f"I will look at it now, part {number % 2}.")
