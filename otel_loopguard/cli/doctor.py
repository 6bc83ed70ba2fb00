"""`doctor`: what this environment or a recording has, what is missing, and how to add it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from rich.table import Table
from rich.text import Text

from otel_loopguard.cli import environment
from otel_loopguard.cli.environment import Finding, State
from otel_loopguard.cli.inputs import Inputs
from otel_loopguard.cli.output import Format, cell, console, counted, give, line
from otel_loopguard.cli.replay import recorded_steps
from otel_loopguard.core import Kind
from otel_loopguard.replay import Run
from otel_loopguard.spans.dialects.registry import collect_keys
from otel_loopguard.spans.reader import Reader

if TYPE_CHECKING:
    from otel_loopguard.core import Step
    from otel_loopguard.spans.views import RecordedSpan

_MARKS: Final = {"ok": ("✓", "green"), "missing": ("✗", "bold red"), "note": ("·", "dim")}


def print_findings(files: Sequence[str], form: Format) -> int:
    """Prints an object or a few lines per finding; returns the exit code, 1 if one is missing."""
    broken = 0
    if files:
        with Inputs(files) as inputs:
            found = [
                finding for one in inputs for finding in examine(one.name, inputs.entries(one))
            ]
        broken = inputs.code
    else:
        found = list(environment.examine())
    give(found, form, Finding._asdict, _show)
    return 1 if broken or any(finding.state == "missing" for finding in found) else 0


def _show(found: Iterable[Finding]) -> None:
    out = console()
    missing, about = 0, ""
    for finding in found:
        missing += finding.state == "missing"
        mark, style = _MARKS[finding.state]
        if finding.about != about:
            about = finding.about
            out.print(cell(about), style="bold")
        _print(Text(f"  {mark}", style=style), cell(finding.found))
        if finding.add:
            verb = "use" if finding.state == "ok" else "add"
            _print(Text("   "), Text.assemble(f"{verb}: ", (line(finding.add, 1000), "cyan")))
    out.print()
    out.print(f"{missing} missing" if missing else "nothing is missing")


def _print(begin: Text, text: Text) -> None:
    """Prints text whose further lines begin where its first one does."""
    row = Table.grid(padding=(0, 1))
    row.add_row(begin, text)
    console().print(row)


_ADAPTER: Final = "the framework's adapter (otel_loopguard.integrations)"
_CONTENT: Final = {
    "genai": "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=span_only",
    "openllmetry": "TRACELOOP_TRACE_CONTENT=true",
    "openinference": "no OPENINFERENCE_HIDE_* variable",
    "adk": "ADK_CAPTURE_MESSAGE_CONTENT_IN_SPANS=true",
}
"""What lets the spans of a dialect carry content."""
# Names in a sentence: with more it is no longer read.
_NAMES_SHOWN: Final = 5
# Sessions that are told apart; of more, a person learns nothing new.
_SESSIONS_COUNTED: Final = 100_000


@dataclass(slots=True)
class _Seen:
    """What is counted of one recording."""

    spans: int = 0
    runs: int = 0
    scopes: Counter[str] = field(default_factory=Counter[str])
    dialects: Counter[str] = field(default_factory=Counter[str])
    keys: Counter[str] = field(default_factory=Counter[str])
    kinds: Counter[Kind] = field(default_factory=Counter[Kind])
    lacking: dict[str, Counter[str]] = field(
        default_factory=lambda: {"args": Counter[str](), "outcome": Counter[str]()}
    )
    tokens: int = 0  # model calls that say how many they took
    sessions: Counter[str] = field(default_factory=Counter[str])  # tool calls of each

    def add(self, step: Step, session: str) -> None:
        """Counts a step, which is one however many spans describe it."""
        self.kinds[step.kind] += 1
        if step.kind is Kind.TOOL:
            for what in step.lacks:
                self.lacking[what][step.name or "(no name)"] += 1
        elif step.kind is Kind.MODEL:
            self.tokens += step.tokens is not None
        if session in self.sessions or len(self.sessions) < _SESSIONS_COUNTED:
            self.sessions[session] += step.kind is Kind.TOOL


def examine(name: str, entries: Iterable[RecordedSpan | Run]) -> Iterator[Finding]:
    """What a recording has and lacks."""
    seen = _Seen()
    for found in recorded_steps(name, _looked(seen, entries)):
        seen.add(found.step, found.session)
    for findings in (_spans, _calls, _content, _sessions):
        for state, text, add in findings(seen):
            yield Finding(name, state, text, add)


def _looked(seen: _Seen, entries: Iterable[RecordedSpan | Run]) -> Iterator[RecordedSpan | Run]:
    """What a recording holds, counted before it is replayed."""
    reader, keys = Reader(), collect_keys("session_keys")
    for entry in entries:
        yield entry
        if isinstance(entry, Run):
            seen.runs += 1
            continue
        seen.spans += 1
        step = reader.read(entry)
        if step is None:
            seen.scopes[entry.scope or "(no scope)"] += 1
            continue
        seen.dialects[step.dialect or "(by its name)"] += 1
        if step.session:
            seen.keys.update([key for key in keys if key in entry.attributes][:1])


_Told = Iterator[tuple[State, str, str]]


def _spans(seen: _Seen) -> _Told:
    """What was read, and in which dialects it is written."""
    if seen.runs:
        yield "ok", f"{seen.runs:,} labelled runs or transcripts", ""
    if not seen.spans:
        return
    read = sum(seen.dialects.values())
    if not read:
        add = f"an instrumentation of the framework, {_ADAPTER}, or turn() around the loop"
        text = f"none of {seen.spans:,} spans is of an agent (scopes: {_most(seen.scopes)})"
        yield "missing", text, add
        return
    yield "ok", f"{read:,} of {seen.spans:,} spans are of agents: {_most(seen.dialects)}", ""


def _calls(seen: _Seen) -> _Told:
    """The kinds of steps, and what judging them lacks."""
    kinds = seen.kinds
    if not kinds:
        return
    counts = ", ".join(f"{kinds[kind]:,} {kind.value}" for kind in sorted(kinds, key=str))
    yield "ok", f"steps: {counts}", ""
    if not kinds[Kind.TOOL]:
        text = "no tool call is seen: loops of tool calls go unnoticed"
        yield "missing", text, f"an instrumentation of the tools, or {_ADAPTER}"
    if kinds[Kind.MODEL] and not seen.tokens:
        text = "no model call says its tokens: budgets of tokens and cost see nothing"
        yield "note", text, "an instrumentation that writes gen_ai.usage.*"
    if not kinds[Kind.AGENT] and seen.spans:
        yield "note", "no span is of an agent's run: decisions name no agent", _ADAPTER


def _content(seen: _Seen) -> _Told:
    """How many tool calls have arguments and results."""
    calls = seen.kinds[Kind.TOOL]
    if not calls:
        return
    by_dialect = [line for name, line in _CONTENT.items() if name in seen.dialects]
    add = ", or ".join([*by_dialect, _ADAPTER])
    for what, name, blind in (
        ("args", "arguments", "equal calls cannot be told from others"),
        ("outcome", "results", "equal answers and progress cannot be told"),
    ):
        lacking = seen.lacking[what]
        bare = sum(lacking.values())
        text = f"{name} of {calls - bare:,} of {calls:,} tool calls are captured"
        if not bare:
            yield "ok", text, ""
            continue
        # What is blind for most calls is blind; a tool or two may keep theirs on purpose.
        state: State = "missing" if 2 * bare > calls else "note"
        yield state, f"{text}: {blind}; not those of {_most(lacking)}", add


def _sessions(seen: _Seen) -> _Told:
    """By what a session is known."""
    count = len(seen.sessions)
    if not count or not seen.spans:
        return
    add = "gen_ai.conversation.id on the spans; live, session(key) or turn(key) does as well"
    shown = ("at least " if count == _SESSIONS_COUNTED else "") + counted(count, "session")
    if seen.keys:
        yield "ok", f"{shown}, by {', '.join(seen.keys)}", ""
        return
    alone = sum(calls == 1 for calls in seen.sessions.values())
    if count > 1 and alone == count:
        text = f"{shown}, each with one tool call: none is compared with another"
        yield "missing", text, add
    else:
        text = f"{shown}, by trace: a conversation of several traces is several sessions"
        yield "note", text, add


def _most(found: Counter[str]) -> str:
    """The most common names with their numbers."""
    named = ", ".join(f"{name} {count:,}" for name, count in found.most_common(_NAMES_SHOWN))
    more = len(found) - _NAMES_SHOWN
    return f"{named} and {more:,} more" if more > 0 else named
