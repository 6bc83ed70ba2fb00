"""Other detectors beside ours, on the same written runs and the same recordings.

    python -m lab.compare scenarios/*.jsonl.gz --recordings ../shared/traces/*.jsonl.gz

A stop is what a detector does that holds the agent: it refuses the call, ends the run, or waits for
a person. A warning goes to the model. Of recordings, a detector gets the calls that an agent made
and what it said; an agent's hand-off is a call, and a message is an answer where somebody else
spoke next. Nothing that a detector said could change what a recorded agent did.
"""

from __future__ import annotations

import argparse
import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from lab.intervals import interval
from lab.peers import AS_SHIPPED, PEERS, Peer
from lab.runs import Call, Found, Scenario, calls, judged
from lab.scenarios import load, play
from otel_loopguard.cli.output import Inputs
from otel_loopguard.cli.replay import result_of
from otel_loopguard.core import Action, Kind, Step
from otel_loopguard.replay import Run
from otel_loopguard.settings import Settings

OURS = "otel-loopguard"
ALL: tuple[Peer, ...] = (*PEERS, *AS_SHIPPED)
LABELLED = ("pos_human", "pos_llm_ledger", "pos_injected")
HEALTHY = ("neg_success", "neg_human_annotated", "neg_llm_ledger")


@dataclass(frozen=True)
class Judged:
    """What one detector said of one run.

    Attributes:
        detector: Its name.
        of: The kind of run: `healthy` or `stuck` for written ones, else the tier of the label.
        group: What related runs have in common.
        noticed: True if it warned or stopped, in time where there is a time.
        stopped: True if it stopped the run.
    """

    detector: str
    of: str
    group: str
    noticed: bool
    stopped: bool


def written(scenario: Scenario) -> list[Judged]:
    """What all detectors say of a written run."""
    ours = play(scenario)
    found = {OURS: Found(ours.noticed, ours.stopped)}
    heard = list(calls(scenario))
    found |= {peer.name: judged(heard, peer.make) for peer in ALL}
    of = "stuck" if scenario.stuck else "healthy"
    by = scenario.seen_by or float("inf")
    return [
        Judged(
            name,
            of,
            "",
            one.noticed is not None and (of == "healthy" or one.noticed <= by),
            one.stopped is not None,
        )
        for name, one in found.items()
    ]


def recorded(run: Run) -> list[Judged]:
    """What all detectors say of a recorded run."""
    said = [one.action for one in result_of(run, Settings()).decisions]
    ours = any(one.rank >= Action.HINT.rank for one in said), any(one.stops for one in said)
    heard = list(of_recording(run.steps))
    found = [Judged(OURS, run.tier, run.group, *ours)]
    for peer in ALL:
        one = judged(heard, peer.make)
        verdict = one.noticed is not None, one.stopped is not None
        found.append(Judged(peer.name, run.tier, run.group, *verdict))
    return found


def of_recording(steps: Sequence[Step]) -> Iterator[Call]:
    """The calls and messages of recorded steps, of each agent by itself.

    Steps are in the order in which they end, so that what a sub-agent did may stand before the call
    that started it: what belongs together is what follows in the steps of one agent.
    """
    known = [step for step in steps if step.kind in _KINDS or _user(step)]
    speakers = {step.agent for step in known if step.kind is Kind.MODEL}
    message = 0
    after_user: set[str | None] = set()
    text: dict[str | None, str] = {}
    for step, then, adjacent in zip(known, *_following(known), strict=True):
        if _user(step):
            after_user = {one.agent for one in known}
            continue
        calls_next = then is not None and then.kind in _CALLS
        if step.kind is Kind.MODEL and calls_next:
            text[step.agent] = step.text or ""
            continue
        run, heard = step.agent or "", step.agent in after_user
        after_user.discard(step.agent)
        if step.kind is not Kind.MODEL:
            failed = (step.error_text or "error") if step.error else None
            # Calls of one message stand side by side, with no model's call between them.
            last = not (step.agent in speakers and calls_next and adjacent)
            yield Call(
                step.name or "",
                step.args,
                None if failed is not None else step.outcome,
                failed,
                step.text or text.pop(step.agent, ""),
                run,
                message,
                last,
                heard,
            )
            message += last
        elif step.text:
            ends = then is None or not adjacent
            yield Call(
                None, text=step.text, run=run, message=message, after_user=heard, answers_user=ends
            )


def _following(known: Sequence[Step]) -> tuple[list[Step | None], list[bool]]:
    """For each step its agent's next one in the turn, and if that is the very next of all."""
    then: list[Step | None] = []
    adjacent: list[bool] = []
    newest: dict[str | None, Step] = {}
    after: Step | None = None
    for step in reversed(known):
        if _user(step):
            newest.clear()
        then.append(newest.get(step.agent))
        adjacent.append(then[-1] is not None and then[-1] is after)
        newest[step.agent] = after = step
    return then[::-1], adjacent[::-1]


_CALLS = (Kind.TOOL, Kind.HANDOFF)
_KINDS = (Kind.MODEL, *_CALLS)


def _user(step: Step) -> bool:
    return step.kind is Kind.OTHER and step.name == "user"


def all_written(files: Iterable[Path]) -> list[Judged]:
    """What all detectors say of the written runs of files."""
    runs = [run for path in files for run in load(path)]
    with ProcessPoolExecutor(initializer=logging.disable) as pool:
        return [one for found in pool.map(written, runs, chunksize=4) for one in found]


def all_recorded(files: Iterable[Path]) -> list[Judged]:
    """What all detectors say of the labelled runs of files."""
    with Inputs([str(path) for path in files]) as inputs:
        runs = [
            entry
            for recording in inputs
            for entry in inputs.entries(recording)
            if isinstance(entry, Run) and entry.loop is not None
        ]
    with ProcessPoolExecutor(initializer=logging.disable) as pool:
        return [one for found in pool.map(recorded, runs, chunksize=8) for one in found]


@dataclass(frozen=True)
class Share:
    """How many of some runs, with the 95 % interval of the share."""

    hits: int
    of: int
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.hits} of {self.of} ({100 * self.low:.0f} to {100 * self.high:.0f} %)"


class Shares:
    """Shares by detector, kind of run and level."""

    def __init__(self, found: Iterable[Judged]) -> None:
        self.found: defaultdict[tuple[str, str], list[Judged]] = defaultdict(list)
        for one in found:
            self.found[one.detector, one.of].append(one)

    def share(self, detector: str, level: str, *of: str) -> Share:
        """The share of runs of these kinds that a detector noticed or stopped."""
        about = [one for kind in of for one in self.found[detector, kind]]
        hits = [(one.group, bool(getattr(one, level))) for one in about]
        low, high = interval(hits) or (0.0, 1.0)
        return Share(sum(hit for _, hit in hits), len(hits), low, high)


def rows(found: Iterable[Judged]) -> Iterator[tuple[str, list[Share]]]:
    """For each detector: written runs, healthy and stuck, then recordings."""
    shares = Shares(found)
    for name in (OURS, *(peer.name for peer in ALL)):
        yield (
            name,
            [
                shares.share(name, "stopped", "healthy"),
                shares.share(name, "noticed", "healthy"),
                shares.share(name, "noticed", "stuck"),
                shares.share(name, "stopped", "stuck"),
                shares.share(name, "stopped", *HEALTHY),
                shares.share(name, "noticed", *HEALTHY),
                *(
                    shares.share(name, level, tier)
                    for tier in LABELLED
                    for level in ("noticed", "stopped")
                ),
            ],
        )


HEADS = (
    "healthy stopped", "healthy noticed", "stuck noticed in time", "stuck stopped",
    "recorded healthy stopped", "recorded healthy noticed",
    *(f"{tier} {level}" for tier in LABELLED for level in ("noticed", "stopped")),
)  # fmt: skip


def main() -> None:
    """Prints the table."""
    asked = argparse.ArgumentParser(prog="python -m lab.compare", description=main.__doc__)
    asked.add_argument("files", nargs="*", type=Path)
    asked.add_argument("--recordings", nargs="*", type=Path, default=[])
    given = asked.parse_args()
    logging.disable(logging.ERROR)
    found = [*all_written(given.files), *all_recorded(given.recordings)]
    for name, shares in rows(found):
        print(name)
        for head, share in zip(HEADS, shares, strict=True):
            if share.of:
                print(f"  {head}: {share}")


if __name__ == "__main__":
    main()
