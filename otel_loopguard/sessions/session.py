"""One session: it counts its steps, judges them, and knows its loops."""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Iterable
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from otel_loopguard import semconv
from otel_loopguard._control.flag import POLICY, Flag
from otel_loopguard._util.errors import InternalErrors, attempt
from otel_loopguard._util.packing import pack, unpack
from otel_loopguard.core import Action, Effect, Evidence, Kind, Milestones, Progress, Step
from otel_loopguard.detectors import Registry
from otel_loopguard.evidence import (
    EXTRACTORS,
    Extractors,
    MilestoneExtractor,
    ToolCallExtractor,
    UsageExtractor,
)
from otel_loopguard.policy import Policy
from otel_loopguard.policy.hints import hint
from otel_loopguard.sessions.agent_cycles import (
    CycleLog,
    attended,
    receiver,
    refused_to,
    stops_handoffs,
)
from otel_loopguard.sessions.decisions import Finding, finding_of
from otel_loopguard.sessions.detector_set import DetectorSet
from otel_loopguard.sessions.journal import Mark
from otel_loopguard.sessions.stats import SessionStats
from otel_loopguard.settings import Settings

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Mapping

    from otel_loopguard.core import Decision, Detection, SavedMilestones
    from otel_loopguard.core.report import Report
    from otel_loopguard.detectors import Detector
    from otel_loopguard.evidence import Extractor, Factory
    from otel_loopguard.policy import Verdict
    from otel_loopguard.sessions.journal import JournalBuffer, JournalReplay
    from otel_loopguard.sessions.requested_calls import RequestedCalls


class Silence:
    """Counts how often the model of a session was asked since its last tool call.

    Model calls may each have a trace of their own. After a pause such a one begins anew: a user may
    have spoken.
    """

    __slots__ = ("_end", "_trace_id", "_turns")

    def __init__(self) -> None:
        self._trace_id = 0
        self._turns = 0
        self._end = 0

    def broken(self) -> None:
        """A tool was called."""
        self._turns = 0

    def turn(self, step: Step, gap_s: float) -> int:
        """The model was asked once more; how often by now."""
        paused = bool(self._end and step.start) and step.start - self._end >= gap_s * 1e9
        self._turns = 1 if paused and step.trace_id != self._trace_id else self._turns + 1
        self._trace_id, self._end = step.trace_id, step.end or 0
        return self._turns


_MOST: Final = 256
_NAMED: Final = 200


class Callers:
    """The agent that called each tool last, of 256 tools of a session."""

    __slots__ = ("_agents",)

    def __init__(self) -> None:
        self._agents: dict[str, str | None] = {}

    def note(self, step: Step) -> None:
        """Remembers who made a call; one that was refused is given to who made it before."""
        name = (step.name or "")[:_NAMED]
        if step.error_type == semconv.ERROR_DENY:
            step.agent = self._agents.get(name, step.agent)
        elif len(self._agents) < _MOST or name in self._agents:
            self._agents[name] = step.agent

    def candidates(self, tool: str, agent: str | None) -> set[str | None]:
        """Whose call of a tool it may be."""
        return {agent, self._agents.get(tool[:_NAMED], agent)}


_SPEAKERS: Final = 64
_MAX_CONTEXTS: Final = 1 << 40

_Speaker = tuple[int, str, str, str]


class ContextSizes:
    """The size of the context of each speaker of a session, the newest 64.

    A context is compacted when the input tokens of one speaker (agent, node and model, within one
    trace) fall to `tuning.stalls.compact_drop` (half) of the most that they were, twice in a row,
    from at least `tuning.stalls.compact_least` (8000) on. Once is no sign: a short question aside
    is not the context.
    """

    __slots__ = ("_drop", "_least", "_sizes")

    def __init__(self, settings: Settings) -> None:
        self._drop = settings.tuning.stalls.compact_drop
        self._least = settings.tuning.stalls.compact_least
        self._sizes: OrderedDict[_Speaker, tuple[int, bool]] = OrderedDict()

    def compacted(self, step: Step) -> bool:
        """Takes a model call; whether it shows that the context was compacted."""
        tokens = step.tokens_in
        if tokens is None or not self._drop:
            return False
        # A span may say anything.
        tokens = min(max(tokens, 0), _MAX_CONTEXTS)
        speaker = _speaker(step)
        most, fell = self._sizes.pop(speaker, (0, False))
        falls = most >= self._least and tokens <= most * self._drop
        over = falls and fell
        self._sizes[speaker] = (tokens if over else max(most, tokens), falls and not over)
        if len(self._sizes) > _SPEAKERS:
            self._sizes.popitem(last=False)
        return over

    def agent_ended(self, step: Step) -> None:
        """An agent's run ended: its next one begins with a context of its own."""
        names = ("", (step.name or "")[:_NAMED])
        for speaker in tuple(self._sizes):
            if speaker[0] == step.trace_id and speaker[1] in names:
                del self._sizes[speaker]


def _speaker(step: Step) -> _Speaker:
    agent, node, model = ((part or "")[:_NAMED] for part in (step.agent, step.node, step.model))
    return step.trace_id, agent, node, model


_MAX_FIRSTS: Final = 48

Spot = tuple[int, int]
"""Trace and span id."""


class FirstSeen:
    """The spans that showed the newest 48 calls, answers and errors of a session first.

    What is seen again stays, so that the calls of a loop that goes on are not forgotten. Not
    thread-safe: the guard's lock is held.
    """

    __slots__ = ("_spots",)

    def __init__(self) -> None:
        self._spots: dict[int, Spot] = {}

    def add(self, step: Step, seen: Evidence) -> None:
        """Takes a finished call."""
        if not step.span_id:
            return
        spot = (step.trace_id, step.span_id)
        self._keep(seen.call, spot)
        self._keep(seen.outcome, spot)
        if seen.error:
            self._keep(seen.error_shape, spot)
            self._keep(seen.error_line, spot)

    def get(self, keys: Iterable[int], step: Step, most: int) -> tuple[Spot, ...]:
        """The spans that showed first what a loop is made of, each once."""
        found = dict.fromkeys(self._spots[key] for key in keys if key in self._spots)
        found.pop((step.trace_id, step.span_id), None)
        return tuple(found)[:most]

    def _keep(self, key: int | None, spot: Spot) -> None:
        if key is None:
            return
        spots = self._spots
        spots[key] = spots.pop(key, spot)
        if len(spots) > _MAX_FIRSTS:
            del spots[next(iter(spots))]


class Turns:
    """Tells a user's turn from what only happens inside of one. O(open runs) per run.

    A turn begins with a run of an agent, after another one has ended, where none is open in the
    session: beside an open run it is a sub-agent. Where no run called a tool, and tools were called
    between the runs, the loop is one of the user's own, which asks its model by an agent: then a
    run is no turn.

    Attributes:
        over: Whether a run has ended since the last one began.
        calls: Tool calls since the last run began that were made while one was open.
    """

    __slots__ = ("_between", "_open", "_told", "calls", "over")

    def __init__(self) -> None:
        self.over = False
        self.calls = 0
        self._between = 0
        self._told = False
        self._open: list[int] = []

    def begins(
        self, span_id: int, is_open: Callable[[int], bool], *, told: bool = False
    ) -> bool | None:
        """A run begins that has none above it."""
        if span_id in self._open and is_open(span_id):
            return None
        still = [one for one in self._open if is_open(one)]
        self.over = self.over or len(still) < len(self._open)
        self._open = [*still, span_id][-_MOST:]
        if still:
            return None
        # What an adapter told of just now is the run of this span.
        same = self._told and not told and not self.calls
        turn = self.over and not same and (self.calls > 0 or not self._between)
        self.over, self._told = False, told
        self.calls = self._between = 0
        return turn

    def began(self) -> None:
        """What was seen until now was a run, which nobody told at its start."""
        if not self._open:
            self.over, self._between = True, 0

    def ends(self, span_id: int, *, run: bool) -> None:
        """A span ended that was taken for a run."""
        if span_id in self._open:
            self._open.remove(span_id)
            self.over = self.over or (run and not self._open)

    def called(self, is_open: Callable[[int], bool]) -> None:
        """A tool was called."""
        if self._told or any(is_open(one) for one in self._open):
            self.calls += 1
        else:
            self._between += 1

    def entered(self) -> bool:
        """Somebody enters the session anew; whether that is after a run, and outside of any."""
        return self.over and not self._open


@dataclass(frozen=True, slots=True)
class SavedSession:
    """Copies that nobody counts on; in this process only, for they are made of calls.

    Attributes:
        key: Key that the session had.
        flag: Its flag, which stays the same when the session gets its final key.
        progress: Its totals, which the copies refer to; still counted on.
        task: Number of the user's task at that time.
        extractors: What its extractors knew.
        detectors: What its detectors had counted, by name.
        policy: Its ladder; None if the session was stopped.
        milestones: Its milestones, and the plan that it followed.
    """

    key: str
    flag: weakref.ref[Flag]
    progress: Progress
    task: int
    extractors: Mapping[Factory, Extractor]
    detectors: Mapping[str, Detector]
    policy: Policy | None
    milestones: SavedMilestones


_JUDGING: Final = (
    "extractors", "detectors", "policy", "first_seen", "detected", "turns", "_silence", "_contexts",
    "_callers",
)  # fmt: skip
_LASTING: Final = (UsageExtractor, MilestoneExtractor)
"""What no checkpoint takes back: what was spent is spent."""
_SILENT_TURNS = 8
"""Model calls of one session, after a deny and without a tool call, that end in an abort."""


class Session:
    """All steps of one conversation or run, as far as they still matter.

    Attributes:
        key: Its key. A trace id (32 hex digits) until a span names a conversation or session.
        named: Whether the key is final.
        progress: Totals of its steps.
        last_used: When it was used last, nanoseconds since the epoch.
        lock: The guard's lock, held while its steps are judged. One for all: a finalizer that ends
            a span inside of one lock must never wait for another.
        extractors: What turns its steps into evidence.
        detectors: What looks at the evidence.
        policy: What follows from what is detected; its ladder remembers the loops.
        flag: What its runtime sees.
        record: Counts what it does, for people.
        cycles: The cycles of agents that it came to.
        run: Root span of the agent run that began last in it; 0 if none was seen to begin.
        troubled: Whether anything was ever detected in it.
        journal: Its steps as entries of a journal; None without one.
        detected: What was detected at its last step.
        evidence: What was made of its last step, where that is a finished tool call.
        first_seen: Where calls of it were seen first.
        turns: The runs of agents that are open in it, and whether the next is a user's turn.
        asked: What its models' messages tell of tool calls; None while they tell of none.
        live: Whether its steps happen now; False in a replay.
        shrunk: Whether its last step showed that its context was compacted.
        traces: The traces that are tied to it.
        unruled: What was found at steps before the last, and has not taken effect.
    """

    __slots__ = (
        "__weakref__",
        "_broken", "_callers", "_cleared", "_contexts", "_counting", "_exempt", "_faults",
        "_judging", "_registry", "_settings", "_silence", "asked", "cycles",
        "detected", "detectors", "evidence", "extractors", "first_seen", "flag", "journal", "key",
        "last_used", "live", "lock", "named", "policy", "progress", "record", "run", "shrunk",
        "traces", "troubled", "turns", "unruled",
    )  # fmt: skip

    def __init__(  # noqa: PLR0913
        self, key: str, settings: Settings, registry: Registry, faults: InternalErrors,
        lock: threading.RLock, *, named: bool,
    ) -> None:  # fmt: skip
        self.key = key
        self.named = named
        self.live = False
        self.shrunk = False
        self.evidence: Evidence | None = None
        self.troubled = False
        self.run = 0
        self.traces: dict[int, None] = {}
        self.last_used = 0
        self.lock = lock
        self._cleared = 0
        self.journal: JournalBuffer | None = None
        self._settings = settings
        self._registry = registry
        self._faults = faults
        self.progress = Progress()
        self._judging: bytes | None = None
        self._counting: bytes | None = None
        self._broken: tuple[str, ...] = ()
        self._begin_to_judge()
        self.record = SessionStats(settings)
        self.flag = Flag(key, settings.pause_limit_s)
        self.progress.milestones = self.flag.milestones
        self.cycles = CycleLog(settings.tuning.exchange.window_steps)
        self._exempt = settings.exempt
        self.asked: RequestedCalls | None = None
        self.unruled: list[Finding] = []

    def __getattr__(self, name: str) -> Any:
        # Only what is not there is asked for here.
        if name not in _JUDGING and name != "record":
            msg = f"a session has no {name!r}"
            raise AttributeError(msg)
        with self.lock:
            if name == "record":
                self._count_again()
            else:
                self._judge_again()
        return object.__getattribute__(self, name)

    def pack(self) -> bool:
        """Puts away as bytes what judges and counts its steps, until that is asked for.

        Its lock is held.
        """
        if self.unruled:
            return False
        self.evidence = None
        if self._judging is None:
            data = pack([getattr(self, name) for name in _JUDGING], self._common)
            if data is None:
                return False
            self._broken, self._judging = self.detectors.broken, data
            for name in _JUDGING:
                delattr(self, name)
        # Where a decision was made, or an answer given, the record is known by its identity.
        if self._counting is None and not weakref.getweakrefcount(self.record):
            self._counting = pack(self.record, self._common)
            if self._counting is not None:
                del self.record
        return True

    @property
    def _common(self) -> dict[type, object]:
        return {
            Settings: self._settings, Registry: self._registry, InternalErrors: self._faults,
            Progress: self.progress, Milestones: self.progress.milestones,
        }  # fmt: skip

    def _unpacked(self, data: bytes) -> Any:
        return attempt(self._faults, "unpack", partial(unpack, data), self._common)

    def _judge_again(self) -> None:
        if self._judging is None:
            return  # another thread was first
        things = self._unpacked(self._judging)
        if things is None:
            self._begin_to_judge()
        else:
            for name, thing in zip(_JUDGING, things, strict=True):
                setattr(self, name, thing)
            self.extractors.register(EXTRACTORS)
        self._judging = None

    def _count_again(self) -> None:
        if self._counting is None:
            return  # another thread was first
        self.record = self._unpacked(self._counting) or SessionStats(self._settings)
        self._counting = None

    def _begin_to_judge(self) -> None:
        settings = self._settings
        self.extractors = Extractors(settings, self.progress, EXTRACTORS)
        self.detectors = DetectorSet(self._registry, settings, self._faults)
        self.policy = Policy(settings)
        self.first_seen = FirstSeen()
        self.turns = Turns()
        self.detected: list[Detection] = []
        self._silence = Silence()
        self._contexts = ContextSizes(settings)
        self._callers = Callers()

    def observe(self, step: Step) -> tuple[int, list[Finding]]:
        """Counts a canonical step and judges it. Its lock is held."""
        index = self.progress.steps
        self.unruled = [Finding(verdict) for verdict in self.policy.left()]
        self.detected, self.evidence = [], None
        self._count(step)
        if self._cleared != self.flag.cleared:
            self._start_over()
        if step.kind is Kind.OTHER and step.name == "user":
            self._let_go()
            self.user_turn()
        self.shrunk = step.kind is Kind.MODEL and self._contexts.compacted(step)
        if step.kind is Kind.AGENT:
            self._contexts.agent_ended(step)
        elif self.shrunk:
            self.compacted()
        if self.cycles.entries:
            self.cycles.pass_by(index)
        if self.journal is not None and step.kind is not Kind.TOOL:
            self.journal.step(step)
        found = self._insisted(step) if self.troubled else []
        found = found or self._seen(step)
        if not found and step.kind is Kind.MODEL and self.flag.stops:
            found = self._asked(step)
        return index, found

    def call_of(self, step: Step) -> int | None:
        """Key of a call before it has an outcome; None if its arguments are not known yet."""
        extractors = self.extractors.get(Kind.TOOL)
        calls = next((one for one in extractors if isinstance(one, ToolCallExtractor)), None)
        key = None if calls is None else calls.call_of(step)
        return key if key is None or self.journal is None else self.journal.cover(key)

    def denies(self, tool: str, args: object, agent: str | None) -> bool:
        """Whether a call that is about to run belongs to a denied loop. Its lock is held."""
        if self.policy.denies(receiver(tool, args)):
            return True
        if args is None:
            decision = self.flag.control.decision
            return decision is not None and decision.tool == tool
        names = self._callers.candidates(tool, agent)
        calls = (self.call_of(Step(Kind.TOOL, tool, args=args, agent=name)) for name in names)
        return any(call is not None and self.policy.denies(call) for call in calls)

    def report(self) -> Report:
        """What it has come to. Its lock is held."""
        action = self.flag.control.action
        broken = self.detectors.broken if self._judging is None else self._broken
        return self.record.report(self.key, self.progress, action, broken)

    def next_run(self, span_id: int) -> None:
        """An agent's run begins: in a conversation, the user's next turn.

        Loops of the turn before weigh half, and what the policy stopped may go on.
        """
        if self.run:
            self._let_go()
            self.user_turn()
        elif self.journal is not None:
            # Whatever the journal knows of before: no run outlives its process.
            self.journal.mark(Mark.TURN)
        self.run = span_id

    def ruled(self) -> None:
        """What was found has taken effect. Its lock is held."""
        self.unruled = []
        self.policy.ruled()

    def decided(self, decision: Decision) -> None:
        """Writes a decision down for other processes, but no mere note. Its lock is held."""
        if self.journal is not None and decision.action is not Action.ALLOW:
            self.journal.decided(decision)

    def recall(self, past: JournalReplay) -> None:
        """Takes in what its journal knows of before, and of other processes. Its lock is held."""
        journal = self.journal
        if journal is None:
            return
        self.detectors.adopt(past.detectors, Evidence)
        self.policy.follow(past.policy)
        self.troubled = self.troubled or past.troubled
        journal.follow(past.known, past.calls, past.epochs, past.round, self.progress)
        standing = past.standing
        if standing is None and self.flag.control.decision_id == journal.told is not None:
            self.flag.lower()
        elif standing is not None and not self.flag.raised:
            journal.told = standing.id
            said = hint(standing)
            self.flag.set(standing.action, reason=standing.message, hint=said, decision=standing)

    def _count(self, step: Step) -> None:
        progress = self.progress
        progress.steps += 1
        progress.phases.over = ()
        progress.time = max(progress.time, step.end or 0)
        self.record.step(step)
        if step.kind is Kind.MODEL:
            progress.models += 1
        elif step.kind is Kind.TOOL:
            self._silence.broken()
            self._callers.note(step)

    def _seen(self, step: Step) -> list[Finding]:
        """What the extractors make of a step, the detectors of that, and the policy of those."""
        # A step without a round is a moment of its own.
        number, seen, moment = self._number, None, -self.progress.steps
        journal = self.journal
        found = self.detectors.observe(step)
        if found and journal is not None:
            found = journal.covered(found)
        for extractor in self.extractors.get(step.kind):
            evidence = extractor.extract(step)
            if evidence is None:
                continue
            if isinstance(evidence, Evidence):
                self._note(step, evidence)
                seen = self.evidence = evidence
                call, moment = evidence.call, evidence.round
                if step.name in self._exempt:
                    continue
                if self.troubled and call and evidence.changed and not evidence.error:
                    self.policy.moved(call)
                if self.troubled and evidence.error and call and self.policy.denies(call):
                    defied = self.policy.defied(call, evidence.tool, number, moment)
                    self._write_loops(moment)
                    return [self._found(verdict, step, seen) for verdict in defied]
                found += self.detectors.observe(evidence)
            else:
                more = self.detectors.observe(evidence)
                found += journal.covered(more) if more and journal is not None else more
        if found:
            return self._judged(found, number, moment, step, seen)
        if self.troubled and step.kind is Kind.TOOL:
            self._calm(seen, number)
        return []

    def _note(self, step: Step, seen: Evidence) -> None:
        """Writes a finished call down: for the journal, and for links and reports of later."""
        if self.journal is not None:
            self.journal.call(step, seen, opened=self.progress.epoch > seen.epoch)
        self.first_seen.add(step, seen)
        if seen.effect is Effect.WRITE and not seen.error:
            self.record.wrote(step)

    def _insisted(self, step: Step) -> list[Finding]:
        """What follows when a hand-off of a denied loop was tried again, and refused."""
        agent = refused_to(step)
        if agent is None or not self.policy.denies(agent):
            return []
        moment = -self.progress.steps
        defied = self.policy.defied(agent, step.name or "", self._number, moment)
        self._write_loops(moment)
        return [self._found(verdict, step, None) for verdict in defied]

    def stalled(self, found: Detection, step: Step) -> list[Finding]:
        """What follows from what runs too long: a verdict of its own. Its lock is held."""
        own = replace(found, own=found.own or Action.HINT)
        self.troubled = self.troubled or own.own is not Action.ALLOW
        covered = [own] if self.journal is None else self.journal.covered([own])
        verdicts = self.policy.judge(covered, self._number, -self.progress.steps)
        return [Finding(verdict, tool=step.name or "") for verdict in verdicts]

    def _judged(
        self, found: list[Detection], number: int, moment: int, step: Step, seen: Evidence | None
    ) -> list[Finding]:
        self.detected = found = attended(found, self._settings, live=self.live)
        verdicts = self.policy.judge(found, number, moment, step.end or 0)
        self._write_loops(moment)
        self.cycles.observe(found, verdicts, self.progress.steps - 1)
        self.troubled = self.troubled or any(one.own is not Action.ALLOW for one in found)
        return [self._found(verdict, step, seen) for verdict in verdicts]

    def _found(self, verdict: Verdict, step: Step, seen: Evidence | None) -> Finding:
        earlier = self.first_seen.get(
            verdict.loop.keys, step, self._settings.tuning.telemetry.links
        )
        return finding_of(verdict, step, seen)._replace(earlier=earlier)

    def _start_over(self) -> None:
        """Somebody let the session go on: its loops are new loops."""
        self._cleared = self.flag.cleared
        self.policy.start_over()
        self._mark(Mark.CLEARED)
        self.cycles.end("cleared")
        self.user_turn()

    def _let_go(self) -> None:
        """The user's next turn: what the policy stopped may go on, and a hint is over."""
        self._silence.broken()
        by = self.flag.control.by
        ruled = by == POLICY
        if by is not None and not ruled:
            # What a person set stays; what the policy had said before is over.
            if self.policy.ended:
                self.policy.start_over()
        elif self.policy.ended or (ruled and self.flag.stops):
            self.flag.clear()
            self._cleared = self.flag.cleared
            self.policy.start_over()
        elif ruled:
            self.flag.lower()

    def _asked(self, step: Step) -> list[Finding]:
        """A model is asked again in a session that is denied: refusals may leave no span."""
        turns = self._silence.turn(step, self._settings.tuning.calls.wait_gap_s)
        if turns < _SILENT_TURNS or stops_handoffs(self.flag.control):
            return []
        moment = -self.progress.steps
        unheeded = self.policy.unheeded(turns, self._number, moment)
        self._write_loops(moment)
        return [Finding(verdict) for verdict in unheeded]

    def _calm(self, seen: Evidence | None, number: int) -> None:
        """A call outside of every loop takes a hint or a deny down again, and so does success."""
        over = self.policy.calm(number, succeeded=seen is not None and self._succeeded(seen))
        outside = seen is None or not self.policy.knows(seen.call)
        outside = outside and not stops_handoffs(self.flag.control)
        if self.flag.raised and (over or outside):
            self.flag.lower()
            self._mark(Mark.LOWERED)

    def _succeeded(self, seen: Evidence) -> bool:
        """Whether a call brought something new, or changed the world."""
        if seen.error or seen.waiting:
            return False
        new = (
            seen.novelty is not None
            and seen.novelty >= self._settings.tuning.policy.descend_novelty
        )
        before = self.journal.before.epochs if self.journal is not None else 0
        return new or self.progress.epoch + before > seen.epoch

    @property
    def _number(self) -> int:
        """Number that the next call has, those before a restart and of other processes counted."""
        before = self.journal.before.calls if self.journal is not None else 0
        return self.progress.calls + before

    def _write_loops(self, moment: int) -> None:
        if self.journal is not None:
            self.journal.loops(self.policy.shown(moment))

    def _mark(self, mark: Mark) -> None:
        if self.journal is not None:
            self.journal.mark(mark)

    def compacted(self) -> None:
        """Its context was compacted: what was counted before weighs half."""
        self.record.happened("compactions")
        self.detectors.user_turn()
        self.policy.user_turn()

    def saved(self) -> SavedSession:
        """What is counted now, for a later `restore`. Its lock is held."""
        progress, settings = self.progress, self._settings
        memo: dict[int, object] = {id(settings): settings, id(progress): progress}
        stopped = self.policy.ended or self.policy.stops
        return SavedSession(
            key=self.key, flag=weakref.ref(self.flag), progress=progress, task=progress.task,
            extractors=self.extractors.saved(dict(memo), _LASTING),
            detectors=self.detectors.saved(memo),
            policy=None if stopped else deepcopy(self.policy, dict(memo)),
            milestones=progress.milestones.saved(),
        )  # fmt: skip

    def restore(self, saved: SavedSession | None) -> None:
        """Its application went back to a checkpoint: what is done again is no repeat.

        What was counted since is taken back, and milestones and plan are as they were. What was
        spent stays spent. A pause and an abort stay, and so does whatever a person set.
        """
        progress, settings, flag = self.progress, self._settings, self.flag
        progress.epoch += 1
        memo: dict[int, object] = {id(settings): settings}
        if saved is not None:
            memo[id(saved.progress)] = progress
            renew = saved.task != progress.task or saved.progress is not progress
            progress.milestones.restore(saved.milestones, renew=renew)
        self.extractors.restore({} if saved is None else saved.extractors, dict(memo), _LASTING)
        self.detectors.restore({} if saved is None else saved.detectors, memo)
        if not (self.policy.ended or flag.control.action in (Action.PAUSE, Action.ABORT)):
            if saved is None or saved.policy is None:
                self.policy.start_over()
            else:
                self.policy = deepcopy(saved.policy, dict(memo))
            if flag.control.by == POLICY:
                flag.lower()
        self._silence = Silence()
        self._contexts = ContextSizes(settings)
        self._mark(Mark.RESTORED)
        self.cycles.end("restored")

    def user_turn(self) -> None:
        """A user spoke: what was counted before weighs half."""
        self.unruled = []
        self._mark(Mark.TURN)
        self.detectors.user_turn()
        self.policy.user_turn()
        self.cycles.end("user_turn")
