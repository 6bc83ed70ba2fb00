"""Tables of what the guard finds in the recorded runs, and what it would wrongly notice."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from functools import cache
from typing import Any

from tests.docs.programs import SHARED, command_line, need_shared

SOURCES = ("trail", "magentic", "captainagent", "sentinel", "miniswe", "taubench", "intercode")
FILES = (
    *(f"../shared/traces/{name}.jsonl.gz" for name in (*SOURCES, "sweagent")),
    "../shared/eval/scenarios.jsonl",
)
BASELINES = ("--baselines", "../shared/eval/baselines.py")
OURS = "otel-loopguard"

READ = {
    "whowhen/hand/17": (
        "A list of restaurants is worked off, and the instruction gets shorter with each; the last "
        "one is worded otherwise too, and so not recognised as a shorter one. The run failed; its "
        "orchestrator never said that it was in a loop."
    ),
    "miniswe/gemini-3-pro/django__django-11451": (
        "The same lines of a file were looked at again and again between two edits that did not "
        "take, made by inline Python that the guard does not know as a change. The agent got there."
    ),
    "intercode/ic_python_multiturn_gpt-4_7_turns/118": (
        "Three different programs, each answered by the same sentence that a test did not pass. "
        "The agent kept trying."
    ),
    "miniswe/gemini-3-pro/scikit-learn__scikit-learn-14053": (
        "The tests were run twice, once with `-v`; both times the project's own test set-up "
        "failed with the same `TypeError`, which reads like a wrong call. The agent went on."
    ),
    "intercode/ic_ctf_multiturn_gpt-4_10_turns/6": (
        "Three orders of the same flags, the same usage line three times. The next attempt "
        "dropped the flag and worked."
    ),
    "intercode/ic_sql_multiturn_gpt-3.5_10_turns/243": (
        "The same query three times with the same answer; then another one, and the task counted "
        "as solved. The run does repeat itself."
    ),
    "intercode/ic_sql_multiturn_vicuna_10_turns/787": (
        "Three different queries on a column that does not exist. The agent never found it; the "
        "run is labelled a success all the same."
    ),
    "sweagent/demo/ctf/crypto/eps.traj": (
        "The same wrong flag was submitted three times; the fourth time it was quoted, and right."
    ),
    "miniswe/gemini-3-pro/sympy__sympy-15976": (
        "The same `sed` that replaces a name by itself, four times, with an empty answer each "
        "time. It changes nothing; the agent went on and got there."
    ),
    "trail/gaia/3205fa0cb2135fe671bf7cd0e5a26151": (
        "A file of a format that the tool cannot read was given to it again and again, in other "
        "words. The annotators of the run did not mark it; its answer was made up in the end."
    ),
}
"""What happened in the healthy runs that are noticed, read by a person."""


@cache
def rows() -> tuple[dict[str, Any], ...]:
    """The rows of the evaluation."""
    need_shared()
    said = command_line("eval", *FILES, *BASELINES, "--format", "json")
    return tuple(json.loads(line) for line in said.splitlines())


@cache
def labels() -> dict[tuple[str, str], dict[str, Any]]:
    """Loop and tier of every run, by source and id."""
    import gzip

    need_shared()
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for name in FILES:
        path = SHARED.parent / name.removeprefix("../")
        raw = path.read_bytes()
        text = gzip.decompress(raw) if name.endswith(".gz") else raw
        for line in text.splitlines():
            run = json.loads(line)
            found[run["source"], run["id"]] = {"loop": run["loop"], "tier": run["label"]["tier"]}
    return found


@cache
def accounts() -> tuple[dict[str, Any], ...]:
    """What was decided about every run, with its label."""
    need_shared()
    said = command_line("replay", *FILES, "--format", "json")
    found = [json.loads(line) for line in said.splitlines()]
    return tuple({**run, **labels()[run["source"], run["session"]]} for run in found)


def tiers() -> str:
    """The guard and the baselines, per tier."""
    return _table(row for row in rows() if row["source"] == "all")


def sources() -> str:
    """The guard per tier and source."""
    return _table(
        row
        for row in rows()
        if row["detector"] == OURS and "all" not in (row["tier"], row["source"])
    )


def summary() -> str:
    """The guard per tier, in few words."""
    lines = ["| runs | | noticed | stopped |\n| --- | --- | --- | --- |\n"]
    for row in rows():
        if row["detector"] != OURS or row["source"] != "all" or row["tier"] in ("all", "none"):
            continue
        about = "stuck" if row["loops"] else "healthy"
        kind = "tp" if row["loops"] else "fp"
        noticed, stopped = row[f"noticed_{kind}"], row[f"stopped_{kind}"]
        lines.append(f"| `{row['tier']}` | {row['n']} {about} | {noticed} | {stopped} |\n")
    return "".join(lines)


def rules() -> str:
    """How many decisions each rule made, by what the run is."""
    counts = Counter(
        (decision["detector"], decision["reason"], run["loop"])
        for run in accounts()
        for decision in run["decisions"]
    )
    names = sorted({key[:2] for key in counts})
    lines = [
        (
            "| detector | rule | in stuck runs | in healthy runs | in runs without a label |\n"
            "| --- | --- | --- | --- | --- |\n"
        )
    ]
    for name in names:
        figures = " | ".join(str(counts[(*name, loop)]) for loop in (True, False, None))
        lines.append(f"| `{name[0]}` | `{name[1]}` | {figures} |\n")
    return "".join(lines)


def failed() -> str:
    """InterCode: how many of the runs that failed and that succeeded are noticed."""
    runs = [run for run in accounts() if run["source"].startswith("InterCode")]
    lines = ["| InterCode | runs | noticed | stopped |\n| --- | --- | --- | --- |\n"]
    for name, succeeded in (("failed", False), ("succeeded", True)):
        about = [run for run in runs if (run["loop"] is False) is succeeded]
        noticed = sum(bool(run["decisions"]) for run in about)
        stopped = sum(run["strongest"] in ("deny", "abort") for run in about)
        lines.append(f"| {name} | {len(about)} | {noticed} | {stopped} |\n")
    return "".join(lines)


def false_notices() -> str:
    """Every healthy run that is noticed, with what happened in it."""
    lines: list[str] = []
    for run in accounts():
        if run["loop"] is not False or not run["decisions"]:
            continue
        first = run["decisions"][0]
        assert run["session"] in READ, f"read {run['session']} and say in READ what happened"
        lines.append(
            f"* `{run['session']}`, {run['steps']} steps: {first['action']} at step "
            f"{first['step']} by `{first['reason']}`; strongest `{run['strongest']}`. "
            f"{READ[run['session']]}\n"
        )
    return "".join(lines) or "None.\n"


def missed_scenarios() -> str:
    """The small loops that are not noticed."""
    missed = [
        run["session"]
        for run in accounts()
        if run["tier"] == "pos_scenario" and not run["decisions"]
    ]
    return "".join(f"* {name}\n" for name in missed) or "None.\n"


def _table(found: Iterator[dict[str, Any]]) -> str:
    lines = [
        (
            "| tier | source | detector | runs | noticed: true | false | stopped: true | false | "
            "false stops in 1,000 steps | noticed without label |\n"
        ),
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n",
    ]
    for row in found:
        rate = row["false_stops_per_1000"]
        cells = (
            row["tier"], row["source"], row["detector"], row["n"],
            _of(row["noticed_tp"], row["loops"]), _of(row["noticed_fp"], row["healthy"]),
            _of(row["stopped_tp"], row["loops"]), _of(row["stopped_fp"], row["healthy"]),
            "" if rate is None else f"{rate:.2f}",
            _of(row["unlabelled_noticed"], row["unlabelled"]),
        )  # fmt: skip
        lines.append(f"| {' | '.join(str(cell) for cell in cells)} |\n")
    return "".join(lines)


def _of(part: int, whole: int) -> str:
    return f"{part} of {whole}" if whole else ""
