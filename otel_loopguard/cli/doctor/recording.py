"""What a recording has: spans, steps, sessions, content; and what the guard would be blind to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from otel_loopguard.cli.doctor.finding import Finding, State
from otel_loopguard.cli.transcripts.words import counted
from otel_loopguard.core import Kind
from otel_loopguard.guard.guard import LoopGuard
from otel_loopguard.replay import RecordedSession, Recording, Run, SpanReplay
from otel_loopguard.settings import Settings
from otel_loopguard.spans.dialects.registry import collect_keys

if TYPE_CHECKING:
    from otel_loopguard.cli.inputs import Inputs
    from otel_loopguard.core import Step
    from otel_loopguard.sessions import Session
    from otel_loopguard.spans.views import RecordedSpan

_ADAPTER: Final = "the framework's adapter (otel_loopguard.integrations)"
_CONTENT: Final = {
    "genai": "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=span_only",
    "openllmetry": "TRACELOOP_TRACE_CONTENT=true",
    "openinference": "no OPENINFERENCE_HIDE_* variable",
    "adk": "ADK_CAPTURE_MESSAGE_CONTENT_IN_SPANS=true",
}
"""What lets the spans of a dialect carry content."""
_NAMED: Final = 5
_KEPT: Final = 100_000
"""Sessions that are told apart; of more, a person learns nothing new."""


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
        if session in self.sessions or len(self.sessions) < _KEPT:
            self.sessions[session] += step.kind is Kind.TOOL


def examine(inputs: Inputs, recording: Recording | RecordedSession) -> Iterator[Finding]:
    """What a recording has and lacks."""
    seen = _Seen()

    def on_step(session: Session, _index: int, step: Step) -> None:
        seen.add(step, session.key)

    guard = LoopGuard(Settings(), clock="replay", on_step=on_step)
    spans = SpanReplay(guard, guard.reader.read)
    keys = collect_keys("session_keys")
    for entry in inputs.entries(recording):
        if isinstance(entry, Run):
            seen.runs += 1
            for step in entry.steps:
                seen.add(step, entry.id)
        else:
            _look(seen, guard, entry, keys)
            spans.add(entry)
    spans.finish()
    guard.shutdown()
    for found in (_spans, _calls, _content, _sessions):
        for state, text, add in found(seen):
            yield Finding(recording.name, state, text, add)


def _look(seen: _Seen, guard: LoopGuard, span: RecordedSpan, keys: tuple[str, ...]) -> None:
    seen.spans += 1
    step = guard.reader.read(span)
    if step is None:
        seen.scopes[span.scope or "(no scope)"] += 1
        return
    seen.dialects[step.dialect or "(by its name)"] += 1
    key = next((key for key in keys if key in span.attributes), None) if step.session else None
    if key is not None:
        seen.keys[key] += 1


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
    """Whether there is something to judge."""
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
    add = "with otel_loopguard.session(key) around the run"
    shown = ("at least " if count == _KEPT else "") + counted(count, "session")
    if seen.keys:
        yield "ok", f"{shown}, by {', '.join(seen.keys)}", ""
        return
    alone = sum(calls == 1 for calls in seen.sessions.values())
    if count > 1 and alone == count:
        text = f"{shown}, each with one tool call: none is compared with another"
        yield "missing", text, f"{add}, or turn()"
    else:
        text = f"{shown}, by trace: a conversation of several traces is several sessions"
        yield "note", text, add


def _most(found: Counter[str]) -> str:
    """The most common names with their numbers."""
    named = ", ".join(f"{name} {count:,}" for name, count in found.most_common(_NAMED))
    more = len(found) - _NAMED
    return f"{named} and {more:,} more" if more > 0 else named
