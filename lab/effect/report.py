"""What came of runs with and without the guard, paired by task and seed.

Runs of one task resemble each other, so intervals (95 %) draw whole tasks with replacement.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lab.intervals import interval

if TYPE_CHECKING:
    from lab.effect.agent import Run

_DRAWS = 2000
"""Draws for an interval; all of a report take a second."""


@dataclass(frozen=True)
class Pair:
    """The runs of one task with one seed."""

    without: Run
    guarded: Run

    @property
    def spoke(self) -> bool:
        """True if something that the guard said reached the agent."""
        run = self.guarded
        return bool(run.hints or run.refused) or run.ended not in _OWN_ENDS

    @property
    def stopped(self) -> bool:
        """True if the guard refused a call or ended the run."""
        return bool(self.guarded.refused) or self.guarded.ended not in _OWN_ENDS


_OWN_ENDS = ("answered", "step limit", "rejected", "error")


def pairs(runs: Iterable[Run]) -> list[Pair]:
    """The runs of which both are there, in the order of tasks and seeds.

    A run whose model's server failed says nothing about the guard, and is left out with its pair.
    """
    found: dict[tuple[str, int], dict[bool, Run]] = defaultdict(dict)
    for run in runs:
        if run.ended != "error":
            found[run.task, run.seed][run.guarded] = run
    return [Pair(one[False], one[True]) for _, one in sorted(found.items()) if len(one) == 2]


def report(runs: Sequence[Run]) -> str:
    """Tables of all figures, in Markdown."""
    known = pairs(runs)
    if not known:
        return "No pair of runs is complete.\n"
    parts = [_figures(known), _ends(known), _pairs(known)]
    if failed := sum(run.ended == "error" for run in runs):
        parts.append(f"Left out with their pairs: {failed} runs in which the server failed.\n")
    return "\n".join(parts)


def _figures(known: Sequence[Pair]) -> str:
    arms = _arms(known)
    shares = [_share([(run.task, run.solved) for run in arm]) for arm in arms]
    gain = _between(known, lambda those: 100 * _mean(those, _gained), "+.1f", " points")
    rows = [("tasks solved", *shares, gain)]
    for name, value in _COSTS.items():
        sums = [sum(value(run) for run in arm) for arm in arms]
        ratio = _between(known, lambda those, value=value: _ratio(those, value), ".2f", " times")
        rows.append((name, *(f"{one:,.0f}" for one in sums), ratio))
    return _table(("", "without the guard", "with it", "difference, 95 %"), rows)


_COSTS: dict[str, Callable[[Run], float]] = {
    "requests to the model": lambda run: run.model_calls,
    "tool calls": lambda run: run.tool_calls,
    "tokens": lambda run: run.tokens_in + run.tokens_out,
    "seconds": lambda run: run.seconds,
}


def _gained(pair: Pair) -> int:
    return pair.guarded.solved - pair.without.solved


def _mean(those: Sequence[Pair], value: Callable[[Pair], float]) -> float:
    return sum(map(value, those)) / len(those)


def _ratio(those: Sequence[Pair], value: Callable[[Run], float]) -> float:
    before = sum(value(pair.without) for pair in those)
    return sum(value(pair.guarded) for pair in those) / before if before else 1.0


def _interval(
    known: Sequence[Pair], figure: Callable[[Sequence[Pair]], float]
) -> tuple[float, float]:
    """The middle 95 % of a figure, if other tasks had been drawn."""
    of_task: dict[str, list[Pair]] = defaultdict(list)
    for pair in known:
        of_task[pair.without.task].append(pair)
    groups, dice = list(of_task.values()), random.Random(1)
    drawn = sorted(
        figure([pair for group in dice.choices(groups, k=len(groups)) for pair in group])
        for _ in range(_DRAWS)
    )
    return drawn[int(0.025 * _DRAWS)], drawn[int(0.975 * _DRAWS)]


def _ends(known: Sequence[Pair]) -> str:
    """How runs ended: an answer is right or wrong, a stop by the guard has the word of it."""
    arms = _arms(known)
    ends = sorted(
        {run.ended for arm in arms for run in arm}, key=lambda end: (end not in _OWN_ENDS, end)
    )
    rows = [(end, *(sum(run.ended == end for run in arm) for arm in arms)) for end in ends]
    return _table(("ended by", "without the guard", "with it"), rows)


def _pairs(known: Sequence[Pair]) -> str:
    kinds: list[tuple[str, Callable[[Pair], bool]]] = [
        ("the guard was silent", lambda pair: not pair.spoke),
        ("it gave hints alone", lambda pair: pair.spoke and not pair.stopped),
        ("it refused calls or ended the run", lambda pair: pair.stopped),
    ]
    rows: list[tuple[object, ...]] = []
    for name, of_kind in kinds:
        those = [pair for pair in known if of_kind(pair)]
        outcomes = Counter((pair.without.solved, pair.guarded.solved) for pair in those)
        rows.append(
            (name, len(those), outcomes[True, True], outcomes[False, True], outcomes[True, False])
        )
    return _table(("pairs in which", "number", "solved by both", "only with", "only without"), rows)


def _arms(known: Sequence[Pair]) -> list[list[Run]]:
    return [[pair.without for pair in known], [pair.guarded for pair in known]]


def _share(found: Sequence[tuple[str, bool]]) -> str:
    hits = sum(hit for _, hit in found)
    low, high = interval(found) or (0.0, 1.0)
    return f"{hits} of {len(found)} ({100 * low:.0f} to {100 * high:.0f} %)"


def _between(
    known: Sequence[Pair], figure: Callable[[Sequence[Pair]], float], form: str, unit: str
) -> str:
    low, high = _interval(known, figure)
    return f"{figure(known):{form}}{unit} ({low:{form}} to {high:{form}})"


def _table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "".join(f"| {' | '.join(map(str, line))} |\n" for line in lines)
