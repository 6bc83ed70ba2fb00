"""One session: counts and judges its steps, and tracks its loops."""

from __future__ import annotations

import weakref
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any, Final, Literal, cast

from otel_loopguard._control.flag import POLICY, PROMPT, STOPPING, Flag, recognise
from otel_loopguard._util.clock import now as clock
from otel_loopguard._util.clock import was_set_back
from otel_loopguard._util.errors import InternalErrors, attempt
from otel_loopguard._util.packing import pack, unpack
from otel_loopguard.core import Action, Decision, Detection, Kind, Remaining, Step
from otel_loopguard.core.evidence import Effect, Evidence, ModelAttempt
from otel_loopguard.core.progress import Milestones, Progress
from otel_loopguard.detectors import Detector, DetectorSet, Registry
from otel_loopguard.detectors.budget import NAME as STALL
from otel_loopguard.detectors.budget import OPERATION, longer_wait
from otel_loopguard.detectors.errors import tool_key
from otel_loopguard.detectors.repetition import again_key
from otel_loopguard.evidence import (
    NEWS,
    Extractors,
    MilestoneExtractor,
    ToolCallExtractor,
    UsageExtractor,
    prepare,
)
from otel_loopguard.evidence.normalize import NAMED
from otel_loopguard.policy import (
    AGAIN,
    DENIED_CALL,
    UNASKED,
    Hearing,
    Policy,
    Verdict,
    only_refused,
)
from otel_loopguard.policy.hints import hint
from otel_loopguard.sessions.agent_cycles import (
    CycleLog,
    attended,
    is_cycle,
    receiver,
    refused_to,
    stops_handoffs,
)
from otel_loopguard.sessions.decisions import Finding, finding_of, lasting
from otel_loopguard.sessions.stats import ContextSizes, Refusals, SessionStats, Silence, Turns
from otel_loopguard.settings import Settings

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from otel_loopguard.core.report import Report
    from otel_loopguard.evidence import Extractor, Factory
    from otel_loopguard.sessions.journal import JournalBuffer, JournalReplay, MarkName
    from otel_loopguard.sessions.requested_calls import RequestedCalls

_SEVERAL: Final = 2
"""Agents from which on it has to be known which one asks."""
_MOST: Final = 256
"""Tools whose last caller is known: no model is given more."""


@dataclass(frozen=True, slots=True)
class SavedSession:
    """Copies of counts; for this process only, as they derive from calls."""

    key: str
    flag: weakref.ref[Flag]  # stays the same when the session gets its final key
    progress: Progress  # its totals, which the copies refer to
    task: int
    extractors: Mapping[Factory, Extractor]
    detectors: Mapping[str, Detector]
    policy: Policy | None  # None if the session was stopped
    milestones: Milestones


_Spot = tuple[int, int, "int | None", "int | None"]
"""The span of a call that was the first of its kind: trace, span and parent, and when it ended."""
_FIRSTS: Final = 42
"""Keys whose first span is known: two for each of the sixteen calls of the longest cycle, and some
for their errors. With one more the table takes twice the memory."""
_LASTING: Final = (UsageExtractor, MilestoneExtractor)
"""Totals that survive going back to a checkpoint: what was spent is spent."""
_MOST_TOKENS: Final = 1 << 40
"""Tokens that a span may say: above what any context holds, and their sum stays exact."""
_MOST_ALLOWED: Final = 1024
"""Calls that a person allowed, 36 bytes each: more than anybody answers for."""
_NO_CALLS: Final = frozenset[int]()
_SILENT_TURNS = 8
"""Model calls of one session, after a deny and without a tool call, that end in an abort; with
nothing but refused calls, that end in a hint and what follows it."""
_ONLY_REFUSED: Final = 0x7265_6675_7365
"""Key of the loop of refused calls, whatever their arguments."""
_TOOL, _MODEL, _WRITE = Kind.TOOL, Kind.MODEL, Effect.WRITE


_Caller = tuple["str | None", int]
"""Name and lane of the agent of a call, as its step has them."""


class State:
    """The parts of a session that judge its steps, and their state.

    Attributes:
        record: Counts of its report.
        progress: Totals that its parts share.
        extractors: Make evidence of its steps.
        detectors: Find loops in the evidence.
        policy: The ladders of its loops.
        turns: Where its turns end.
        silence: Model calls after a deny and without a tool call since; None for none.
        refusals: Refused calls since the last that was made; None for none.
        contexts: Sizes of its contexts; None before the first is known.
        firsts: Trace and span that showed the newest calls, answers and errors first.
        callers: By tool and the agent whose run the call was in (None where that is not known),
            the name and the lane that its last call there had.
        agents: Names of two agents that made calls, or of the only one.
    """

    __slots__ = (
        "agents", "callers", "contexts", "detectors", "extractors", "firsts", "policy", "progress",
        "record", "refusals", "silence", "turns",
    )  # fmt: skip

    def __init__(
        self, settings: Settings, registry: Registry, faults: InternalErrors,
        milestones: Milestones,
    ) -> None:  # fmt: skip
        self.record, self.progress = SessionStats(settings), Progress()
        self.progress.milestones = milestones
        self.extractors = Extractors(settings, self.progress)
        self.detectors = DetectorSet(registry, settings, faults)
        self.policy = Policy(settings)
        self.turns = Turns()
        self.silence: Silence | None = None
        self.refusals: Refusals | None = None
        self.contexts: ContextSizes | None = None
        self.firsts: dict[int, _Spot] = {}
        self.callers: dict[tuple[str, str | None], _Caller] = {}
        self.agents: frozenset[str] = frozenset()

    def caller(self, tool: str, within: str | None) -> _Caller | None:
        """The name and the lane by which an agent has called a tool; None if it has not.

        An agent is known by the run that it is in, for the span of a call may name it otherwise.
        Where the run is not known, it is the one agent of the session, or none.
        """
        tool = tool[:NAMED]
        if within is not None and (tool, within) in self.callers:
            return self.callers[tool, within]
        if len(self.agents) >= _SEVERAL:
            return None
        known = ((run, one) for (name, run), one in self.callers.items() if name == tool)
        return next((one for run, one in known if run is None or within is None), None)


class Session:
    """All steps of one conversation or run, as far as they still matter.

    The lock is the guard's, one for all: a finalizer that ends a span inside of one lock must never
    wait for another. All of it but the flag is used while the lock is held.
    """

    __slots__ = (
        "__weakref__", "_cleared", "_exempt", "_faults", "_registry", "_settings", "_shown_at",
        "_state", "allowed", "cycles", "decided_at", "detected", "evidence", "flag", "journal",
        "judged", "key", "last_used", "live", "lock", "named", "over", "requested", "run", "shrunk",
        "thawed", "traces", "troubled",
    )  # fmt: skip

    def __init__(  # noqa: PLR0913
        self, key: str, settings: Settings, registry: Registry, faults: InternalErrors,
        lock: threading.RLock, *, named: bool, live: bool = False,
    ) -> None:  # fmt: skip
        self.key = key  # a trace id (32 hex digits) until a span names a conversation or session
        self.named = named
        self.live = live
        self.lock = lock
        self.last_used = 0
        self.traces: dict[int, None] = {}
        self.run = 0  # root span of the agent run that began last; 0 if none was seen to begin
        self.troubled = False  # whether anything was ever detected
        self.judged = False  # whether anything was ever decided
        self.decided_at = 0  # time of the newest step about which anything was decided
        self.over = False  # whether it was reported to be over
        # Of its last step: the evidence of a tool call, what was detected, and whether the context
        # was compacted.
        self.evidence: Evidence | None = None
        self.detected: Sequence[Detection] = ()
        self.shrunk = False
        # The calls of loops that a person allowed; None: whatever it does.
        self.allowed: frozenset[int] | None = _NO_CALLS
        self._shown_at: int | None = None  # the moment of the loops that are to be written down
        self._cleared = 0
        self.journal: JournalBuffer | None = None  # None without a store
        self.requested: RequestedCalls | None = None  # None while messages tell of no tool call
        self.cycles: CycleLog | None = None  # None while agents do not cycle
        self._settings = settings
        self._exempt = settings.exempt
        self._registry = registry
        self._faults = faults
        # Gives what is called with it when it was frozen, and is in use again.
        self.thawed: Callable[[], Callable[[Session], None] | None] | None = None
        self.flag = Flag(key, settings.pause_limit_s)
        # As bytes while it is frozen.
        self._state: State | bytes = self._new_state()

    @property
    def state(self) -> State:
        """The parts that judge the steps, with their state."""
        state = self._state
        return state if isinstance(state, State) else self._thaw()

    @property
    def frozen(self) -> bool:
        """True if these parts are packed as bytes until they are needed."""
        return isinstance(self._state, bytes)

    def freeze(self) -> bool:
        """Turns what judges its steps into bytes; whether that can be done."""
        if self.frozen:
            return True
        packed = pack(self.state, self._common)
        if packed is None:
            return False
        self._state = packed
        self.evidence, self.detected = None, ()
        self.flag.drop_blank_board()
        return True

    def _thaw(self) -> State:
        with self.lock:
            packed = self._state
            if isinstance(packed, State):
                return packed  # another thread was first
            thaw = partial(unpack, common=self._common)
            thawed: State | None = attempt(self._faults, "thaw", thaw, packed)
            state = self._state = thawed or self._new_state()
            noticed = None if self.thawed is None else self.thawed()
            if noticed is not None:
                noticed(self)
            return state

    @property
    def _common(self) -> dict[type, object]:
        return {
            Settings: self._settings, Registry: self._registry, InternalErrors: self._faults,
            Milestones: self.flag.milestones,
        }  # fmt: skip

    def _new_state(self) -> State:
        return State(self._settings, self._registry, self._faults, self.flag.milestones)

    def observe(self, step: Step) -> tuple[int, Sequence[Finding]]:
        """Counts a canonical step and judges it."""
        kind, state = step.kind, self.state
        index = state.progress.steps
        recognise(step, self.flag)
        self.evidence, self.detected, self.shrunk = None, (), False
        self._count(step, state)
        if self._cleared != self.flag.cleared:
            self._start_over()
        if kind is not _TOOL:
            self._read(step, state)
        if self.cycles is not None:
            self.cycles.pass_by(index)
        found = self._refused(step) if step.error and step.refused else self._seen(step, state)
        if kind is _MODEL and STOPPING and self.flag.stops and not found:
            found = self._model_called(step)
        return index, found

    def _read(self, step: Step, state: State) -> None:
        """Handles steps other than tool calls: a user's turn, a compacted context."""
        if step.kind is _MODEL and step.tokens_in is not None:
            state.contexts = state.contexts or ContextSizes()
            self.shrunk = state.contexts.compacted(step, step.tokens_in)
            if self.shrunk:
                self.compacted()
        elif step.kind is Kind.AGENT:
            if state.contexts is not None:
                state.contexts.agent_ended(step)
        elif step.kind is Kind.OTHER and step.name == "user":
            self._next_turn(step.end or 0, prompted=True)

    def _count(self, step: Step, state: State) -> None:
        progress, end = state.progress, step.end or 0
        progress.steps += 1
        if progress.phases.over:
            progress.phases.over = ()
        if end > progress.time:  # noqa: PLR1730  # a tenth of the price of max()
            progress.time = end
        if step.kind is _MODEL:
            step.tokens_in, step.tokens_out = _tokens(step.tokens_in), _tokens(step.tokens_out)
            progress.models += 1
            if state.refusals is not None:
                state.refusals.asked(step, self._settings.tuning.calls.wait_gap_s)
        state.record.step(step)
        if step.kind is _TOOL:
            state.silence = None
            if step.error and step.refused:
                # A refused call has the name by which its agent made it before.
                agent, lane = state.caller(step.name or "", step.within) or (step.agent, 0)
                step.agent, step.lane = agent, step.lane or lane
                return
            state.refusals = None
            callers, place = state.callers, ((step.name or "")[:NAMED], step.within)
            if len(callers) < _MOST or place in callers:
                callers[place] = step.agent, step.lane
            if step.agent is not None and len(state.agents) < _SEVERAL:
                state.agents |= {step.agent[:NAMED]}

    def call_of(self, step: Step) -> int | None:
        """Key of a call before it has an outcome; None if its arguments are not known yet."""
        calls = self._calls(step)
        return None if calls is None else self._covered(calls.call_of(step).key)

    def _covered(self, key: int | None) -> int | None:
        """A key as loops have it: covered where there is a journal."""
        return key if key is None or self.journal is None else self.journal.cover(key)

    def _calls(self, step: Step) -> ToolCallExtractor | None:
        """The extractor of tool calls for a step; None if it has none."""
        extractors = self.state.extractors.get(step)
        return next((one for one in extractors if isinstance(one, ToolCallExtractor)), None)

    def denied_by(
        self, tool: str, args: object, agent: str | None = None, *, within: str | None = None,
        lanes: Iterable[int] | None = None,
    ) -> str | None:  # fmt: skip
        """Id of the decision by which a call that is about to run is denied; None if it is not.

        Empty where the call is denied, and by which decision is not known.

        Args:
            tool: Name of the tool.
            args: Its arguments; None if they are not known.
            agent: Name of the agent that makes it, as its steps have it; None if that is not known.
            within: Name of the agent whose run it is in.
            lanes: Lanes it may be in; without, as where no span is known, that of the tool's last
                call counts.
        """
        state = self.state
        to = self._covered(receiver(tool, args))
        if to is not None and state.policy.denies(to):
            return state.policy.denial(to)
        name, lane = state.caller(tool, within) or (within, 0)
        names = {within, name} if agent is None else {agent}
        if args is None:
            decision = self.flag.control.decision
            known = {one for (of, _), (one, _) in state.callers.items() if of == tool[:NAMED]}
            mine = not known or not known.isdisjoint(names)
            found = mine and decision is not None and decision.tool == tool
            return decision.id if found and decision is not None else None
        makers = product(names, {0, lane} if lanes is None else set(lanes))
        calls = (Step(Kind.TOOL, tool, args=args, agent=name, lane=at) for name, at in makers)
        keys = (key for call in calls if (key := self._denied_key(call)) is not None)
        return next(map(state.policy.denial, keys), None)

    def _denied_key(self, step: Step) -> int | None:
        """Key under which a call is denied: its own, that it is done again, or its tool's."""
        policy = self.state.policy
        return next((key for key in self._keys_of(step) if policy.denies(key)), None)

    def _keys_of(self, step: Step) -> list[int]:
        calls, keys = self._calls(step), [tool_key(step.name or "")]
        if calls is not None:
            call = calls.call_of(step)
            made = [key for key in map(self._covered, (call.key, call.exact)) if key is not None]
            keys = [*made[:1], *map(again_key, made), *keys]
        return keys

    def report(self) -> Report:
        """Returns its report."""
        state = self.state
        action = self.flag.control.action
        return state.record.report(self.key, state.progress, action, state.detectors.broken)

    def wait_advice(self) -> float:
        """Returns the seconds to wait before the next look; 0 where nothing is waited for."""
        wait = self.state.progress.wait
        if wait is None or "price_of_waiting" not in self._registry.by_name:
            return 0.0
        return longer_wait(wait)

    def remaining(self, now: int) -> Remaining:
        """Returns what is left of its limits, but for those of open runs."""
        usage = cast("UsageExtractor", self.state.extractors.made(UsageExtractor))
        return usage.remaining(self.flag.raised_budgets, now)

    def next_run(self, span_id: int, began: int = 0, *, late: bool = False) -> None:
        """Begins a run of an agent, which in a conversation is the user's next turn.

        Loops of the previous turn then weigh half, and what the policy stopped may continue.

        Args:
            span_id: Its span.
            began: When, nanoseconds since the epoch; 0 where that is not known.
            late: Whether steps of it came before it: what was decided about those stands.
        """
        if self.run:
            self._next_turn(began, late=late)
        elif not self._is_decided(began):
            # A turn for the journal in any case: no run outlives its process.
            self._mark("TURN", began)
        self.run = span_id

    def _next_turn(self, began: int, *, prompted: bool = False, late: bool = False) -> None:
        """Starts a turn, unless a decision about a later step was made before the news arrived."""
        decided = self._is_decided(began)
        if not decided:
            self._let_go(prompted=prompted)
        if late or not decided:
            self.user_turn(began)

    def _is_decided(self, began: int) -> bool:
        """True if a decision was made about a later step than one that began then."""
        return 0 < began < self.decided_at and not was_set_back(self.decided_at, began)

    def allow(self, scope: Literal["call", "session"]) -> str:
        """Handles a false alarm: ignores the loop from now on, or only notes decisions.

        The flag stays, for the caller to clear without a lock.

        Returns:
            The setting that does so for good; empty where no decision stands.
        """
        standing, denial = self.flag.control.decision, self.flag.denial
        # A denied call that is asked for again says nothing of the loop that it was denied for.
        if denial is not None and (standing is None or standing.reason == DENIED_CALL):
            standing = denial.decision
        if scope == "session":
            self.allowed = None
        elif self.allowed is not None:
            self.allowed = frozenset((*self.state.policy.stopped, *self.allowed)[:_MOST_ALLOWED])
        return "" if standing is None else lasting(standing, self._settings)

    def noted(self, decision: Decision) -> Decision:
        """Returns a decision as it takes effect: only noted in a session a person allowed."""
        return replace(decision, shadow=True) if self.allowed is None else decision

    def write_loops(self) -> None:
        """Writes down where the loops of the last step stand, once its verdicts took effect."""
        shown_at, self._shown_at = self._shown_at, None
        if shown_at is not None and self.journal is not None:
            self.journal.loops(self.state.policy.shown(shown_at))

    def decided(self, decision: Decision) -> None:
        """Writes a decision down for other processes, but no mere note."""
        if decision.action is Action.ALLOW:
            return
        self.judged = True
        self._note_decided(decision)
        if self.journal is not None:
            self.journal.decided(decision)

    def _note_decided(self, decision: Decision) -> None:
        # A stall has the time of the clock, not of a step.
        if decision.detector != STALL and decision.time > self.decided_at:
            self.decided_at = decision.time

    def recall(self, past: JournalReplay) -> None:
        """Merges entries of its journal: earlier ones, and those of other processes."""
        state = self.state
        journal = self.journal
        if journal is None:
            return
        past.settle()
        for denied in past.denied:
            self.flag.recall_denial(denied, hint(denied))
        state.detectors.adopt(past.detectors, Evidence)
        calls = cast("ToolCallExtractor", state.extractors.made(ToolCallExtractor))
        calls.adopt(past.known.pace, past.known.habits, past.tools, past.rounds)
        state.policy.follow(past.policy)
        self.troubled = self.troubled or past.troubled
        journal.follow(past.known, past.calls, past.epochs, past.round, state.progress)
        standing = past.standing
        if standing is not None:
            self._note_decided(standing)
        if standing is None and self.flag.control.decision_id == journal.decision_id is not None:
            self.flag.lower()
        elif standing is not None and not self.flag.raised:
            journal.decision_id = standing.id
            said = hint(standing)
            self.flag.set(
                standing.action,
                reason=standing.message,
                hint=said,
                decision=standing,
                source="journal",
            )

    def _seen(self, step: Step, state: State) -> Sequence[Finding]:
        """Runs extractors, detectors and policy on a step."""
        # Steps without a round get a unique negative moment.
        progress, journal, troubled = state.progress, self.journal, self.troubled
        number = progress.calls if journal is None else progress.calls + journal.before.calls
        seen, moment = None, -progress.steps
        # Few detectors observe the bare step.
        found = self._observed(step) if step.kind in self._registry.by_kind else []
        for extractor in state.extractors.get(step):
            try:
                evidence: Any = extractor.extract(step)
            except Exception as fault:  # noqa: BLE001  # the others go on
                self._faults.caught(type(extractor).__name__, fault)
                continue
            if evidence is None:
                continue
            if isinstance(evidence, Evidence):
                self._note(step, evidence, state)
                seen, moment = evidence, evidence.round
                if step.name in self._exempt:
                    continue
                if troubled and (defied := self._made_again(step, seen, number)) is not None:
                    return defied
                found += state.detectors.observe(evidence)
            else:
                if troubled and isinstance(evidence, ModelAttempt) and evidence.error is None:
                    self._works_again(evidence.key)
                found += self._observed(evidence)
        if found:
            return self._judged(found, number, moment, step, seen)
        if troubled and step.kind is _TOOL:
            self._calm(seen, number)
        return ()

    def _observed(self, evidence: object) -> list[Detection]:
        """The detections in what is no call, with keys as the journal has them."""
        found = self.state.detectors.observe(evidence)
        return self.journal.covered(found) if found and self.journal is not None else found

    def _made_again(self, step: Step, seen: Evidence, number: int) -> Sequence[Finding] | None:
        """Returns the verdict on a call of a denied loop; None for any other call."""
        state = self.state
        call = seen.call
        if call and seen.error and state.policy.denies(call):
            return self._defied(call, seen.tool, number, seen.round, step, seen)
        if call and seen.changed and not seen.error:
            self._moved(call)
        return None

    def _moved(self, key: int) -> None:
        """Ends the loops of a call, and takes back what nobody has heard about them."""
        if self.flag.take_back(self.state.policy.moved(key)):
            self._mark("LOWERED")

    def _works_again(self, key: int) -> None:
        """Ends the loop of an agent's failing model calls, and what was decided about it."""
        state = self.state
        key = key if self.journal is None else self.journal.cover(key)
        if state.policy.knows(key):
            self._moved(key)
            if self.flag.raised and self.flag.is_heard and not state.policy.stops:
                self.flag.lower()
                self._mark("LOWERED")

    def _note(self, step: Step, seen: Evidence, state: State) -> None:
        """Writes a finished call down: for the journal, and for links and reports of later."""
        self.evidence = seen
        if self.journal is not None:
            self.journal.call(seen, opened=state.progress.epoch > seen.epoch)
        if step.span_id:
            firsts = state.firsts
            spot = step.trace_id, step.span_id, step.parent_id, step.end
            keys = (seen.call, seen.outcome)
            if seen.error:
                keys = (*keys, seen.error_shape, seen.error_line)
            for key in keys:
                if key is not None:
                    # Refreshed, so that calls of a continuing loop are not forgotten.
                    firsts[key] = firsts.pop(key, spot)
                    if len(firsts) > _FIRSTS:
                        del firsts[next(iter(firsts))]
        if not seen.fresh:
            state.policy.made_again(seen)
        if seen.effect is _WRITE and not seen.error:
            state.record.wrote(prepare(step).arguments)

    def _refused(self, step: Step) -> Sequence[Finding]:
        """Returns the verdict on a refused call of a denied loop: evidence of nothing else."""
        state = self.state
        progress = state.progress
        progress.refused += 1
        found: list[Detection] = []
        for extractor in state.extractors.get(step):
            # Budgets of time run on while calls are refused.
            if isinstance(extractor, UsageExtractor):
                spent = extractor.extract(step)
                found = [] if spent is None else state.detectors.observe(spent)
        moment = self._round_of(step)
        handoff = step.kind is Kind.HANDOFF
        call = self._covered(refused_to(step.name)) if handoff else self.call_of(step)
        key = call if handoff else self._denied_key(step)
        name = step.name or ""
        if self.troubled and key is not None and state.policy.denies(key):
            defied = self._defied(key, name, self._number, moment, step, None)
            return [one._replace(call=call, tool=name) for one in defied]
        if not handoff and name not in self._exempt:
            found = [*found, *self._only_refused(name, call)]
        judged = self._judged(found, self._number, moment, step, None) if found else ()
        return [
            one._replace(call=call, tool=name)
            if _ONLY_REFUSED in one.verdict.detection.keys
            else one
            for one in judged
        ]

    def _only_refused(self, name: str, call: int | None) -> Sequence[Detection]:
        """The detection of an agent that asks for nothing but calls that are refused.

        By breakers and checks, that is: no loop is denied that would end it.
        """
        state = self.state
        state.refusals = state.refusals or Refusals()
        turns = state.refusals.refused()
        if turns < _SILENT_TURNS or AGAIN not in self._registry.by_name:
            return ()
        keys = frozenset((_ONLY_REFUSED,) if call is None else (_ONLY_REFUSED, call))
        return (only_refused(keys, name, turns, _SILENT_TURNS),)

    def _round_of(self, step: Step) -> int:
        """Round of a refused call; a hand-off is a moment of its own."""
        calls = self._calls(step)
        if calls is None:
            return -self.state.progress.steps
        return calls.refused(step) + (0 if self.journal is None else self.journal.before.rounds)

    def _defied(  # noqa: PLR0913, PLR0917
        self, key: int, name: str, number: int, moment: int, step: Step, seen: Evidence | None
    ) -> list[Finding]:
        """Returns the verdict on a call that ran although its loop is denied."""
        defied = self.state.policy.defied(key, name, number, moment, self._hearing(step))
        self._shown_at = moment
        return [self._found(verdict, step, seen) for verdict in defied]

    def stalled(self, found: Detection, step: Step) -> list[Finding]:
        """Returns the findings about a step that runs too long."""
        state = self.state
        if found.reason.startswith(OPERATION):
            state.progress.late = "near" if found.reason.endswith("_near") else "limit"
        own = attended([found], self._settings, live=self.live)
        self.troubled = self.troubled or found.own is not Action.ALLOW
        covered = own if self.journal is None else self.journal.covered(own)
        verdicts = state.policy.judge(covered, self._number, -state.progress.steps)
        return [Finding(verdict, tool=step.name or "") for verdict in verdicts]

    def _judged(
        self, found: list[Detection], number: int, moment: int, step: Step, seen: Evidence | None
    ) -> list[Finding]:
        state = self.state
        if self.allowed:
            found = [one for one in found if not one.keys & self.allowed]
        self.detected = found = attended(found, self._settings, live=self.live)
        verdicts = state.policy.judge(
            found, number, moment, step.end or 0, self._hearing(step), seen
        )
        alone = len(state.agents) < _SEVERAL
        if seen is not None and self.journal is not None and alone and (step.agent or step.lane):
            # A process that has only its journal is asked about a call, and not whose it is.
            bare = Step(_TOOL, step.name, args=step.args, reading=step.reading)
            for key, other in zip(self._keys_of(step), self._keys_of(bare), strict=True):
                state.policy.add_key(key, other)
        self._shown_at = moment
        if any(map(is_cycle, found)):
            if self.cycles is None:
                self.cycles = CycleLog()
            self.cycles.observe(found, verdicts, state.progress.steps - 1)
        self.troubled = self.troubled or any(one.own is not Action.ALLOW for one in found)
        return [self._found(verdict, step, seen) for verdict in verdicts]

    def _hearing(self, step: Step) -> Hearing:
        """Returns what the runtime had heard when a step began."""
        flag = self.flag
        if not flag.asked:
            return UNASKED
        return Hearing(flag.heard_by(clock()), flag.standing, step.opened or step.start)

    def _found(self, verdict: Verdict, step: Step, seen: Evidence | None) -> Finding:
        """Returns a verdict with the spans that first showed the parts of its loop."""
        firsts = self.state.firsts
        spots = dict.fromkeys(firsts[key] for key in verdict.loop.keys if key in firsts)
        earlier = [spot[:2] for spot in spots if _precedes(spot, step)]
        shown = tuple(earlier[: self._settings.tuning.telemetry.links])
        return finding_of(verdict, step, seen)._replace(earlier=shown)

    def _start_over(self) -> None:
        """Resets the loops after the session was resumed."""
        state = self.state
        self._cleared = self.flag.cleared
        state.progress.raised = self.flag.raised_budgets
        state.policy.start_over()
        self._mark("CLEARED")
        self._end_cycles("cleared")
        self.user_turn()

    def _let_go(self, *, prompted: bool) -> None:
        """Starts the user's next turn: lifts stops and hints of the policy.

        A pause that people were asked about waits for their answer, for code may start a run, too.
        A message of the user is an answer.
        """
        state = self.state
        state.silence = None
        asked = self.flag.escalations > 0
        if asked and not prompted:
            return
        by = self.flag.control.by
        ruled = by == POLICY
        if by is not None and not ruled:
            # Only a person's control stays.
            if state.policy.ended:
                state.policy.start_over()
        elif (
            state.policy.ended
            or (ruled and self.flag.stops)
            or (self.flag.asked and state.policy.stops)
        ):
            self.flag.clear(by=PROMPT if asked else None)
            self._cleared = self.flag.cleared
            state.policy.start_over()
        elif ruled:
            self.flag.lower()

    def _model_called(self, step: Step) -> Sequence[Finding]:
        """Counts a model call in a denied session, where refusals may leave no span."""
        state = self.state
        if state.silence is None:
            state.silence = Silence()
        turns = state.silence.turn(step, self._settings.tuning.calls.wait_gap_s)
        if turns < _SILENT_TURNS or stops_handoffs(self.flag.control):
            return ()
        moment = -state.progress.steps
        unheeded = state.policy.unheeded(turns, self._number, moment, self._hearing(step))
        self._shown_at = moment
        return [Finding(verdict) for verdict in unheeded]

    def _calm(self, seen: Evidence | None, number: int) -> None:
        """Clears what was heard, or a deny that is over, after a call that shows no loop."""
        state, flag = self.state, self.flag
        over = state.policy.calm(number, succeeded=seen is not None and self._succeeded(seen))
        outside = seen is None or not state.policy.knows(seen.call)
        outside = outside and not stops_handoffs(flag.control)
        if flag.raised and ((over or outside) if flag.is_heard else (over and flag.stops)):
            flag.lower()
            self._mark("LOWERED")

    def _succeeded(self, seen: Evidence) -> bool:
        """True if a call brought something new, or changed the world."""
        if seen.error or seen.waits:
            return False
        new = seen.novelty is not None and seen.novelty >= NEWS
        before = self.journal.before.epochs if self.journal is not None else 0
        return new or self.state.progress.epoch + before > seen.epoch

    @property
    def _number(self) -> int:
        """The number of the next call, counting those before a restart and elsewhere."""
        before = self.journal.before.calls if self.journal is not None else 0
        return self.state.progress.calls + before

    def _mark(self, mark: MarkName, moment: int = 0) -> None:
        if self.journal is not None:
            self.journal.mark(mark, moment)

    def compacted(self) -> None:
        """Halves the counts after its context was compacted."""
        state = self.state
        state.record.happened("compactions")
        state.detectors.user_turn()
        state.policy.user_turn()

    def saved(self) -> SavedSession:
        """Returns the current counts for a later `restore`."""
        state = self.state
        progress, settings = state.progress, self._settings
        memo: dict[int, object] = {id(settings): settings, id(progress): progress}
        stopped = state.policy.ended or state.policy.stops
        return SavedSession(
            key=self.key, flag=weakref.ref(self.flag), progress=progress, task=progress.task,
            extractors=state.extractors.saved(dict(memo), _LASTING),
            detectors=state.detectors.saved(memo),
            policy=None if stopped else deepcopy(state.policy, dict(memo)),
            milestones=progress.milestones.saved(),
        )  # fmt: skip

    def restore(self, saved: SavedSession | None) -> None:
        """Its application went back to a checkpoint: what is done again is no repeat.

        What was counted since is taken back, and milestones and plan are as they were. What was
        spent stays spent. A pause and an abort stay, and so does whatever a person set.
        """
        state = self.state
        progress, settings, flag = state.progress, self._settings, self.flag
        progress.epoch += 1
        memo: dict[int, object] = {id(settings): settings}
        if saved is not None:
            memo[id(saved.progress)] = progress
            renew = saved.task != progress.task or saved.flag() is not flag
            progress.milestones.restore(saved.milestones, renew=renew)
        state.extractors.restore({} if saved is None else saved.extractors, dict(memo), _LASTING)
        state.detectors.restore({} if saved is None else saved.detectors, memo)
        if not (state.policy.ended or flag.control.action in (Action.PAUSE, Action.ABORT)):
            if saved is None or saved.policy is None:
                state.policy.start_over()
            else:
                state.policy = deepcopy(saved.policy, dict(memo))
            if flag.control.by == POLICY:
                flag.lower()
        state.silence = state.refusals = state.contexts = None
        self._mark("RESTORED")
        self._end_cycles("restored")

    def user_turn(self, began: int = 0) -> None:
        """Halves the counts after a user's message."""
        state = self.state
        self._mark("TURN", began)
        state.progress.turn += 1
        state.refusals = None
        state.detectors.user_turn()
        state.policy.user_turn()
        self._end_cycles("user_turn")

    def _end_cycles(self, how: str) -> None:
        if self.cycles is not None:
            self.cycles.end(how)


def _precedes(spot: _Spot, step: Step) -> bool:
    """True if a call had ended when a step began, and is not that step's span or below it.

    A link to a span below confuses Jaeger's page: it takes the link for the parent, and then draws
    nothing.
    """
    _, _, parent_id, end = spot
    return (end or 0) <= step.start and parent_id != step.span_id


def _tokens(said: int | None) -> int | None:
    """Tokens as far as they can be: a span may say anything."""
    return None if said is None else min(max(said, 0), _MOST_TOKENS)
