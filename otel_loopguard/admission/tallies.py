"""How often which execution choice was given, and how it was taken.

Source: FEATURES A10.
"""

from __future__ import annotations

import weakref
from collections import Counter
from typing import TYPE_CHECKING

from otel_loopguard.core import Acceptance, Choice

if TYPE_CHECKING:
    from collections.abc import Iterator

    from otel_loopguard.core import Admission
    from otel_loopguard.reports import Record


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


class Tallies:
    """Counts of one guard, in all and per session; a session's go with it. Not thread-safe.

    Attributes:
        estimates: How often an estimate rested on what.
        answers: How often which choice was `accepted` or `overridden`.
    """

    def __init__(self) -> None:
        self._all = _Tally()
        self._own: weakref.WeakKeyDictionary[Record, _Tally] = weakref.WeakKeyDictionary()
        self._answers: dict[str, Choice] = {}
        self.estimates: Counter[str] = Counter()
        self.answers: Counter[tuple[str, str]] = Counter()

    def given(self, admission: Admission, record: Record | None) -> None:
        """Counts an execution choice that was given, and what its estimates rest on."""
        choice = admission.choice
        self._all.choices[choice] += 1
        self.estimates.update(admission.factors.estimates.values())
        if record is not None:
            own = self._own.get(record)
            if own is None:
                own = self._own[record] = _Tally()
            own.choices[choice] += 1

    def answered(self, admission: Admission, choice: Choice, record: Record | None) -> bool:
        """Counts what a user chose; whoever speaks last is right.

        Returns:
            Whether the same was said of it before.
        """
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

    def acceptance(self, record: Record | None) -> Acceptance | None:
        """Of one session, or of all; None if nobody asked."""
        found = self._all if record is None else self._own.get(record)
        return None if found is None or not found.choices else found.acceptance

    def _of(self, record: Record | None) -> Iterator[_Tally]:
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
