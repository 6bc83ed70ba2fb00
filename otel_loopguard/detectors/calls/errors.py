"""Does one tool fail in the same way, again and again, whatever it is asked? (C4)"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from otel_loopguard.core import Action, Detection, ErrorClass, Severity
from otel_loopguard.detectors.wording import error_of

if TYPE_CHECKING:
    from otel_loopguard.core import Evidence
    from otel_loopguard.settings import Settings

_FADE: Final = 0.985
_WINDOW: Final = 50
_TRACKED: Final = 64
_EARLIER_EPOCH: Final = 1 / 3
_AFTER_SUCCESS: Final = 0.6
_SOON: Final = 2
_QUOTING: Final = 0.8
_ABSENT: Final = 0.2


@dataclass(slots=True)
class _Failing:
    """One error of one tool, and how many equivalents of it were counted."""

    count: float
    epoch: int
    round: int
    number: int
    since: int
    calls: frozenset[int]
    different: int
    call_exact: int | None
    line: int | None
    transient: bool


def _calls(evidence: Evidence) -> tuple[frozenset[int], int]:
    """The calls that are known of an error once, and how many different ones these are."""
    return (frozenset(), 0) if evidence.call is None else (frozenset({evidence.call}), 1)


class ErrorRepeat:
    """Counts equal errors of one tool and agent, arguments free.

    Equal means: the line that names the error, with numbers and volatile values masked; equal but
    for what it quotes from the arguments counts 0.8, one item after the other that is not there
    0.2. A detection from `error_threshold` (3); already from 2 if the error is about the call
    itself (unknown tool, wrong arguments) or if the very same call failed in the same epoch with a
    deterministic error. A failure without a text is no error that could be equal to another.

    Where every call was another one and the error is not about the call itself, it leads to a hint
    at most.

    Fades by 1.5 % per call; a change of the world leaves a third, a success of the tool 0.6 of what
    was counted, and nothing of a transient error (429, 5xx, time-outs): those have
    `transient_budget_s` of time.

    Source: `notes/evidence.md`, lessons 2 to 4 and 8; FEATURES C4.
    """

    name = "error_repeat"
    family = "errors"
    __slots__ = ("_failing", "_settings")

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._failing: OrderedDict[tuple[tuple[int, str], int], _Failing] = OrderedDict()

    def user_turn(self) -> None:
        for failing in self._failing.values():
            failing.count /= 2

    def observe(self, evidence: Evidence) -> Detection | None:
        if not evidence.error:
            if self._failing:
                self._succeeded((evidence.agent, evidence.tool))
            return None
        if evidence.error_shape is None or evidence.waits:
            return None
        place = ((evidence.agent, evidence.tool), evidence.error_shape)
        failing = self._failing.pop(place, None)
        if failing is None or evidence.number - failing.number > _WINDOW:
            failing = self._start(evidence)
            again = False
        else:
            again = failing.call_exact is not None and failing.call_exact == evidence.call_exact
            again = again and failing.epoch == evidence.epoch
            self._count(failing, evidence)
        self._failing[place] = failing
        if len(self._failing) > _TRACKED:
            self._failing.popitem(last=False)
        return self._judge(failing, evidence, again=again)

    def _start(self, evidence: Evidence) -> _Failing:
        return _Failing(
            1.0, evidence.epoch, evidence.round, evidence.number, evidence.time,
            *_calls(evidence), evidence.call_exact, evidence.error_line,
            evidence.error_class is ErrorClass.TRANSIENT,
        )  # fmt: skip

    def _count(self, failing: _Failing, evidence: Evidence) -> None:
        count = failing.count * _FADE ** (evidence.number - failing.number - 1)
        if evidence.epoch != failing.epoch:
            count *= _EARLIER_EPOCH
        if evidence.round != failing.round and not self._has_time(failing, evidence):
            if evidence.absent:
                count += _ABSENT
            else:
                count += 1.0 if evidence.error_line == failing.line else _QUOTING
        failing.count, failing.epoch = count, evidence.epoch
        failing.round, failing.number = evidence.round, evidence.number
        failing.call_exact, failing.line = evidence.call_exact, evidence.error_line
        if evidence.call is None or evidence.call in failing.calls:
            return
        if len(failing.calls) < _TRACKED:
            failing.calls |= {evidence.call}
            failing.different += 1
        elif evidence.fresh:
            # Past the bound of the set a call is another one if the session has not seen it.
            failing.different += 1

    def _has_time(self, failing: _Failing, evidence: Evidence) -> bool:
        """Whether a transient error is still within its budget of time."""
        if evidence.error_class is not ErrorClass.TRANSIENT or not failing.since:
            return False
        return (evidence.time - failing.since) / 1e9 <= self._settings.of(
            evidence.tool
        ).transient_budget_s

    def _succeeded(self, caller: tuple[int, str]) -> None:
        """Takes back what was counted of a tool that works; a transient error of it is over."""
        for place, failing in [*self._failing.items()]:
            if place[0] == caller:
                failing.count *= _AFTER_SUCCESS
                if failing.transient:
                    del self._failing[place]

    def _judge(self, failing: _Failing, evidence: Evidence, *, again: bool) -> Detection | None:
        deterministic = evidence.error_class is ErrorClass.DETERMINISTIC
        soon = evidence.call_error or (again and deterministic)
        limit = self._settings.of(evidence.tool).error_threshold
        threshold = min(_SOON, limit) if soon else limit
        if failing.count < evidence.needs(threshold) - 0.1:
            return None
        # Errors about the thing asked for, each time another thing: the agent may be searching.
        others = failing.different >= failing.count - 0.5 and not evidence.call_error
        others = others or evidence.call is None or evidence.guessed
        return Detection(
            detector=self.name,
            reason="call_error" if evidence.call_error else "equal_error",
            severity=Severity.CRITICAL if failing.count >= limit + 2 else Severity.WARNING,
            confidence=min(0.99, (0.75 if deterministic else 0.65) + 0.05 * failing.count),
            keys=failing.calls | {evidence.error_shape or 0},
            count=round(failing.count, 2),
            threshold=evidence.shown(threshold),
            message=f"{evidence.tool!r} failed {round(failing.count)} times with an equal "
            + error_of(evidence),
            max_action=Action.HINT if others and not again else Action.ABORT,
        )
