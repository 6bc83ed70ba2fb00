"""The same runs under other thresholds, and those that the runs of other sources would choose.

Leave one source out: thresholds chosen on all other sources are measured on that one. It shows how
much of a figure comes from thresholds that fit these very runs. It does not show that a rule was
thought of with these runs in sight.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import log
from typing import TYPE_CHECKING, Final, NamedTuple

from otel_loopguard.cli.calibrate import at_line
from otel_loopguard.cli.evaluate import ALL
from otel_loopguard.cli.replay import result_of
from otel_loopguard.core import Action

if TYPE_CHECKING:
    from otel_loopguard.cli.evaluate import Judgement
    from otel_loopguard.cli.replay import ReplayResult
    from otel_loopguard.replay import Run
    from otel_loopguard.settings import Settings

SENSITIVITIES: Final = (0.5, 0.67, 0.8, 1.0, 1.25, 1.5, 2.0)
"""What all thresholds are divided by, one after the other: from half to double."""

LINES: Final = 4
"""Stop lines that are tried: 1 to twice the default; each costs a replay of all runs."""


@dataclass(frozen=True, slots=True)
class Trial:
    """The result of one run at one sensitivity."""

    sensitivity: float  # what the thresholds were divided by
    noticed: bool
    stopped: bool  # at the stop line of the settings
    line: int  # the highest one tried that stops it; 0 if none does


Tried = tuple[Trial, ...]
"""The trials of one run, in the order of `SENSITIVITIES`."""


def tried(run: Run, settings: Settings, lines: int, result: ReplayResult) -> Tried:
    """Tries every sensitivity on a run, and at each the stop lines from 1 to `lines`.

    `result` is what came of the run with the settings as they are.
    """
    return tuple(
        _trial(
            run, at, lines,
            result if at.sensitivity == settings.sensitivity else result_of(run, at),
        )
        for at in (
            settings.model_copy(update={"sensitivity": sensitivity})
            for sensitivity in SENSITIVITIES
        )
    )  # fmt: skip


def _trial(run: Run, settings: Settings, lines: int, result: ReplayResult) -> Trial:
    strongest = result.strongest
    noticed = strongest.rank >= Action.HINT.rank
    line = 0
    # A run that is not noticed is never stopped; one that passes a line passes all higher ones.
    while noticed and line < lines and result_of(run, at_line(settings, line + 1)).strongest.stops:
        line += 1
    return Trial(settings.sensitivity, noticed, strongest.stops, line)


@dataclass(frozen=True, slots=True)
class Limits:
    """Shares of the healthy runs, 0 to 1, that thresholds may hit where they are chosen."""

    false_notices: float = 0.02
    false_stops: float = 0.0


class Choice(NamedTuple):
    """Thresholds."""

    place: int  # of the sensitivity in `SENSITIVITIES`
    line: int  # one more than `LINES` stops nothing


_Pairs = Sequence[tuple["Judgement", Tried]]
_Hit = Callable[[Tried], bool]


def choose(pairs: _Pairs, limits: Limits, line: int) -> Choice:
    """The thresholds that find most of these runs within the limits.

    Every tier of stuck runs counts the same, whatever its size. The sensitivity is chosen first, by
    what is noticed; then the stop line, by what is stopped. Of equals the one nearest to the
    defaults is taken; if no sensitivity keeps to the limit, the lowest one.
    """
    place = max(
        _within(pairs, range(len(SENSITIVITIES)), _noticed, limits.false_notices) or [0],
        key=lambda each: (_found(pairs, _noticed(each)), -abs(log(SENSITIVITIES[each]))),
    )
    stopped = partial(_stopped, place)
    best = max(
        _within(pairs, range(1, LINES + 2), stopped, limits.false_stops) or [LINES + 1],
        key=lambda each: (_found(pairs, stopped(each)), -abs(each - line)),
    )
    return Choice(place, best)


def rows(pairs: _Pairs, limits: Limits, line: int) -> Iterator[dict[str, object]]:
    """The left-out figures beside those of the settings as they are, per source, then per tier."""
    chosen = {
        source: choose([pair for pair in pairs if pair[0].source != source], limits, line)
        for source in sorted({judged.source for judged, _ in pairs})
    }
    for source, choice in chosen.items():
        here = [pair for pair in pairs if pair[0].source == source]
        yield {
            **_row(ALL, source, here, chosen),
            "sensitivity": SENSITIVITIES[choice.place],
            "line": choice.line if choice.line <= LINES else None,
        }
    for tier in (*sorted({judged.tier for judged, _ in pairs}), ALL):
        here = [pair for pair in pairs if tier in (ALL, pair[0].tier)]
        yield {**_row(tier, ALL, here, chosen), "sensitivity": None, "line": None}


def _row(tier: str, source: str, pairs: _Pairs, chosen: dict[str, Choice]) -> dict[str, object]:
    row: dict[str, object] = {"table": "leave_one_out", "tier": tier, "source": source}
    for name, loop, kind in (("loops", True, "tp"), ("healthy", False, "fp")):
        about = [pair for pair in pairs if pair[0].loop is loop]
        left = [(tried, chosen[judged.source]) for judged, tried in about]
        row[name] = len(about)
        row[f"noticed_{kind}"] = sum(tried[to.place].noticed for tried, to in left)
        row[f"stopped_{kind}"] = sum(tried[to.place].line >= to.line for tried, to in left)
        row[f"default_noticed_{kind}"] = sum(judged.noticed is not None for judged, _ in about)
        row[f"default_stopped_{kind}"] = sum(judged.stopped is not None for judged, _ in about)
    return row


def _noticed(place: int) -> _Hit:
    return lambda tried: tried[place].noticed


def _stopped(place: int, line: int) -> _Hit:
    return lambda tried: tried[place].line >= line


def _within(
    pairs: _Pairs, values: Iterable[int], hit: Callable[[int], _Hit], limit: float
) -> list[int]:
    """The values at which no more healthy runs are hit than may be."""
    return [value for value in values if _false(pairs, hit(value)) <= limit]


def _false(pairs: _Pairs, hit: _Hit) -> float:
    """The share of hits among healthy runs; 0 without any."""
    hits = [hit(tried) for judged, tried in pairs if judged.loop is False]
    return sum(hits) / len(hits) if hits else 0.0


def _found(pairs: _Pairs, hit: _Hit) -> float:
    """The mean over tiers of the share of hits among stuck runs; 0 without any."""
    tiers: dict[str, list[bool]] = {}
    for judged, tried in pairs:
        if judged.loop is True:
            tiers.setdefault(judged.tier, []).append(hit(tried))
    return sum(sum(hits) / len(hits) for hits in tiers.values()) / len(tiers) if tiers else 0.0
