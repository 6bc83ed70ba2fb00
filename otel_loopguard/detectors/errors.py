"""Calls that fail again and again."""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from xxhash import xxh3_64_intdigest as key_of

from otel_loopguard.core import Action, Detection, Effect, ErrorClass, Severity
from otel_loopguard.detectors.counters import (
    ITEM,
    DecayingCounter,
    Recent,
    Tallied,
    answer_of,
    error_of,
)

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


_AGENTS: Final = 32
_KEYS: Final = frozenset({key_of(b"error_rate")})


@dataclass(slots=True)
class _Newest:
    """The newest rounds of one agent: which failed, and how many of the last ones in a row.

    `passing` names, for each round, the tool that failed in a way that may pass; else it is empty.
    """

    failed: deque[bool]
    passing: deque[str]
    round: int = -1
    row: int = 0

    def worked(self, tool: str) -> None:
        """A tool works again: what failed of it in passing is over."""
        for place, name in enumerate(self.passing):
            if name == tool:
                self.failed[place], self.passing[place] = False, ""


class ErrorRate:
    """Looks at the newest rounds of an agent's calls: how many failed, each in its own way.

    A round fails if all of its parallel calls do; an answer that reports a failure (an exit code, a
    status, a traceback) counts as one. A detection if `tuning.calls.error_rate` (75 %) of the
    newest `tuning.calls.error_rate_rounds` (10) rounds failed, or the newest
    `tuning.calls.error_streak` (6) all did. A retry with patience (a transient error,
    `tuning.calls.wait_gap_s` after the same call) does not count, nor do the transient errors of a
    tool that works after them, nor one item after the other that is not there. It leads to another
    way at most: what helps against many different errors is not known.

    Source: FEATURES C4; `notes/evidence.md`, row "error rate".
    """

    name = "error_rate"
    family = "errors"
    __slots__ = ("_agents", "_patience", "_rate", "_rounds", "_streak")

    def __init__(self, settings: Settings) -> None:
        self._rate = settings.tuning.calls.error_rate
        self._rounds = settings.tuning.calls.error_rate_rounds
        self._streak = settings.tuning.calls.error_streak
        self._patience = settings.tuning.calls.wait_gap_s * 1e9
        self._agents: dict[int, _Newest] = {}

    def user_turn(self) -> None:
        """What failed before was asked for something else."""
        self._agents.clear()

    def observe(self, evidence: Evidence) -> Detection | None:
        if evidence.waits or evidence.absent or self._patient(evidence):
            return None
        newest = self._of(evidence.agent)
        failed, passing = newest.failed, newest.passing
        if not evidence.failing and evidence.tool in passing:
            newest.worked(evidence.tool)
        tool = evidence.tool if evidence.error_class is ErrorClass.TRANSIENT else ""
        if evidence.round == newest.round and failed:
            failed[-1] = failed[-1] and evidence.failing
            passing[-1] = tool
        else:
            failed.append(evidence.failing)
            passing.append(tool)
            newest.row += 1
        newest.round = evidence.round
        if not failed[-1]:
            newest.row = 0
            return None
        return self._judge(evidence, newest)

    def _of(self, agent: int) -> _Newest:
        newest = self._agents.get(agent)
        if newest is None:
            newest = self._agents[agent] = _Newest(
                deque(maxlen=self._rounds), deque(maxlen=self._rounds)
            )
            if len(self._agents) > _AGENTS:
                del self._agents[next(iter(self._agents))]
        return newest

    def _patient(self, evidence: Evidence) -> bool:
        return (
            evidence.error_class is ErrorClass.TRANSIENT
            and evidence.gap is not None
            and evidence.gap >= self._patience
        )

    def _judge(self, evidence: Evidence, newest: _Newest) -> Detection | None:
        if newest.row >= evidence.needs(self._streak):
            which = f"the last {newest.row}"
            needed = evidence.shown(self._streak)
            return self._detection("error_streak", newest.row, needed, which)
        failed, rounds = sum(newest.failed), self._rounds
        if len(newest.failed) < rounds or failed < self._rate * rounds * max(evidence.ease, 1.0):
            return None
        threshold = self._rate * rounds
        return self._detection("error_rate", failed, threshold, f"{failed} of the last {rounds}")

    def _detection(self, reason: str, count: int, threshold: float, which: str) -> Detection:
        return Detection(
            detector=self.name,
            reason=reason,
            severity=Severity.WARNING,
            confidence=min(0.85, 0.6 + 0.03 * (count - threshold)),
            keys=_KEYS,
            count=count,
            threshold=threshold,
            message=f"{which} rounds of calls failed",
            max_action=Action.STEER,
        )


_LONG: Final = 40
_ODD: Final = 0x9E37_79B9_7F4A_7C15
_KEY: Final = 0xFFFF_FFFF_FFFF_FFFF
_BACK_OFF: Final = 1.5
_AT_ONCE: Final = 1.2
"""A fifth of `tuning.calls.wait_gap_s` is no pause."""


class Outage:
    """Counts equal errors and equal long answers across tools, and retries without a pause.

    Two tools that say the same, in 40 characters or more, do not speak of what they were asked:
    something behind them is down. The same holds for one tool that is asked again at once after a
    transient error; the longer the pause before, the less it counts, and with
    `tuning.calls.wait_gap_s` (5 s) between, or pauses that grow by half, it is a retry with
    patience, which has its own budget. One item after the other that is not there counts 0.22. A
    success of a tool ends the outage: what was counted of its errors is gone, of its answers two
    fifths. That a change was carried out counts for nothing. A detection from `error_threshold`
    (3). It leads to a pause at most: the agent is not stuck by its own doing, and what helps is to
    wait or to go another way; to a hint where arguments are not captured, where one tool was asked
    for other things each time, and where nobody can let a paused session go on (no webhook, store,
    socket or `on_escalation`).

    Source: `notes/evidence.md`, "the same answer of >= 40 characters three times from >= 2 tools
    is an outage", and its row "same error (one tool; across tools)".
    """

    name = "outage"
    family = "errors"
    __slots__ = ("_ended", "_failures", "_gap", "_patience", "_tally", "_threshold")

    def __init__(self, settings: Settings) -> None:
        self._threshold = settings.error_threshold
        self._patience = settings.tuning.calls.wait_gap_s * 1e9
        self._tally = DecayingCounter()
        self._failures = DecayingCounter()
        self._ended = 0
        self._gap = 0

    def user_turn(self) -> None:
        self._tally.halve()
        self._failures.halve()

    def observe(self, evidence: Evidence) -> Detection | None:
        key = evidence.error_shape if evidence.error else evidence.outcome
        # An equal answer is one of an agent, an equal error one of what is behind the tools.
        place = key if evidence.error else (evidence.agent, key)
        if not evidence.error:
            self._tally.answered(evidence.tool, place, _AFTER_SUCCESS)
            if not evidence.failing and not evidence.waits:
                self._ended += self._failures.forget(evidence.tool)
        if key is None or evidence.waits:
            return None
        if not evidence.error and (evidence.outcome_size < _LONG or _carried_out(evidence)):
            return None
        transient = evidence.error_class is ErrorClass.TRANSIENT
        patient = transient and not evidence.fresh and self._paused(key, evidence)
        weight = 0.0 if patient else self._weight(evidence, transient=transient)
        self._gap = evidence.gap or 0
        tally = self._failures if evidence.error else self._tally
        tallied = tally.add(place, evidence, weight)
        if tallied is None or tallied.count < evidence.needs(self._threshold) - 0.1:
            return None
        if len(tallied.tools) < 2 and not (transient and not patient):
            return None
        return self._detection(key, tallied, evidence)

    def _weight(self, evidence: Evidence, *, transient: bool) -> float:
        if evidence.absent or (evidence.item and evidence.nothing):
            return ITEM
        if not transient:
            return 1.0
        return min(max(_AT_ONCE - (evidence.gap or 0) / self._patience, 0.0), 1.0)

    def _paused(self, key: int, evidence: Evidence) -> bool:
        last = self._failures.last(key)
        if last is None or not last.time:
            return False
        grows = evidence.gap is not None and evidence.gap >= _BACK_OFF * self._gap > 0
        return grows or evidence.time - last.time >= self._patience

    def _detection(self, key: int, tallied: Tallied, evidence: Evidence) -> Detection:
        what = "failed with" if evidence.error else "gave"
        several = len(tallied.tools) > 1
        again = not evidence.fresh
        who = f"{len(tallied.tools)} tools" if several else f"{evidence.tool!r}"
        return Detection(
            detector=self.name,
            reason="same_from_several_tools" if several else "retry_without_pause",
            severity=Severity.WARNING,
            confidence=min(0.9, 0.65 + 0.05 * (tallied.count - self._threshold)),
            # What comes after a success is another outage, with a hint of its own before a pause.
            keys=frozenset({key ^ self._ended * _ODD & _KEY if evidence.error else key}),
            count=round(tallied.count, 2),
            threshold=evidence.shown(self._threshold),
            message=f"{who} {what} an equal {answer_of(evidence)} {round(tallied.count)} times",
            max_action=Action.PAUSE
            if evidence.call is not None and (several or again)
            else Action.HINT,
            unanswered=Action.HINT,
        )


def _carried_out(evidence: Evidence) -> bool:
    """Whether it says that something was done, as all such calls of one program may."""
    writes = evidence.acts or evidence.effect is Effect.WRITE
    return writes and not evidence.failing and not evidence.rejects


_REFUSALS_TRACKED: Final = 32


class RefusedCall:
    """Counts rounds in which a tool or a shell refused a call in the same words.

    Refused: wrong usage, wrong syntax, no such command or tool, arguments that do not fit; with or
    without an error flag. Equal: the line that says so, less numbers and what it quotes. A
    detection from `tuning.calls.refused_threshold` (4) rounds of the last
    `tuning.calls.refused_window` (40) calls. What succeeds or is changed in between does not
    matter, for a refused call came to nothing in any case.

    Source: prototype on 515 recorded runs that were solved (none hit) and on stuck ones (34 caught,
    23 of them stopped by no other rule).
    """

    name = "refused_call"
    family = "errors"
    __slots__ = ("_refused", "_settings")

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._refused: OrderedDict[tuple[str, int], Recent] = OrderedDict()

    def user_turn(self) -> None:
        """What was refused before was tried for something else."""
        self._refused.clear()

    def observe(self, evidence: Evidence) -> Detection | None:
        if not evidence.refused or evidence.error_shape is None:
            return None
        key = (evidence.tool, evidence.error_shape)
        recent = self._refused.pop(key, None) or Recent(
            self._settings.tuning.calls.refused_window, 64
        )
        self._refused[key] = recent
        if len(self._refused) > _REFUSALS_TRACKED:
            self._refused.popitem(last=False)
        rounds = recent.add(evidence.number, evidence.round, evidence.call)
        threshold = self._settings.tuning.calls.refused_threshold
        if rounds * self._settings.sensitivity < threshold:
            return None
        return Detection(
            detector=self.name,
            reason="same_refusal",
            severity=Severity.CRITICAL if rounds >= threshold + 2 else Severity.WARNING,
            confidence=min(0.97, 0.8 + 0.03 * (rounds - threshold)),
            keys=recent.calls | {evidence.error_shape},
            count=rounds,
            threshold=threshold,
            message=f"{evidence.tool!r} refused {rounds} calls in the same words: it did not "
            "understand them, and did nothing",
            max_action=Action.HINT if evidence.call is None else Action.ABORT,
            advice="Read how it is to be called before you call it again, or use another tool.",
        )


_FAILURE_WINDOW: Final = 200
_SHORT: Final = 24


@dataclass(slots=True)
class _Failed:
    """The rounds that failed with one line, and whether another way was asked for."""

    recent: Recent
    steered: bool = False


class SameFailure:
    """Counts rounds of one tool that failed with the same line, across all changes in between.

    A build that fails on one package while others are installed goes round for long: each success
    opens a new state of the world, and `error_repeat` begins anew. So here nothing resets, and it
    takes `tuning.calls.failure_threshold` (6) rounds for a hint and `tuning.calls.failure_steer`
    (8) for another way, which is as far as it goes: a test that fails ten times between edits may
    be work.

    Equal is the line that names the error, less clocks and ids: two failures less is progress.
    Answers below 24 characters say too little. Of a tool that does not run what the agent wrote
    only the same call counts: fifty items that are not found are no build that fails. Transient
    errors are for `error_repeat` and `outage`.

    Source: prototype on 515 solved runs: 1 hit from 6 rounds on, none from 8.
    """

    name = "same_failure"
    family = "errors"
    __slots__ = ("_failed", "_settings")

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._failed: OrderedDict[tuple[str, int], _Failed] = OrderedDict()

    def user_turn(self) -> None:
        """What failed before was tried for something else."""
        self._failed.clear()

    def observe(self, evidence: Evidence) -> Detection | None:
        if evidence.failure is None:
            return None
        if evidence.fresh and not evidence.runs_code:
            return None
        if evidence.error_class is ErrorClass.TRANSIENT or evidence.outcome_size < _SHORT:
            return None
        key = (evidence.tool, evidence.failure)
        failed = self._failed.pop(key, None) or _Failed(Recent(_FAILURE_WINDOW, 64))
        self._failed[key] = failed
        if len(self._failed) > _TRACKED:
            self._failed.popitem(last=False)
        rounds = failed.recent.add(evidence.number, evidence.round, evidence.call)
        threshold = self._settings.tuning.calls.failure_threshold
        if rounds * self._settings.sensitivity < threshold:
            return None
        # The successes in between would take every confirmation back: this stands on no ladder.
        further = rounds * self._settings.sensitivity >= self._settings.tuning.calls.failure_steer
        steers, failed.steered = further and not failed.steered, further
        return Detection(
            detector=self.name,
            reason="same_failure",
            severity=Severity.WARNING,
            confidence=min(0.9, 0.7 + 0.03 * (rounds - threshold)),
            keys=frozenset({evidence.failure}),
            count=rounds,
            threshold=threshold,
            message=f"{evidence.tool!r} failed {rounds} times with the same line, whatever was "
            "changed in between",
            max_action=Action.STEER if steers else Action.HINT,
            own=Action.STEER if steers else None,
        )
