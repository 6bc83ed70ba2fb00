"""`steps`: the canonical steps of recorded runs, printed as they come."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, cast

from rich.text import Text

from otel_loopguard.cli.inputs import Inputs
from otel_loopguard.cli.output import Format, console, json_line, line
from otel_loopguard.cli.replay import recorded_steps
from otel_loopguard.evidence import error_class, parsed

if TYPE_CHECKING:
    from otel_loopguard.cli.replay import RecordedStep

_INDENT: Final = 8  # columns before an answer: the number of a step, and two more
_Row = dict[str, object]


def print_steps(files: Sequence[str], form: Format) -> int:
    """Prints the canonical steps of files; returns the exit code.

    Labelled runs give their steps as they stand; spans go through the guard, which counts each call
    once whoever reported it. Memory does not grow with the length of the files.
    """
    with Inputs(files, bar=not sys.stdout.isatty()) as inputs:
        show = json_line if form is Format.JSON else _Lines().print
        for recording in inputs:
            for found in recorded_steps(recording.name, inputs.entries(recording)):
                show(_row(found))
    return inputs.code


def _row(found: RecordedStep) -> dict[str, object]:
    """A step as one JSON object."""
    source, session, number, step = found
    known = step.start > 0 or bool(step.end)
    text = step.error_text or step.error_type or "error"
    return {
        "source": source,
        "session": session,
        "index": number,
        "kind": step.kind.value,
        "tool": step.name,
        "args": parsed(step.args),
        "outcome": step.outcome,
        "error": text if step.error else None,
        "error_class": error_class(step).value if step.error else None,
        "agent": step.agent,
        "node": step.node,
        "start": step.start / 1e9 if known else None,
        "end": step.end / 1e9 if step.end else None,
        "tokens": step.tokens,
        "dialect": step.dialect,
        "call_id": step.call_id,
        "lacks": list(step.lacks),
    }


class _Lines:
    """Steps as lines: the call with its arguments, and below it what came of it."""

    def __init__(self) -> None:
        self._session: object = None
        self._out = console()
        # In a pipe as long as two lines of a terminal.
        self._width = min(self._out.width, 160) - _INDENT

    def print(self, known: _Row) -> None:
        session = known["source"], known["session"]
        if session != self._session:
            self._session = session
            self._out.print(Text.assemble("session ", (line(known["session"], 400), "bold")))
        # For people steps count from 1, as in `replay` and `show`.
        number = cast("int", known["index"]) + 1
        called = f"{number:{_INDENT - 2}}  {known['kind']:5}  {line(known['tool'], 60)}  "
        self._print(called, known["args"], "dim")
        if known["error"] is not None:
            self._print("✗ ".rjust(_INDENT), known["error"], "red")
        elif known["outcome"] is not None:
            self._print("→ ".rjust(_INDENT), known["outcome"], "")

    def _print(self, begin: str, value: object, style: str) -> None:
        size = max(self._width + _INDENT - len(begin), 20)
        self._out.print(
            Text.assemble(begin, (line(value, size), style)), overflow="ellipsis", no_wrap=True
        )
