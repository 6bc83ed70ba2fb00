"""Do the answers only say again what the calls themselves said?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from xxhash import xxh3_64_intdigest as key_of

from otel_loopguard.core import Action, Detection, Effect, Severity
from otel_loopguard.detectors.calls.row import Rows

if TYPE_CHECKING:
    from otel_loopguard.core import Evidence
    from otel_loopguard.settings import Settings

_SHORT: Final = 40
_LESS: Final = 0.8


class Echo:
    """Counts calls that got their own arguments back and nothing else.

    A program that prints the text that it holds looks busy and learns nothing. An answer is an echo
    if half or more of its pieces stand in the call's own arguments and it has 40 characters or
    more. Calls that change something and failures do not count; every call in between that is no
    echo takes a fifth. A detection from `echo_threshold` (3). It leads to a hint at most.

    Source: `notes/evidence.md`, row "echo" and lesson 7.
    """

    name = "echo"
    family = "standstill"
    __slots__ = ("_rows", "_threshold")

    def __init__(self, settings: Settings) -> None:
        self._threshold = settings.echo_threshold
        self._rows = Rows()

    def user_turn(self) -> None:
        self._rows.leak(0.5)

    def observe(self, evidence: Evidence) -> Detection | None:
        if not _echoes(evidence):
            self._rows.of(evidence.agent).leak(_LESS)
            return None
        count = self._rows.of(evidence.agent).add(evidence.round)
        if count < evidence.needs(self._threshold) - 0.1:
            return None
        return Detection(
            detector=self.name,
            reason="echo",
            severity=Severity.WARNING,
            confidence=min(0.8, 0.55 + 0.05 * (count - self._threshold)),
            keys=frozenset({key_of(f"{self.name}\0{evidence.tool}".encode())}),
            count=round(count, 2),
            threshold=evidence.shown(self._threshold),
            message=f"{evidence.tool!r} gave back what it was given {round(count)} times, "
            "and nothing else",
            max_action=Action.HINT,
        )


def _echoes(evidence: Evidence) -> bool:
    return (
        evidence.echo
        and not evidence.error
        and evidence.effect is not Effect.WRITE
        and evidence.outcome_size >= _SHORT
    )
