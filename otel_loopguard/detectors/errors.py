"""Calls that fail again and again."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from xxhash import xxh3_64_intdigest as key_of

from otel_loopguard._util.bounded import keep
from otel_loopguard.core import Action
from otel_loopguard.core.evidence import ErrorClass, ModelAttempt
from otel_loopguard.detectors.base import (
    ITEM,
    TRANSIENT,
    WAIT,
    WRITE,
    BaseDetector,
    Count,
    CountingDetector,
    Counts,
    critical_if,
    error_of,
    reaches,
)

if TYPE_CHECKING:
    from otel_loopguard.core import Detection
    from otel_loopguard.core.evidence import Evidence

_DETERMINISTIC: Final = ErrorClass.DETERMINISTIC
_AFTER_SUCCESS: Final = 0.6
"""Share of a tool's errors that its success leaves. At 1, one more of 428 solved runs is noticed;
at 0, a tool that fails every other time never is."""
_SOON: Final = 2
"""Errors before a report, for a call that cannot succeed by itself."""
_QUOTING: Final = 0.8
"""Weight of an error that differs only in what it quotes of the arguments: a chosen value."""
_ABSENT: Final = 0.2
"""Weight of a missing item: among many items, some are missing."""
_ALL: Final = 20
"""Calls of an agent in a row with the same error after which the whole tool is refused: the longest
such row in 471 solved runs has three, in failed ones nine."""
_REFUSED, _PASSING, _CUT_OFF, _PLAIN = "refused", "passing", "cut off", ""
_LIMIT: Final = key_of(b"cut off")
"""Stands for the error of what a limit of time ended: the words are not its own."""
_SLOW_S: Final = 15.0
"""Seconds from which such a call is one: what asks a host gives up within ten, and is a transient
error like others; limits of shells are half a minute and more."""
_LEFT: Final = {_REFUSED: _AFTER_SUCCESS, _PASSING: 0.0, _PLAIN: _AFTER_SUCCESS, _CUT_OFF: 1.0}
"""Share that a success leaves, by kind of error."""
_LEFT_IN_SHELL: Final = {**_LEFT, _REFUSED: 1.0}
"""The same in a shell, where each call runs something else: another command's success does not show
that the model has understood a refusal, as it never shows that a limit of time is kept."""


def tool_key(tool: str) -> int:
    """Identity of all calls of a tool, as part of a loop that none of them can leave."""
    return key_of(f"tool\0{tool}".encode("utf-8", "replace"))


class ErrorRepeat(CountingDetector):
    """Does one tool fail again and again with an equal error?

    Counts: errors with an equal line, whatever the arguments; two are enough where the call itself
    is wrong.
    Leaves alone: items that do not exist; transient errors with pauses; beyond a hint, refused
    files and timeouts in a shell. A change leaves a third, a success six tenths, but of what a
    shell refused all.
    Cannot see: failures without a text.
    """

    name = "error_repeat"
    signs = ("error",)
    lasting = True
    __slots__ = ("_rows",)

    def reset(self) -> None:
        super().reset()
        # By agent: the error of its last calls in a row, how many they are, and their round.
        self._rows: dict[int, tuple[int | None, float, int]] = {}

    def observe(self, evidence: Evidence) -> Detection | None:
        caller = (evidence.agent, evidence.tool)
        if not evidence.error:
            self._rows.pop(evidence.agent, None)
            if self._counts.repeated:
                left = _LEFT_IN_SHELL if evidence.runs_code else _LEFT
                self._counts.scale(lambda key, _: left[key[3]] if key[:2] == caller else 1.0)
            return None
        if evidence.error_shape is None or evidence.waits:
            return None
        told = evidence.refused or evidence.call_error
        kind = _REFUSED if told else _PASSING if evidence.error_class is TRANSIENT else _PLAIN
        shape, line = evidence.error_shape, evidence.error_line
        if kind is _PASSING and _is_cut_off(evidence):
            kind, shape, line = _CUT_OFF, _LIMIT, _LIMIT
        key = (*caller, shape, kind)
        last = self._counts.get(key)
        again, alike = False, 1.0
        if last is not None:
            call, before = last.mark
            same = (call, last.epoch) == (evidence.call_exact, evidence.epoch)
            again = call is not None and same
            alike = 1.0 if before == line else _QUOTING
        weight = evidence.hint_weight * (_ABSENT if evidence.absent else alike)
        row = self._row(evidence)
        # The first weighs one, whatever it says.
        counted = self._counts.add(
            key, last, evidence, 1.0 if last is None else weight, evidence.call_exact, line,
            changes=kind in {_PASSING, _PLAIN},
        )  # fmt: skip
        if counted is None:
            return None
        return self._judge(counted, evidence, shape, again=again, row=row)

    def _row(self, evidence: Evidence) -> float:
        """Calls of the agent in a row that failed with the same line and cannot succeed."""
        line, count, last = self._rows.pop(evidence.agent, (None, 0.0, -1))
        if line != evidence.error_line:
            count = 0.0
        if evidence.round != last and (evidence.refused or not evidence.item):
            # A word accuses: of an error that nobody knows other items may be free.
            sure = evidence.error_class is _DETERMINISTIC or evidence.refused or evidence.call_error
            count += 1.0 - evidence.rested if sure or evidence.transient else 0.0
        keep(self._rows, evidence.agent, (evidence.error_line, count, evidence.round), 32)
        return count

    def _judge(
        self, counted: Count, evidence: Evidence, shape: int, *, again: bool, row: float
    ) -> Detection | None:
        deterministic = evidence.error_class is _DETERMINISTIC
        limit = self._settings.of(evidence.tool).error_threshold
        soon = evidence.call_error or (again and deterministic)
        threshold = min(_SOON, limit) if soon else limit
        if not reaches(counted.count, evidence.needs(threshold)):
            return None
        # What a tool refuses to do to one file, it may do to another; a wrong call is so for each.
        another = evidence.item and evidence.file is not None
        told = evidence.call_error or (evidence.refused and not another)
        others = counted.different >= counted.count - 0.5 and not told
        all_fail = row >= evidence.needs(_ALL)
        rule = "call_error" if evidence.call_error else "equal_error"
        keys = {*counted.calls, shape}
        identity, most = float(again or not others), Action.DENY if others else Action.ABORT
        if all_fail:
            rule, identity = "everything_fails", 1.0
            keys.add(tool_key(evidence.tool))
        elif shape == _LIMIT:
            # Of the same call with nothing in between `exact_repeat` tells.
            rule, most = "cut_off", Action.HINT
        elif evidence.refused and not evidence.call_error:
            rule = "same_refusal"
        return self.found(
            rule, counted.count, threshold, frozenset(keys), evidence, times=counted.times,
            error=error_of(evidence), row=int(row),
            confidence=min(0.99, (0.75 if deterministic else 0.65) + 0.05 * counted.count),
            severity=critical_if(counted.count >= limit + 2),
            max_action=most,
            weight=identity * evidence.stop_weight if evidence.call is not None else 0.0,
        )  # fmt: skip


def _is_cut_off(evidence: Evidence) -> bool:
    """True if a limit of time ended what a shell ran; what measures something came to its end."""
    if not (evidence.unanswered and evidence.runs_code and evidence.began) or evidence.score:
        return False
    return evidence.time - evidence.began >= _SLOW_S * 1e9


def _waits(evidence: Evidence) -> bool:
    """True if nothing came of a look, or it is a pause; another answer is the end of a wait."""
    moved = evidence.changed or evidence.outcome is None
    return evidence.waits and not (moved and evidence.effect is not WAIT)


_ERROR_RATE: Final = key_of(b"error_rate")
_ROUNDS: Final = 10
"""Rounds over which the share is taken: fewer are chance, and more come too late to help."""


@dataclass(slots=True)
class _Newest:
    """The rounds of one agent: how many, which of them failed, and how many of the last in a row.

    `failed` names, for each round that did, the tool that had a transient error; else it is empty.
    """

    failed: dict[int, str] = field(default_factory=dict[int, str])
    rounds: int = 0
    round: int = -1
    row: int = 0


class ErrorRate(BaseDetector):
    """Do nearly all of an agent's newest rounds fail, each in its own way?

    Counts: rounds whose calls all failed: six in a row, or three quarters of ten.
    Leaves alone: retries with a pause; a tool that works again; items that do not exist.
    Cannot see: failures that neither status nor answer tells.
    """

    name = "error_rate"
    max_action = Action.HINT  # tests of what has to fail look the same
    __slots__ = ("_agents",)

    def reset(self) -> None:
        self._agents: dict[int, _Newest] = {}

    def observe(self, evidence: Evidence) -> Detection | None:
        if _waits(evidence) or evidence.absent or (evidence.transient and evidence.rested):
            return None
        newest = self._agents.get(evidence.agent)
        if newest is None:
            newest = _Newest()
            keep(self._agents, evidence.agent, newest, 32)
        failed, again = newest.failed, evidence.round == newest.round and newest.rounds > 0
        if not again:
            newest.rounds += 1
            newest.round = evidence.round
        if not evidence.failing:
            newest.row = 0
            if failed:
                failed.pop(newest.rounds, None)
                for number in [one for one, tool in failed.items() if tool == evidence.tool]:
                    del failed[number]
            return None
        if again and newest.rounds not in failed:
            return None
        newest.row += not again
        failed[newest.rounds] = evidence.tool if evidence.error_class is TRANSIENT else ""
        if len(failed) > _ROUNDS:
            del failed[next(iter(failed))]
        return self._judge(evidence, newest)

    def _judge(self, evidence: Evidence, newest: _Newest) -> Detection | None:
        tuning = self._settings.tuning.calls
        failed = sum(number > newest.rounds - _ROUNDS for number in newest.failed)
        if newest.row >= evidence.needs(tuning.error_streak):
            threshold = evidence.shown(tuning.error_streak)
            return self.found("error_streak", newest.row, threshold, _ERROR_RATE)
        threshold = tuning.error_rate * _ROUNDS
        if newest.rounds < _ROUNDS or failed < threshold * max(evidence.ease, 1.0):
            return None
        return self.found("error_rate", failed, threshold, _ERROR_RATE, rounds=_ROUNDS)


_LONG: Final = 40
"""Characters from which an equal answer of two tools is no chance: below, words coincide."""
_ODD: Final = 0x9E37_79B9_7F4A_7C15
"""Mixes a key: 2**64 over the golden ratio, as in Fibonacci hashing."""
_BITS: Final = 0xFFFF_FFFF_FFFF_FFFF  # a key has 64


class Outage(BaseDetector):
    """Do several tools say the same, or is a transient error retried without a pause?

    Counts: equal errors and long answers across tools; retries, less after longer pauses.
    Leaves alone: calls that carried something out; a tool that works again.
    Cannot see: outages that each tool words in its own way.
    """

    name = "outage"
    __slots__ = ("_answers", "_ended", "_errors")

    def reset(self) -> None:
        self._answers, self._errors = Counts(rare=True), Counts()
        self._ended = 0

    def user_turn(self) -> None:
        self._answers.halve()
        self._errors.halve()

    def observe(self, evidence: Evidence) -> Detection | None:
        tool = evidence.tool
        # An equal answer is one of an agent, an equal error one of what is behind the tools.
        wrong = evidence.failing or evidence.rejects
        if evidence.error:
            counts, key = self._errors, evidence.error_shape
            place = key
        else:
            counts, key = self._answers, evidence.outcome
            place = hash((evidence.agent, key))
            if counts.repeated:
                counts.scale(
                    lambda at, one: _AFTER_SUCCESS if tool in one.tools and at != place else 1.0
                )
            if self._errors.repeated and not evidence.failing and not _waits(evidence):
                self._ended += self._errors.scale(lambda _, one: 0.0 if tool in one.tools else 1.0)
            # What says that it was done, as all such calls of one program may, is no answer.
            done = evidence.effect is WRITE and not wrong
            if evidence.outcome_size < _LONG or done:
                return None
        if key is None or evidence.waits:
            return None
        transient = evidence.error_class is TRANSIENT
        missing = evidence.absent or (evidence.item and evidence.nothing)
        last = counts.get(place)
        retried = transient and last is not None and last.tools == (tool,)
        weight = ITEM if missing else 1.0 - evidence.rested if retried else 1.0
        # An id may be all that an answer says, unless it says that something went wrong.
        exact = evidence.outcome_exact
        another = last is not None and not wrong and last.mark != (exact,)
        counted = counts.add(place, last, evidence, weight, exact)
        if counted is None:
            return None
        threshold = self._settings.of(tool).error_threshold
        several = len(counted.tools) > 1
        # Who asks for one thing after the other has tried none of them again.
        again = transient and counted.different < counted.times
        if not (several or again) or not reaches(counted.count, evidence.needs(threshold)):
            return None
        pauses = evidence.call is not None and (several or not evidence.fresh)
        return self.found(
            "same_from_several_tools" if several else "retry_without_pause", counted.count,
            # After a success another outage begins.
            threshold, key ^ self._ended * _ODD & _BITS if evidence.error else key, evidence,
            tools=len(counted.tools),
            gave="failed with" if evidence.error else "gave, but for ids," if another else "gave",
            # The agent is not stuck by its own doing: where nobody can let it go on, it is told.
            times=counted.times, max_action=Action.PAUSE if pauses and not another else Action.HINT,
            unanswered=Action.HINT,
        )  # fmt: skip


_CLIMBS: Final = 4
"""Failures after those of the hint from which model calls are denied: as many as `abort_after`
rounds, for a runtime that could do something else would have."""
_BACK_OFF: Final = 1.5
"""Factor from which a pause is deliberately longer than the one before: retries usually double it,
less some jitter."""


_AGENTS: Final = 64
"""Agents whose model calls are told apart: more than one session has at a time."""


class _Row(NamedTuple):
    """Equal failures of the model calls of one agent, one after the other.

    `counted` are those that no wait excuses, `calls` all.
    """

    error: int
    since: int
    end: int
    gap: int = 0
    calls: int = 1
    counted: int = 1


class FailingModel(BaseDetector):
    """Do the model calls of one agent fail in a row, with an equal error?

    Counts: failed model calls, parallel ones once.
    Leaves alone: errors that may pass, retried with pauses within the wait budget.
    Cannot see: failures that a client retries inside one span.
    """

    name = "failing_model"
    takes = ModelAttempt
    absolute = True
    __slots__ = ("_rows",)

    def reset(self) -> None:
        self._rows: dict[int, _Row] = {}

    def user_turn(self) -> None:
        self._rows = {
            key: row._replace(counted=row.counted // 2) for key, row in self._rows.items()
        }

    def observe(self, attempt: ModelAttempt) -> Detection | None:
        row = self._rows.pop(attempt.key, None)
        if attempt.error is None:
            return None
        if row is None or row.error != attempt.error:
            row = _Row(attempt.error, attempt.end, attempt.end)
            keep(self._rows, attempt.key, row, _AGENTS)
            return None
        gap = attempt.start - row.end
        if attempt.start and gap < 0:
            keep(self._rows, attempt.key, row, _AGENTS)
            return None
        lasting = attempt.error_class is ErrorClass.DETERMINISTIC
        long = gap >= self._settings.tuning.calls.wait_gap_s * 1e9 or gap >= _BACK_OFF * row.gap > 0
        paused = long and not lasting
        waits = paused and attempt.end - row.since <= self._settings.wait_budget_s * 1e9
        counted = row.counted + (not waits)
        row = row._replace(end=attempt.end, gap=gap, calls=row.calls + 1, counted=counted)
        keep(self._rows, attempt.key, row, _AGENTS)
        return None if waits else self._judge(row, attempt, lasting=lasting, paused=paused)

    def _judge(
        self, row: _Row, attempt: ModelAttempt, *, lasting: bool, paused: bool
    ) -> Detection | None:
        threshold = self._settings.tuning.calls.error_streak
        beyond = row.counted * self._settings.sensitivity - threshold
        if beyond < 0:
            return None
        climbs = beyond >= _CLIMBS and not paused
        rule = "model_error" if lasting else "model_retry.paused" if paused else "model_retry"
        return self.found(
            rule, row.counted, threshold, attempt.key, calls=row.calls, name=attempt.name,
            severity=critical_if(climbs), max_action=Action.DENY if climbs else Action.HINT,
        )  # fmt: skip
