"""Transcripts in tests: written, read as a command reads them, and told in lines."""

import gzip
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from otel_loopguard.core import Kind, Step
from otel_loopguard.replay import Transcript, recordings

CAPTURES = Path(__file__).parent / "captures"
Told = list[tuple[int, str]]


def cases(path: Path) -> dict[str, str]:
    _, *parts = re.split(r"^\[(.+)\]\n", path.read_text("utf-8"), flags=re.MULTILINE)
    return dict(zip(parts[::2], parts[1::2], strict=True))


def read(path: Path, told: Told | None = None) -> list[Transcript]:
    """The sessions of a file or a folder; nothing may be broken unless it is asked for."""
    broken: Told = []
    found = [
        entry
        for recording in recordings(str(path), lambda _, line, why: broken.append((line, why)))
        for entry in recording
        if isinstance(entry, Transcript)
    ]
    if told is None:
        assert not broken
    else:
        told += broken
    return found


def one(path: Path, told: Told | None = None) -> Transcript:
    (found,) = read(path, told)
    return found


def lines(path: Path, written: Sequence[Any], end: str = "\n") -> Path:
    text = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in written)
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress((text + end).encode()))
    else:
        path.write_text(text + end)
    return path


def of(run: Transcript, kind: Kind) -> list[Step]:
    return [step for step in run.steps if step.kind is kind]


def told(run: Transcript) -> list[str]:
    """A session in lines: its head, then each step, without the ends of long contents."""
    known = (run.agent, run.version, run.cwd and f"in {run.cwd}")
    return [f"{' '.join(filter(None, known))}: {run.id}, {', '.join(run.endings)}"] + [
        "prompt" if step.kind is Kind.OTHER else f"{step.agent}: {_told(step)}"
        for step in run.steps
    ]


def _told(step: Step) -> str:
    if step.kind is Kind.MODEL:
        spent = f" {step.tokens_in}+{step.tokens_out}, cache {step.cache_read}+{step.cache_write}"
        said = f": {step.text}" if step.text else ""
        return f"{step.model or 'model'}{spent if step.tokens else ''}{said}"
    came = f"!! {_cut(step.error_text)}" if step.error else f"-> {_cut(step.outcome)}"
    return f"{step.name}({_cut(step.args)}) {came}"


def _cut(value: object) -> str:
    return f"{json.dumps(value):.60}"
