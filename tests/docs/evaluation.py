"""Tables of what the guard finds in the recorded runs, and what it would wrongly notice."""

from __future__ import annotations

import gzip
import json
import random
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from bench.curve import picture as draw
from lab import compare
from lab.peers import AS_SHIPPED, PEERS
from tests.docs.markdown import ROOT, table
from tests.docs.programs import SHARED, command_line, module, need_shared

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SOURCES = ("trail", "magentic", "captainagent", "sentinel", "miniswe", "taubench", "intercode")
CODING = ("codetracer-claude", "codetracer-kimi")
FILES = (
    *(f"../shared/traces/{name}.jsonl.gz" for name in (*SOURCES, "sweagent", *CODING)),
    "../shared/eval/scenarios.jsonl",
)
WRITTEN = ("scenarios/everyday.jsonl.gz", "scenarios/field.jsonl.gz")
"""The outsider's runs stand apart: whoever wrote them looked for what is judged wrongly."""
EVERYTHING = ("--leave-one-out", "--cost", "--errors")
OURS = "otel-loopguard"
STUCK = ("pos_human", "pos_llm_ledger", "pos_injected", "pos_scenario")
HEALTHY = ("neg_success", "neg_human_annotated", "neg_llm_ledger", "neg_scenario")
STOPS = ("deny", "pause", "abort")

READ: dict[str, str] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
"""What happened in the healthy runs that are noticed, read by a person."""

Row = dict[str, Any]
_folder = tempfile.TemporaryDirectory(prefix="loopguard-docs-")


@cache
def measured() -> tuple[tuple[Row, ...], str]:
    """All rows of the evaluation, and the picture that bench/curve.py draws of its curve."""
    need_shared()
    points = Path(_folder.name) / "curve.jsonl"
    extra = (*EVERYTHING, "--curve", str(points), "--format", "json")
    said = module("lab.evaluate", *FILES, *extra)
    rows = tuple(json.loads(line) for line in said.splitlines())
    known = [json.loads(line) for line in points.read_text(encoding="utf-8").splitlines()]
    return rows, draw(known)


def rows(name: str) -> list[Row]:
    """The rows of one table of the evaluation."""
    return [row for row in measured()[0] if row["table"] == name]


def picture() -> str:
    """The curve, as SVG."""
    return measured()[1]


def tier(name: str) -> Row:
    """The figures of one tier."""
    return next(row for row in rows("scores") if (row["tier"], row["source"]) == (name, "all"))


@cache
def labels() -> dict[tuple[str, str], Row]:
    """Loop, tier and success of every run, by source and id."""
    return {
        (run["source"], run["id"]): {"loop": run["loop"], **run["label"]}
        for name in FILES
        for run in _lines(name)
    }


@cache
def accounts() -> tuple[Row, ...]:
    """What was decided about every run, with its label."""
    need_shared()
    said = command_line("replay", *FILES, "--format", "json")
    found = [json.loads(line) for line in said.splitlines()]
    return tuple({**labels()[run["source"], run["session"]], **run} for run in found)


@cache
def compared() -> dict[str, list[compare.Share]]:
    """What the guard and the rules of other agents say, by detector: see `compare.HEADS`."""
    need_shared()
    root = SHARED.parent
    # `../shared/…` from the repository, whose folder may have any name.
    recordings = [root / name.removeprefix("../") for name in FILES if "/traces/" in name]
    written = [ROOT / name for name in WRITTEN]
    found = [*compare.all_written(written), *compare.all_recorded(recordings)]
    return dict(compare.rows(found))


def beside() -> str:
    """How often the guard is wrong, in two sentences, and the rules of other agents beside it."""
    names = (OURS, *(peer.name for peer in PEERS))
    first = compared()[OURS]
    people = first[6].of + first[8].of
    heads = (
        "detector",
        f"of {first[0].of} healthy: stopped",
        f"of {first[2].of} stuck: noticed in time",
        "stopped",
        f"of {first[4].of} recorded healthy: stopped",
        f"of {people} recorded stuck: noticed",
        "stopped",
    )
    healthy = [first[0], first[4]]
    noticed, stopped = [first[2], first[6], first[8]], [first[3], first[7], first[9]]
    said = (
        f"Of {_runs(healthy)} healthy runs the guard stops {_hits(healthy) or 'none'}. "
        f"Of {_runs(noticed)} stuck ones it notices {_hits(noticed)} and stops {_hits(stopped)}."
        "\n\n"
    )
    return said + table(
        heads,
        (
            (
                name,
                *(share.hits for share in (found[0], found[2], found[3], found[4])),
                found[6].hits + found[8].hits,
                found[7].hits + found[9].hits,
            )
            for name in names
            for found in [compared()[name]]
        ),
    )


def _runs(shares: list[compare.Share]) -> int:
    return sum(share.of for share in shares)


def _hits(shares: list[compare.Share]) -> int:
    return sum(share.hits for share in shares)


def detectors_written() -> str:
    """All detectors on the written runs, with intervals."""
    return table(
        ("detector", *compare.HEADS[:4]), ((name, *found[:4]) for name, found in compared().items())
    )


def detectors() -> str:
    """What each detector notices and stops, per tier of recordings, with intervals for stops."""
    tiers = (*compare.LABELLED,)
    first = compared()[OURS]
    heads = (
        "detector",
        *compare.HEADS[4:6],
        *(f"`{name}`, {first[6 + 2 * at].of}" for at, name in enumerate(tiers)),
    )
    return table(
        heads,
        (
            (name, *found[4:6], *(f"{found[at].hits} / {found[at + 1].hits}" for at in (6, 8, 10)))
            for name, found in compared().items()
        ),
    )


def peers() -> str:
    """What is compared: what was read, and what it does."""
    return table(
        ("detector", "rules", "read"),
        ((peer.name, peer.rule, peer.source) for peer in (*PEERS, *AS_SHIPPED)),
    )


def models() -> str:
    """Runs by the model that made them, where a source has several or names it."""
    kinds = (("solved", True), ("failed", False))
    found: dict[tuple[str, str], list[Row]] = {}
    for run in accounts():
        if run.get("model") and run["success"] is not None:
            bench = run["source"].partition(" (")[0].partition(" ")[0]
            found.setdefault((bench, run["model"]), []).append(run)
    return table(
        (
            "runs of",
            "model",
            *(f"{name}: {head}" for name, _ in kinds for head in ("runs", "noticed", "stopped")),
        ),
        (
            (
                bench,
                model,
                *(
                    figure
                    for _, ended in kinds
                    for figure in _counted([run for run in runs if run["success"] is ended])
                ),
            )
            for (bench, model), runs in sorted(found.items())
        ),
    )


def weak_labels() -> str:
    """The stuck runs that people labelled, by what they wrote."""
    kinds = {
        "explicit": "says that it repeats itself",
        "explicit-other-category": "says so, under another heading",
        "weak": "a single repetition, or merely too many steps",
        None: "the reason of the failure speaks of it (CaptainAgent)",
    }
    runs = [run for run in accounts() if run["tier"] == "pos_human"]
    return table(
        ("what the person wrote", "runs", "noticed", "stopped"),
        (
            (said, *_counted([run for run in runs if run.get("strength") == strength]))
            for strength, said in kinds.items()
        ),
    )


def intervals() -> str:
    """The guard per tier, with how far the shares can be trusted."""
    return table(
        ("tier", "runs", "noticed", "95 %", "stopped", "95 %", "steps to notice", "to stop"),
        (
            (
                f"`{name}`",
                row["n"],
                *(
                    cell
                    for level in ("noticed", "stopped")
                    for cell in (row[f"{level}_{_kind(name)}"], _bounds(row, level, name))
                ),
                _number(row["noticed_median_steps"]),
                _number(row["stopped_median_steps"]),
            )
            for name in (*STUCK, *HEALTHY)
            for row in [tier(name)]
        ),
    )


def targets() -> str:
    """What was aimed at, and whether it is reached."""
    return table(
        ("figure", "aim", "here", "reached"),
        (
            (figure, aim, here, "yes" if reached else "**no**")
            for figure, aim, here, reached in (*_aims(), *_robust())
        ),
    )


def _aims() -> Iterator[tuple[str, str, str, bool]]:
    success, human, ledger = tier("neg_success"), tier("pos_human"), tier("pos_llm_ledger")
    injected = tier("pos_injected")
    stops, notices = success["stopped_fp"], success["noticed_fp"]
    yield "stopped, successful runs", "0, at most 1", _of(stops, success["n"]), stops <= 1
    few = notices <= 0.014 * success["n"]
    yield "noticed, successful runs", "≤ 1.4 %", _of(notices, success["n"]), few
    for name, most in (("neg_human_annotated", 2), ("neg_llm_ledger", 2)):
        row = tier(name)
        wrong = row["noticed_fp"]
        yield f"noticed, `{name}`", f"≤ {most}", _of(wrong, row["n"]), wrong <= most
    for row, least in ((human, 0.7), (ledger, 15 / 16), (injected, 70 / 72)):
        found, of = row["noticed_tp"], row["loops"]
        yield f"noticed, `{row['tier']}`", f"≥ {least:.2f}", _share(found, of), found >= least * of
    for row, least in ((human, 0.4), (ledger, 0.7), (injected, 0.5)):
        found, of = row["stopped_tp"], row["loops"]
        yield f"stopped, `{row['tier']}`", f"≥ {least:.2f}", _share(found, of), found >= least * of
    for row in (ledger, injected):
        steps = row["noticed_median_steps"]
        said = f"steps from onset to notice, `{row['tier']}`, median"
        yield said, "≤ 2", _number(steps), steps is not None and steps <= 2
    yield from _intercode()
    yield from _coding()
    loops, benign = tier("pos_scenario"), tier("neg_scenario")
    found, wrong = loops["noticed_tp"], benign["noticed_fp"]
    yield "noticed, small loops", "all 14", _of(found, loops["n"]), found == loops["n"]
    yield "noticed, small healthy runs", "none of 9", _of(wrong, benign["n"]), wrong == 0


def _intercode() -> Iterator[tuple[str, str, str, bool]]:
    for name, succeeded, aim in (("failed", False, "≥ 0.60"), ("succeeded", True, "≤ 0.05")):
        about = [run for run in _bench("InterCode") if run["success"] is succeeded]
        share = sum(_heard(run) for run in about) / len(about)
        reached = share <= 0.05 if succeeded else share >= 0.6
        yield f"noticed, InterCode, {name}", aim, f"{share:.2f} of {len(about)}", reached


def _coding() -> Iterator[tuple[str, str, str, bool]]:
    solved = [run for run in _bench("CodeTracer") if run["success"] is True]
    stops = sum(run["strongest"] in STOPS for run in solved)
    yield "stopped, solved coding runs", "0", _of(stops, len(solved)), stops == 0


def _robust() -> Iterator[tuple[str, str, str, bool]]:
    for name, change in CHANGES.items():
        found = {row["tier"]: row for row in _changed(name, change)}
        if change is _volatile:
            lost = max(tier(each)["noticed_tp"] - found[each]["noticed_tp"] for each in STUCK)
            yield name, "no tier loses more than 1 notice", f"at most {lost} lost", lost <= 1
        else:
            stops = found["neg_success"]["stopped_fp"]
            yield f"stopped, successful runs, {name}", "0", f"{stops}", stops == 0


def robustness() -> str:
    """The guard where spans carry less, or more, than the recordings."""
    kinds = {"as recorded": None, **CHANGES}
    found = {
        name: {row["tier"]: row for row in _changed(name, change)} if change else None
        for name, change in kinds.items()
    }
    return table(
        ("what the spans carry", *(f"`{name}`" for name in (*STUCK, *HEALTHY))),
        (
            (
                name,
                *(
                    _levels(by_tier[each] if by_tier else tier(each), each)
                    for each in (*STUCK, *HEALTHY)
                ),
            )
            for name, by_tier in found.items()
        ),
    )


def curve() -> str:
    """The points of the curve."""
    found = {(row["sensitivity"], row["tier"]): row for row in rows("curve")}
    return table(
        ("sensitivity", *(f"`{name}`" for name in STUCK), "healthy"),
        (
            (
                f"{each:g}",
                *(
                    f"{found[each, name]['noticed']} / {found[each, name]['stopped']}"
                    for name in (*STUCK, "all")
                ),
            )
            for each in sorted({row["sensitivity"] for row in rows("curve")})
        ),
    )


def left_out() -> str:
    """What thresholds chosen on all other sources do, over all sources."""
    return table(
        "stuck|noticed|stopped|healthy|noticed|stopped".split("|"),
        (
            (*_beside(row, "loops", "tp"), *_beside(row, "healthy", "fp"))
            for row in rows("leave_one_out")
            if row["source"] == row["tier"] == "all"
        ),
    )


def cost() -> str:
    """What stuck runs spent until the guard spoke, and after that."""
    return table(
        "tier|level|runs|reached|steps from onset, median|steps after|share|"
        "tokens from onset, median|tokens after|share".split("|"),
        (
            (
                f"`{row['tier']}`",
                row["level"],
                row["n"],
                row["reached"],
                _number(row["median_steps"]),
                _number(row["steps_after"]),
                _percent(row["steps_share"]),
                _number(row["median_tokens"]),
                _number(row["tokens_after"]),
                _percent(row["tokens_share"]),
            )
            for row in rows("cost")
            if row["loops"]
        ),
    )


def failed() -> str:
    """How many of the runs that failed and that succeeded are noticed, by benchmark."""
    return table(
        ("runs of", "ended", "runs", "noticed", "stopped"),
        (
            (bench, name, *_counted([run for run in _bench(bench) if run["success"] is succeeded]))
            for bench in ("InterCode", "CodeTracer")
            for name, succeeded in (("failed", False), ("succeeded", True))
        ),
    )


def false_notices() -> str:
    """Every healthy run that is noticed, with what happened in it."""
    lines = [
        f"* `{wrong['id']}`, {wrong['steps']} steps: noticed at step {wrong['step']} by "
        f"`{wrong['reason']}`; strongest `{wrong['strongest']}`. {READ.get(wrong['id'], '')}"
        for wrong in alarms()
    ]
    return "".join(f"{line.rstrip()}\n" for line in lines) or "None.\n"


def alarms() -> list[Row]:
    """The healthy runs that are noticed."""
    return [wrong for wrong in rows("errors") if wrong["kind"] == "false alarm"]


def missed() -> str:
    """The stuck runs that are not noticed, by tier."""
    lines: list[str] = []
    for name in STUCK:
        ids = [wrong["id"] for wrong in rows("errors") if wrong["tier"] == name]
        said = ", ".join(f"`{each}`" for each in ids) if ids else "none"
        lines.append(f"* `{name}`, {len(ids)} of {tier(name)['n']}: {said}\n")
    return "".join(lines)


def _volatile(step: Row, dice: random.Random) -> None:
    if isinstance(step["args"], dict):
        step["args"]["request_id"] = str(uuid.UUID(int=dice.getrandbits(128)))
    if isinstance(step["output"], str) and step["output"]:
        clock = f"10:{dice.randrange(60):02d}:{dice.randrange(60):02d}"
        step["output"] = f"{clock} {step['output']} (took {dice.randrange(900)} ms)"


def _no_outputs(step: Row, _dice: random.Random) -> None:
    if not step["error"]:
        step["output"] = None


def _no_arguments(step: Row, _dice: random.Random) -> None:
    step["args"] = None


def _neither(step: Row, dice: random.Random) -> None:
    _no_outputs(step, dice)
    _no_arguments(step, dice)


def _names_only(step: Row, _dice: random.Random) -> None:
    step["args"] = step["output"] = None


CHANGES: dict[str, Callable[[Row, random.Random], None]] = {
    "volatile values in every call and answer": _volatile,
    "no outputs (but error texts)": _no_outputs,
    "no arguments": _no_arguments,
    "neither (but error texts)": _neither,
    "names alone": _names_only,
}
"""What spans of other set-ups carry, made from the recordings."""


@cache
def _changed(name: str, change: Callable[[Row, random.Random], None]) -> tuple[Row, ...]:
    """The guard's figures per tier on changed recordings."""
    need_shared()
    path = Path(_folder.name) / f"{change.__name__}.jsonl"
    dice = random.Random(7)
    with path.open("w", encoding="utf-8") as file:
        for source in FILES:
            for run in _lines(source):
                if run["loop"] is None:
                    continue
                for step in run["steps"]:
                    if step["kind"] == "tool":
                        change(step, dice)
                file.write(json.dumps(run) + "\n")
    said = command_line("eval", str(path), "--format", "json")
    found = [json.loads(line) for line in said.splitlines()]
    assert found, name
    return tuple(row for row in found if row["source"] == "all")


def _lines(name: str) -> Iterator[Row]:
    raw = (SHARED.parent / name.removeprefix("../")).read_bytes()
    for line in (gzip.decompress(raw) if name.endswith(".gz") else raw).splitlines():
        yield json.loads(line)


def _bench(name: str) -> list[Row]:
    return [run for run in accounts() if run["source"].startswith(name)]


def _heard(run: Row) -> bool:
    return run["strongest"] != "allow"


def _counted(runs: list[Row]) -> tuple[int, int, int]:
    """How many there are, are noticed, and are stopped."""
    return len(runs), sum(map(_heard, runs)), sum(run["strongest"] in STOPS for run in runs)


def _kind(name: str) -> str:
    return "tp" if name in STUCK else "fp"


def _levels(row: Row, name: str) -> str:
    return f"{row[f'noticed_{_kind(name)}']} / {row[f'stopped_{_kind(name)}']}"


def _bounds(row: Row, level: str, name: str) -> str:
    share = f"{level}_{'recall' if name in STUCK else 'false'}"
    return f"{100 * row[f'{share}_low']:.1f} to {100 * row[f'{share}_high']:.1f} %"


def _beside(row: Row, whole: str, kind: str) -> tuple[object, ...]:
    if not row[whole]:
        return ("", "", "")
    pairs = (
        f"{row[f'{level}_{kind}']} ({row[f'default_{level}_{kind}']})"
        for level in ("noticed", "stopped")
    )
    return (row[whole], *pairs)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}" if value == int(value) else f"{value:,.1f}"


def _percent(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.0f} %"


def _of(part: int, whole: int) -> str:
    return f"{part} of {whole}"


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.2f} ({part} of {whole})"
