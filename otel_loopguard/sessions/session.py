"""One session: it counts its steps, judges them, and knows its loops."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from otel_loopguard.control import Flag
from otel_loopguard.core import Kind
from otel_loopguard.detectors import HandoffRepeat, detectors
from otel_loopguard.faults import attempt
from otel_loopguard.identity import Observer
from otel_loopguard.policy import Ladder

if TYPE_CHECKING:
    import threading

    from otel_loopguard.core import Detection, Evidence, Step
    from otel_loopguard.detectors import Detector
    from otel_loopguard.faults import Faults
    from otel_loopguard.policy import Verdict
    from otel_loopguard.settings import Settings

_SILENT_TURNS = 8
"""Model calls in one trace, after a deny and without a tool call, that end in an abort."""


class Finding(NamedTuple):
    """What the ladder of a session says about one step.

    Attributes:
        verdict: What follows.
        call: Key of the call concerned; None if its arguments are not known.
    """

    verdict: Verdict
    call: int | None


class Session:
    """All steps of one conversation or run, as far as they still matter.

    Attributes:
        key: Its key. A trace id (32 hex digits) until a span names a conversation or session.
        named: Whether the key is final.
        steps: How many canonical steps were counted.
        last_used: When it was used last, nanoseconds since the epoch.
        lock: The guard's lock, held while its steps are judged. One for all: a finalizer that ends
            a span inside of one lock must never wait for another.
        observer: Turns its tool calls into evidence.
        detectors: What looks at the evidence.
        handoffs: What looks at hand-offs.
        ladder: What remembers the loops.
        flag: What its runtime sees.
        run: Root span of the agent run that began last in it; 0 if none was seen to begin.
        troubled: Whether anything was ever detected in it.
    """

    __slots__ = (
        "_asked_in", "_cleared", "_exempt", "_faults", "_settings", "_silent_turns", "detectors",
        "flag", "handoffs", "key", "ladder", "last_used", "lock", "named", "observer", "run",
        "steps", "troubled",
    )  # fmt: skip

    def __init__(
        self, key: str, settings: Settings, faults: Faults, lock: threading.RLock, *, named: bool
    ) -> None:
        self.key = key
        self.named = named
        self.steps = 0
        self.troubled = False
        self.run = 0
        self.last_used = 0
        self.lock = lock
        self._faults = faults
        self._cleared = 0
        self._settings = settings
        self.observer = Observer(settings)
        self.detectors = detectors(settings)
        self.handoffs = HandoffRepeat()
        self.ladder = Ladder(settings)
        self.flag = Flag(key, settings.pause_limit_s)
        self._exempt = settings.exempt_tools
        self._silent_turns = 0
        self._asked_in = 0

    def take(self, step: Step) -> tuple[int, Finding | None]:
        """Counts a canonical step and judges it. Its lock is held.

        Returns:
            The index of the step within the session, and what follows if anything new does.
        """
        index = self.steps
        self.steps += 1
        if self._cleared != self.flag.cleared:
            self._start_over()
        if step.kind is Kind.TOOL:
            self._silent_turns = 0
            return index, self._judged(step)
        if step.kind is Kind.MODEL:
            self.observer.model_step(step)
            return index, self._asked(step) if self.flag.stops else None
        if step.kind is Kind.HANDOFF:
            return index, self._handed(step)
        if step.kind is Kind.OTHER and step.name == "user":
            self.user_turn()
        return index, None

    def next_run(self, span_id: int) -> None:
        """An agent's run begins: in a conversation, the user's next turn.

        Loops of the turn before weigh half, and what the policy stopped may go on.

        Args:
            span_id: The run's root span.
        """
        if self.run:
            if self.flag.control.decision is not None:
                self.flag.clear()
            self.user_turn()
        self.run = span_id

    def _judged(self, step: Step) -> Finding | None:
        evidence = self.observer.evidence(step)
        if step.name in self._exempt:
            return None
        call, number = evidence.call, evidence.number
        if self.troubled and evidence.error and call and self.ladder.denies(call):
            return _finding(self.ladder.defied(call, evidence.tool, number), call)
        found = self._detections(evidence)
        if found:
            self.troubled = True
            return _finding(self.ladder.judge(found, number), call)
        if self.troubled:
            self._calm(call, number)
        return None

    def _detections(self, evidence: Evidence) -> list[Detection]:
        """What the detectors find; one that throws is counted, and the others go on."""
        found: list[Detection] = []
        for detector in self.detectors:
            seen = attempt(self._faults, detector.name, detector.observe, evidence)
            if seen is not None:
                found.append(seen)
        return found

    def _start_over(self) -> None:
        """Somebody let the session go on: its loops are new loops."""
        self._cleared = self.flag.cleared
        self.ladder = Ladder(self._settings)
        self.user_turn()

    def _handed(self, step: Step) -> Finding | None:
        handoff = self.observer.handoff(step)
        found = None if handoff is None else self.handoffs.observe(handoff)
        if found is None:
            return None
        self.troubled = True
        return _finding(self.ladder.judge([found], self.observer.calls), None)

    def _asked(self, step: Step) -> Finding | None:
        """A model is asked again in a session that is denied: refusals may leave no span."""
        self._silent_turns = self._silent_turns + 1 if step.trace_id == self._asked_in else 1
        self._asked_in = step.trace_id
        if self._silent_turns < _SILENT_TURNS:
            return None
        return _finding(self.ladder.unheeded(self._silent_turns, self.observer.calls), None)

    def _calm(self, call: int | None, number: int) -> None:
        """A call outside of every loop takes a hint or a deny down again."""
        self.ladder.fade(number)
        if self.flag.raised and not self.ladder.knows(call):
            self.flag.lower()

    def user_turn(self) -> None:
        """A user spoke: what was counted before weighs half."""
        for detector in self.detectors:
            attempt(self._faults, detector.name, _turn, detector)
        self.handoffs.user_turn()
        self.ladder.user_turn()


def _turn(detector: Detector) -> None:
    detector.user_turn()


def _finding(verdict: Verdict | None, call: int | None) -> Finding | None:
    return None if verdict is None else Finding(verdict, call)
