"""Runs what the pages show: programs, commands."""

import os
import re
import sys
from functools import cache

from tests.docs.markdown import ROOT, Block
from tests.programs import Interpreter, ran
from tests.zero_code.interpreter import lacking

SHARED = ROOT.parent / "shared"
SAMPLE = "otel_loopguard/cli/data/intercode-sql.otlp.jsonl.gz"
_COMMAND = "from otel_loopguard.cli import main; main()"


def need_shared() -> None:
    """Skips without the folder of recorded runs; fails under CI, which has to have it."""
    if not SHARED.is_dir():
        lacking(f"{SHARED} is missing")


def programs(found: list[Block]) -> list[tuple[Block, str, str | None]]:
    """The Python programs of a page: first block, whole text, and what it is said to print."""
    made: list[tuple[Block, str, str | None]] = []
    for block in found:
        if block.lang == "python" and not block.note.startswith("from: "):
            if block.note == "continues":
                first, text, _ = made.pop()
                made.append((first, text + block.text, None))
            else:
                made.append((block, block.text, None))
        elif block.note == "prints":
            first, text, _ = made.pop()
            made.append((first, text, block.text))
    return made


def page_interpreter() -> Interpreter:
    """For the programs of pages, which no warning is forgiven."""
    loaded = ("otel_loopguard", "opentelemetry.sdk.trace.export")  # most programs import them
    return Interpreter([sys.executable, "-W", "error"], loaded, _environment())


@cache
def command_line(*arguments: str) -> str:
    """What `otel-loopguard ARGUMENTS` prints, run in the root, which has to go well."""
    return _printed("-c", _COMMAND, *arguments)


@cache
def module(name: str, *arguments: str) -> str:
    """What `python -m NAME ARGUMENTS` prints, likewise."""
    return _printed("-m", name, *arguments)


def _printed(*arguments: str) -> str:
    return ran(sys.executable, *arguments, cwd=ROOT, env=_environment()).stdout


def _environment() -> dict[str, str]:
    ours = ("OTEL_", "LOOPGUARD_", "PYTHONWARNINGS")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return {**kept, "PYTHONPATH": str(ROOT), "COLUMNS": "100", "PYTHONIOENCODING": "utf-8"}


def plain(output: str) -> str:
    """Output without what is new in every run (ids, digests) and without space at line ends."""
    output = re.sub(r"\b(?!1c0de)[0-9a-f]{32}\b", "<trace id>", output)
    output = re.sub(r"\b[0-9a-f]{16}\b", "<digest>", output)
    return "".join(f"{line.rstrip()}\n" for line in output.strip("\n").splitlines())
