"""What the shipped detectors share."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, Final

from otel_loopguard.core import Action, Detection, Effect, ErrorClass, Evidence, Kind, Severity

if TYPE_CHECKING:
    from otel_loopguard.settings import Settings

# A member of an enum costs as much as a call in Python 3.11; these are asked for at every step.
READ: Final = Effect.READ
WRITE: Final = Effect.WRITE
WAIT: Final = Effect.WAIT
TRANSIENT: Final = ErrorClass.TRANSIENT


class BaseDetector:
    """Base of the shipped detectors; users' own need only fit the `Detector` protocol.

    A subclass gives `name`, `family`, the evidence that it `takes`, its state in `reset`, and
    `observe`; and of its detections what is always the same. What cannot move it is kept from it:
    steps of other `kinds`, and evidence of which none of the attributes that are its `signs` is
    true. A `lasting` one is asked about everything from its first sign on.

    docs/detectors.md is made from these classes. The docstring has a question, and what the
    detector `Counts:`, `Leaves alone:` and `Cannot see:`. `rules` are its reasons, the usual one
    first, and `tuned_by` its main settings, its threshold first. `strongest` is the furthest action
    that it leads to by default, where that is not `max_action`.
    """

    name: ClassVar[str]
    family: ClassVar[str]
    takes: ClassVar[type] = Evidence
    kinds: ClassVar[tuple[Kind, ...]] = tuple(Kind)
    signs: ClassVar[tuple[str, ...]] = ()
    lasting: ClassVar[bool] = False
    rules: ClassVar[tuple[str, ...]] = ()
    tuned_by: ClassVar[tuple[str, ...]] = ()
    strongest: ClassVar[Action | None] = None
    sure: ClassVar[tuple[float, float, float]] = (1.0, 1.0, 0.0)
    absolute: ClassVar[bool] = False
    digits: ClassVar[int] = 2
    max_action: ClassVar[Action] = Action.HINT
    advice: ClassVar[str] = ""
    intervention: ClassVar[str | None] = None
    __slots__ = ("_settings",)

    @classmethod
    def wanted(cls, settings: Settings) -> bool:
        """Whether these settings have any use for it."""
        del settings
        return True

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.reset()

    def reset(self) -> None:
        """Sets the state of a session of which nothing was observed."""

    def user_turn(self) -> None:
        """A user spoke: what was observed before was done for another request."""
        self.reset()

    @property
    def threshold(self) -> Any:
        """The first setting that it is tuned by."""
        return attrgetter(self.tuned_by[0])(self._settings)

    def found(
        self, message: str, count: float, threshold: float, keys: int | frozenset[int],
        evidence: Evidence | None = None, **said: Any,
    ) -> Detection:  # fmt: skip
        """A detection: as the class says, but for the fields of `Detection` that are `said`.

        The threshold is shown as it holds for the call that is the `evidence`, if one is given.
        """
        # At most, at the threshold, and more with each beyond it.
        most, least, more = self.sure
        confidence = min(most, least + more * (count if self.absolute else count - threshold))
        fields: dict[str, Any] = {
            "severity": Severity.WARNING, "confidence": confidence, "max_action": self.max_action,
            "intervention": self.intervention, **said,
        }  # fmt: skip
        fields["reason"] = said.get("reason") or self.rules[0]
        fields["advice"] = said.get("advice") or self.advice
        return Detection(
            self.name,
            keys=frozenset((keys,)) if isinstance(keys, int) else keys,
            count=round(count, self.digits),
            threshold=threshold if evidence is None else evidence.shown(threshold),
            message=message,
            **fields,
        )


def critical_if(condition: bool) -> Severity:
    """Critical where a condition holds, otherwise a warning."""
    return Severity.CRITICAL if condition else Severity.WARNING


def answer_of(evidence: Evidence) -> str:
    """What a call returned, as `906-character answer`, `empty answer` or `61-character error`."""
    size = f"{evidence.outcome_size:,}-character" if evidence.outcome_size else "empty"
    return f"{size} {'error' if evidence.error else 'answer'}"


def error_of(evidence: Evidence) -> str:
    """What kind of error it was, as `transient error`; `error` where that is not known."""
    known = evidence.error_class is not ErrorClass.UNKNOWN
    return f"{evidence.error_class} error" if known else "error"
