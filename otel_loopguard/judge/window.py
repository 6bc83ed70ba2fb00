"""The newest steps of a session, in short, and the weak signs that they show."""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING, Final, NamedTuple

from otel_loopguard.core import Kind
from otel_loopguard.excerpts import excerpt
from otel_loopguard.judge.question import Glance

if TYPE_CHECKING:
    from otel_loopguard.core import Step

_STEPS: Final = 20
_CHARS: Final = 300
_FEW: Final = 4
_SHORT: Final = 16
_HALF: Final = 0.5


class _Keys(NamedTuple):
    call: int | None
    answer: int | None
    text: int | None


class Window:
    """The newest 20 steps of a session, in O(1) per step.

    A weak sign is one that is common in healthy runs too, so that no detector acts on it: at least
    half of the calls failed, were made before, or got an answer that was given before, or at least
    half of the model's texts were said before; all of it within these steps, and from four on.
    """

    __slots__ = ("_answers", "_calls", "_errors", "_keys", "_steps", "_texts")

    def __init__(self) -> None:
        self._steps: deque[Glance] = deque()
        self._keys: deque[_Keys] = deque()
        self._calls: Counter[int] = Counter()
        self._answers: Counter[int] = Counter()
        self._texts: Counter[int] = Counter()
        self._errors = 0

    @property
    def steps(self) -> tuple[Glance, ...]:
        """The steps, the oldest first."""
        return tuple(self._steps)

    def add(self, number: int, step: Step) -> None:
        """Takes one step."""
        glance = _glance(number, step)
        keys = _keys(step.kind, glance)
        self._steps.append(glance)
        self._keys.append(keys)
        self._count(glance, keys, 1)
        if len(self._steps) > _STEPS:
            self._count(self._steps.popleft(), self._keys.popleft(), -1)

    def signs(self) -> tuple[str, ...]:
        """The weak signs, as sentences; empty if there are none."""
        calls = sum(glance.kind == "tool" for glance in self._steps)
        found: list[str] = []
        if calls >= _FEW and self._errors >= _HALF * calls:
            found.append(f"{self._errors} of {calls} calls failed")
        for counted, what in (
            (self._calls, "calls were made before"),
            (self._answers, "answers were given before"),
            (self._texts, "texts of the model were said before"),
        ):
            among = counted.total()
            again = among - len(counted)
            if among >= _FEW and again >= _HALF * among:
                found.append(f"{again} of {among} {what}")
        return tuple(found)

    def _count(self, glance: Glance, keys: _Keys, by: int) -> None:
        if glance.kind == "tool":
            self._errors += by * glance.error
        counters = (self._calls, self._answers, self._texts)
        for counter, key in zip(counters, keys, strict=True):
            if key is None:
                continue
            counter[key] += by
            if not counter[key]:
                del counter[key]


def _glance(number: int, step: Step) -> Glance:
    said = step.text if step.kind is Kind.MODEL else step.args
    answer = step.error_text if step.error and step.error_text is not None else step.outcome
    return Glance(
        number, step.kind.value, excerpt(step.name, 100), excerpt(said, _CHARS),
        excerpt(answer, _CHARS), step.error,
    )  # fmt: skip


def _keys(kind: Kind, glance: Glance) -> _Keys:
    """What can be compared; short answers coincide, and what was not captured is unknown."""
    said = hash((glance.name, glance.said)) if glance.said else None
    if kind is Kind.MODEL:
        return _Keys(None, None, said)
    if kind is not Kind.TOOL:
        return _Keys(None, None, None)
    answer = hash(glance.answer) if len(glance.answer) >= _SHORT else None
    return _Keys(said, answer, None)
