"""Counts the steps, decisions and turns of a session."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from otel_loopguard._util.bounded import keep
from otel_loopguard._util.text import truncate
from otel_loopguard.core import Action, Decision, Kind, Step
from otel_loopguard.core.decision import HUMAN, Severity
from otel_loopguard.core.report import (
    SAME,
    Act,
    Meaning,
    Memory,
    Report,
    RunMetrics,
    Spent,
    ToolReport,
    Turn,
)
from otel_loopguard.evidence.effects import written_file
from otel_loopguard.evidence.normalize import NAMED

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from otel_loopguard.core.progress import Progress
    from otel_loopguard.core.report import Happening
    from otel_loopguard.settings import Settings


class Silence:
    """Counts the questions to a session's model since its last tool call.

    Model calls may each have a trace of their own. After a pause the count starts again, because a
    user may have spoken.
    """

    __slots__ = ("_end", "_trace_id", "_turns")

    def __init__(self) -> None:
        self._trace_id = self._turns = self._end = 0

    def turn(self, step: Step, gap_s: float) -> int:
        """The model was asked once more; how often by now."""
        paused = bool(self._end and step.start) and step.start - self._end >= gap_s * 1e9
        self._turns = 1 if paused and step.trace_id != self._trace_id else self._turns + 1
        self._trace_id, self._end = step.trace_id, step.end or 0
        return self._turns


class Refusals:
    """Counts the questions to a session's model that led to refused calls, with no call made since.

    After a pause before a question the count starts again: who waits does what a breaker asks for.
    """

    __slots__ = ("_asked", "_end", "_turns")

    def __init__(self) -> None:
        self._asked, self._turns, self._end = True, 0, 0

    def asked(self, step: Step, gap_s: float) -> None:
        """The model was asked once more."""
        if self._end and step.start and step.start - self._end >= gap_s * 1e9:
            self._turns = 0
        self._asked, self._end = True, step.end or 0

    def refused(self) -> int:
        """A call was refused; after how many questions by now."""
        self._turns += self._asked
        self._asked = False
        return self._turns


_MOST: Final = 256
"""Runs of a session that are open at a time, as many as of a trace."""
_SPEAKERS: Final = 64
"""Speakers whose context is known: two models for each of 32 agents."""
_SAID: Final = 8
"""Texts that are remembered: programs alternate between few."""

_Speaker = tuple[int, str, str, str]


# Smaller contexts are a few pages: they halve with a question that is shorter.
_LEAST: Final = 8000


class ContextSizes:
    """The size of the context of each speaker of a session, the newest 64.

    A context is compacted when the input tokens of one speaker (agent, node and model, within one
    trace) fall to half of the most that they were, twice in a row, from at least 8,000 on. Once is
    no sign: a short question aside is not the context.
    """

    __slots__ = ("_sizes",)

    def __init__(self) -> None:
        self._sizes: dict[_Speaker, tuple[int, bool]] = {}

    def compacted(self, step: Step, tokens: int) -> bool:
        """Takes a model call and its input tokens; True if its context was compacted."""
        speaker = _speaker(step)
        most, fell = self._sizes.get(speaker, (0, False))
        falls = most >= _LEAST and tokens <= most / 2
        over = falls and fell
        size = (tokens if over else max(most, tokens), falls and not over)
        keep(self._sizes, speaker, size, _SPEAKERS)
        return over

    def agent_ended(self, step: Step) -> None:
        """An agent's run ended: its next one begins with a context of its own."""
        names = ("", (step.name or "")[:NAMED])
        for speaker in tuple(self._sizes):
            if speaker[0] == step.trace_id and speaker[1] in names:
                del self._sizes[speaker]


def _speaker(step: Step) -> _Speaker:
    agent, node, model = step.agent or "", step.node or "", step.model or ""
    return step.trace_id, agent[:NAMED], node[:NAMED], model[:NAMED]


class Turns:
    """Tells a user's turns from runs within a turn. O(open runs) per run.

    A turn begins with a run of an agent after another one has ended, while none is open in the
    session: beside an open run it is a sub-agent. If no run called a tool, but tools were called
    between the runs, the loop is the user's own code, which asks its model through an agent, and a
    run is no turn. Nor is a run that gets, without a pause, a text that was given before: a program
    runs its agent once per step.

    A run may arrive after its calls, since spans are exported when they end. Its trace shows that
    they are its own, and that what is below it is no further turn.
    """

    __slots__ = (
        "_announced", "_between", "_came_late", "_newest", "_said", "_trace_id", "calls", "ended",
        "open", "over",
    )  # fmt: skip

    def __init__(self) -> None:
        self.over = self._announced = self._came_late = False
        self._trace_id: int = 0
        # When the newest run ended, nanoseconds since the epoch; 0 where that is not known.
        self.ended: int = 0
        # Keys of what the newest runs were given.
        self._said: tuple[int, ...] = ()
        # Tool calls since the last run began: those made while one was open, and the others.
        self.calls: int = 0
        self._between: int = 0
        # The newest of the others: its trace, when it began, and how many of its trace there are.
        self._newest: tuple[int, int, int] = (0, 0, 0)
        self.open: tuple[int, ...] = ()

    def begins(  # noqa: PLR0913
        self, span_id: int, opened: Container[int], said: int | None = None, *,
        announced: bool = False, paused: bool = True, trace_id: int = 0, late_from: int = 0,
        root: bool = False, inner: bool = False,
    ) -> bool | None:  # fmt: skip
        """Starts a topmost run; returns whether it is a new turn, None if it is open already.

        Args:
            span_id: Its span.
            opened: The spans that are open.
            said: Key of what the run is given; None if that is not known.
            announced: Whether an adapter says so, before the span begins.
            paused: Whether a user had the time to say something.
            trace_id: Its trace; 0 where that is not known.
            late_from: When it began, if steps of its trace that began later came before it; else 0.
            root: Whether nothing is above it.
            inner: Whether a run may be above it that will come later.
        """
        if span_id in self.open and span_id in opened:
            return None
        still = tuple(one for one in self.open if one in opened)
        self.over = self.over or len(still) < len(self.open)
        self.open = (*still, span_id)[-_MOST:]
        if still:
            return None
        trace, began, count = self._newest
        own = count if late_from and trace == trace_id and began >= late_from else 0
        if (late_from or inner) and trace_id == self._trace_id:
            # The turn has begun with a step, or with another run, of its trace.
            self.calls, self._between = self.calls + own, self._between - own
            self._came_late = root and self.calls > 0
            return None
        self._came_late = root and own > 0
        # The run of this span is the one that an adapter just announced.
        same = self._announced and not announced and not self.calls
        again = said is not None and said in self._said and not paused
        if said is not None:
            self._said = (*self._said[1 - _SAID :], said)
        turn = self.over and not (same or again) and (self.calls > 0 or self._between == own)
        self.over, self._announced = False, announced
        self._trace_id, self.calls, self._between = trace_id, own, 0
        return turn

    def precedes(self, trace_id: int, start: int, pause: int) -> bool:
        """True if a step without its run belongs to the next turn, whose run will also come late.

        Args:
            trace_id: Its trace.
            start: When it began, nanoseconds since the epoch.
            pause: Nanoseconds in which no user says something.
        """
        if not (self._came_late and self.over and self.calls) or trace_id == self._trace_id:
            return False
        if start - self.ended < pause:
            return False  # what its run is given tells, once that is there
        self._trace_id, self.over = trace_id, False
        self.calls = self._between = 0
        return True

    def began(self) -> None:
        """Counts everything so far as a run whose start was not seen."""
        if not self.open:
            self.over, self._between = True, 0

    def ends(self, span_id: int, at: int = 0, *, run: bool) -> None:
        """Ends a run, or a span that was taken for one."""
        if span_id in self.open:
            self.open = tuple(one for one in self.open if one != span_id)
            self.over, self.ended = self.over or (run and not self.open), at

    def called(self, opened: Container[int], step: Step) -> None:
        """Counts a tool call."""
        if self._announced:
            self.calls += 1
            return
        for one in self.open:
            if one in opened:
                self.calls += 1
                return
        self._between += 1
        trace, _, count = self._newest
        count = count if self._between > 1 and trace == step.trace_id else 0
        self._newest = step.trace_id, step.start, count + 1


_REPORTED: Final = 10
"""Newest alerts, and most used tools, that a report lists: as many as a person reads."""
_CONTEXT: Final = 12
"""Entries of each kind in the long-term context: a hint with all four kinds stays below a page."""
_TOOLS: Final = 48
"""Tools of a report: no agent chooses well among more."""
_NAMED: Final = 100
"""Characters of a name that people are shown, with its content after it on one line."""
_CODE: Final = re.compile(r"[\w.:*-]+")
"""A class or a code, as types of errors are; some instrumentations put what was said there."""
_CONTENT: Final = 200
"""Characters of the arguments that people are shown: two lines of a terminal."""
_LOOPS: Final = 64
"""Loops that are counted once each, the newest: twice as many as the policy remembers."""
_TYPES: Final = 32
"""Detectors that decisions are counted by; further ones of a user's are `other`."""
_CYCLES: Final = 32
"""Lengths of cycles in a report, as many as there are cycles in it."""
_ARGUMENTS: Final = 120
"""Characters of the arguments in an entry of the long-term context, which a hint quotes."""
_SECOND: Final = 1e9  # nanoseconds
_SEEN, _CYCLIC, _STOPPED = 1, 2, 4
"""Counters of a loop."""

_TOOL: Final = Kind.TOOL
_MODEL: Final = Kind.MODEL
_UNUSED: Final = (0, 0, False)


class SessionStats:
    """The counts of one session: O(1) per step, bounded whatever its length."""

    __slots__ = (
        "_acts", "_alerts", "_confirmed", "_context", "_cycles", "_ended",
        "_escalations", "_failures", "_false_alarms", "_first", "_first_call", "_happened",
        "_last_call", "_left", "_loops", "_no_args", "_no_outcome", "_notes", "_peak",
        "_prevented", "_recovered", "_seen_loops", "_settings", "_severity", "_stopped",
        "_successes", "_switches", "_timed", "_token_calls", "_tokens", "_tools", "_types",
        "agent", "memory", "newest", "task", "turn",
    )  # fmt: skip

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.memory = Memory(_CONTEXT)
        # Where it is now: the newest tool, model, agent or node, the agent, the task of a plan.
        self.newest = ""
        self.agent: str | None = None
        self.task: str | None = None
        # What the last tool call changed.
        self.turn = SAME
        self._acts: list[tuple[str, str | None, bool, bool, str | None, int, int, str | None]] = []
        # Calls, those that failed, and whether the newest did; of the 48 tools used most, unless
        # there were more from the start.
        self._tools: dict[str, tuple[int, int, bool]] = {}
        self._successes = self._failures = self._no_args = self._no_outcome = 0
        self._recovered = self._switches = self._escalations = 0
        self._tokens = self._token_calls = 0
        self._first = self._ended = 0
        self._first_call = self._last_call = self._timed = 0
        # The tool that failed, or that an alert was about, until another one is used.
        self._left: str | None = None
        self._alerts: tuple[Decision, ...] = ()
        self._types: dict[str, int] = {}
        self._notes: dict[str, int] = {}
        self._seen_loops: dict[str, int] = {}
        self._loops = self._prevented = 0
        self._cycles: tuple[int, ...] = ()
        self._severity: Severity | None = None
        self._stopped = False
        self._confirmed = self._false_alarms = 0
        self._happened: dict[Happening, int] = {}
        self._context: int | None = None
        self._peak: int | None = None

    def step(self, step: Step) -> None:
        """Counts a canonical step."""
        name, start, end = step.name, step.start, step.end or 0
        if name is not None:
            self.newest = name
        if step.agent is not None:
            self.agent = step.agent
        if step.task is not None:
            self.task = step.task
        if step.kind is _TOOL:
            self._call(step, (name or "")[:_NAMED], start, end)
        elif step.kind is _MODEL:
            if (tokens := step.tokens) is not None:
                self._tokens += tokens
                self._token_calls += 1
            if step.tokens_in is not None:
                self._context = step.tokens_in
                self._peak = max(self._peak or 0, self._context)
        if start and (start < self._first or not self._first):
            self._first = start
        if end > self._ended:  # noqa: PLR1730  # a tenth of the price of max()
            self._ended = end

    def wrote(self, arguments: object) -> None:
        """A call that changed something succeeded: the file that it wrote is an important one."""
        path = written_file(arguments)
        if path is not None:
            self.memory.note("file", path)

    def happened(self, what: Happening, times: int = 1) -> None:
        """Updates the metrics of a run."""
        self._happened[what] = self._happened.get(what, 0) + times

    @property
    def spent(self) -> Spent:
        """Returns what it has spent so far."""
        return Spent(self._successes + self._failures, self._tokens, self._duration() or 0.0)

    def decided(self, decision: Decision, step: Step | None, *, loop: bool) -> Meaning:
        """Counts a decision; returns what it is the first of."""
        noted = decision.action is Action.ALLOW
        types = self._notes if noted else self._types
        known = decision.detector in types or len(types) < _TYPES
        name = decision.detector if known else "other"
        types[name] = types.get(name, 0) + 1
        if noted:
            return Meaning()
        loops, prevented, escalations = self._loops, self._prevented, self._escalations
        self._alert(decision, step, loop=loop)
        return Meaning(
            self._loops > loops, self._prevented > prevented, self._escalations > escalations
        )

    def offer(self, action: Action) -> str:
        """Text that the long-term context adds to a hint: empty, or sentences after a space.

        Call it before a decision is counted, so that the decision's own loop is not part of it.
        """
        if not self._settings.context_in_hints or action is Action.ABORT:
            return ""
        known = self.memory.offer()
        return f" {known}" if known else ""

    def acts(self) -> tuple[Act, ...]:
        """The last tool calls, oldest first."""
        return tuple(_act(*noted) for noted in self._acts)

    def count_feedback(self, *, false_alarm: bool, times: int = 1) -> None:
        """Counts feedback on a decision; `times` -1 takes it back."""
        if false_alarm:
            self._false_alarms += times
        else:
            self._confirmed += times

    def report(
        self, session: str, progress: Progress, action: Action, switched_off: Sequence[str]
    ) -> Report:
        """The report as it is now."""
        successes, failures = self._successes, self._failures
        marks = progress.milestones
        return Report(
            session=session, action=action, should_stop=self._should_stop(action),
            highest_severity=self._severity, steps=progress.steps, actions=successes + failures,
            successes=successes, failures=failures, recovered=self._recovered,
            strategy_switches=self._switches, escalations=self._escalations,
            model_calls=progress.models, changes=progress.epoch,
            milestones=marks.percent() if marks.changes else None,
            news=progress.news / progress.answers if progress.answers else None,
            loops_detected=self._loops, loops_prevented=self._prevented,
            alert_count=sum(self._types.values()), alerts=self._alerts,
            alerts_by_type=_most_common(self._types), notes_by_type=_most_common(self._notes),
            cycles=self._cycles,
            tools=self._used(), tokens=self._tokens if self._token_calls else None,
            mean_interval_s=self._interval(), duration_s=self._duration(),
            lacks={"args": self._no_args, "outcome": self._no_outcome},
            switched_off=tuple(switched_off), confirmed=self._confirmed,
            false_alarms=self._false_alarms, run=self._run(progress),
        )  # fmt: skip

    def _run(self, progress: Progress) -> RunMetrics:
        waited = progress.waited
        return RunMetrics(
            looks=waited.looks, look_tokens=waited.tokens, look_cost=waited.cost,
            phases=progress.phases.now(), context_tokens=self._context,
            peak_context_tokens=self._peak, **self._happened,
        )  # fmt: skip

    def _should_stop(self, action: Action) -> bool:
        shadow = self._settings.mode == "shadow"
        return action in (Action.PAUSE, Action.ABORT) or (shadow and self._stopped)

    def _call(self, step: Step, name: str, start: int, end: int) -> None:
        if step.error and step.refused:
            self._act(step, name, start, end)
            return
        error, tools, left = step.error, self._tools, self._left
        calls, errors, failing = tools.get(name, _UNUSED)
        if not calls and len(tools) >= _TOOLS:
            del tools[min(tools, key=lambda known: tools[known][0])]
        tools[name] = (calls + 1, errors + error, error)
        self._failures += error
        self._successes += not error
        if step.args is None:
            self._no_args += 1
        if step.outcome is None and not (error and step.error_text is not None):
            self._no_outcome += 1
        recovered, switched = failing and not error, left is not None and left != name
        if recovered or switched:
            self._recovered += recovered
            self._switches += switched
            self._left, self.turn = None, Turn(recovered, switched)
        else:
            self.turn = SAME
        if error:
            self._left = name
        if start:
            self._timed += 1
            if start > self._last_call:  # noqa: PLR1730
                self._last_call = start
            if start < self._first_call or not self._first_call:
                self._first_call = start
        self._act(step, name, start, end)

    def _act(self, step: Step, name: str, start: int, end: int) -> None:
        """Notes one of the last calls, for people."""
        settings, acts, error = self._settings, self._acts, step.error
        content = truncate(step.args, _CONTENT) if settings.escalation_content else None
        acts.append((name, step.agent, error, step.outcome is not None or error, step.error_type,
                     start, end, content))  # fmt: skip
        if len(acts) > settings.tuning.escalation.actions:
            del acts[0]

    def _alert(self, decision: Decision, step: Step | None, *, loop: bool) -> None:
        """Counts a decision that is a hint or more."""
        self._alerts = (*self._alerts, decision)[-_REPORTED:]
        if self._severity is None or decision.severity.rank > self._severity.rank:
            self._severity = decision.severity
        asks = decision.action in (Action.ASK, Action.PAUSE)
        self._escalations += asks or decision.intervention == HUMAN
        self._stopped |= decision.action in (Action.PAUSE, Action.ABORT)
        if loop:
            self._loop(decision, step)
        if step is not None and step.kind is Kind.TOOL:
            self._left = (step.name or "")[:_NAMED]

    def _loop(self, decision: Decision, step: Step | None) -> None:
        """Counts a loop once, and once more as prevented when it is stopped first."""
        prevents = decision.action.stops and not decision.shadow
        before = self._seen_loops.get(decision.loop, 0)
        now = before | _SEEN | _CYCLIC * (decision.period > 1) | _STOPPED * prevents
        keep(self._seen_loops, decision.loop, now, _LOOPS)
        new = now & ~before
        self._loops += bool(new & _SEEN)
        if new & _CYCLIC:
            self._cycles = (*self._cycles, decision.period)[:_CYCLES]
        if new & _STOPPED:
            self._prevented += 1
            if step is not None:
                # For the model: the call, and the rule that stopped it.
                call = f"{step.name or step.kind} {truncate(step.args, _ARGUMENTS)}"
                self.memory.note("avoided", f"{call} ({decision.reason})")

    def _used(self) -> tuple[ToolReport, ...]:
        found = sorted(self._tools.items(), key=lambda one: (-one[1][0], one[0]))
        return tuple(
            ToolReport(name, calls, errors) for name, (calls, errors, _) in found[:_REPORTED]
        )

    def _interval(self) -> float | None:
        if self._timed < 2:
            return None
        return (self._last_call - self._first_call) / (self._timed - 1) / _SECOND

    def _duration(self) -> float | None:
        known = self._first and self._ended >= self._first
        return (self._ended - self._first) / _SECOND if known else None


def _most_common(counts: dict[str, int]) -> dict[str, int]:
    return dict(sorted(counts.items(), key=lambda one: -one[1]))


def _act(  # noqa: PLR0913, PLR0917  # what was noted of one call
    name: str, agent: str | None, failed: bool, known: bool, error_type: str | None,
    start: int, end: int, content: str | None,
) -> Act:  # fmt: skip
    took = (end - start) / _SECOND if start and end >= start else None
    return Act(
        name,
        None if agent is None else agent[:_NAMED],
        "failed" if failed else "ok" if known else "unknown",
        error_type[:_NAMED] if error_type and _CODE.fullmatch(error_type) else None,
        end,
        took,
        content,
    )
