"""Does a judge of the user's say that the run is stuck? Asked only when weak signs persist."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from otel_loopguard.core import Action, Detection, Severity, Step
from otel_loopguard.judge.question import Question
from otel_loopguard.judge.window import Window

if TYPE_CHECKING:
    from otel_loopguard.judge.clerk import Clerk, Ticket
    from otel_loopguard.judge.question import Opinion
    from otel_loopguard.settings import Settings

_KEY: Final = 0x6A75_6467_65
_ADVICE: Final = 500


class JudgeDetector:
    """Asks the judge about one session, and takes its word when it gave it twice.

    Asked from step `judge_from_step` (30) on, when weak signs were there for `judge_patience` (10)
    steps in a row; then every 5 to 15 steps (`judge_every_min`, `judge_every_max`), the sooner the
    surer it was. An opinion of `judge_confidence` (0.9) or more given `judge_times` (2) times in a
    row is a detection; each further one confirms it. It leads to `judge_max_action` (ask) at most.
    A judge that fails is not asked again in this session.

    Nothing waits: a step only looks whether the answer to the question before has come. An answer
    that comes more than twice `judge_every_max` steps late is not used.

    Source: FEATURES D15; `notes/detectors.md` (gemini-cli).
    """

    name = "judge"
    family = "judge"
    takes = Step
    __slots__ = (
        "_clerk", "_interval", "_number", "_off", "_settings", "_signed", "_sure", "_ticket",
        "_wait_until", "_window",
    )  # fmt: skip

    def __init__(self, settings: Settings, clerk: Clerk) -> None:
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
            or self._signed < self._settings.judge_patience
        ):
            return
        question = Question(self._number - 1, signs, self._window.steps)
        self._ticket = self._clerk.take(question)
        self._wait_until = self._number + self._settings.judge_every_max

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
        return self._number - ticket.question.step > 2 * self._settings.judge_every_max

    def _weighed(self, opinion: Opinion | None) -> Detection | None:
        settings = self._settings
        confidence = 0.0 if opinion is None else opinion.confidence
        fewest = min(settings.judge_every_min, settings.judge_every_max)
        spread = settings.judge_every_max - fewest
        self._wait_until = self._number + fewest + round(spread * (1 - confidence))
        if opinion is None or confidence < settings.judge_confidence:
            self._sure = 0
            return None
        self._sure += 1
        return self._detection(opinion) if self._sure >= settings.judge_times else None

    def _detection(self, opinion: Opinion) -> Detection:
        return Detection(
            detector=self.name,
            reason="judged_stuck",
            severity=Severity.WARNING,
            confidence=opinion.confidence,
            keys=frozenset({_KEY}),
            count=self._sure,
            threshold=self._settings.judge_times,
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
    """Makes the detector of each session that asks one judge, to be registered like any other.

    Args:
        clerk: Who takes questions to the judge.
    """

    name = JudgeDetector.name
    family = JudgeDetector.family
    takes = JudgeDetector.takes

    def __init__(self, clerk: Clerk) -> None:
        self._clerk = clerk

    def __call__(self, settings: Settings) -> JudgeDetector:
        """The detector of one session."""
        return JudgeDetector(settings, self._clerk)
