"""The decisions about all recorded runs, as `otel-loopguard replay` makes them.

`python -m tests.golden.decisions` (`make golden`) writes them to `decisions.jsonl`: a line for each
run about which something was decided, with what a rebuilt guard has to decide again. Ids, digests
and messages are left out.
"""

import gzip
import logging
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import orjson

from otel_loopguard import Settings
from otel_loopguard.cli.output import Inputs
from otel_loopguard.cli.replay import replay_all

GOLDEN = Path(__file__).with_name("decisions.jsonl")
SHARED = Path(__file__).resolve().parents[2].parent / "shared"

Run = tuple[str, str]
"""Name of the file, and id of the run in it."""


class Decided(NamedTuple):
    """The tier of a run's label, and step, action, detector and reason of each decision."""

    tier: str
    decisions: tuple[str, ...]


def recordings(shared: Path) -> list[Path]:
    return [*sorted((shared / "traces").glob("*.jsonl.gz")), shared / "eval" / "scenarios.jsonl"]


def replayed(file: Path) -> dict[Run, Decided]:
    """Replays a file with default settings."""
    tiers = dict(_tiers(file))
    found: dict[Run, Decided] = {}
    with Inputs([str(file)], bar=False) as inputs:
        for result in replay_all(inputs, Settings()):
            run, tier = (file.name, result.session), tiers.get(result.session, "")
            for one in result.decisions:
                said = f"{one.step} {one.action} {one.detector}/{one.reason}"
                before = found[run].decisions if run in found else ()
                found[run] = Decided(tier, (*before, said))
    return found


def golden() -> dict[Run, Decided]:
    lines = map(orjson.loads, GOLDEN.read_bytes().splitlines())
    return {(one["file"], one["run"]): Decided(one["tier"], (*one["decisions"],)) for one in lines}


def write(found: Mapping[Run, Decided]) -> None:
    with GOLDEN.open("wb") as file:
        for (name, run), (tier, decisions) in sorted(found.items()):
            row = {"file": name, "run": run, "tier": tier, "decisions": decisions}
            file.write(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE))


def changes(before: Mapping[Run, Decided], now: Mapping[Run, Decided]) -> Iterator[str]:
    """A line for each run about which something else is decided than before."""
    for run in sorted(before.keys() | now.keys()):
        was, is_ = before.get(run), now.get(run)
        if was != is_:
            tier = (is_ or was or Decided("", ())).tier
            old, new = (each.decisions if each else () for each in (was, is_))
            gone = [f"- {one}" for one in old if one not in new]
            come = [f"+ {one}" for one in new if one not in old]
            how = "; ".join([*gone, *come]) or "the same in another order"
            yield f"{run[0]} {run[1]} [{tier or 'no tier'}]: {how}"


def _tiers(file: Path) -> Iterator[tuple[str, str]]:
    raw = file.read_bytes()
    for line in (gzip.decompress(raw) if file.suffix == ".gz" else raw).splitlines():
        run = orjson.loads(line)
        if "label" in run:
            yield run["id"], run["label"].get("tier") or ""


if __name__ == "__main__":
    for variable in [name for name in os.environ if name.startswith("LOOPGUARD_")]:
        del os.environ[variable]
    logging.getLogger("otel_loopguard").setLevel(logging.CRITICAL)
    write({run: said for file in recordings(SHARED) for run, said in replayed(file).items()})
