"""The base class of the shipped detectors, and their way of counting."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

from otel_loopguard._util.bounded import keep
from otel_loopguard._util.tables import read_table
from otel_loopguard.core import Action, Detection, Kind
from otel_loopguard.core.decision import Severity
from otel_loopguard.core.evidence import Effect, ErrorClass, Evidence

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

    from otel_loopguard._util.tables import Row
    from otel_loopguard.core.evidence import Moment
    from otel_loopguard.settings import Settings

# A member of an enum costs as much as a call in Python 3.11; these are asked for at every step.
READ: Final = Effect.READ
WRITE: Final = Effect.WRITE
WAIT: Final = Effect.WAIT
TRANSIENT: Final = ErrorClass.TRANSIENT


_FIELDS: Final = frozenset(Detection.__slots__)


class About(NamedTuple):
    """A detector's row in `rules.txt`; `wordings` are message and advice by rule."""

    wordings: dict[str, tuple[str, str]]
    tuned_by: tuple[str, ...] = ()
    sure: tuple[float, ...] = (1.0, 1.0, 0.0)
    strongest: Action | None = None


def table_of(rows: Iterable[Row]) -> dict[str, About]:
    """Reads the rows of such a table, by detector."""
    usual, found = "", dict[str, About]()
    for row in rows:
        detector, *rules = row.name.split()
        said = row.labelled("Sure", "Settings", "Up to", "Advice")
        if not rules:
            if said[""]:
                row.fail(f"expected Sure, Settings, Up to or Advice, got {said['']!r}")
            sure = tuple(map(float, said.get("Sure", "1 1 0").split()))
            strongest = Action(said["Up to"]) if "Up to" in said else None
            usual, settings = said.get("Advice", ""), tuple(said.get("Settings", "").split())
            found[detector] = About({}, settings, sure, strongest)
        wording = said[""], said.get("Advice", usual)
        found[detector].wordings.update(dict.fromkeys(rules, wording))
    return found


TABLE: Final = table_of(read_table(__name__, "rules.txt"))


class BaseDetector:
    """Base of the shipped detectors; users' own need only fit the `Detector` protocol.

    A subclass gives `name`, the evidence that it `takes`, its state in `reset`, and `observe`; and
    of its detections what is always the same. Its `family` is named as its module if it does not
    say otherwise. What cannot move it is kept from it: steps of other `kinds`, and evidence of
    which none of the attributes that are its `signs` is true. A `lasting` one is asked about
    everything from its first sign on.

    docs/detectors.md is made from these classes. The docstring has a question, and what the
    detector `Counts:`, `Leaves alone:` and `Cannot see:`. `rules` are its reasons, as `rules.txt`
    has them, and `tuned_by` its main settings, its threshold first. How sure a detection is, `sure`
    says: at most, at the threshold, and more with each beyond it. `strongest` is the furthest
    action that it leads to by default, where that is not `max_action`.
    """

    name: ClassVar[str]
    family: ClassVar[str]
    takes: ClassVar[type] = Evidence
    kinds: ClassVar[tuple[Kind, ...]] = tuple(Kind)
    signs: ClassVar[tuple[str, ...]] = ()
    lasting: ClassVar[bool] = False
    wordings: ClassVar[dict[str, tuple[str, str]]]
    rules: ClassVar[tuple[str, ...]]
    tuned_by: ClassVar[tuple[str, ...]]
    strongest: ClassVar[Action | None]
    sure: ClassVar[tuple[float, ...]]
    absolute: ClassVar[bool] = False
    digits: ClassVar[int] = 2
    max_action: ClassVar[Action] = Action.HINT
    intervention: ClassVar[str | None] = None
    _threshold_of: ClassVar[attrgetter[Any]]
    __slots__ = ("_settings",)

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "name" in vars(cls):
            cls.wordings, cls.tuned_by, cls.sure, cls.strongest = TABLE.get(cls.name, About({}))
            cls.rules = tuple(rule for rule in cls.wordings if "." not in rule)
            if cls.tuned_by:
                cls._threshold_of = attrgetter(cls.tuned_by[0])
            cls.family = getattr(cls, "family", cls.__module__.rpartition(".")[2])

    @classmethod
    def wanted(cls, settings: Settings) -> bool:
        """True if the detector can find anything with these settings."""
        del settings
        return True

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.reset()

    def reset(self) -> None:
        """Sets the state of a session without observations."""

    def user_turn(self) -> None:
        """A user spoke: what was observed before was done for another request."""
        self.reset()

    @property
    def threshold(self) -> Any:
        """The first setting that it is tuned by."""
        return self._threshold_of(self._settings)

    def found(
        self, rule: str, count: float, threshold: float, keys: int | frozenset[int],
        evidence: Evidence | None = None, **said: Any,
    ) -> Detection:  # fmt: skip
        """A detection by a rule: as the class says, but for the fields of `Detection` in `said`.

        All of `said` fills in the words of the rule, and so do the count, and the tool and the
        answer of the call that is the `evidence`. The threshold is shown as it holds for that call.
        """
        most, least, more = self.sure
        fields: dict[str, Any] = {
            "severity": Severity.WARNING, "max_action": self.max_action,
            "intervention": self.intervention, "reason": rule.partition(".")[0],
            "confidence": min(most, least + more * (count if self.absolute else count - threshold)),
            **{name: said[name] for name in _FIELDS & said.keys()},
        }  # fmt: skip
        message, advice = self.wordings[rule]
        said["count"] = count
        if evidence is not None:
            said["tool"], said["answer"] = evidence.tool, answer_of(evidence)
            threshold = evidence.shown(threshold)
        fields["advice"] = fields.get("advice") or (advice and advice.format_map(said))
        return Detection(
            self.name, keys=frozenset((keys,)) if isinstance(keys, int) else keys,
            count=round(count, self.digits), threshold=threshold, message=message.format_map(said),
            **fields,
        )  # fmt: skip


def critical_if(condition: bool) -> Severity:
    """Critical where a condition holds, otherwise a warning."""
    return Severity.CRITICAL if condition else Severity.WARNING


def answer_of(evidence: Evidence) -> str:
    """A call's result in words: `906-character answer`, `empty answer` or `61-character error`."""
    size = f"{evidence.outcome_size:,}-character" if evidence.outcome_size else "empty"
    return f"{size} {'error' if evidence.error else 'answer'}"


_ERRORS: Final = {
    ErrorClass.DETERMINISTIC: "error, which trying again does not change",
    ErrorClass.TRANSIENT: "error, which may be temporary",
    ErrorClass.UNKNOWN: "error",
}


def error_of(evidence: Evidence) -> str:
    """The error in words, with whether trying again may help, where that is known."""
    return _ERRORS[evidence.error_class]


ITEM: Final = 0.22
"""Weight of one of many items that do not exist: 14 of them, about a list that is checked by hand,
count as three."""
MASKED: Final = 0.8
"""Weight of a repeat that is equal once volatile values are masked by name. With it, fresh request
ids and clocks in every call change no figure of the recorded runs."""
GUESSED: Final = 0.6
"""The same for calls that differ in a value that only looks like a nonce: it may be their
subject."""
VALUES: Final = 0.15
"""The same for calls whose answers differ only in ids and times: each may be new."""
FADE: Final = 0.985
"""Share of a count that each call in between leaves; 46 calls halve it. Good calls and planning
come between the turns of a loop, and calls that are further apart are no loop."""
ACROSS: Final = 0.998
"""The same for what comes back over long stretches of work, such as a test that is run after each
change: with one every forty calls, the eighth counts as the sixth."""
FOREVER: Final[dict[str, Any]] = {"fade": 1.0, "earlier": 1.0, "window": 1 << 60}
"""Arguments of `Counts` for a count that neither fades nor is forgotten."""
_WINDOW: Final = 50
"""Calls after which a key that did not recur is forgotten: half of its count would have faded."""
_EARLIER: Final = 1 / 3
"""Share of a count that a change of the world leaves. Without it twice as many of 428 solved runs
are noticed, and two are stopped."""
_MOST: Final = 64
"""Keys per counter: more than a loop has; bounds memory."""
_ONCE: Final = 42
"""Keys that occurred once per counter: half of a count would have faded by then, and a table with
one key more takes twice the memory."""
_NOTHING: Final = 0.02
"""Count that is dropped as negligible: a fiftieth of one repeat."""
_CALLS: Final = 16
"""Different calls kept per count: a deny needs the newest, and no detector needs more."""


_FADED: Final = 0.1
"""Allowance for fading at a threshold: three calls with one in between count as 2.96."""


def reaches(count: float, threshold: float) -> bool:
    """True if a count reaches a threshold, with an allowance for fading."""
    return count >= threshold - _FADED


def surer(guess: float, times: int) -> float:
    """A guess after it was confirmed so often: each time takes a twentieth of the doubt."""
    return 1.0 - (1.0 - guess) * 0.95**times


@dataclass(slots=True)
class Count:
    """Calls that were counted under one key.

    Attributes:
        count: What they weigh together, in equivalents of one repeat.
        times: How many they are.
        since: When the first of them ended.
        mark: What their detector noted with the newest one.
        different: How many of them are different calls; those in `calls` are the newest.
        tools: Their tools.
    """

    count: float
    mark: tuple[Any, ...]
    since: int
    epoch: int
    round: int
    number: int
    calls: tuple[int, ...]
    tools: tuple[str, ...]
    different: int
    times: int = 1

    @classmethod
    def of(cls, moment: Moment, weight: float, *mark: Any) -> Count:
        """Starts the count with the first call."""
        call, tool, *at = moment
        calls = () if call is None else (call,)
        return cls(weight, mark, *at, calls=calls, tools=(tool,), different=len(calls))

    def add(self, evidence: Evidence) -> None:
        """Counts another call, but not what it weighs."""
        self.times += 1
        self.epoch, self.round, self.number = evidence.epoch, evidence.round, evidence.number
        if evidence.tool not in self.tools:
            self.tools = (*self.tools[1 - _CALLS :], evidence.tool)
        call = evidence.call
        if call is not None and call not in self.calls:
            self.different += len(self.calls) < _CALLS or evidence.fresh
            self.calls = (*self.calls[1 - _CALLS :], call)


class Counts:
    """Counts calls by key, each by its weight; calls of one round count once.

    Args:
        fade: What a count keeps for each call in between.
        earlier: What it keeps where the world was changed in between.
        window: Calls after which a key is forgotten that did not come again.
        rare: True if most keys come once. Of those a tuple is kept, which the garbage collector
            does not look at, and `scale` leaves them alone.
    """

    __slots__ = ("_earlier", "_fade", "_once", "_rare", "_window", "repeated")

    def __init__(
        self, *, fade: float = FADE, earlier: float = _EARLIER, window: int = _WINDOW,
        rare: bool = False,
    ) -> None:  # fmt: skip
        self._fade, self._earlier, self._window, self._rare = fade, earlier, window, rare
        self._once: dict[Any, tuple[Any, ...]] = {}
        self.repeated: dict[Any, Count] = {}

    def add(
        self, key: Hashable, last: Count | None, evidence: Evidence, weight: float = 1.0,
        *mark: Any, changes: bool = True,
    ) -> Count | None:  # fmt: skip
        """Counts a call by its weight, with a mark, beside what `get` has; None if it is the first.

        Without `changes` what was counted before a change counts in full.
        """
        if last is not None:
            self.forget(key)  # it comes back as the newest
        if last is None or evidence.number - last.number > self._window:
            first = evidence.moment, weight, *mark
            if self._rare:
                self._once[key] = first
                if len(self._once) > _ONCE:
                    del self._once[next(iter(self._once))]
            else:
                self._keep(key, Count.of(*first))
            return None
        count = last.count * self._fade ** max(evidence.number - last.number - 1, 0)
        if changes and evidence.epoch != last.epoch:
            count *= self._earlier
        last.count = count + (weight if evidence.round != last.round else 0.0)
        last.mark = mark
        last.add(evidence)
        self._keep(key, last)
        return last

    def _keep(self, key: Hashable, counted: Count) -> None:
        self.repeated[key] = counted
        if len(self.repeated) > _MOST:
            del self.repeated[next(iter(self.repeated))]

    def get(self, key: Hashable) -> Count | None:
        """The count of a key."""
        once = self._once.get(key)
        return self.repeated.get(key) if once is None else Count.of(*once)

    def forget(self, key: Hashable) -> None:
        """Forgets a key."""
        self._once.pop(key, None)
        self.repeated.pop(key, None)

    def scale(self, factor: Callable[[Any, Count], float]) -> bool:
        """Multiplies each count by what is given for it; whether any became less.

        What is next to nothing by then is forgotten, so that few are left to go through.
        """
        less = False
        for key, counted in [*self.repeated.items()]:
            left = factor(key, counted)
            if left < 1.0:
                less = True
                counted.count *= left
                if counted.count < _NOTHING:
                    del self.repeated[key]
        return less

    def halve(self) -> None:
        """Halves all counts."""
        # The half of a first call is nothing: what comes again has to begin anew.
        self._once.clear()
        self.scale(lambda _key, _one: 0.5)


class CountingDetector(BaseDetector):
    """A detector that counts calls, as `counting` says; a user's turn halves what was counted."""

    counting: ClassVar[dict[str, Any]] = {}
    __slots__ = ("_counts",)

    def reset(self) -> None:
        self._counts = Counts(**self.counting)

    def user_turn(self) -> None:
        self._counts.halve()


class Periods:
    """Counts, for each period, how long a sequence has been repeating itself.

    The run of `p` grows while a symbol equals the one `p` before it and falls to 0 otherwise, so
    that `r` turns of a cycle of `p` are `run(p) >= (r - 1) * p`. O(longest period) per symbol, O(1)
    for one that is not among the newest. A label can be kept with each symbol.
    """

    __slots__ = ("_labels", "_need", "_place", "_runs", "_symbols")

    def __init__(self, need: Sequence[int]) -> None:
        longest = len(need) - 1
        self._need = need
        self._symbols: list[int | None] = [None] * longest
        self._labels: list[Any] = [None] * longest
        self._runs: list[int] | None = None
        self._place = 0

    def __contains__(self, symbol: int) -> bool:
        """True if a symbol is among the newest, as many as the longest period."""
        return symbol in self._symbols

    def run(self, period: int) -> int:
        """Number of symbols in a row that equalled the one a period before them."""
        return self._runs[period] if self._runs else 0

    def add(self, symbol: int | None, label: object = None) -> int:
        """Adds a symbol (None equals nothing); gives the period that is found, or 0."""
        place, found = self._place, 0
        if symbol is not None and symbol in self._symbols:
            found = self._advance(symbol)
        else:
            self._runs = None
        self._symbols[place], self._labels[place] = symbol, label
        self._place = (place + 1) % len(self._symbols)
        return found

    def labels(self, period: int) -> list[Any]:
        """Labels of the symbols of the newest period, in order."""
        return (self._labels[self._place :] + self._labels[: self._place])[-period:]

    def restart(self) -> None:
        """Sets all runs to 0; the newest symbols stay."""
        self._runs = None

    def halve(self) -> None:
        """Halves all runs."""
        if self._runs:
            self._runs = [run // 2 for run in self._runs]

    def _advance(self, symbol: int) -> int:
        symbols, need, longest = self._symbols, self._need, len(self._symbols)
        runs = self._runs = self._runs or [0] * (longest + 1)
        found = 0
        for period in range(1, longest + 1):
            if symbols[(self._place - period) % longest] != symbol:
                runs[period] = 0
                continue
            runs[period] += 1
            if not found and 0 < need[period] <= runs[period]:
                found = period
        # One and the same symbol also has every other period; it is a cycle of one.
        return 0 if runs[1] and found > 1 else found


_SCORES: Final = 32
"""Names of numbers that are compared: a program prints few."""


@dataclass(slots=True)
class _Best:
    low: float
    high: float
    tries: int
    epoch: int
    round: int


class BestScores:
    """The lowest and the highest number under each name: which way is better is not known."""

    __slots__ = ("_bests",)

    def __init__(self) -> None:
        self._bests: dict[tuple[int, str, int], _Best] = {}

    def add(self, evidence: Evidence) -> tuple[int, bool] | None:
        """Tries since the best number, and whether this one is better than any before.

        None if the call measures nothing, or is the same try again.
        """
        if evidence.score is None:
            return None
        name, value = evidence.score
        key = (evidence.agent, evidence.tool, name)
        best = self._bests.get(key)
        if best is None:
            best = _Best(value, value, 0, evidence.epoch, evidence.round)
            keep(self._bests, key, best, _SCORES)
            return 0, False
        keep(self._bests, key, best, _SCORES)
        better = not best.low <= value <= best.high
        again = evidence.round == best.round or (
            not evidence.fresh and evidence.epoch == best.epoch and not evidence.changed
        )
        best.low, best.high = min(best.low, value), max(best.high, value)
        best.epoch, best.round = evidence.epoch, evidence.round
        if again and not better:
            return None
        best.tries = 0 if better else best.tries + 1
        return best.tries, better
