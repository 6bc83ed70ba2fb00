"""The progress of a session: its totals, phases, usage and milestones."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from otel_loopguard._util.text import StrEnum
from otel_loopguard.core.evidence import Evidence, Waited

_MILESTONES: Final = 256
"""Milestones of a session; a plan that is followed has its own, larger limit."""
_NAME_CHARS: Final = 200
"""Characters of a name."""
_NO_NEEDS: Final[Mapping[str, tuple[str, ...]]] = {}


class Reached(StrEnum):
    """The state of a milestone."""

    OPEN = "open"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Milestone:
    """One milestone."""

    reached: Reached
    share: float  # what it weighs in the whole; any unit, for only the ratio counts
    required: bool  # whether the task fails if it does
    change: int  # number of the change that it had last


class MilestoneStatus(NamedTuple):
    """Milestones of a session at one step."""

    done: int
    failed: int
    open: int  # still to come, as far as they were declared
    percent: float  # weight of those done, of all declared, 0 to 100
    # A required milestone that failed, or cannot start, while nothing is left that could succeed.
    hopeless: str | None
    steps: int  # since a milestone last changed
    seconds: float  # since then; 0 without times
    key: int  # identity of this standing; another one after every change
    blocked: int = 0  # open, and waiting for one that failed; not among `open`
    # Whether one is expected every few steps; the tasks of a plan may take any time.
    paced: bool = True
    starved: bool = False  # whether the hopeless one cannot start, and has not failed itself


class Milestones:
    """The board of one session: the application writes, the guard reads, and nobody waits.

    Every method is one or two assignments to a dict, which are atomic. At most 256 milestones are
    kept by name; of more the oldest that are done are only counted. The tasks of a plan that it
    follows are kept all, however many tasks the user's turns make of it.
    """

    __slots__ = (
        "__weakref__", "_known", "_of", "_passed", "_replaced", "_standing", "changes", "follows",
        "task_type",
    )  # fmt: skip

    def __init__(self) -> None:
        self._known: dict[str, Milestone] = {}
        self._of = self._passed = 0
        # Dependencies of the tasks of the plan that it follows, by id; empty without a plan.
        self.follows = _NO_NEEDS
        self._replaced: Mapping[str, tuple[str, ...]] | None = None
        self._standing: tuple[int, int, MilestoneStatus] | None = None
        # Two threads that change it at the same moment may count once; readers only compare it.
        self.changes = 0
        self.task_type: str | None = None

    @property
    def blank(self) -> bool:
        """True if nothing was ever written on it."""
        return not (self.changes or self._of or self.task_type)

    @property
    def by_person(self) -> bool:
        """True if the plan that it follows is one that a person gave."""
        return self._replaced is not None

    def follow(
        self,
        needs: Mapping[str, Sequence[str]],
        optional: Collection[str],
        *,
        by_person: bool = False,
    ) -> bool:
        """Declares the tasks of a plan, in place of what was declared before.

        What is done by name stays done. Every task weighs the same. The plan that a person replaced
        is not followed again where it is only said again. False, and nothing declared, if two ids
        are one in their first 200 characters.
        """
        cut = {
            name[:_NAME_CHARS]: tuple(need[:_NAME_CHARS] for need in on)
            for name, on in needs.items()
        }
        if len(cut) < len(needs):
            return False
        if by_person:
            self._replaced = self.follows if self._replaced is None else self._replaced
        elif self._replaced == cut:
            return True
        else:
            self._replaced = None
        # First: who reads in between must not take the tasks for milestones.
        self.follows = cut
        self._declare(dict.fromkeys(needs, 1.0), optional)
        return True

    def declare(self, shares: Mapping[str, float], optional: Collection[str]) -> None:
        """Declares the plan in place of the one before; what is done by name stays done."""
        self.follows = _NO_NEEDS
        self._replaced = None
        self._declare(dict(list(shares.items())[:_MILESTONES]), optional)

    def _declare(self, shares: Mapping[str, float], optional: Collection[str]) -> None:
        change = self.changes + 1
        before = self._known
        plan: dict[str, Milestone] = {}
        for name, share in shares.items():
            named = name[:_NAME_CHARS]
            known = before.get(named)
            done = known is not None and known.reached is Reached.DONE
            reached = Reached.DONE if done else Reached.OPEN
            plan[named] = Milestone(reached, share, name not in optional, change)
        self._known, self._of, self._passed = plan, 0, 0
        self.changes = change

    def report(self, name: str, reached: Reached, of: int | None = None) -> bool:
        """Says how far one has come, declared as optional if need be; False without room for it."""
        name = name[:_NAME_CHARS]
        known = self._known.get(name)
        if of is not None:
            self._of = of
        if known is not None and known.reached is reached:
            return True
        if known is None and len(self._known) >= _MILESTONES and not self._make_room():
            return False
        share, required = (known.share, known.required) if known else (1.0, False)
        change = self.changes + 1
        self._known[name] = Milestone(reached, share, required, change)
        self.changes = change
        return True

    def expects(self, name: str) -> bool:
        """True if a name may be one of its milestones: it is, or the plan has none by name."""
        if name[:_NAME_CHARS] in self._known:
            return True
        # What was only reported is optional, and no longer open.
        known = list(self._known.values())
        return not any(one.required or one.reached is Reached.OPEN for one in known)

    def names(self) -> tuple[str, ...]:
        """The names of all milestones."""
        return tuple(self._known)

    def adopt(self, other: Milestones) -> None:
        """Copies another board if this one is blank."""
        self.task_type = self.task_type or other.task_type
        if not self.changes:
            self._take(other)
            self.changes = other.changes

    def saved(self) -> Milestones:
        """A copy of the board as it is now."""
        copy = Milestones()
        copy._take(self)
        copy._known, copy.task_type = dict(list(self._known.items())), self.task_type
        return copy

    def _take(self, other: Milestones) -> None:
        self._known, self._of, self._passed = other._known, other._of, other._passed
        self.follows, self._replaced = other.follows, other._replaced

    def restore(self, saved: Milestones, *, renew: bool) -> None:
        """Puts the board back as it was; what was reached since is still to be reached.

        A plan that a person gave since stays the plan: of its tasks those are done that were.
        """
        change = self.changes + 1
        known = dict(saved._known)
        if renew:
            known = {name: replace(one, change=change) for name, one in known.items()}
        if self.by_person and self.follows != saved.follows:
            open_again = {
                name: replace(one, reached=Reached.OPEN, change=change)
                for name, one in list(self._known.items())
            }
            known = {name: known.get(name, one) for name, one in open_again.items()}
            self._of = self._passed = 0
        else:
            self._take(saved)
        self._known, self.task_type = known, saved.task_type
        self.changes = change

    def percent(self, since: int = 0) -> float:
        """Weight of those done, of all declared after change number `since`, 0 to 100."""
        known = self._since(since)
        done = sum(one.share for _, one in known if one.reached is Reached.DONE) + self._passed
        total = sum(one.share for _, one in known) + self._passed
        if self._of > len(known) + self._passed:
            total += self._of - len(known) - self._passed
        return round(100.0 * done / total, 1) if total > 0 else 0.0

    def standing(self, since: int, steps: int, seconds: float, key: int) -> MilestoneStatus:
        """The status, `steps` and `seconds` after the last change; `since` as for `percent`."""
        changes, before = self.changes, self._standing
        if before is None or before[:2] != (changes, since):
            # Kept until something changes: a plan may have a thousand tasks.
            before = self._standing = (changes, since, self._counted(since))
        return before[2]._replace(steps=steps, seconds=seconds, key=key)

    def state(self, name: str) -> Reached | None:
        """Returns the state of a milestone; None if there is none of this name."""
        known = self._known.get(name[:_NAME_CHARS])
        return None if known is None else known.reached

    def _counted(self, since: int) -> MilestoneStatus:
        known = self._since(since)
        blocked = self._blocked(known)
        states = [one.reached for _, one in known]
        done = states.count(Reached.DONE) + self._passed
        failed = states.count(Reached.FAILED)
        still = states.count(Reached.OPEN) + max(self._of - len(known) - self._passed, 0)
        still -= len(blocked)
        required = [(name, one.reached) for name, one in known if one.required]
        lost = [name for name, reached in required if reached is Reached.FAILED]
        starved = [name for name, _ in required if name in blocked]
        hopeless = next(iter((*lost, *starved)), None) if not still else None
        percent, paced = self.percent(since), not self.follows
        return MilestoneStatus(
            done, failed, still, percent, hopeless, 0, 0.0, 0, blocked=len(blocked), paced=paced,
            starved=hopeless in starved,
        )  # fmt: skip

    def _blocked(self, known: Sequence[tuple[str, Milestone]]) -> set[str]:
        """Open tasks that cannot start: a required task that they need is lost, or all that are.

        Dependencies come before what needs them.
        """
        needs = self.follows
        required = {name for name, one in known if one.required}
        lost: set[str] = set()
        blocked: set[str] = set()
        for name, one in known if needs else ():
            if one.reached is Reached.FAILED:
                lost.add(name)
                continue
            missing = lost.intersection(needs.get(name, ()))
            starved = missing and (missing & required or missing.issuperset(needs[name]))
            if one.reached is Reached.OPEN and starved:
                lost.add(name)
                blocked.add(name)
        return blocked

    def _since(self, since: int) -> list[tuple[str, Milestone]]:
        # `list` of a dict's items is one step; a loop over them would see other threads write.
        entries = list(self._known.items())
        if self.follows:
            # A plan that is followed goes on over the turns of a conversation, and several runs.
            return entries
        return [entry for entry in entries if entry[1].change > since]

    def _make_room(self) -> bool:
        """Counts the oldest optional milestone that is done, in place of keeping it."""
        for name, one in list(self._known.items()):
            if one.reached is Reached.DONE and not one.required:
                if self._known.pop(name, None) is not None:
                    self._passed += 1
                return True
        return False


_KEPT: Final = 48
"""Phases of a report, and of what a session keeps: a page of names."""
_SECOND: Final = 1e9
"""Nanoseconds."""


class Phase(NamedTuple):
    """One stretch of work: the agent that began it, and how long it took, if that is known."""

    name: str
    seconds: float | None


class Phases:
    """The newest 48 phases of one session; `over` are those that ended with the newest step."""

    __slots__ = ("_began", "_ended", "_name", "_past", "over")

    def __init__(self) -> None:
        self.over: tuple[Phase, ...] = ()
        self._past: tuple[Phase, ...] = ()
        self._name: str | None = None
        self._began = self._ended = 0

    def begin(self, name: str, start: int) -> None:
        """A phase begins, and the one before is over."""
        self.end()
        self._name, self._began, self._ended = name, start, 0

    def work(self, start: int, end: int) -> None:
        """A step of an agent is over; one that began before the phase is no part of it."""
        if start >= self._began and end > self._ended:
            self._ended = end

    def end(self) -> None:
        """Ends the current phase, if there is one."""
        if self._name is not None:
            over = Phase(self._name, self._seconds())
            self._name = None
            self._past = (*self._past, over)[-_KEPT:]
            self.over = (*self.over, over)

    def now(self) -> tuple[Phase, ...]:
        """The newest phases, oldest first; one that goes on is the last."""
        going_on = () if self._name is None else (Phase(self._name, self._seconds()),)
        return (*self._past, *going_on)[-_KEPT:]

    def _seconds(self) -> float | None:
        known = self._began > 0 and self._ended >= self._began
        return (self._ended - self._began) / _SECOND if known else None


@dataclass(slots=True)
class Progress:
    """Running totals of one session."""

    steps: int = 0
    # Finished tool calls. Windows and fading count these, so that it does not matter how many other
    # spans a framework writes in between.
    calls: int = 0
    refused: int = 0  # calls that the guard refused: the model asked for them, nothing was made
    models: int = 0
    answers: int = 0  # tool outcomes that were captured
    unseen: int = 0  # those that were not
    news: float = 0.0  # sum of the novelty of the answers, each 0 to 1
    repeats: int = 0  # answers that the same call had had before
    epoch: int = 0  # how often the world was changed, as far as can be told
    edits: int = 0  # and how often that was a file
    time: int = 0  # end of the newest step, nanoseconds since the epoch; 0 without times
    task: int = 0  # number of the user's task
    turn: int = 0  # number of the user's turn; unlike a task it has no end
    raised: Mapping[str, float] = field(
        default_factory=dict[str, float]
    )  # limits of budgets that a person raised, by name
    used: float = 0.0  # highest share used of any budget, 0 to 1
    late: str = ""  # what the timer said of the time limit of the task at hand: `near` or `limit`
    milestones: Milestones = field(default_factory=Milestones)
    phases: Phases = field(default_factory=Phases)
    call: Evidence | None = None  # of the newest tool call
    wait: Waited | None = None  # the one that goes on; None once something came of a call
    waited: Waited = field(default_factory=Waited)  # all of them


@dataclass(slots=True)
class AgentUsage:
    """Usage of one agent in a session: running totals, do not keep a reference."""

    actions: int = 0  # finished tool calls
    errors: int = 0  # those that failed, in a row
    tokens: int = 0
    cost: float = 0.0  # USD


class Remaining(NamedTuple):
    """The rest of each limit of a session as a whole; None where none was set.

    Of several limits of one thing, such as tool calls of the session and of the task at hand, it
    is the one with the least left.

    Attributes:
        steps: Steps.
        actions: Tool calls.
        tokens: Tokens.
        cost: Money, in USD.
        seconds: Time.
    """

    steps: int | None = None
    actions: int | None = None
    tokens: int | None = None
    cost: float | None = None
    seconds: float | None = None


@dataclass(slots=True)
class Usage:
    """Running totals of what one session spent. One object per session, counted on: never keep it.

    What was not captured is not counted: a model call without tokens adds none, so that every
    total reads "at least".
    """

    task: int = 0  # the user's word and the end of a run begin the next one
    steps: int = 0
    calls: int = 0
    actions: int = 0  # finished tool calls of the task at hand
    tokens_in: int = 0  # also where a source has one number for both
    tokens_out: int = 0
    tokens: int = 0
    step_tokens: int | None = None  # of this step; None if it is no model call, or they are unknown
    cost: float = 0.0  # USD, as far as spans or prices say it
    step_cost: float = 0.0  # of this step
    unpriced: int = 0  # model calls without a cost, where a budget of money asks for one
    raised: Mapping[str, float] = field(default_factory=dict[str, float])
    elapsed_s: float = 0.0  # from the start of the task's first step to the newest end
    late: str = ""  # see `Progress.late`
    phases: int = 0  # of the task at hand
    errors: int = 0  # failed tool calls in a row within the task at hand
    agent: str | None = None  # that did this step
    own: AgentUsage | None = None  # of that agent; None where it has no limits of its own
    task_type: str | None = None

    @property
    def tells_tokens(self) -> bool:
        """True if this step is a model call that says its tokens."""
        return self.step_tokens is not None
