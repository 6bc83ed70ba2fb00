"""Sessions of coding agents, and what each still took after its hint or stop."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import accumulate, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from otel_loopguard.cli.output import counted
from otel_loopguard.cli.replay import decision_row, result_of
from otel_loopguard.core import Decision, Kind
from otel_loopguard.errors import RecordingError
from otel_loopguard.replay import Recording, Transcript
from otel_loopguard.settings.prices import PriceTable

if TYPE_CHECKING:
    from otel_loopguard.core import Step
    from otel_loopguard.replay.transcripts.folders import SessionFiles
    from otel_loopguard.settings import Settings

_NS_IN_MINUTE: Final = 60_000_000_000  # what a minute is


class Amount(NamedTuple):
    """What a part of a session took."""

    calls: int = 0
    minutes: float = 0.0  # from its first step to its last, without waits for a person
    tokens: int = 0
    dollars: float = 0.0  # of the answers whose model has a price
    unpriced: int = 0  # answers with tokens whose model has none

    def price(self) -> str:
        """Dollars, at least; `?` where no model has a price."""
        if self.unpriced and not self.dollars:
            return "?"
        return f"{'≥ ' if self.unpriced else ''}{self.dollars:,.2f}"

    def spelled(self) -> str:
        """The amount in words."""
        price = f"${self.price()}".replace("$≥ ", "at least $")
        parts = (
            counted(self.calls, "call"),
            counted(round(self.minutes), "minute"),
            counted(self.tokens, "token"),
            "at a price that is not known" if price == "$?" else price,
        )
        return ", ".join(parts)


def total(amounts: Iterable[Amount]) -> Amount:
    """What several parts took together."""
    columns = zip(*amounts, strict=True)
    return Amount(*map(sum, columns))


def when(start: int) -> str:
    """A time of day here; empty where it is not known."""
    if not start:
        return ""
    return datetime.fromtimestamp(start / 1e9).astimezone().strftime("%Y-%m-%d %H:%M")


class Moment(NamedTuple):
    """The first hint or stop of a turn, and what the agent did from there to the turn's end."""

    decision: Decision
    call: int  # number of the call, from 1
    after: Amount
    finished: bool  # the agent ended this turn by itself


@dataclass(slots=True)
class TranscriptResult:
    """One session."""

    agent: str
    session: str
    path: str
    cwd: str
    version: str
    start: int  # nanoseconds since the epoch; 0 where that is not known
    turns: int
    whole: Amount
    hint: Moment | None  # the first of all, with what came after those of all turns
    stop: Moment | None
    decisions: list[Decision]

    @property
    def moment(self) -> Moment | None:
        """The stop, or else the hint."""
        return self.stop or self.hint

    def row(self) -> dict[str, object]:
        """The result as one JSON object."""
        return {
            **{name: getattr(self, name) for name in _OWN},
            "start": self.start / 1_000_000_000 if self.start else None,
            "turns": self.turns,
            "whole": self.whole._asdict(),
            "hint": _moment_row(self.hint),
            "stop": _moment_row(self.stop),
            "decisions": [decision_row(decision) for decision in self.decisions],
        }


_OWN: Final = ("agent", "session", "path", "cwd", "version")


def _moment_row(moment: Moment | None) -> dict[str, object] | None:
    if moment is None:
        return None
    return {
        "call": moment.call,
        "reason": moment.decision.reason,
        "message": moment.decision.message,
        "after": moment.after._asdict(),
        "finished": moment.finished,
    }


Told = tuple[TranscriptResult, Moment]
"""A session that the guard has something to say about, with its stop or hint."""


class Overview:
    """Sessions in groups, in each the one that took most afterwards first."""

    def __init__(self, sessions: Sequence[TranscriptResult]) -> None:
        told = [(one, moment) for one in sessions if (moment := one.moment) is not None]
        told.sort(key=lambda each: (each[1].after.calls, each[1].after.tokens), reverse=True)
        self.count = len(sessions)
        self.quiet = self.count - len(told)
        stopped = [each for each in told if each[0].stop]
        self._told = (
            [each for each in stopped if not each[1].finished],
            [each for each in stopped if each[1].finished],
            [each for each in told if not each[0].stop],
        )
        self.after = total(moment.after for _, moment in stopped)

    def groups(self) -> Iterator[tuple[str, str, list[Told]]]:
        """Heading, note and sessions of each group that the guard has something to say about."""
        return ((*said, found) for said, found in zip(_GROUPS, self._told, strict=True))


_GROUPS: Final = (
    ("Would have been stopped", "A person interrupted the turn, or nothing says how it ended."),
    (
        "Would have been stopped, and the agent ended its turn by itself",
        "Whether it had done its task is not known: look before you let the guard enforce.",
    ),
    ("Would have got a hint", "A hint stops nothing: it tells the model what it repeats."),
)


Reports = list[tuple[str, int, str]]
"""File, line and reason of what was passed over."""


def judged(files: SessionFiles, settings: Settings) -> tuple[list[TranscriptResult], Reports]:
    """Reads and replays one session."""
    broken: Reports = []
    path, prices = str(files.path), PriceTable.load(settings.prices_file or None)
    found: list[TranscriptResult] = []
    try:
        recording = Recording(
            path, lambda file, line, why: broken.append((file, line, why)), files.sub_agents
        )
        runs = (run for run in recording if isinstance(run, Transcript))
        found += (transcript_result(run, path, settings, prices) for run in runs)
    except RecordingError as error:
        broken.append((path, 1, str(error).removeprefix(f"{path}: ")))
    return found, broken


def transcript_result(
    run: Transcript, path: str, settings: Settings, prices: PriceTable
) -> TranscriptResult:
    """Replays a session, and counts what it took after its hints and stops."""
    decisions = result_of(run, settings).decisions
    start = next((step.start for step in run.steps if step.start), 0)
    place = Path(path)
    # gemini-cli does not say where it works, but names a folder after it.
    cwd = run.cwd or (place.parts[-3] if place.parts[-2:-1] == ("chats",) else "")
    # Of the call that each step is, or comes behind.
    numbers = list(accumulate(int(step.kind is Kind.TOOL) for step in run.steps))
    parts: list[Amount] = []
    hints: list[Moment] = []
    stops: list[Moment] = []
    for turn, (first, last) in enumerate(_turns(run.steps)):
        parts.append(_amount(run.steps[first:last], prices))
        finished = run.endings[turn : turn + 1] == ("finished",)
        made = [decision for decision in decisions if first <= decision.step < last]
        stopping = [decision for decision in made if decision.action.stops]
        for moments, told in ((hints, made[:1]), (stops, stopping[:1])):
            for decision in told:
                at = decision.step
                after = _amount(run.steps[at + 1 : last], prices, run.steps[at].end or 0)
                moments.append(Moment(decision, numbers[at], after, finished))
    return TranscriptResult(
        run.agent, run.id, path, cwd, run.version, start, len(parts), total(parts),
        _together(hints), _together(stops), decisions,
    )  # fmt: skip


def _together(moments: Sequence[Moment]) -> Moment | None:
    """The first moment, with what came after those of all turns."""
    if not moments:
        return None
    return moments[0]._replace(
        after=total(moment.after for moment in moments),
        finished=all(moment.finished for moment in moments),
    )


def _turns(steps: Sequence[Step]) -> Iterator[tuple[int, int]]:
    """Where each turn begins, and where the next one does."""
    begins = [
        index
        for index, step in enumerate(steps)
        if index == 0 or (step.kind is Kind.OTHER and step.name == "user")
    ]
    return pairwise([*begins, len(steps)])


def _amount(steps: Sequence[Step], prices: PriceTable, since: int = 0) -> Amount:
    begun = since or next((step.start for step in steps if step.start), 0)
    end = max((step.end or 0 for step in steps), default=0)
    costs = [
        prices.cost(
            step.model or "",
            step.tokens_in or 0,
            step.tokens_out or 0,
            cache_read=step.cache_read or 0,
            cache_write=step.cache_write or 0,
        )
        for step in steps
        if step.tokens is not None
    ]
    return Amount(
        calls=sum(step.kind is Kind.TOOL for step in steps),
        minutes=max(end - begun, 0) / _NS_IN_MINUTE if begun else 0.0,
        tokens=sum(step.tokens or 0 for step in steps),
        dollars=sum((cost for cost in costs if cost is not None), 0.0),
        unpriced=costs.count(None),
    )
