"""One session: it counts its steps, judges them, and knows its loops."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from otel_loopguard.control import Flag
from otel_loopguard.core import Action, Effect, Evidence, Kind, Progress
from otel_loopguard.identity import SENSES, Observer, Senses, signature_of
from otel_loopguard.policy import Policy
from otel_loopguard.reports import Record
from otel_loopguard.sessions.cycles import CycleLog
from otel_loopguard.sessions.panel import Panel

if TYPE_CHECKING:
    import threading

    from otel_loopguard.core import Detection, Step
    from otel_loopguard.detectors import Registry
    from otel_loopguard.faults import Faults
    from otel_loopguard.policy import Verdict
    from otel_loopguard.reports import Report
    from otel_loopguard.settings import Settings

_SILENT_TURNS = 8
"""Model calls in one trace, after a deny and without a tool call, that end in an abort."""


class Finding(NamedTuple):
    """What the policy of a session says about one step.

    Attributes:
        verdict: What follows.
        call: Key of the call concerned; None if its arguments are not known.
        tool: Name of its tool; empty if no call is concerned.
        signature: Kind of the error behind it; None if no error is.
        error: Key of the line that names that error.
    """

    verdict: Verdict
    call: int | None = None
    tool: str = ""
    signature: str | None = None
    error: int | None = None


class Session:
    """All steps of one conversation or run, as far as they still matter.

    Attributes:
        key: Its key. A trace id (32 hex digits) until a span names a conversation or session.
        named: Whether the key is final.
        progress: Totals of its steps.
        last_used: When it was used last, nanoseconds since the epoch.
        lock: The guard's lock, held while its steps are judged. One for all: a finalizer that ends
            a span inside of one lock must never wait for another.
        senses: What turns its steps into evidence.
        panel: What looks at the evidence.
        policy: What follows from what is detected; its ladder remembers the loops.
        flag: What its runtime sees.
        record: Counts what it does, for people.
        cycles: The cycles of agents that it came to.
        run: Root span of the agent run that began last in it; 0 if none was seen to begin.
        troubled: Whether anything was ever detected in it.
    """

    __slots__ = (
        "_asked_in", "_cleared", "_exempt", "_settings", "_silent_turns", "cycles", "flag", "key",
        "last_used", "lock", "named", "panel", "policy", "progress", "record", "run", "senses",
        "troubled",
    )  # fmt: skip

    def __init__(  # noqa: PLR0913
        self, key: str, settings: Settings, registry: Registry, faults: Faults,
        lock: threading.RLock, *, named: bool,
    ) -> None:  # fmt: skip
        self.key = key
        self.named = named
        self.troubled = False
        self.run = 0
        self.last_used = 0
        self.lock = lock
        self._cleared = 0
        self._settings = settings
        self.progress = Progress()
        self.senses = Senses(settings, self.progress, SENSES)
        self.panel = Panel(registry, settings, faults)
        self.policy = Policy(settings)
        self.flag = Flag(key, settings.pause_limit_s)
        self.progress.milestones = self.flag.milestones
        self.record = Record(settings)
        self.cycles = CycleLog(settings.exchange_window_steps)
        self._exempt = settings.exempt
        self._silent_turns = 0
        self._asked_in = 0

    def take(self, step: Step) -> tuple[int, list[Finding]]:
        """Counts a canonical step and judges it. Its lock is held.

        Returns:
            The index of the step within the session, and everything new that follows.
        """
        index = self.progress.steps
        self._count(step)
        if self._cleared != self.flag.cleared:
            self._start_over()
        if step.kind is Kind.OTHER and step.name == "user":
            self._let_go()
            self.user_turn()
        self.cycles.pass_by(index)
        found = self._seen(step)
        if not found and step.kind is Kind.MODEL and self.flag.stops:
            found = self._asked(step)
        return index, found

    def call_of(self, step: Step) -> int | None:
        """Key of a call before it has an outcome; None if its arguments are not known yet."""
        (observer, *_) = self.senses.of(Kind.TOOL)
        return observer.call_of(step) if isinstance(observer, Observer) else None

    def report(self) -> Report:
        """What it has come to. Its lock is held."""
        action = self.flag.control.action
        return self.record.report(self.key, self.progress, action, self.panel.broken)

    def next_run(self, span_id: int) -> None:
        """An agent's run begins: in a conversation, the user's next turn.

        Loops of the turn before weigh half, and what the policy stopped may go on.

        Args:
            span_id: The run's root span.
        """
        if self.run:
            self._let_go()
            self.user_turn()
        self.run = span_id

    def _count(self, step: Step) -> None:
        progress = self.progress
        progress.steps += 1
        progress.time = max(progress.time, step.end or 0)
        self.record.step(step)
        if step.kind is Kind.MODEL:
            progress.models += 1
        elif step.kind is Kind.TOOL:
            self._silent_turns = 0

    def _seen(self, step: Step) -> list[Finding]:
        """What the senses make of a step, the detectors of that, and the policy of those."""
        # A step without a round is a moment of its own.
        number, seen, moment = self.progress.calls, None, -self.progress.steps
        found = self.panel.observe(step)
        for sense in self.senses.of(step.kind):
            evidence = sense.see(step)
            if evidence is None:
                continue
            if isinstance(evidence, Evidence):
                seen, call, moment = evidence, evidence.call, evidence.round
                if evidence.effect is Effect.WRITE and not evidence.error:
                    self.record.wrote(step)
                if step.name in self._exempt:
                    continue
                if self.troubled and call and evidence.changed and not evidence.error:
                    self.policy.moved(call)
                if self.troubled and evidence.error and call and self.policy.denies(call):
                    defied = self.policy.defied(call, evidence.tool, number, moment)
                    return [_finding(verdict, step, seen) for verdict in defied]
            found += self.panel.observe(evidence)
        if found:
            return self._judged(found, number, moment, step, seen)
        if self.troubled and step.kind is Kind.TOOL:
            self._calm(seen, number)
        return []

    def stalled(self, found: Detection, step: Step) -> list[Finding]:
        """What follows from a call that runs too long: a verdict of its own. Its lock is held."""
        self.troubled = True
        own = replace(found, own=found.own or Action.HINT)
        verdicts = self.policy.judge([own], self.progress.calls, -self.progress.steps)
        return [Finding(verdict, tool=step.name or "") for verdict in verdicts]

    def _judged(
        self, found: list[Detection], number: int, moment: int, step: Step, seen: Evidence | None
    ) -> list[Finding]:
        verdicts = self.policy.judge(found, number, moment, step.end or 0)
        self.cycles.take(found, verdicts, self.progress.steps - 1)
        self.troubled = self.troubled or any(one.own is not Action.ALLOW for one in found)
        return [_finding(verdict, step, seen) for verdict in verdicts]

    def _start_over(self) -> None:
        """Somebody let the session go on: its loops are new loops."""
        self._cleared = self.flag.cleared
        self.policy.start_over()
        self.cycles.end("cleared")
        self.user_turn()

    def _let_go(self) -> None:
        """The user's next turn: what the policy stopped may go on, and a hint is over."""
        ruled = self.flag.control.decision is not None
        if self.policy.ended or (ruled and self.flag.stops):
            self.flag.clear()
            self._cleared = self.flag.cleared
            self.policy.start_over()
        elif ruled:
            self.flag.lower()

    def _asked(self, step: Step) -> list[Finding]:
        """A model is asked again in a session that is denied: refusals may leave no span."""
        self._silent_turns = self._silent_turns + 1 if step.trace_id == self._asked_in else 1
        self._asked_in = step.trace_id
        if self._silent_turns < _SILENT_TURNS:
            return []
        progress = self.progress
        unheeded = self.policy.unheeded(self._silent_turns, progress.calls, -progress.steps)
        return [Finding(verdict) for verdict in unheeded]

    def _calm(self, seen: Evidence | None, number: int) -> None:
        """A call outside of every loop takes a hint or a deny down again, and so does success."""
        over = self.policy.calm(number, succeeded=seen is not None and self._succeeded(seen))
        outside = seen is None or not self.policy.knows(seen.call)
        if self.flag.raised and (over or outside):
            self.flag.lower()

    def _succeeded(self, seen: Evidence) -> bool:
        """Whether a call brought something new, or changed the world."""
        if seen.error or seen.waiting:
            return False
        new = seen.novelty is not None and seen.novelty >= self._settings.descend_novelty
        return new or self.progress.epoch > seen.epoch

    def user_turn(self) -> None:
        """A user spoke: what was counted before weighs half."""
        self.panel.user_turn()
        self.policy.user_turn()
        self.cycles.end("user_turn")


def _finding(verdict: Verdict, step: Step, seen: Evidence | None) -> Finding:
    """A verdict with what is known of the call concerned, if one is."""
    if seen is None:
        return Finding(verdict)
    error = seen.error_shape
    about = {seen.call, seen.error_line, error} - {None}
    if not seen.error or about.isdisjoint(verdict.loop.keys):
        return Finding(verdict, seen.call, seen.tool)
    return Finding(verdict, seen.call, seen.tool, signature_of(step), error)
