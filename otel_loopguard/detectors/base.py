"""Base class and helpers of the shipped detectors."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

from otel_loopguard._util.tables import read_table
from otel_loopguard.core import Action, Detection, Kind
from otel_loopguard.core.decision import Severity
from otel_loopguard.core.evidence import Effect, ErrorClass, Evidence

if TYPE_CHECKING:
    from collections.abc import Iterable

    from otel_loopguard._util.tables import Row
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
            if said[""] or detector in found:
                row.fail(f"expected it once, with Sure, Settings, Up to, Advice, got {said['']!r}")
            try:
                sure = tuple(map(float, said.get("Sure", "1 1 0").split()))
                strongest = Action(said["Up to"]) if "Up to" in said else None
            except ValueError as error:
                row.fail(str(error))
            usual, settings = said.get("Advice", ""), tuple(said.get("Settings", "").split())
            found[detector] = About({}, settings, sure, strongest)
        if detector not in found:
            row.fail("expected a row of the detector above it")
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
