"""Tables of what the guard finds in the recorded runs, and what it would wrongly notice."""

import gzip
import json
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from bench.curve import picture as draw
from lab import compare
from lab.peers import AS_SHIPPED, PEERS
from tests.docs.markdown import ROOT, table
from tests.docs.programs import SHARED, command_line, module, need_shared
from tests.tables import toml
from tests.test_labelled_runs import VOLATILE, judged

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

READ: dict[str, str] = toml(Path(__file__).with_suffix(".toml"))
"""What happened in the healthy runs that are noticed, read by a person."""

Row = dict[str, Any]
_folder = tempfile.TemporaryDirectory(prefix="loopguard-docs-")


def _rows(lines: str | bytes) -> list[Row]:
    return [json.loads(line) for line in lines.splitlines()]


@cache
def measured() -> tuple[list[Row], str]:
    """All rows of the evaluation, and the picture that bench/curve.py draws of its curve."""
    need_shared()
    points = Path(_folder.name) / "curve.jsonl"
    extra = (*EVERYTHING, "--curve", str(points), "--format", "json")
    found = _rows(module("lab.evaluate", *FILES, *extra))
    return found, draw(_rows(points.read_text(encoding="utf-8")))


def rows(name: str) -> list[Row]:
    return [row for row in measured()[0] if row["table"] == name]


def picture() -> str:
    return measured()[1]


def tier(name: str) -> Row:
    return next(row for row in rows("scores") if (row["tier"], row["source"]) == (name, "all"))


@cache
def accounts() -> tuple[Row, ...]:
    """What was decided about every run, with its loop, tier and success."""
    need_shared()
    labels = {
        (run["source"], run["id"]): {"loop": run["loop"], **run["label"]}
        for name in FILES
        for run in _recorded(name)
    }
    found = _rows(command_line("replay", *FILES, "--format", "json"))
    return tuple({**labels[run["source"], run["session"]], **run} for run in found)


@cache
def compared() -> dict[str, list[compare.Share]]:
    """What the guard and the rules of other agents say, by detector: see `compare.HEADS`."""
    need_shared()
    # `../shared/…` from the repository, whose folder may have any name.
    recordings = [SHARED.parent / name.removeprefix("../") for name in FILES if "/traces/" in name]
    written = [ROOT / name for name in WRITTEN]
    found = [*compare.all_written(written), *compare.all_recorded(recordings)]
    return dict(compare.rows(found))


def beside() -> str:
    """How often the guard is wrong, in two sentences, and the rules of other agents beside it."""
    first = compared()[OURS]
    healthy, noticed, stopped = (_sum(first, *at) for at in ((0, 4), (2, 6, 8), (3, 7, 9)))
    heads = (
        f"detector|of {first[0].of} healthy: stopped|of {first[2].of} stuck: noticed in time|"
        f"stopped|of {first[4].of} recorded healthy: stopped|"
        f"of {first[6].of + first[8].of} recorded stuck: noticed|stopped"
    )
    return (
        f"Of {healthy[1]} healthy runs the guard stops {healthy[0] or 'none'}. "
        f"Of {noticed[1]} stuck ones it notices {noticed[0]} and stops {stopped[0]}.\n\n"
    ) + table(
        heads,
        (
            (
                name,
                *(
                    _sum(compared()[name], *at)[0]
                    for at in ((0,), (2,), (3,), (4,), (6, 8), (7, 9))
                ),
            )
            for name in (OURS, *(peer.name for peer in PEERS))
        ),
    )


def _sum(found: list[compare.Share], *at: int) -> tuple[int, int]:
    return sum(found[each].hits for each in at), sum(found[each].of for each in at)


def detectors_written() -> str:
    """All detectors on the written runs, with intervals."""
    return table(
        ("detector", *compare.HEADS[:4]), ((name, *found[:4]) for name, found in compared().items())
    )


def detectors() -> str:
    """What each detector notices and stops, per tier of recordings, with intervals for stops."""
    first = compared()[OURS]
    tiers = (f"`{name}`, {first[6 + 2 * at].of}" for at, name in enumerate(compare.LABELLED))
    return table(
        ("detector", *compare.HEADS[4:6], *tiers),
        (
            (name, *found[4:6], *(f"{found[at].hits} / {found[at + 1].hits}" for at in (6, 8, 10)))
            for name, found in compared().items()
        ),
    )


def peers() -> str:
    return table(
        "detector|rules|read",
        ((peer.name, peer.rule, peer.source) for peer in (*PEERS, *AS_SHIPPED)),
    )


def models() -> str:
    """Runs by the model that made them, where a source has several or names it."""
    found: dict[tuple[str, str], list[Row]] = {}
    for run in accounts():
        if run.get("model") and run["success"] is not None:
            bench = run["source"].partition(" (")[0].partition(" ")[0]
            found.setdefault((bench, run["model"]), []).append(run)
    return table(
        "runs of|model|solved: runs|solved: noticed|solved: stopped|"
        "failed: runs|failed: noticed|failed: stopped",
        (
            (*names, *_counted(runs, success=True), *_counted(runs, success=False))
            for names, runs in sorted(found.items())
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
    return table(
        "what the person wrote|runs|noticed|stopped",
        (
            (said, *_counted(accounts(), tier="pos_human", strength=strength))
            for strength, said in kinds.items()
        ),
    )


def intervals() -> str:
    """The guard per tier, with how far the shares can be trusted."""
    found = []
    for name in (*STUCK, *HEALTHY):
        row = tier(name)
        cells = [
            cell
            for level in ("noticed", "stopped")
            for cell in (row[f"{level}_{_kind(name)}"], _bounds(row, level, name))
        ]
        steps = (_number(row[f"{level}_median_steps"]) for level in ("noticed", "stopped"))
        found.append((f"`{name}`", row["n"], *cells, *steps))
    return table("tier|runs|noticed|95 %|stopped|95 %|steps to notice|to stop", found)


def targets() -> str:
    """What was aimed at, and whether it is reached."""
    found = ((*said, "yes" if reached else "**no**") for *said, reached in (*_aims(), *_robust()))
    return table("figure|aim|here|reached", found)


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
    for level, leasts in (("noticed", (0.7, 15 / 16, 70 / 72)), ("stopped", (0.4, 0.7, 0.5))):
        for row, least in zip((human, ledger, injected), leasts, strict=True):
            found, of = row[f"{level}_tp"], row["loops"]
            here = f"{found / of:.2f} ({found} of {of})"
            yield f"{level}, `{row['tier']}`", f"≥ {least:.2f}", here, found >= least * of
    for row in (ledger, injected):
        steps = row["noticed_median_steps"]
        said = f"steps from onset to notice, `{row['tier']}`, median"
        yield said, "≤ 2", _number(steps), steps is not None and steps <= 2
    for name, succeeded, aim in (("failed", False, "≥ 0.60"), ("succeeded", True, "≤ 0.05")):
        of, heard, _ = _counted(accounts(), "InterCode", success=succeeded)
        reached = heard / of <= 0.05 if succeeded else heard / of >= 0.6
        yield f"noticed, InterCode, {name}", aim, f"{heard / of:.2f} of {of}", reached
    of, _, stops = _counted(accounts(), "CodeTracer", success=True)
    yield "stopped, solved coding runs", "0", _of(stops, of), stops == 0
    loops, benign = tier("pos_scenario"), tier("neg_scenario")
    found, wrong = loops["noticed_tp"], benign["noticed_fp"]
    yield "noticed, small loops", "all 14", _of(found, loops["n"]), found == loops["n"]
    yield "noticed, small healthy runs", "none of 9", _of(wrong, benign["n"]), wrong == 0


def _robust() -> Iterator[tuple[str, str, str, bool]]:
    for name, change in CHANGES.items():
        found = _carrying(change)
        if change == VOLATILE:
            plain = _carrying("as recorded")
            lost = max(plain[f"{each} noticed"] - found[f"{each} noticed"] for each in STUCK)
            yield name, "no tier loses more than 1 notice", f"at most {lost} lost", lost <= 1
        else:
            stops = found["neg_success stopped"]
            yield f"stopped, successful runs, {name}", "0", f"{stops}", stops == 0


def robustness() -> str:
    """The guard where spans carry less, or more, than the recordings."""
    tiers = (*STUCK, *HEALTHY)
    found = {
        name: _carrying(each) for name, each in {"as recorded": "as recorded", **CHANGES}.items()
    }
    return table(
        ("what the spans carry", *(f"`{name}`" for name in tiers)),
        (
            (name, *(f"{of[f'{each} noticed']} / {of[f'{each} stopped']}" for each in tiers))
            for name, of in found.items()
        ),
    )


def curve() -> str:
    found = {(row["sensitivity"], row["tier"]): row for row in rows("curve")}
    tiers = (*STUCK, "all")
    return table(
        ("sensitivity", *(f"`{name}`" for name in STUCK), "healthy"),
        (
            (f"{at:g}", *("{noticed} / {stopped}".format(**found[at, name]) for name in tiers))
            for at in sorted({row["sensitivity"] for row in rows("curve")})
        ),
    )


def left_out() -> str:
    """What thresholds chosen on all other sources do, over all sources."""
    return table(
        "stuck|noticed|stopped|healthy|noticed|stopped",
        (
            (*_beside(row, "loops", "tp"), *_beside(row, "healthy", "fp"))
            for row in rows("leave_one_out")
            if row["source"] == row["tier"] == "all"
        ),
    )


def cost() -> str:
    """What stuck runs spent until the guard spoke, and after that."""
    found = []
    for row in filter(lambda row: row["loops"], rows("cost")):
        spent = (
            cell
            for what in ("steps", "tokens")
            for cell in (
                _number(row[f"median_{what}"]), _number(row[f"{what}_after"]),
                "" if row[f"{what}_share"] is None else f"{100 * row[f'{what}_share']:.0f} %",
            )
        )  # fmt: skip
        found.append((f"`{row['tier']}`", row["level"], row["n"], row["reached"], *spent))
    return table(
        "tier|level|runs|reached|steps from onset, median|steps after|share|"
        "tokens from onset, median|tokens after|share",
        found,
    )


def failed() -> str:
    """How many of the runs that failed and that succeeded are noticed, by benchmark."""
    return table(
        "runs of|ended|runs|noticed|stopped",
        (
            (bench, name, *_counted(accounts(), bench, success=succeeded))
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
    return [wrong for wrong in rows("errors") if wrong["kind"] == "false alarm"]


def missed() -> str:
    """The stuck runs that are not noticed, by tier."""
    lines: list[str] = []
    for name in STUCK:
        ids = [f"`{wrong['id']}`" for wrong in rows("errors") if wrong["tier"] == name]
        said = ", ".join(ids) or "none"
        lines.append(f"* `{name}`, {len(ids)} of {tier(name)['n']}: {said}\n")
    return "".join(lines)


CHANGES = {
    "volatile values in every call and answer": VOLATILE,
    "no outputs (but error texts)": "without outcomes",
    "no arguments": "without arguments",
    "neither (but error texts)": "without either",
    "names alone": "names only",
}
"""What spans of other set-ups carry, as `test_labelled_runs.py` makes it from the recordings."""


def _carrying(change: str) -> Counter[str]:
    need_shared()
    return judged(SHARED, change)


def _recorded(name: str) -> list[Row]:
    raw = (SHARED.parent / name.removeprefix("../")).read_bytes()
    return _rows(gzip.decompress(raw) if name.endswith(".gz") else raw)


def _counted(runs: Iterable[Row], bench: str = "", **labels: object) -> tuple[int, int, int]:
    """How many runs there are with these labels, how many are noticed, and how many stopped."""
    said = [
        run["strongest"]
        for run in runs
        if run["source"].startswith(bench) and all(run.get(key) == labels[key] for key in labels)
    ]
    return len(said), len(said) - said.count("allow"), sum(one in STOPS for one in said)


def _kind(name: str) -> str:
    return "tp" if name in STUCK else "fp"


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


def _of(part: int, whole: int) -> str:
    return f"{part} of {whole}"
