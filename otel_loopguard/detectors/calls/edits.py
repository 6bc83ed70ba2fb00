"""Is one file edited again and again, and what is tried on it never passes?"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from rapidfuzz import fuzz

from otel_loopguard.core import Action, Detection, ErrorClass, Severity
from otel_loopguard.detectors.calls.best import Bests

if TYPE_CHECKING:
    from otel_loopguard.core import Evidence
    from otel_loopguard.settings import Settings

_FILES: Final = 64
_FAILED: Final = 16
_ALIKE: Final = 60.0
"""Percent of two commands that are common where they try the same."""


class _Failed(NamedTuple):
    """What was tried, and failed."""

    tool: str
    call: int | None
    sample: str


@dataclass(slots=True)
class _Edited:
    """Edits of one file, each with a failure after the one before, and the number of the last."""

    edits: int
    last: int


class RepeatedEdit:
    """Counts edits of one file between which a test, a build or a program failed.

    A file is what `file_path`, `path`, `filename` or the like names in a call that writes. An edit
    counts if something that runs failed, or an answer turned down what was tried, since the edit
    before: a file that is written in many parts is work. A green result begins anew for all files:
    what failed before passes now, the same call or one whose arguments are alike by 60 %, or a
    number that is measured (failures, a score) is better than ever. A detection from
    `edit_threshold` (12) edits on; it leads to a hint and no further, for hard problems take many
    tries.

    Edits that fail, failures that were no try (wrong usage, no such command) and transient errors
    do not count.

    Source: `notes/agents.md`, wish 8; on 471 recorded solved runs no file had more than 3.
    """

    name = "repeated_edit"
    family = "standstill"
    __slots__ = ("_bests", "_edited", "_failed", "_last_failed", "_settings")

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.user_turn()

    def user_turn(self) -> None:
        """What was edited before was edited for something else."""
        self._edited: OrderedDict[int, _Edited] = OrderedDict()
        self._failed: deque[_Failed] = deque(maxlen=_FAILED)
        self._bests = Bests()
        self._last_failed = -1

    def observe(self, evidence: Evidence) -> Detection | None:
        if evidence.file is None:
            self._tried(evidence)
            return None
        if evidence.failing:
            return None
        edited = self._edited.pop(evidence.file, None)
        again = edited is not None and self._last_failed > edited.last
        edits = 1 if edited is None else edited.edits + again
        self._edited[evidence.file] = _Edited(edits, evidence.number)
        if len(self._edited) > _FILES:
            self._edited.popitem(last=False)
        threshold = self._settings.edit_threshold
        if not again or edits * self._settings.sensitivity < threshold:
            return None
        return Detection(
            detector=self.name,
            reason="no_green_result",
            severity=Severity.WARNING,
            confidence=min(0.8, 0.6 + 0.03 * (edits - threshold)),
            keys=frozenset({evidence.file}),
            count=edits,
            threshold=threshold,
            message=f"one file was edited {edits} times, and what was tried after each edit failed",
            max_action=Action.HINT,
            advice="Find out why it fails before the next edit, or go back to what worked.",
        )

    def _tried(self, evidence: Evidence) -> None:
        """Notes what failed; what passes now, or measures better than ever, begins anew."""
        measured = self._bests.add(evidence)
        if measured is not None and measured[1]:
            self._edited.clear()
        failed = evidence.failing or evidence.rejects
        if not failed:
            if self._failed and any(self._same(one, evidence) for one in self._failed):
                self.user_turn()
            return
        if evidence.refused or not (evidence.runs_code or evidence.rejects):
            return
        if evidence.error_class is ErrorClass.TRANSIENT:
            return
        self._failed.append(_Failed(evidence.tool, evidence.call, evidence.sample))
        self._last_failed = evidence.number

    @staticmethod
    def _same(failed: _Failed, evidence: Evidence) -> bool:
        """Whether a call tries what failed: without their arguments nobody can tell, so it does."""
        if failed.tool != evidence.tool:
            return False
        if failed.call is None or failed.call == evidence.call or not failed.sample:
            return True
        return fuzz.ratio(failed.sample, evidence.sample, score_cutoff=_ALIKE) > 0
