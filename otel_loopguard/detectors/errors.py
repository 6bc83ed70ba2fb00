"""Calls that fail again and again."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Final

from xxhash import xxh3_64_intdigest as key_of

from otel_loopguard._util.bounded import keep
from otel_loopguard._util.values import NamedTuple, dataclass
from otel_loopguard.core import Action, ErrorClass, ModelAttempt
from otel_loopguard.detectors.base import (
    TRANSIENT,
    WRITE,
    BaseDetector,
    answer_of,
    critical_if,
    error_of,
)
from otel_loopguard.detectors.counters import (
    ITEM,
    OTHER,
    BestScores,
    Counted,
    DecayingCounter,
    RecentRounds,
)

if TYPE_CHECKING:
    from otel_loopguard.core import Detection, Evidence

_FADE: Final = 0.985
_WINDOW: Final = 50
_TRACKED: Final = 64
_BACK_OFF: Final = 1.5
"""Of two pauses the second is longer on purpose if it is half as long again."""
_EARLIER_EPOCH: Final = 1 / 3
_AFTER_SUCCESS: Final = 0.6
_SOON: Final = 2
_QUOTING: Final = 0.8
_ABSENT: Final = 0.2


@dataclass(slots=True)
class _Failing:
    """One error of one tool, counted in equivalents of one failure; `times` as they are."""

    epoch: int
    round: int
    number: int
    since: int
    call_exact: int | None
    line: int | None
    transient: bool
    calls: frozenset[int]
    different: int
    count: float = 1.0
    times: int = 1


class ErrorRepeat(BaseDetector):
    """Counts equal errors of one tool and agent, whatever the arguments.

    Equal: the line that names the error, numbers and volatile values masked. Two are enough if the
    error is about the call itself, or if the very same call failed deterministically in the same
    epoch. A change of the world leaves a third, a success of the tool 0.6, and nothing of a
    transient error, which has a budget of time. A hint at most where every call was another one:
    the agent may be searching.
    """

    name = "error_repeat"
    family = "errors"
    signs = ("error",)
    lasting = True
    __slots__ = ("_failing",)

    def reset(self) -> None:
        self._failing: dict[tuple[tuple[int, str], int], _Failing] = {}

    def user_turn(self) -> None:
        for failing in self._failing.values():
            failing.count /= 2

    def observe(self, evidence: Evidence) -> Detection | None:
        caller = (evidence.agent, evidence.tool)
        if not evidence.error:
            if self._failing:
                self._succeeded(caller)
            return None
        if evidence.error_shape is None or evidence.waits:
            return None
        place = (caller, evidence.error_shape)
        failing = self._failing.get(place)
        again = False
        if failing is None or evidence.number - failing.number > _WINDOW:
            failing = _Failing(
                evidence.epoch, evidence.round, evidence.number, evidence.time,
                evidence.call_exact, evidence.error_line,
                evidence.error_class is TRANSIENT,
                frozenset() if evidence.call is None else frozenset((evidence.call,)),
                int(evidence.call is not None),
            )  # fmt: skip
        else:
            again = (
                failing.call_exact is not None
                and failing.call_exact == evidence.call_exact
                and failing.epoch == evidence.epoch
            )
            self._count(failing, evidence)
        keep(self._failing, place, failing, _TRACKED)
        return self._judge(failing, evidence, again=again)

    def _count(self, failing: _Failing, evidence: Evidence) -> None:
        count = failing.count * _FADE ** (evidence.number - failing.number - 1)
        if evidence.epoch != failing.epoch:
            count *= _EARLIER_EPOCH
        if evidence.round != failing.round:
            alike = 1.0 if evidence.error_line == failing.line else _QUOTING
            count += evidence.hint_weight * (_ABSENT if evidence.absent else alike)
        failing.times += 1
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

    def _succeeded(self, caller: tuple[int, str]) -> None:
        for place, failing in [*self._failing.items()]:
            if place[0] == caller:
                failing.count *= _AFTER_SUCCESS
                if failing.transient:
                    del self._failing[place]

    def _judge(self, failing: _Failing, evidence: Evidence, *, again: bool) -> Detection | None:
        deterministic = evidence.error_class is ErrorClass.DETERMINISTIC
        limit = self._settings.of(evidence.tool).error_threshold
        soon = evidence.call_error or (again and deterministic)
        threshold = min(_SOON, limit) if soon else limit
        if failing.count < evidence.needs(threshold) - 0.1:
            return None
        others = failing.different >= failing.count - 0.5 and not evidence.call_error
        message = (
            f"{evidence.tool!r} failed {failing.times} times with an equal {error_of(evidence)}"
        )
        keys = failing.calls | {evidence.error_shape or 0}
        confidence = min(0.99, (0.75 if deterministic else 0.65) + 0.05 * failing.count)
        reason = "call_error" if evidence.call_error else "equal_error"
        severity = critical_if(failing.count >= limit + 2)
        identity = 1.0 if again or not others else 0.0 if evidence.absent else OTHER
        return self.found(
            message,
            failing.count,
            threshold,
            keys,
            evidence,
            confidence=confidence,
            reason=reason,
            severity=severity,
            max_action=Action.ABORT,
            weight=identity * evidence.stop_weight if evidence.call is not None else 0.0,
        )


_ERROR_RATE: Final = key_of(b"error_rate")


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
    """Looks at how many of the newest rounds of an agent failed, each in its own way.

    A round fails if all of its parallel calls do. A retry with patience does not count, nor do the
    transient errors of a tool that works after them, nor one item after the other that does not
    exist. It asks for another way at most: what helps against many different errors is not known.
    """

    name = "error_rate"
    family = "errors"
    sure = (0.85, 0.6, 0.03)
    max_action = Action.STEER
    __slots__ = ("_agents", "_rounds")

    def reset(self) -> None:
        self._agents: dict[int, _Newest] = {}
        self._rounds = self._settings.tuning.calls.error_rate_rounds

    def observe(self, evidence: Evidence) -> Detection | None:
        if evidence.waits or evidence.absent or (evidence.transient and evidence.rested):
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
        if len(failed) > self._rounds:
            del failed[next(iter(failed))]
        return self._judge(evidence, newest)

    def _judge(self, evidence: Evidence, newest: _Newest) -> Detection | None:
        tuning = self._settings.tuning.calls
        rounds = self._rounds
        failed = sum(number > newest.rounds - rounds for number in newest.failed)
        if newest.row >= evidence.needs(tuning.error_streak):
            reason, count, which = "error_streak", newest.row, f"the last {newest.row}"
            threshold = evidence.shown(tuning.error_streak)
        else:
            reason, count, which = "error_rate", failed, f"{failed} of the last {rounds}"
            threshold = tuning.error_rate * rounds
            if newest.rounds < rounds or failed < threshold * max(evidence.ease, 1.0):
                return None
        message = f"{which} rounds of calls failed"
        return self.found(message, count, threshold, _ERROR_RATE, reason=reason)


_LONG: Final = 40
_ODD: Final = 0x9E37_79B9_7F4A_7C15
_BITS: Final = 0xFFFF_FFFF_FFFF_FFFF


class Outage(BaseDetector):
    """Counts equal errors and equal long answers across tools, and retries without a pause.

    Two tools that say the same do not speak of what they were asked: something behind them is down.
    The longer the pause before a retry, the less it counts. A success ends the outage. It pauses
    at most, as the agent is not stuck by its own doing, and hints where nobody could let it go on.
    """

    name = "outage"
    family = "errors"
    sure = (0.9, 0.65, 0.05)
    __slots__ = ("_answers", "_ended", "_errors")

    def reset(self) -> None:
        self._answers = DecayingCounter()
        self._errors = DecayingCounter()
        self._ended = 0

    def user_turn(self) -> None:
        self._answers.halve()
        self._errors.halve()

    def observe(self, evidence: Evidence) -> Detection | None:
        answers, errors = self._answers, self._errors
        # An equal answer is one of an agent, an equal error one of what is behind the tools.
        if evidence.error:
            counter, key, place = errors, evidence.error_shape, evidence.error_shape
        else:
            counter, key, place = answers, evidence.outcome, (evidence.agent, evidence.outcome)
            if answers.repeated:
                answers.decay_others(evidence.tool, place, _AFTER_SUCCESS)
            if (errors.once or errors.repeated) and not evidence.failing and not evidence.waits:
                self._ended += errors.forget(evidence.tool)
            if evidence.outcome_size < _LONG or _is_carried_out(evidence):
                return None
        if key is None or evidence.waits:
            return None
        transient = evidence.error_class is TRANSIENT
        missing = evidence.absent or (evidence.item and evidence.nothing)
        last = counter.last(place)
        retried = transient and last is not None and last.tools == (evidence.tool,)
        rested = evidence.rested if retried else 0.0
        counted = counter.add(place, evidence, ITEM if missing else 1.0 - rested)
        if counted is None:
            return None
        threshold = self._settings.error_threshold
        if counted.count < evidence.needs(threshold) - 0.1:
            return None
        if len(counted.tools) < 2 and not transient:
            return None
        return self._detection(key, counted, evidence, threshold)

    def _detection(
        self, key: int, counted: Counted, evidence: Evidence, threshold: float
    ) -> Detection:
        several = len(counted.tools) > 1
        who = f"{len(counted.tools)} tools" if several else f"{evidence.tool!r}"
        what = "failed with" if evidence.error else "gave"
        pauses = evidence.call is not None and (several or not evidence.fresh)
        message = f"{who} {what} an equal {answer_of(evidence)} {counted.times} times"
        keys = key ^ self._ended * _ODD & _BITS if evidence.error else key
        reason = "same_from_several_tools" if several else "retry_without_pause"
        most = Action.PAUSE if pauses else Action.HINT
        return self.found(
            message,
            counted.count,
            threshold,
            keys,
            evidence,
            reason=reason,
            max_action=most,
            unanswered=Action.HINT,
        )


def _is_carried_out(evidence: Evidence) -> bool:
    """Whether it says that something was done, as all such calls of one program may."""
    return evidence.effect is WRITE and not evidence.failing and not evidence.rejects


class RefusedCall(BaseDetector):
    """Counts rounds in which a tool or a shell refused a call in the same words.

    Refused: wrong usage, wrong syntax, no such command or tool, arguments that do not fit. Nothing
    in between resets it: a refused call came to nothing in any case.
    """

    name = "refused_call"
    family = "errors"
    signs = ("refused",)
    sure = (0.97, 0.8, 0.03)
    reason = "same_refusal"
    advice = "Read how it is to be called before you call it again, or use another tool."
    __slots__ = ("_refused",)

    def reset(self) -> None:
        self._refused: dict[tuple[str, int], RecentRounds] = {}

    def observe(self, evidence: Evidence) -> Detection | None:
        if not evidence.refused or evidence.error_shape is None:
            return None
        tuning = self._settings.tuning.calls
        key = (evidence.tool, evidence.error_shape)
        recent = self._refused.get(key) or RecentRounds(tuning.refused_window)
        keep(self._refused, key, recent, 32)
        rounds = recent.add(evidence)
        threshold = tuning.refused_threshold
        if rounds * self._settings.sensitivity < threshold:
            return None
        message = (
            f"{evidence.tool!r} refused {rounds} calls in the same words: it did not "
            "understand them, and did nothing"
        )
        keys = recent.calls | {evidence.error_shape}
        severity = critical_if(rounds >= threshold + 2)
        most = Action.HINT if evidence.call is None else Action.ABORT
        return self.found(message, rounds, threshold, keys, severity=severity, max_action=most)


_FAILURE_WINDOW: Final = 200
_SHORT: Final = 24


@dataclass(slots=True)
class _Failure:
    recent: RecentRounds
    steered: bool = False


class SameFailure(BaseDetector):
    """Counts rounds of one tool that failed with the same line, across all changes in between.

    A build that fails on one package while others are installed goes round for long: each success
    opens an epoch, and `error_repeat` begins again. So nothing resets here, and it hints or asks
    for another way only: a test that fails ten times between edits may be work. Of a tool that
    does not run what the agent wrote only the same call counts: fifty items that are not found are
    no build that fails.
    """

    name = "same_failure"
    family = "errors"
    signs = ("failure",)
    sure = (0.9, 0.7, 0.03)
    reason = "same_failure"
    __slots__ = ("_failures", "_scores")

    def reset(self) -> None:
        self._failures: dict[tuple[str, int], _Failure] = {}
        self._scores = BestScores()

    def observe(self, evidence: Evidence) -> Detection | None:
        if evidence.failure is None or (evidence.fresh and not evidence.runs_code):
            return None
        if evidence.error_class is TRANSIENT or evidence.outcome_size < _SHORT:
            return None
        key = (evidence.tool, evidence.failure)
        measured = self._scores.add(evidence)
        if measured is not None and measured[1]:
            self._failures.pop(key, None)
        failure = self._failures.get(key) or _Failure(RecentRounds(_FAILURE_WINDOW))
        keep(self._failures, key, failure, _TRACKED)
        rounds = failure.recent.add(evidence)
        tuning, sensitivity = self._settings.tuning.calls, self._settings.sensitivity
        threshold = tuning.failure_threshold
        if rounds * sensitivity < threshold:
            return None
        # The successes in between would take every confirmation back: this stands on no ladder.
        further = rounds * sensitivity >= tuning.failure_steer
        steers, failure.steered = further and not failure.steered, further
        message = (
            f"{evidence.tool!r} failed {rounds} times with the same line, whatever was "
            "changed in between"
        )
        most = Action.STEER if steers else Action.HINT
        own = Action.STEER if steers else None
        return self.found(message, rounds, threshold, evidence.failure, max_action=most, own=own)


_CLIMBS: Final = 4
"""Failures after those of the hint from which model calls are denied."""


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
    """Counts model calls of one agent in a row that fail with an equal error.

    Calls side by side count once. What may pass by itself is waited for with pauses: with
    `wait_gap_s` between, or half as long again as before, a call does not count until the budget of
    waits is used up, and hints at most then. The first call that works ends the row.
    """

    name = "failing_model"
    family = "errors"
    takes = ModelAttempt
    absolute = True
    sure = (0.95, 0.6, 0.03)
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
            keep(self._rows, attempt.key, row, _TRACKED)
            return None
        gap = attempt.start - row.end
        if attempt.start and gap < 0:
            keep(self._rows, attempt.key, row, _TRACKED)
            return None
        lasting = attempt.error_class is ErrorClass.DETERMINISTIC
        paused = not lasting and self._is_pause(gap, row.gap)
        waits = paused and attempt.end - row.since <= self._settings.wait_budget_s * 1e9
        counted = row.counted + (not waits)
        row = row._replace(end=attempt.end, gap=gap, calls=row.calls + 1, counted=counted)
        keep(self._rows, attempt.key, row, _TRACKED)
        return None if waits else self._judge(row, attempt, lasting=lasting, paused=paused)

    def _judge(
        self, row: _Row, attempt: ModelAttempt, *, lasting: bool, paused: bool
    ) -> Detection | None:
        threshold = self._settings.tuning.calls.error_streak
        beyond = row.counted * self._settings.sensitivity - threshold
        if beyond < 0:
            return None
        climbs = beyond >= _CLIMBS and not paused
        advice = "Change what is sent to the model, or end the run."
        if paused:
            advice = "End the run, and say that the model cannot be used at present."
        elif not lasting:
            advice = "Wait before the next model call, longer each time."
        reason = "model_error" if lasting else "model_retry"
        return self.found(
            f"{row.calls} model calls of {attempt.name} in a row failed with an equal error",
            row.counted, threshold, attempt.key, severity=critical_if(climbs),
            max_action=Action.DENY if climbs else Action.HINT, advice=advice, reason=reason,
        )  # fmt: skip

    def _is_pause(self, gap: int, before: int) -> bool:
        """Whether the time between two calls is a wait: long, or longer than the one before."""
        return gap >= self._settings.tuning.calls.wait_gap_s * 1e9 or gap >= _BACK_OFF * before > 0
