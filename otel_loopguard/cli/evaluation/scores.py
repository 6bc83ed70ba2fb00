"""How often a detector was right about labelled runs, how soon, and at what cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import sqrt
from random import Random
from statistics import median
from typing import TYPE_CHECKING, Final

from otel_loopguard.cli.output import line
from otel_loopguard.core import Action, Kind

if TYPE_CHECKING:
    from otel_loopguard.cli.replay import ReplayResult
    from otel_loopguard.core import Decision, Step
    from otel_loopguard.replay import Run

_Z: Final = 1.959964
_SAMPLES: Final = 1000
_TAIL: Final = 0.025


def wilson(hits: float, of: float) -> tuple[float, float]:
    """Wilson's 95 % interval of a share."""
    share, square = hits / of, _Z * _Z
    middle = (share + square / (2 * of)) / (1 + square / of)
    half = _Z / (1 + square / of) * sqrt(share * (1 - share) / of + square / (4 * of * of))
    return max(0.0, middle - half), min(1.0, middle + half)


def interval(found: Iterable[tuple[str, bool]]) -> tuple[float, float] | None:
    """The 95 % interval of a share among runs of which some are related.

    Runs that stand alone give Wilson's interval. Where several runs share a group (agents at one
    task), whole groups are drawn 1,000 times with replacement, from a fixed seed; where all runs or
    none are hits, so that drawing shows no spread, it is Wilson's with the groups as its number.
    """
    single: list[tuple[int, int]] = []
    groups: dict[str, tuple[int, int]] = {}
    for group, hit in found:
        if group:
            hits, of = groups.get(group, (0, 0))
            groups[group] = (hits + hit, of + 1)
        else:
            single.append((int(hit), 1))
    counts = Counter([*single, *groups.values()])
    return _of_groups(tuple(sorted(counts.items()))) if counts else None


@lru_cache(maxsize=1024)
def _of_groups(counts: tuple[tuple[tuple[int, int], int], ...]) -> tuple[float, float]:
    hits = sum(one[0] * times for one, times in counts)
    runs = sum(one[1] * times for one, times in counts)
    groups = sum(times for _, times in counts)
    if groups == runs or hits in (0, runs):
        return wilson(hits / runs * groups, groups)
    return _drawn([one for one, _ in counts], [times for _, times in counts], groups)


def _drawn(
    kinds: Sequence[tuple[int, int]], weights: list[int], groups: int
) -> tuple[float, float]:
    dice = Random(groups)  # noqa: S311  # the same figures in every run
    shares: list[float] = []
    for _ in range(_SAMPLES):
        drawn = Counter(dice.choices(kinds, weights, k=groups))
        hits = sum(one[0] * times for one, times in drawn.items())
        shares.append(hits / sum(one[1] * times for one, times in drawn.items()))
    shares.sort()
    low = round(_TAIL * (_SAMPLES - 1))
    return shares[low], shares[-1 - low]


ALL: Final = "all"
"""Stands for every tier, or every source."""

LEVELS: Final = ("noticed", "stopped")
"""What is scored: a hint or stronger; a deny, pause or abort."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """The verdicts of one detector on one labelled run; the fields are those of `Run`."""

    detector: str
    tier: str
    source: str
    loop: bool | None
    steps: int
    onset: int | None
    noticed: int | None  # index of the step of the first hint or stronger
    stopped: int | None  # index of the step of the first deny, pause or abort
    group: str = ""

    def at(self, level: str) -> int | None:
        """Index of the step of the first decision of a level; see `LEVELS`."""
        return self.noticed if level == "noticed" else self.stopped


def judgement(detector: str, run: Run, verdicts: Iterable[tuple[int, Action]]) -> Judgement:
    """The judgement that a detector's verdicts make."""
    noticed = stopped = None
    for step, action in verdicts:
        if noticed is None and action.rank >= Action.HINT.rank:
            noticed = step
        if action.stops:
            stopped = step
            break
    return Judgement(
        detector, run.tier, run.source, run.loop, len(run.steps), run.onset_step, noticed, stopped,
        run.group,
    )  # fmt: skip


def score(detector: str, tier: str, source: str, about: Sequence[Judgement]) -> dict[str, object]:
    """One row of figures.

    Runs without a label count in `n`, `unlabelled` and `unlabelled_*` only. `…_recall` is a share
    of the stuck runs, `…_false` of the healthy ones, each with `…_low` and `…_high`, its 95 %
    interval. `false_stops_per_1000` is false positives at "stopped" in 1,000 steps of healthy runs.
    The medians are over true positives with an onset; below 0 is before it. What cannot be said
    (nothing to divide by) is None.
    """
    looping = [judged for judged in about if judged.loop is True]
    healthy = [judged for judged in about if judged.loop is False]
    unlabelled = [judged for judged in about if judged.loop is None]
    steps = sum(judged.steps for judged in healthy)
    false_stops = _count(healthy, "stopped")
    return {
        "table": "scores",
        "detector": detector,
        "tier": tier,
        "source": source,
        "n": len(about),
        "loops": len(looping),
        "healthy": len(healthy),
        "unlabelled": len(unlabelled),
        **_rates("noticed", looping, healthy),
        **_rates("stopped", looping, healthy),
        "unlabelled_noticed": _count(unlabelled, "noticed"),
        "unlabelled_stopped": _count(unlabelled, "stopped"),
        "healthy_steps": steps,
        "false_stops_per_1000": 1000 * false_stops / steps if steps else None,
    }


def score_rows(judgements: Sequence[Judgement]) -> Iterator[dict[str, object]]:
    """The figures of every detector: in all, per tier, per source, per tier and source."""
    detectors = list(dict.fromkeys(judged.detector for judged in judgements))
    for tier, source in _slices(judgements):
        for detector in detectors:
            about = [
                judged
                for judged in judgements
                if judged.detector == detector
                and tier in (ALL, judged.tier)
                and source in (ALL, judged.source)
            ]
            yield score(detector, tier, source, about)


def _slices(judgements: Sequence[Judgement]) -> Iterator[tuple[str, str]]:
    pairs = sorted({(judged.tier, judged.source) for judged in judgements})
    yield ALL, ALL
    for tier in sorted({tier for tier, _ in pairs}):
        yield tier, ALL
    for source in sorted({source for _, source in pairs}):
        yield ALL, source
    yield from pairs


def _rates(
    level: str, looping: Sequence[Judgement], healthy: Sequence[Judgement]
) -> dict[str, object]:
    found, wrong = _count(looping, level), _count(healthy, level)
    return {
        f"{level}_tp": found,
        f"{level}_fp": wrong,
        f"{level}_precision": found / (found + wrong) if found + wrong else None,
        **_share(f"{level}_recall", looping, level),
        **_share(f"{level}_false", healthy, level),
        f"{level}_median_steps": _delay(looping, level),
    }


def _share(name: str, about: Sequence[Judgement], level: str) -> dict[str, object]:
    bounds = interval((judged.group, judged.at(level) is not None) for judged in about)
    low, high = bounds or (None, None)
    share = _count(about, level) / len(about) if about else None
    return {name: share, f"{name}_low": low, f"{name}_high": high}


def _count(about: Sequence[Judgement], level: str) -> int:
    return sum(judged.at(level) is not None for judged in about)


def _delay(looping: Sequence[Judgement], level: str) -> float | None:
    delays = [
        at - judged.onset
        for judged in looping
        if judged.onset is not None and (at := judged.at(level)) is not None
    ]
    return median(delays) if delays else None


_BEFORE: Final = 5
_AFTER: Final = 2
_CELL: Final = 72


@dataclass(frozen=True, slots=True)
class Mistake:
    """A run whose label the guard contradicts."""

    kind: str  # `missed` for a stuck run without a hint, `false alarm` for a healthy run with one
    id: str
    tier: str
    source: str
    steps: int
    onset: int | None
    first: Decision | None  # the first hint or stronger
    strongest: Action
    around: tuple[tuple[str, int, str], ...]  # mark, index and content of the steps around it

    def row(self) -> dict[str, object]:
        """The mistake as one JSON object."""
        own = ("kind", "id", "tier", "source", "steps", "onset")
        of_first = ("step", "detector", "reason", "message")
        return {
            "table": "errors",
            **{name: getattr(self, name) for name in own},
            **{name: getattr(self.first, name, None) for name in of_first},
            "strongest": self.strongest.value,
            "around": [f"{mark} {index:4} {text}" for mark, index, text in self.around],
        }

    def text(self) -> Iterator[str]:
        """The mistake as lines to read, with steps from 1."""
        where = "" if self.onset is None else f", onset at step {self.onset + 1}"
        yield f"{self.kind}  {line(self.id, 400)}  ({line(self.tier)}, {self.steps} steps{where})"
        if self.first is not None:
            first = self.first
            yield (
                f"  {first.action} at step {first.step + 1} by {first.detector}/{first.reason}; "
                f"strongest {self.strongest}"
            )
            yield f"  {line(first.message, 200)}"
        yield from (f"    {mark} {index + 1:4} {text}" for mark, index, text in self.around)


def mistake(run: Run, result: ReplayResult) -> Mistake | None:
    """The mistake about a run; None if there is none, or the run has no label."""
    heard = (one for one in result.decisions if one.action.rank >= Action.HINT.rank)
    first = next(heard, None)
    if run.loop is None or run.loop is (first is not None):
        return None
    kind, at = ("missed", run.onset_step) if first is None else ("false alarm", first.step)
    around = tuple(_around(run.steps, len(run.steps) - 1 if at is None else at, forward=run.loop))
    strongest = result.strongest
    return Mistake(
        kind, run.id, run.tier, run.source, len(run.steps), run.onset_step, first, strongest, around
    )


def _around(steps: Sequence[Step], at: int, *, forward: bool) -> Iterator[tuple[str, int, str]]:
    """Steps in short: mostly those after a miss, and those before a false alarm."""
    before, after = (_AFTER, _BEFORE) if forward else (_BEFORE, _AFTER)
    for index in range(max(0, at - before), min(len(steps), at + after + 1)):
        yield ">" if index == at else " ", index, _short(steps[index])


def _short(step: Step) -> str:
    named = line(step.name, 32)
    if step.kind is Kind.TOOL:
        sign = "!" if step.error else "->"
        answer = step.error_text if step.error and step.error_text is not None else step.outcome
        return f"{named}({_cell(step.args)}) {sign} {_cell(answer)}"
    return f"{step.kind} {named}: {_cell(step.text if step.text is not None else step.args)}"


def _cell(value: object) -> str:
    return "?" if value is None else line(value, _CELL)


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
