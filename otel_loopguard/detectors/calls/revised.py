"""Does a tool revise a text again and again, with hardly anything changed?"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from xxhash import xxh3_64_intdigest as key_of

from otel_loopguard.core import Action, Detection, Severity

if TYPE_CHECKING:
    from otel_loopguard.core import Evidence
    from otel_loopguard.settings import Settings

_TRACKED: Final = 16


class RevisedInVain:
    """Counts calls in a row of one tool that revise: arguments and answer are nearly the last ones.

    Nearly means that 90 % of both are common, and that both have 200 characters or more: a draft
    goes in, a draft comes out, and two words differ. All short arguments have to be the same, or
    it is a letter to somebody else. It is `refinement_spiral` for tools. What other tools do in
    between does not matter; calls of one round are one. A detection from `revision_threshold` (6)
    on; it leads to a hint and no further. A call that fails or waits ends a row.

    Source: FEATURES W11; no recorded solved run has more than 1 in a row.
    """

    name = "revised_in_vain"
    family = "standstill"
    __slots__ = ("_rows", "_settings")

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._rows: OrderedDict[tuple[int, str], tuple[int, int]] = OrderedDict()

    def user_turn(self) -> None:
        """A user spoke: what is revised now was asked for."""
        self._rows.clear()

    def observe(self, evidence: Evidence) -> Detection | None:
        key = (evidence.agent, evidence.tool)
        count, last = self._rows.pop(key, (0, -1))
        if not evidence.revises or evidence.failing or evidence.waits:
            return None
        count += evidence.round != last
        self._rows[key] = (count, evidence.round)
        if len(self._rows) > _TRACKED:
            self._rows.popitem(last=False)
        threshold = self._settings.revision_threshold
        needed = evidence.needs(threshold)
        if count < needed:
            return None
        return Detection(
            detector=self.name,
            reason="revised_in_vain",
            severity=Severity.WARNING,
            confidence=min(0.8, 0.6 + 0.03 * (count - threshold)),
            keys=frozenset({key_of(f"{evidence.agent} {evidence.tool} revised".encode())}),
            count=count,
            threshold=evidence.shown(threshold),
            message=f"{evidence.tool!r} revised a text {count} times in a row, with hardly "
            "anything changed in what it got and what it gave",
            max_action=Action.HINT,
            advice="Take the text as it is, or say what exactly is still wrong with it.",
        )
