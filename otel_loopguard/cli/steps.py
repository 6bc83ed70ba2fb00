"""`steps`: the canonical steps of recorded runs, printed as they come."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, cast

import typer

from otel_loopguard.cli.inputs import Inputs
from otel_loopguard.cli.output import Format, json_line, line
from otel_loopguard.evidence import error_class, parsed
from otel_loopguard.guard.guard import LoopGuard
from otel_loopguard.replay import RecordedSession, Recording, Run, SpanReplay

if TYPE_CHECKING:
    from otel_loopguard.core import Step
    from otel_loopguard.sessions import Session
    from otel_loopguard.spans.views import RecordedSpan

_SECOND: Final = 1e9
_COLUMNS: Final = (
    ("session", 20),
    ("index", 5),
    ("kind", 8),
    ("tool", 24),
    ("args", 48),
    ("outcome", 48),
    ("error", 32),
)


def print_steps(files: Sequence[str], form: Format) -> int:
    """Prints the canonical steps of files; returns the exit code.

    Labelled runs give their steps as they stand; spans go through the guard, which counts each call
    once whoever reported it. Memory does not grow with the length of the files.
    """
    with Inputs(files, bar=not sys.stdout.isatty()) as inputs:
        if form is Format.TABLE:
            _print_cells({**{name: name for name, _ in _COLUMNS}, "index": "step"})
        for recording in inputs:
            _print_recording(inputs, recording, form)
    return inputs.code


def row(source: str, session: str, index: int, step: Step) -> dict[str, object]:
    """A step as one JSON object."""
    known = step.start > 0 or bool(step.end)
    text = step.error_text or step.error_type or "error"
    return {
        "source": source,
        "session": session,
        "index": index,
        "kind": step.kind.value,
        "tool": step.name,
        "args": parsed(step.args),
        "outcome": step.outcome,
        "error": text if step.error else None,
        "error_class": error_class(step).value if step.error else None,
        "agent": step.agent,
        "node": step.node,
        "start": step.start / _SECOND if known else None,
        "end": step.end / _SECOND if step.end else None,
        "tokens": step.tokens,
        "dialect": step.dialect,
        "call_id": step.call_id,
        "lacks": list(step.lacks),
    }


def _print_recording(inputs: Inputs, recording: Recording | RecordedSession, form: Format) -> None:
    show = json_line if form is Format.JSON else _print_row
    spans = _SpanSteps(recording.name)
    for entry in inputs.entries(recording):
        if isinstance(entry, Run):
            for index, step in enumerate(entry.steps):
                show(row(entry.source, entry.id, index, step))
        else:
            for known in spans.add(entry):
                show(known)
    for known in spans.finish():
        show(known)


class _SpanSteps:
    """The canonical steps of the spans of one file, as rows.

    They are handed over after the guard has returned: what fails in its callbacks it swallows, and
    a reader that has closed the pipe has to end the command.
    """

    def __init__(self, source: str) -> None:
        self._source = source
        self._rows: list[dict[str, object]] = []
        self._guard = LoopGuard(clock="replay", on_step=self._on_step)
        self._replay = SpanReplay(self._guard, self._guard.reader.read)

    def add(self, span: RecordedSpan) -> list[dict[str, object]]:
        self._replay.add(span)
        return self._taken()

    def finish(self) -> list[dict[str, object]]:
        self._replay.finish()
        self._guard.shutdown()
        return self._taken()

    def _on_step(self, session: Session, index: int, step: Step) -> None:
        self._rows.append(row(self._source, session.key, index, step))

    def _taken(self) -> list[dict[str, object]]:
        rows, self._rows = self._rows, []
        return rows


def _print_row(known: dict[str, object]) -> None:
    # For people steps count from 1, as in `replay` and `show`.
    _print_cells({**known, "index": cast("int", known["index"]) + 1})


def _print_cells(known: dict[str, object]) -> None:
    cells = (f"{line(known[name], width):{width}}" for name, width in _COLUMNS)
    typer.echo("  ".join(cells).rstrip())
