"""Labelled step lines: one run per line, its steps in the order they ended, and what people said.

{"id", "group", "source", "label": {"tier", "success", …}, "loop": true|false|null, "onset_step",
 "steps": [{"kind": "tool"|"llm"|"node"|"agent", "agent", "tool", "args", "output", "error",
            "t_start", "t_end", "tokens", "text"}]}
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from otel_loopguard._util.fields import (
    JsonObject,
    Report,
    integer,
    is_map,
    kind_of,
    mapping,
    number,
    sequence,
    text,
)
from otel_loopguard.core import Kind, Step

DIALECT: Final = "steps"
"""Name that steps read from labelled lines have as their dialect."""

MAX_STEPS: Final = 250_000
"""Steps of one run: one a second for 69 hours."""

_KINDS: Final = {"tool": Kind.TOOL, "llm": Kind.MODEL, "node": Kind.NODE}
_RUN: Final = ".run"


@dataclass(slots=True)
class Run:
    """One recorded run and its label."""

    id: str  # for a line without one, file and line number
    source: str = ""  # project or data set that it comes from
    tier: str = "none"  # how its label came about: `pos_human`, `neg_success`, …
    loop: bool | None = None  # None where nobody said
    onset_step: int | None = None  # index in `steps` at which the label places the trouble
    success: bool | None = None  # of the task
    steps: list[Step] = field(default_factory=list[Step])  # in the order of the line
    group: str = ""  # what it shares with related runs (the task, say)


def run(line: JsonObject, name: str, report: Report) -> Run:
    """Reads one line."""
    if not isinstance(line.get("steps"), list):
        report(f"`steps` is {kind_of(line.get('steps'))}, expected a list")
    label = mapping(line.get("label"))
    return Run(
        id=text(line.get("id")) or name,
        source=text(line.get("source")),
        tier=text(label.get("tier")) or "none",
        loop=_flag(line.get("loop")),
        onset_step=integer(line.get("onset_step")),
        success=_flag(label.get("success")),
        steps=[_step(entry, report) for entry in sequence(line.get("steps"))],
        group=text(line.get("group")),
    )


def _flag(value: object) -> bool | None:
    return value if isinstance(value, bool) else None


def _step(value: object, report: Report) -> Step:
    if not is_map(value):
        report(f"an entry of `steps` is {kind_of(value)}, expected an object")
    entry = mapping(value)
    if entry.get("kind") not in ("tool", "llm", "node", "agent"):
        written = entry.get("kind")
        shown = repr(written[:40]) if isinstance(written, str) else kind_of(written)
        report(f"a step has the kind {shown}, expected tool, llm, node or agent")
    kind, name = _kind(entry), text(entry.get("tool")) or None
    agent, args = text(entry.get("agent")) or None, entry.get("args")
    failed = entry.get("error") is True
    outcome = _outcome(entry)
    tokens = integer(entry.get("tokens"))
    return Step(
        kind=kind,
        name=(agent or name) if kind is Kind.AGENT else name,
        model=name if kind is Kind.MODEL else None,
        node=name if kind is Kind.NODE else None,
        dialect=DIALECT,
        start=_nanoseconds(entry.get("t_start")),
        end=_nanoseconds(entry.get("t_end")),
        agent=agent,
        args=args if kind in (Kind.TOOL, Kind.HANDOFF) else args or None,
        outcome=outcome,
        error=failed,
        error_text=(text(outcome) or None) if failed else None,
        text=text(entry.get("text")) if isinstance(entry.get("text"), str) else None,
        # One number for both directions; input is cheaper, so that the cost is a lower bound.
        tokens_in=tokens if tokens is None or tokens >= 0 else None,
    )


def _kind(entry: JsonObject) -> Kind:
    """The kind of a step.

    An `agent` step is a handoff if it carries an instruction, a user turn if it is named `user`,
    else (TRAIL) the end of an agent's run.
    """
    if entry.get("kind") != "agent":
        return _KINDS.get(text(entry.get("kind")), Kind.OTHER)
    name = text(entry.get("tool"))
    if name == "user":
        return Kind.OTHER
    return Kind.AGENT if name.endswith(_RUN) or not entry.get("args") else Kind.HANDOFF


def _outcome(entry: JsonObject) -> object:
    """The output; None where the source leaves empty what it has not.

    TRAIL (the source whose steps have a `span_id`) writes "" for a tool span without
    `output.value`: all its 67 empty outputs are such spans. The others write "" for an empty
    output. A model's output is its text, so that "" (or `null`) says nothing there.
    """
    output = entry.get("output")
    if output == "" and (entry.get("kind") != "tool" or "span_id" in entry):
        return None
    return None if entry.get("kind") == "llm" and output == "null" else output


def _nanoseconds(value: object) -> int:
    seconds = number(value)
    return round(seconds * 1e9) if seconds is not None and 0 <= seconds < 9e9 else 0
