"""The control flag of a session as its runtime sees it, and what was told in place of results."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
import unicodedata
import weakref
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal

from otel_loopguard._util.backlog import settle_all
from otel_loopguard._util.bounded import BoundedDict
from otel_loopguard._util.clock import now as clock
from otel_loopguard._util.clock import steady, waits
from otel_loopguard._util.locks import new_lock
from otel_loopguard._util.worker import weak_reference
from otel_loopguard.core import Action, Decision, Kind
from otel_loopguard.core.progress import Milestones
from otel_loopguard.errors import REFUSALS, PlanError
from otel_loopguard.plans import MOST_FOLLOWED, checked, follow
from otel_loopguard.semconv import ERROR_DENY

if TYPE_CHECKING:
    import asyncio

    from otel_loopguard.core import Step
    from otel_loopguard.core.report import Memory
    from otel_loopguard.core.task import Task

BOARDS: Final[BoundedDict[str, Milestones]] = BoundedDict(1024)
"""Boards of sessions between their declaration and their first step: seconds, as a rule."""
RESULTS: Final[BoundedDict[str, deque[object]]] = BoundedDict(256)
"""Results so far of such sessions; of fewer, for results may be large."""
NOTES: Final[BoundedDict[str, Memory]] = BoundedDict(256)
"""Memory that such sessions keep."""


def board_of(key: str) -> Milestones:
    """The board that a session will get when its first step is seen."""
    return BOARDS.setdefault(key, Milestones())


def plan_of(tasks: object) -> list[Task]:
    """The tasks of a plan that a session can follow."""
    plan = checked(tasks)
    if not 0 < len(plan) <= MOST_FOLLOWED:
        raise PlanError(f"a session can follow 1 to {MOST_FOLLOWED} tasks, got {len(plan)}")
    return plan


def declare(board: Milestones, plan: Sequence[Task], *, by_person: bool = False) -> None:
    """Puts a plan on the board of a session."""
    if not follow(board, plan, by_person=by_person):
        raise PlanError("two ids of tasks are one in their first 200 characters")


class FlagObservers:
    """Callbacks for every change of every flag. Nothing here takes a lock."""

    def __init__(self) -> None:
        self._references: dict[Callable[[], Callable[[Flag], None] | None], None] = {}

    def add(self, observer: Callable[[Flag], None]) -> None:
        """Registers a callback for changes of any flag, called on the changing thread.

        The object of a bound method is held weakly.
        """
        self._references[weak_reference(observer)] = None

    def notify(self, flag: Flag) -> None:
        """Notifies observers of a change."""
        for reference in tuple(self._references):
            observer = reference()
            if observer is None:
                self._references.pop(reference, None)
            else:
                observer(flag)


OBSERVERS: Final = FlagObservers()


# Values of `Control.by` beside names of persons: a decision, a person without a name, the
# application itself, an unanswered escalation, and one that the user's next message came before.
POLICY: Final = "policy"
BY_HAND: Final = "by hand"
APPLICATION: Final = "application"
TIME_LIMIT: Final = "time limit"
PROMPT: Final = "the user's next message"
RESERVED: Final = frozenset({POLICY, BY_HAND, APPLICATION, TIME_LIMIT, PROMPT, "baggage"})
# Results may be whole pages, and stay in memory with the session.
PARTS: Final = 20
# A run is over before it has as many decisions; the oldest of them confirm nothing any more.
_HEARD: Final = 64
# Denied loops whose words are kept: a run is ended after a few.
_DENIALS: Final = 32
# Texts that wait for the model: hardly more are decided between two of its calls.
_TEXTS: Final = 4
# Longest wait: an interrupt may precede the wake-up.
_LONGEST_S: Final = 10.0
# Longest wait for the machine's clock, which may be set and runs while the machine sleeps.
_LOOK_S: Final = 1.0


Source = Literal["here", "journal", "notice"]


@dataclass(frozen=True, slots=True)
class Control:
    """The instruction to the runtime of a session, at this moment.

    Attributes:
        session: Key of the session; None where no session is known.
        action: What to do; `allow` where nothing is known.
        reason: Why, in a sentence; None where nobody did anything.
        hint: Text for the model's next messages; None for `allow`.
        decision: The decision behind it; None for `allow` and where a person set it.
        by: Who set it: `policy`, or the name of a person; None for `allow`.
        until: When it ends by itself, nanoseconds since the epoch, even if the machine's clock is
            set back; None: not by itself.
        source: Where it comes from: what was decided or said `here`, the `journal`, or a `notice`
            of another process. Only what comes from here is replicated.
        remote_decision_id: Id of the decision behind it, if another process made it.
    """

    session: str | None = None
    action: Action = Action.ALLOW
    reason: str | None = None
    hint: str | None = None
    decision: Decision | None = None
    by: str | None = None
    until: int | None = None
    source: Source = "here"
    remote_decision_id: str | None = None

    @property
    def decision_id(self) -> str | None:
        """Id of the decision behind it."""
        return self.decision.id if self.decision else self.remote_decision_id

    def __str__(self) -> str:
        """The hint for the model; the action where there is none."""
        return self.hint or self.reason or self.action.value


def _is_same_loop(one: Control, other: Control) -> bool:
    """True if both are decisions about one loop."""
    first, second = one.decision, other.decision
    return first is not None and second is not None and first.loop == second.loop


def is_reserved(name: str) -> bool:
    """True if a name is reserved for the guard itself, however it is written.

    Ignores case, spaces, compatible forms of letters and invisible characters.
    """
    seen = "".join(sign for sign in unicodedata.normalize("NFKC", name) if sign.isprintable())
    return " ".join(seen.replace("_", " ").casefold().split()) in RESERVED


NOTHING = Control()
"""The control where no session is known."""


class Flag:
    """Holds the `Control` of one session; readers take no lock.

    Only `clear` lifts an abort. A text for the model waits until it was heard (`is_heard`): a
    further decision is told after it, and takes its place only if it is about the same loop, or
    stops the session.

    Attributes:
        asked: True once its runtime asked. Then a rung counts only once it was heard.
        heard: When decisions were heard first, by id, nanoseconds since the epoch; the newest 64.
        denials: The newest 32 denies, by the id of their decision. Their loops may still be denied.
        let_through: The tool of the newest denied loop, and that of the first call that was asked
            about then and may run all the same; None once a call of a loop was refused.
        limit_s: Seconds that a gate waits at most, by default.
        cleared: How often it was cleared.
        parts: Results so far, which a stop carries along; the newest 20.
        refusals: What the session was told in place of results of calls; the newest 16.
        plan: The tasks that a person gave in place of the plan; empty for none.
        raised_budgets: Limits of budgets that a person raised, by name.
        escalations: How many open escalations hold the session.
    """

    def __init__(self, session: str, limit_s: float) -> None:
        self._control = Control(session)
        # On the steady clock: setting the machine's clock back prolongs no pause.
        self._ends = 0
        self._changed: threading.Condition | None = None
        # Each wakes a task, from any thread.
        self._waiters: tuple[Callable[[], object], ...] = ()
        self.limit_s = limit_s
        self.cleared = 0
        self._milestones = BOARDS.pop(session, None)
        self.parts: deque[object] | None = RESULTS.pop(session, None)
        self.refusals: tuple[str, ...] = ()
        self.plan: tuple[Task, ...] = ()
        self.raised_budgets: Mapping[str, float] = {}
        self.escalations = 0  # about this session, and open
        # What the control tells the model: each as it was set, and as it is with what was quoted.
        # The latter is content: it is given to the model of this process only, and is no part of
        # the control, which goes to stores, servers and logs.
        self._texts: tuple[tuple[Control, str], ...] = ()
        self._takes_hints = False  # whether its runtime ever did: then it tells nobody otherwise
        self._hint_taken: Control | None = None
        self._shown: Control | None = None  # the one that was given to its runtime last
        self._read: Control | None = None  # the one that was looked at last
        self.asked = False
        self.heard: Mapping[str, int] = {}
        self.denials: Mapping[str, Control] = {}
        self.let_through: tuple[str, str] | None = ("", "")

    @property
    def control(self) -> Control:
        """The control as it is now; everything that ended by now is judged."""
        settle_all()
        now = self._control
        return self._run_out(now) if self._is_over(now) else now

    def read(self) -> Control:
        """Returns the control to its runtime, which may show it to the model."""
        now = self._shown = self.look()
        return now

    def look(self) -> Control:
        """Returns the control to what asks for its runtime, and shows the model nothing."""
        now = self.control
        if now is not self._read:
            self.asked, self._read = True, now
            _unheard.pop(id(self), None)
            if now.decision_id is not None:
                self._note_heard(now.decision_id, clock())
        return now

    def hear(self, decision_id: str, at: int) -> None:
        """Notes when a decision was heard, by the model too; the first time counts."""
        self._note_heard(decision_id, at)
        now = self._control
        if now.decision_id == decision_id:
            self._hint_taken = now

    def _note_heard(self, decision_id: str, at: int) -> None:
        with _changing:
            newest = [(known, when) for known, when in self.heard.items() if known != decision_id]
            at = self.heard.get(decision_id, at)
            self.heard = dict([*newest, (decision_id, at)][-_HEARD:])

    def unhear(self, decision_id: str) -> None:
        """Takes back that a decision was heard: its answer did not arrive."""
        with _changing:
            self._read = self._shown = self._hint_taken = None
            self.heard = {known: at for known, at in self.heard.items() if known != decision_id}

    def heard_by(self, now: int) -> Mapping[str, int]:
        """When decisions were heard first: not after `now`, even if the clock was set back."""
        if self.heard and max(self.heard.values()) > now:
            with _changing:
                self.heard = {known: min(at, now) for known, at in self.heard.items()}
        return self.heard

    @property
    def is_heard(self) -> bool:
        """True if a call that shows no loop may lower it: it was heard, or nobody asks.

        A text is heard by who takes hints once it is taken, and by others once they were given the
        control. A refusal tells a deny again: looking is enough.
        """
        now = self._control
        if not self.asked:
            return True
        if now.action.stops:
            return now.decision_id is None or now.decision_id in self.heard
        shown = now is self._shown and not self._takes_hints
        return now.hint is None or shown or now is self._hint_taken

    @property
    def standing(self) -> str:
        """Id of its decision; empty without one."""
        # Called with the guard's lock held, so an expired control is not cleared here.
        return self._control.decision_id or ""

    @property
    def milestones(self) -> Milestones:
        """The board of its milestones; created on first use."""
        board = self._milestones
        if board is None:
            with _changing:
                board = self._milestones = self._milestones or Milestones()
        return board

    def drop_blank_board(self) -> None:
        """Drops a board without entries, unless it is in use elsewhere."""
        with _changing:
            if self._milestones is not None and self._milestones.blank:
                board = weakref.ref(self._milestones)
                self._milestones = None
                self._milestones = board()

    @property
    def stops(self) -> bool:
        """True if its action is deny, pause or abort."""
        # Not stored beside the control: an interrupt could separate the two.
        return self._control.action.stops

    @property
    def aborted(self) -> bool:
        """True if the session is aborted."""
        return self._control.action is Action.ABORT

    @property
    def held(self) -> bool:
        """True if the session is paused."""
        # Called with the condition held, so an expired control is not cleared here.
        now = self._control
        return now.action is Action.PAUSE and not self._is_over(now)

    @property
    def waits_for_people(self) -> bool:
        """True if it is paused, or a person stopped it: its session is evicted last of all."""
        # Called with the guard's lock held, so an expired control is not cleared here.
        now = self._control
        if now.action is Action.PAUSE:
            return self.held
        return now.action.stops and now.by not in (None, POLICY)

    @property
    def raised(self) -> bool:
        """True if its action is other than `allow`."""
        return self.control.action is not Action.ALLOW

    def rename(self, session: str) -> None:
        """Gives the session its final key."""
        with _changing:
            before = self._control
            now = self._control = replace(before, session=session)
            if self._hint_taken is before:
                self._hint_taken = now
            if self._shown is before:
                self._shown = now

    @property
    def quoting_hint(self) -> str | None:
        """The hint as `take_hint` gives it, with what was quoted."""
        now, said = self._control, "\n".join(quoting for _, quoting in self._texts)
        return now.hint and said

    def take_hint(self) -> str | None:
        """Returns the hint once; None afterwards, or if there is none."""
        self.look()
        with _changing:
            self._takes_hints, now = True, self._control
            if now.hint is None or now is self._hint_taken:
                return None
            self._hint_taken = now
            return self.quoting_hint

    def add_part(self, result: object) -> None:
        """Adds a result to those that a stop of the session carries."""
        with _changing:
            self.parts = self.parts or deque(maxlen=PARTS)
            self.parts.append(result)

    def drop_parts(self) -> None:
        """Drops these results: no stop will carry them."""
        with _changing:
            self.parts = None

    def adopt_parts(self, trace: str | None) -> None:
        """Adopts results that were kept under its trace before its key was known."""
        found = None if trace is None else RESULTS.pop(trace, None)
        if found:
            with _changing:
                self.parts = deque((*found, *(self.parts or ())), maxlen=PARTS)

    def set(  # noqa: PLR0913
        self,
        action: Action,
        *,
        reason: str | None = None,
        hint: str | None = None,
        quoting: str | None = None,
        decision: Decision | None = None,
        by: str | None = None,
        until: int | None = None,
        source: Source = "here",
        remote_decision_id: str | None = None,
    ) -> bool:
        """Updates the control and wakes waiters, unless the current one takes precedence.

        An abort does, but the policy's not before a person's, which stays longer; and a pause
        before every decision but an abort: a person set it.

        Args:
            action: What to do.
            reason: Why, in a sentence.
            hint: What to tell the model.
            quoting: The same with content, for the model of this process only.
            decision: The decision behind it.
            by: Who sets it; `policy` by default where there is a decision.
            until: When it ends by itself, nanoseconds since the epoch.
            source: Where it comes from, as of `Control`.
            remote_decision_id: Id of the decision behind it, where another process took that.

        Returns:
            True if it was set.
        """
        by = by or (POLICY if decision is not None else None)
        self.control  # noqa: B018  # clears it if it has expired
        with _changing:
            now = self._control.action
            paused = now is Action.PAUSE and decision is not None
            first = self._control.by in (None, POLICY) and by not in (None, POLICY)
            if now is Action.ABORT and not (first and action is Action.ABORT):
                return False
            if paused and action is not Action.ABORT:
                return False
            control = Control(
                self._control.session, action, reason, hint, decision, by, until, source,
                remote_decision_id,
            )  # fmt: skip
            waiting = () if self.is_heard or action.stops else self._texts
            waiting = tuple(one for one in waiting if not _is_same_loop(one[0], control))
            self._tell((*waiting, (control, quoting or hint or "")))
            if action is Action.DENY:
                self._deny(control)
        self._wake()
        return True

    def take_back(self, over: Collection[tuple[str | None, Action]]) -> bool:
        """Takes back texts of these decisions that nobody has heard yet; whether there are any."""
        with _changing:
            if self.is_heard:
                return False
            left = [one for one in self._texts if (one[0].decision_id, one[0].action) not in over]
            if len(left) == len(self._texts):
                return False
            self._tell(tuple(left))
        self._wake()
        return True

    def recall_denial(self, decision: Decision, hint: str) -> None:
        """Notes a deny of a journal, whose loop may still be denied."""
        with _changing:
            if decision.id not in self.denials:
                session, said = self._control.session, decision.message
                self._deny(
                    Control(session, Action.DENY, said, hint, decision, POLICY, source="journal")
                )

    def _deny(self, control: Control) -> None:
        self.denials = dict(
            [*self.denials.items(), (control.decision_id or "", control)][-_DENIALS:]
        )

    @property
    def denial(self) -> Control | None:
        """The deny that calls may be refused with: the one that stands, else the newest."""
        now = self._control
        known = (None, *self.denials.values())
        return now if now.action is Action.DENY else known[-1]

    def denial_of(self, tool: str, decision_id: str) -> Control | None:
        """What refuses a call of a denied loop, in words that are true of that call.

        Args:
            tool: Its tool.
            decision_id: Id of the decision that denied the loop.
        """
        found = self.denials.get(decision_id) or self.denial
        decision = None if found is None else found.decision
        if found is None or decision is None or decision.tool in ("", tool):
            return found
        told = f"{tool!r} is part of a denied loop with {decision.tool!r}: "
        return replace(found, reason=f"{told}{found.reason}", hint=f"{told}{found.hint}")

    def lower(self, source: Source = "here") -> None:
        """Clears a hint or a deny; a pause or an abort stays."""
        with _changing:
            now = self._control
            if now.action in (Action.ALLOW, Action.PAUSE, Action.ABORT):
                return
            self._put(Control(now.session, source=source))
        self._wake()

    def clear(
        self,
        *,
        by: str | None = None,
        hint: str | None = None,
        reason: str | None = None,
        source: Source = "here",
    ) -> None:
        """Clears everything, an abort too.

        Args:
            by: Who resumes the session.
            hint: What to tell the model, if anything.
            reason: Why, in a sentence.
            source: Where it comes from, as of `Control`.
        """
        with _changing:
            self.cleared += 1
            self.denials = {}
            action = Action.ALLOW if hint is None else Action.HINT
            now = Control(self._control.session, action, reason, hint, by=by, source=source)
            self._tell(((now, hint or ""),))
        self._wake()

    def resume(self, by: str, guidance: str | None) -> None:
        """Lets the session go on for a person; the guidance is a hint for the model."""
        why = f"resumed: {guidance}" if guidance else "resumed"
        self.clear(by=by, hint=guidance or None, reason=why)

    def wait(self, limit_s: float) -> bool:
        """Blocks while the session is paused, at most `limit_s` seconds; False at the limit.

        The limit is on a clock that nobody sets; the pause itself ends on that or on the guard's,
        whichever comes first.
        """
        changed = self._condition()
        left = waits(limit_s)
        deadline = time.monotonic() + left
        with changed:
            while self.held:
                left = min(left, deadline - time.monotonic())
                if left <= 0:
                    return False
                wait_s = min(left, self._next_check_s())
                # What was waited counts even where a test has stopped the clock (freezegun).
                left -= 0 if changed.wait(wait_s) else wait_s
        return True

    async def wait_async(self, limit_s: float) -> bool:
        """As `wait`, without blocking the loop of asyncio or trio. Costs no thread."""
        deadline = time.monotonic() + waits(limit_s)
        while self.held:
            wake, wait = _wake_and_wait()
            with self._condition():
                self._waiters = (*self._waiters, wake)
                held = self.held
            try:
                left_s = deadline - time.monotonic()
                if held and left_s <= 0:
                    return False
                if held:
                    await wait(min(left_s, self._next_check_s()))
            finally:
                with self._condition():
                    self._waiters = tuple(one for one in self._waiters if one is not wake)
        return True

    def _next_check_s(self) -> float:
        """Seconds until the next check whether the control has expired."""
        until = self._control.until
        if until is None:
            return _LONGEST_S
        left = min(until - clock(), self._ends - steady())
        return min(max(left / 1e9, 0.001), _LOOK_S)

    def _is_over(self, now: Control) -> bool:
        return now.until is not None and (clock() >= now.until or steady() >= self._ends)

    def _run_out(self, over: Control) -> Control:
        """Clears an expired control, unless it was changed meanwhile."""
        with _changing:
            if self._control is over:
                self._put(Control(over.session))
        self._wake()
        return self._control

    def _tell(self, texts: tuple[tuple[Control, str], ...]) -> None:
        """Puts the control that was set last, with the texts of all of them."""
        texts = texts[-_TEXTS:]
        now = texts[-1][0] if texts else Control()
        said = [one.hint for one, _ in texts if one.hint is not None]
        hint = "\n".join(said) if said else None
        self._put(replace(now, session=self._control.session, hint=hint), texts)

    def _put(self, control: Control, texts: tuple[tuple[Control, str], ...] = ()) -> None:
        if control.until is not None:
            # First: a concurrent reader must not end the new control at the end of the old one.
            self._ends = steady() + control.until - clock()
        unheard = self.asked and control.action is not Action.ALLOW
        # In this order an interrupt leaves a stale entry, and never a missing one.
        for table, listed in ((_unheard, unheard), (STOPPING, control.action.stops)):
            if listed:
                self._list(table)
        self._texts, self._control = texts, control
        for table, listed in ((_unheard, unheard), (STOPPING, control.action.stops)):
            if not listed:
                table.pop(id(self), None)

    def _list(self, table: dict[int, weakref.ref[Flag]]) -> None:
        """Adds it to a table, which forgets it when it is gone."""
        key = id(self)
        table[key] = weakref.ref(self, lambda _: table.pop(key, None))

    def _condition(self) -> threading.Condition:
        # Created on first use: hardly any session is ever waited for.
        with _changing:
            self._changed = self._changed or threading.Condition(_changing)
            return self._changed

    def _wake(self) -> None:
        OBSERVERS.notify(self)
        if self._changed is None:
            return
        with _changing:
            self._condition().notify_all()
            waiters, self._waiters = self._waiters, ()
        for wake in waiters:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                wake()


# One for all flags, held for an assignment or two.
_changing: Final = new_lock()
STOPPING: dict[int, weakref.ref[Flag]] = {}
"""Flags of sessions that are denied, paused or aborted. Usually none is, and then no flag has to
be looked up."""
_unheard: dict[int, weakref.ref[Flag]] = {}
"""Raised flags that a runtime which asks has not read since."""


_asked = False


def asks() -> None:
    """Records that something of this process asks what was decided, or is there to ask."""
    global _asked  # noqa: PLW0603
    _asked = True


def anybody_asks() -> bool:
    """True if anything of this process ever asked; else decisions stop nothing."""
    return _asked


def any_news() -> bool:
    """True if any session of this process is stopped, or has what its runtime has not read yet.

    Usually none has, and then no flag has to be looked up.
    """
    return bool(STOPPING or _unheard)


# What a session is told in place of a result is the guard's own words, which are no evidence. An
# adapter leaves a refused call as a span with `error.type` = `loopguard_deny`. Where a framework,
# or the application, makes a failed call or a result of it, it is known by the text that the
# session was told. The type of the exception alone does not say which session it was raised in.
_CALLS: Final = (Kind.TOOL, Kind.HANDOFF)
# Refused calls whose answers have not been seen yet: as a rule those of one answer of a model.
_UNANSWERED: Final = 16
_SHORT: Final = 20
"""Characters up to which a text, such as that of a check, may be part of another by chance."""
_AROUND: Final = 200
"""Characters that frameworks put around an exception's text, as in "Error: … Please fix it."."""
_unclaimed: deque[str] = deque(maxlen=_UNANSWERED)
"""What was told while no session was known; it may be about a call of any session."""


def note_refusal(flag: Flag | None, *texts: str | None) -> None:
    """Notes what a session was told in place of a result."""
    said = [text for text in texts if text]
    if flag is None:
        _unclaimed.extend(said)
        return
    flag.refusals = (*flag.refusals, *said)[-_UNANSWERED:]


def recognise(step: Step, flag: Flag) -> None:
    """Marks the step of a call that the guard refused, as an adapter marks its span."""
    if step.kind not in _CALLS or (step.error and step.refused):
        return
    raised = step.error and (step.error_type or "").rpartition(".")[2] in REFUSALS
    known = [*flag.refusals, *_unclaimed]
    for decision_id in flag.denials:
        # Another server refuses in the same words.
        if denial := flag.denial_of(step.name or "", decision_id):
            known += filter(None, (denial.hint, denial.reason))
    # Where it was stopped from another process, only that one knows what it was told.
    if (known and _is_told(step, known, raised=raised)) or (raised and (flag.held or flag.aborted)):
        step.error, step.error_type = True, ERROR_DENY
        step.reading = None


def _is_told(step: Step, known: Collection[str], *, raised: bool) -> bool:
    """True if the answer or the error of a call is what was told in its place.

    Of what was raised, the text may be hidden or cut.
    """
    # A hint may follow a result: only a text that is nothing else is no result.
    if isinstance(step.outcome, str) and step.outcome.strip() in known:
        return True
    said = step.error_text if step.error else None
    if said is None:
        return raised
    return any(
        said == one
        or (len(one) >= _SHORT and len(said) <= len(one) + _AROUND and one in said)
        or (raised and len(said) >= _SHORT and one.startswith(said))
        for one in known
    )


def running_trio() -> Any:
    """The module `trio` where a task of it runs here; else None."""
    trio = sys.modules.get("trio")  # whatever runs it has imported it
    if trio is not None:
        with contextlib.suppress(RuntimeError):
            trio.lowlevel.current_task()
            return trio
    return None


def _wake_and_wait() -> tuple[Callable[[], object], Callable[[float], Awaitable[object]]]:
    """Functions that wake this task, from any thread, and that wait for it, with a time limit."""
    trio = running_trio()
    if trio is not None:
        event = trio.Event()

        async def wait_for(limit_s: float) -> None:
            with trio.move_on_after(limit_s):
                await event.wait()

        return partial(trio.lowlevel.current_trio_token().run_sync_soon, event.set), wait_for
    import asyncio  # noqa: PLC0415  # a running loop has loaded it

    loop = asyncio.get_running_loop()
    future: asyncio.Future[None] = loop.create_future()

    async def done(limit_s: float) -> None:
        # Before Python 3.12 `wait_for` drops a cancellation that comes just after the wake-up.
        await asyncio.wait((future,), timeout=limit_s)

    return lambda: loop.call_soon_threadsafe(_finish, future), done


def _finish(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
