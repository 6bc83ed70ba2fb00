"""Mistakes: stuck runs that were missed and healthy ones that were not, for a person to judge."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from otel_loopguard.cli.output import line
from otel_loopguard.core import Action, Kind

if TYPE_CHECKING:
    from otel_loopguard.cli.accounts import Account
    from otel_loopguard.core import Decision, Step
    from otel_loopguard.recordings import Run

_BEFORE: Final = 5
_AFTER: Final = 2
_CELL: Final = 72


@dataclass(frozen=True, slots=True)
class Mistake:
    """One run that the guard got wrong, by its label.

    Attributes:
        kind: `missed` for a stuck run without a hint, `false alarm` for a healthy run with one.
        id: Name of the run.
        tier: How the label came about.
        source: Where the run comes from.
        steps: Length of the run.
        onset: Index of the step at which the label places the trouble, if it does.
        first: The first hint or stronger; None for a miss.
        strongest: The strongest action.
        around: The steps around the decision or the onset, in short, with their content.
    """

    kind: str
    id: str
    tier: str
    source: str
    steps: int
    onset: int | None
    first: Decision | None
    strongest: Action
    around: tuple[str, ...]

    def row(self) -> dict[str, object]:
        """The mistake as one JSON object."""
        first = self.first
        return {
            "table": "errors",
            "kind": self.kind,
            "id": self.id,
            "tier": self.tier,
            "source": self.source,
            "steps": self.steps,
            "onset": self.onset,
            "step": first.step if first else None,
            "detector": first.detector if first else None,
            "reason": first.reason if first else None,
            "message": first.message if first else None,
            "strongest": self.strongest.value,
            "around": list(self.around),
        }

    def text(self) -> Iterator[str]:
        """The mistake as lines to read."""
        where = "" if self.onset is None else f", onset {self.onset}"
        yield f"{self.kind}  {line(self.id, 80)}  ({line(self.tier)}, {self.steps} steps{where})"
        if self.first is not None:
            first = self.first
            yield (
                f"  {first.action} at {first.step} by {first.detector}/{first.reason}; strongest "
                f"{self.strongest}"
            )
            yield f"  {line(first.message, 200)}"
        yield from (f"    {each}" for each in self.around)


def mistake(run: Run, account: Account) -> Mistake | None:
    """What was wrong about a run; None if nothing was, or it has no label."""
    heard = (one for one in account.decisions if one.action.rank >= Action.HINT.rank)
    first = next(heard, None)
    if run.loop is None or run.loop is (first is not None):
        return None
    kind, at = ("missed", run.onset_step) if first is None else ("false alarm", first.step)
    around = tuple(_around(run.steps, len(run.steps) - 1 if at is None else at, forward=run.loop))
    strongest = account.strongest
    return Mistake(
        kind, run.id, run.tier, run.source, len(run.steps), run.onset_step, first, strongest, around
    )


def _around(steps: Sequence[Step], at: int, *, forward: bool) -> Iterator[str]:
    """Steps in short: of a miss mostly what came after, of an alarm what led to it."""
    before, after = (_AFTER, _BEFORE) if forward else (_BEFORE, _AFTER)
    for index in range(max(0, at - before), min(len(steps), at + after + 1)):
        yield f"{'>' if index == at else ' '} {index:4} {_short(steps[index])}"


def _short(step: Step) -> str:
    named = line(step.name, 32)
    if step.kind is Kind.TOOL:
        sign = "!" if step.error else "->"
        answer = step.error_text if step.error and step.error_text is not None else step.outcome
        return f"{named}({_cell(step.args)}) {sign} {_cell(answer)}"
    return f"{step.kind} {named}: {_cell(step.text if step.text is not None else step.args)}"


def _cell(value: object) -> str:
    return "?" if value is None else line(value, _CELL)
