"""What runs spent before a decision and after it, in steps and tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from otel_loopguard.cli.evaluate import LEVELS, Judgement

if TYPE_CHECKING:
    from otel_loopguard.core import Step
    from otel_loopguard.replay import Run


@dataclass(frozen=True, slots=True)
class Spent:
    """Steps, and the tokens of these steps."""

    steps: int
    tokens: int | None  # None if no step of the run has a number


@dataclass(frozen=True, slots=True)
class Cost:
    """What one run spent, around the first decision of a level.

    Before it: from the onset up to the decision, with the step it came at; to the end if there was
    none; for a healthy run nothing. After it: what a run that obeyed would have saved, or a healthy
    run that was stopped would have lost.
    """

    tier: str
    loop: bool
    level: str  # one of `LEVELS`
    reached: bool  # whether there was such a decision
    before: Spent
    after: Spent


def costs(run: Run, judged: Judgement) -> Iterator[Cost]:
    """The costs of a run at both levels; none if it has no label, or is stuck without an onset."""
    if run.loop is None or (run.loop and run.onset_step is None):
        return
    known = any(step.tokens is not None for step in run.steps)
    for level in LEVELS:
        at = judged.at(level)
        decided = len(run.steps) if at is None else min(at + 1, len(run.steps))
        onset = decided if run.onset_step is None else max(0, min(run.onset_step, decided))
        before = _spent(run.steps[onset:decided], known=known)
        after = _spent(run.steps[decided:], known=known)
        yield Cost(run.tier, run.loop, level, at is not None, before, after)


def cost_rows(found: Sequence[Cost]) -> Iterator[dict[str, object]]:
    """One row per tier and level.

    `median_steps` and `median_tokens` are from onset to decision, over the runs that were reached;
    `steps_after` and `tokens_after` are sums over these of what came after it, `…_share` its part
    of all that the tier's runs spent from onset to end. `tokens_known` is the number of runs that
    say how many tokens they took; the figures of tokens are over these.
    """
    for tier in sorted({cost.tier for cost in found}):
        for level in LEVELS:
            about = [cost for cost in found if cost.tier == tier and cost.level == level]
            known = [cost for cost in about if cost.after.tokens is not None]
            yield {
                "table": "cost",
                "tier": tier,
                "level": level,
                "n": len(about),
                "loops": sum(cost.loop for cost in about),
                "reached": sum(cost.reached for cost in about),
                **_figures(
                    "steps", [(cost, cost.before.steps, cost.after.steps) for cost in about]
                ),
                "tokens_known": len(known),
                **_figures(
                    "tokens",
                    [(cost, cost.before.tokens or 0, cost.after.tokens or 0) for cost in known],
                ),
            }


def _figures(name: str, about: Sequence[tuple[Cost, int, int]]) -> dict[str, object]:
    before = [spent for cost, spent, _ in about if cost.reached and cost.loop]
    after = sum(left for _, _, left in about)
    whole = sum(spent + left for cost, spent, left in about if cost.loop)
    return {
        f"median_{name}": median(before) if before else None,
        f"{name}_after": after if about else None,
        f"{name}_share": after / whole if whole else None,
    }


def _spent(steps: Sequence[Step], *, known: bool) -> Spent:
    return Spent(len(steps), sum(step.tokens or 0 for step in steps) if known else None)
