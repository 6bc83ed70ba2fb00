"""Writes the everyday families as labelled runs, for `otel-loopguard eval`.

`python -m tests.scenarios.everyday FILE` writes one run for each of eight seeds of each family, in
the step format of the recorded runs; the same families give the same file.
"""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from otel_loopguard.core import Kind
from tests.scenarios.families import EVERYDAY, Family

if TYPE_CHECKING:
    from otel_loopguard.core import Step

SEEDS = 8


def row(family: Family, seed: int) -> dict[str, object]:
    """One run as a line of a file of labelled runs."""
    steps, _ = family.run(seed)
    return {
        "id": f"everyday-{family.name}-{seed}",
        "group": family.name,
        "source": "everyday",
        "license": "Apache-2.0",
        "task": family.name,
        "label": {"success": True, "label_quality": "made up", "tier": "neg_everyday"},
        "loop": False,
        "loop_reason": "",
        "onset_step": None,
        "steps": [_step(step) for step in steps],
    }


def _step(step: Step) -> dict[str, object]:
    model = step.kind is Kind.MODEL
    user = step.kind is Kind.OTHER
    outcome = step.error_text if step.error else step.outcome
    return {
        "kind": "llm" if model else "agent" if user else step.kind.value,
        "agent": step.agent,
        "tool": step.name,
        "args": step.args,
        "output": outcome if isinstance(outcome, str) else json.dumps(outcome),
        "error": step.error,
        "t_start": (step.start or step.end or 0) / 1e9,
        "t_end": (step.end or 0) / 1e9,
        "tokens": None,
        "text": step.text,
    }


def write(path: Path) -> int:
    """Writes the file; returns how many runs it has."""
    rows = [row(family, seed) for family in EVERYDAY for seed in range(SEEDS)]
    text = "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in rows)
    raw = text.encode()
    path.write_bytes(gzip.compress(raw, mtime=0) if path.suffix == ".gz" else raw)
    return len(rows)


if __name__ == "__main__":
    print(f"{write(Path(sys.argv[1]))} runs")
