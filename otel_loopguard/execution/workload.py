"""How long and how complex calls are, and which advice was taken.

Source: FEATURES A2, A3, A5.

Source: FEATURES A10.

Source: FEATURES A4.
"""

from __future__ import annotations

import time
import weakref
from collections import Counter, OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Protocol

from otel_loopguard.core import Acceptance, Choice
from otel_loopguard.core.task import Task
from otel_loopguard.execution.advice import Work
from otel_loopguard.execution.latency import Knowledge
from otel_loopguard.execution.profiler import PlannedCall
from otel_loopguard.plans import complexity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from otel_loopguard.core import Admission, Annotation
    from otel_loopguard.execution.latency import Estimate
    from otel_loopguard.execution.profiler import BatchEstimate
    from otel_loopguard.policy import Preferences
    from otel_loopguard.sessions.stats import SessionStats
    from otel_loopguard.settings import Settings

_GUESSED: Final = (Knowledge.UNKNOWN, Knowledge.DEFAULT)


class Estimator(Protocol):
    """What is known of tools from past calls: the profiler of a guard."""

    def estimate(self, tool: str, args: object = None) -> Estimate:
        """How long a call will take, from memory."""
        ...

    def batch(self, calls: Sequence[PlannedCall]) -> BatchEstimate:
        """How long several calls take, and whether they may run at the same time."""
        ...


class Workload:
    """Reckons what calls amount to, for one guard; from memory."""

    def __init__(self, settings: Settings, estimator: Estimator) -> None:
        self._settings = settings
        self._estimator = estimator
        self._alone = complexity([Task("0", "one")], settings).score

    def of(self, tasks: Sequence[Task], wishes: Preferences, *, parallel: bool | None) -> Work:
        """What calls amount to."""
        if len(tasks) > 1:
            return self._batch(tasks, wishes, parallel)
        task = tasks[0]
        tool = task.tool or ""
        if task.estimate_ms is not None:
            return Work(1, (tool,), False, task.estimate_ms, self._alone, 0, {tool: "given"})
        return self._single(tool, self._estimator.estimate(tool, task.args))

    def known(self, tool: str, args: object) -> Work | None:
        """What one call amounts to; None where only a default for such tools is known."""
        settings, estimate = self._settings, self._estimator.estimate(tool, args)
        if estimate.source in _GUESSED:
            known = tool in settings.profile_defaults_ms
        else:
            known = estimate.records >= settings.tuning.latency.min_records
        return self._single(tool, estimate) if known else None

    def _single(self, tool: str, estimate: Estimate) -> Work:
        source = {tool: estimate.source.value}
        ms, records = estimate.duration_ms, estimate.records
        return Work(1, (tool,), False, ms, self._alone, records, source)

    def _batch(self, tasks: Sequence[Task], wishes: Preferences, parallel: bool | None) -> Work:
        calls = [PlannedCall(one.tool or "", one.args, one.id, one.depends_on) for one in tasks]
        found = self._estimator.batch(calls)
        if parallel is None:
            parallel = found.can_run_in_parallel and wishes.parallel_execution_preferred
        sources = {
            call.tool: one.source.value for call, one in zip(calls, found.estimates, strict=True)
        }
        return Work(
            len(tasks),
            tuple(sorted(sources)),
            parallel,
            found.parallel_ms if parallel else found.sequential_ms,
            complexity(tasks, self._settings).score,
            sum(one.records for one in found.estimates),
            sources,
        )


class _Tally:
    __slots__ = ("choices", "told")

    def __init__(self) -> None:
        self.choices: Counter[Choice] = Counter()
        self.told: Counter[str] = Counter()

    def answer(self, admission: Admission, choice: Choice, times: int) -> None:
        """Counts an answer; `times` -1 takes it back."""
        given = admission.choice
        self.told["answered"] += times
        if given is not Choice.PROMPT_USER and choice is not given:
            self.told["overridden"] += times
        if given is Choice.AUTO_BACKGROUND:
            self.told["background"] += times
            self.told["stayed"] += times * (choice is given)

    @property
    def acceptance(self) -> Acceptance:
        choices = {choice.value: count for choice, count in self.choices.most_common()}
        told = self.told
        return Acceptance(
            choices, told["answered"], told["overridden"], told["background"], told["stayed"]
        )


class AcceptanceCounts:
    """Counts of one guard, in all and per session; a session's go with it. Not thread-safe.

    Attributes:
        estimates: How often an estimate rested on what.
        answers: How often which choice was `accepted` or `overridden`.
    """

    def __init__(self) -> None:
        self._all = _Tally()
        self._own: weakref.WeakKeyDictionary[SessionStats, _Tally] = weakref.WeakKeyDictionary()
        self._answers: dict[str, Choice] = {}
        self.estimates: Counter[str] = Counter()
        self.answers: Counter[tuple[str, str]] = Counter()

    def given(self, admission: Admission, record: SessionStats | None) -> None:
        """Counts an execution choice that was given, and what its estimates rest on."""
        choice = admission.choice
        self._all.choices[choice] += 1
        self.estimates.update(admission.factors.estimates.values())
        if record is not None:
            own = self._own.get(record)
            if own is None:
                own = self._own[record] = _Tally()
            own.choices[choice] += 1

    def answered(self, admission: Admission, choice: Choice, record: SessionStats | None) -> bool:
        """Counts what a user chose; whoever speaks last is right."""
        before = self._answers.pop(admission.id, None)
        if before is not None:
            self.answers[_taken(admission, before)] -= 1
        self.answers[_taken(admission, choice)] += 1
        for tally in self._of(record):
            if before is not None:
                tally.answer(admission, before, -1)
            tally.answer(admission, choice, 1)
        self._answers[admission.id] = choice
        if len(self._answers) > _KEPT:
            del self._answers[next(iter(self._answers))]
        return before is choice

    @property
    def choices(self) -> Counter[Choice]:
        """How often which choice was given."""
        return self._all.choices

    def acceptance(self, record: SessionStats | None) -> Acceptance | None:
        """Of one session, or of all; None if nobody asked."""
        found = self._all if record is None else self._own.get(record)
        return None if found is None or not found.choices else found.acceptance

    def _of(self, record: SessionStats | None) -> Iterator[_Tally]:
        yield self._all
        own = None if record is None else self._own.get(record)
        if own is not None:
            yield own


def _taken(admission: Admission, choice: Choice) -> tuple[str, str]:
    """What was advised, and whether the user overrode it; who was to choose overrides nothing."""
    given = admission.choice
    kept = given is Choice.PROMPT_USER or choice is given
    return given.value, "accepted" if kept else "overridden"


_KEPT = 4096


_MOST: Final = 1024
_SECOND: Final = 1.0
_SEVERAL: Final = ""


class SpanAdvice:
    """Which span names are tool calls, and what their spans say; the newest 1024 of both.

    Its tables are only ever replaced entry by entry, so that readers take no lock.
    """

    def __init__(self) -> None:
        self._tools: OrderedDict[str, str] = OrderedDict()
        self._known: OrderedDict[str, tuple[float, Annotation | None]] = OrderedDict()

    def learn(self, span: str, tool: str) -> None:
        """Says that a span of a name was a call of a tool. The guard's lock is held."""
        known = self._tools.get(span)
        if known in (tool, _SEVERAL) or len(span) >= 512:
            return
        self._tools[span] = tool if known is None else _SEVERAL
        if len(self._tools) > _MOST:
            self._tools.popitem(last=False)

    def tool(self, span: str) -> str | None:
        """The tool that spans of a name call: empty for several, None where they call none."""
        return self._tools.get(span)

    def of(self, tool: str, make: Callable[[str], Annotation | None]) -> Annotation | None:
        """What spans of a tool say; made anew once a second, and until it is known."""
        now = time.monotonic()
        known = self._known.get(tool)
        if known is not None and known[1] is not None and now < known[0]:
            return known[1]
        said = make(tool)
        self._known[tool] = (now + _SECOND, said)
        if len(self._known) > _MOST:
            # Another thread may have been here first.
            self._known.pop(next(iter(list(self._known)), ""), None)
        return said
