"""`doctor`: what this environment or a recording has, what is missing, and how to add it."""

from __future__ import annotations

import ast
import os
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from rich.table import Table
from rich.text import Text

from otel_loopguard.cli.hook import lacking, repository
from otel_loopguard.cli.inputs import Inputs
from otel_loopguard.cli.output import Format, cell, console, counted, give, line
from otel_loopguard.cli.replay import recorded_steps
from otel_loopguard.core import Kind
from otel_loopguard.errors import LoopGuardError
from otel_loopguard.guard import LoopGuard
from otel_loopguard.hooks.install import states
from otel_loopguard.replay import Run
from otel_loopguard.settings import Settings
from otel_loopguard.settings._group import NO_SECRET
from otel_loopguard.settings._names import FILE, PREFIX, unknown
from otel_loopguard.spans.dialects.registry import collect_keys
from otel_loopguard.spans.reader import Reader, ScopeKind
from otel_loopguard.stores import open_store
from otel_loopguard.version import __version__

if TYPE_CHECKING:
    from otel_loopguard.core import Step
    from otel_loopguard.spans.views import RecordedSpan

State = Literal["ok", "missing", "note"]


class Finding(NamedTuple):
    """One thing that was looked at.

    Attributes:
        about: What it is of, such as `settings`, or the name of a recording.
        state: `missing`: the guard cannot do what it is there for; `note`: it may be on purpose.
        found: What was found; never the value of a secret, an argument or a result.
        add: The line that adds what is missing; empty if there is nothing to add.
    """

    about: str
    state: State
    found: str
    add: str = ""


_MARKS: Final = {"ok": ("✓", "green"), "missing": ("✗", "bold red"), "note": ("·", "dim")}


def print_findings(files: Sequence[str], form: Format) -> int:
    """Prints an object or a few lines per finding; returns the exit code, 1 if one is missing."""
    with Inputs(files) as inputs:
        found = [each for one in inputs for each in examine(one.name, inputs.entries(one))]
    if not files:
        found = list(examine_environment())
    give(found, form, Finding._asdict, _show)
    return 1 if any(finding.state == "missing" for finding in found) else inputs.code


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


def _spans(seen: _Seen) -> Iterator[tuple[State, str, str]]:
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


def _calls(seen: _Seen) -> Iterator[tuple[State, str, str]]:
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


def _content(seen: _Seen) -> Iterator[tuple[State, str, str]]:
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


def _sessions(seen: _Seen) -> Iterator[tuple[State, str, str]]:
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


_PACKAGE: Final = "otel-loopguard"
_HIDING: Final = {
    "OPENINFERENCE_HIDE_": ("true", "1"),
    "TRACELOOP_TRACE_CONTENT": ("false", "0"),
    "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": ("false", "no_content"),
    "ADK_CAPTURE_MESSAGE_CONTENT_IN_SPANS": ("false", "0"),
}
"""How variables begin that keep content out of spans, and their values that do."""
_DROPPING: Final = (
    *("always_off", "traceidratio"),
    *("parentbased_always_off", "parentbased_traceidratio"),
)
"""Samplers of the SDK whose dropped spans the guard never sees."""


def examine_environment() -> Iterator[Finding]:
    """What this environment has and lacks, in the order in which one would mend it."""
    python = ".".join(map(str, sys.version_info[:3]))
    yield Finding("package", "ok", f"{_PACKAGE} {__version__}, Python {python}")
    yield from _packages()
    yield from _instrumentations()
    yield from _telemetry()
    yield from _settings()
    yield from _hooks()


def _packages() -> Iterator[Finding]:
    """Extras that are complete, and frameworks with their adapters."""
    needs: defaultdict[str, list[tuple[str, str]]] = defaultdict(list)
    for text in metadata.requires(_PACKAGE) or ():
        what, _, extra = text.partition("; extra == '")
        if extra and (name := re.match(r"[\w.-]+", what)):
            least = what.partition(">=")[2].partition(",")[0].strip()
            needs[extra.partition("'")[0]].append((name[0], least or "0"))
    adapters = {extra: find_spec(_module(extra)) for extra in needs}
    complete = [
        extra
        for extra, parts in sorted(needs.items())
        if extra != "all" and adapters[extra] is None and all(_version(name) for name, _ in parts)
    ]
    yield Finding("package", "ok", f"extras: {', '.join(complete) or 'none'}")
    frameworks = 0
    for extra, spec in adapters.items():
        for place, (package, least) in enumerate(needs[extra] if spec is not None else ()):
            version = _version(package)
            if version is None:
                continue
            frameworks += 1
            name = f"{package} {version}"
            if _numbers(version) < _numbers(least):
                found = f"{name}: its adapter needs {least}"
                add = f"pip install --upgrade 'otel-loopguard[{extra}]'"
                if user := _user_of(package):
                    # An upgrade may break what needs this version, and nobody else may use it.
                    yield Finding("frameworks", "note", f"{found}; {user} needs it, too")
                else:
                    yield Finding("frameworks", "missing", found, add)
            elif not place:
                yield Finding("frameworks", "ok", f"{name} has an adapter", _usage(extra, spec))
    if not frameworks:
        found = "none that has an adapter: turn() guards a loop of your own"
        yield Finding("frameworks", "note", found, "from otel_loopguard import turn")


def _instrumentations() -> Iterator[Finding]:
    """Instrumentations whose spans tell of agents, and what sets up a provider for them."""
    if _version("opentelemetry-instrumentation") and _version("opentelemetry-distro") is None:
        found = "opentelemetry-instrument sets up no tracer provider: spans go nowhere"
        yield Finding("spans", "note", found, "pip install opentelemetry-distro")
    reader = Reader()
    entries = metadata.entry_points(group="opentelemetry_instrumentor")
    found_by_scope = {each.value.partition(":")[0]: each for each in entries}
    of_agents = {
        scope: each
        for scope, each in sorted(found_by_scope.items())
        if not scope.startswith("otel_loopguard") and reader.interest(scope) is not ScopeKind.NONE
    }
    refused = {scope: told for scope, each in of_agents.items() if (told := _refusal(each))}
    for scope, told in refused.items():
        yield Finding("spans", "note", f"{scope} writes no spans: {told}")
    if working := of_agents.keys() - refused.keys():
        yield Finding("spans", "ok", f"instrumentations: {', '.join(sorted(working))}")
        return
    found = (
        "no instrumentation of agents is installed: spans come from a framework that writes them "
        "itself, from an adapter or from turn()"
    )
    yield Finding("spans", "note", found)


def _refusal(entry: metadata.EntryPoint) -> str | None:
    """What an instrumentation does not instrument, of the versions that are installed."""
    try:
        from opentelemetry.instrumentation.dependencies import (  # noqa: PLC0415  # no extra has it
            get_dist_dependency_conflicts,
        )
    except ImportError:
        return None
    conflict = None if entry.dist is None else get_dist_dependency_conflicts(entry.dist)
    if conflict is None or conflict.found is None:
        return None
    wanted = str(conflict.required).partition(";")[0]
    return f"{conflict.found} is installed, and it instruments {wanted}"


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _user_of(package: str) -> str | None:
    """Another package that is installed and depends on this one."""
    needs = re.compile(re.escape(package) + r"(?![\w.-])(?!.*;.*extra)", re.IGNORECASE)
    users = (
        each.name
        for each in metadata.distributions()
        if each.name != _PACKAGE and any(map(needs.match, each.requires or ()))
    )
    return next(users, None)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)[:3]))


def _module(extra: str) -> str:
    return f"otel_loopguard.integrations.{extra.replace('-', '_')}"


def _usage(extra: str, spec: object) -> str:
    """How an adapter is used, from its description; it is not imported, nor is its framework."""
    origin = getattr(spec, "origin", None)
    text = ast.get_docstring(ast.parse(Path(origin).read_text("utf-8"))) if origin else None
    examples = re.findall(r"^    (\S.*)$", text or "", re.MULTILINE)
    examples = examples or re.findall(r"`([^`]*\(.*?)`", text or "")
    module = _module(extra)
    return f"{'; '.join(examples)}  (from {module})" if examples else f"import {module}"


def _telemetry() -> Iterator[Finding]:
    """What OTEL_* variables, and those of instrumentations, do to the spans of agents."""
    if os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        found = "OTEL_SDK_DISABLED is set: there are no spans"
        yield Finding("spans", "missing", found, "unset OTEL_SDK_DISABLED")
    sampler = os.environ.get("OTEL_TRACES_SAMPLER", "")
    if sampler in _DROPPING:
        found = f"OTEL_TRACES_SAMPLER={sampler} drops runs before the guard sees them"
        yield Finding("spans", "missing", found, "OTEL_TRACES_SAMPLER=loopguard")
    for name, value in sorted(os.environ.items()):
        for begin, values in _HIDING.items():
            if name.startswith(begin) and value.lower() in values:
                found = f"{name}={value.lower()} keeps arguments or results out of the spans"
                add = f"unset {name}, or add the framework's adapter"
                yield Finding("content", "missing", found, add)
    exporter = os.environ.get("OTEL_TRACES_EXPORTER", "")
    if exporter and re.fullmatch(r"[\w,]{1,60}", exporter):
        yield Finding("exporters", "ok", f"OTEL_TRACES_EXPORTER={exporter}")
    entries = metadata.entry_points(group="opentelemetry_traces_exporter")
    installed = ", ".join(sorted(each.name for each in entries))
    yield Finding("exporters", "ok", f"installed: {installed}")
    yield from _variables("OTEL_", "OPENINFERENCE_", "TRACELOOP_")


def _variables(*begins: str) -> Iterator[Finding]:
    """The names of variables that are set."""
    names = sorted(name for name in os.environ if name.upper().startswith(begins))
    if names:
        yield Finding("variables", "ok", f"set (values are not shown): {', '.join(names)}")


def _settings() -> Iterator[Finding]:
    yield from _variables(PREFIX)
    for name in unknown(Settings):
        add = f"unset {name.partition(' ')[0]}, or correct its name"
        yield Finding("variables", "missing", f"{name} is no setting, and is ignored", add)
    file = os.environ.get(FILE)
    try:
        settings = Settings()
        # What settings name is imported and looked at; nobody is told that this process is there.
        alone = {"store_url": NO_SECRET, "control_socket": ""}
        LoopGuard(settings.model_copy(update=alone), local=False)
    except LoopGuardError as error:
        yield Finding("settings", "missing", f"not valid: {error}", "correct what is named")
        return
    place = f"valid, with the file {file}" if file else f"valid, without a file ({FILE} names one)"
    yield Finding("settings", "ok", place)
    if not settings.enabled:
        yield Finding("settings", "missing", "the guard is off", "LOOPGUARD_ENABLED=true")
    elif settings.mode == "shadow":
        found = "mode shadow: decisions are written down, and stop nothing"
        yield Finding("settings", "note", found, "LOOPGUARD_MODE=guard")
    yield _store(settings)
    if settings.digest_key:
        yield Finding("digest key", "ok", "set")
    else:
        found = "not set: digests of calls can be compared within one process only"
        add = "LOOPGUARD_DIGEST_KEY=$(openssl rand -hex 32), the same for all processes"
        yield Finding("digest key", "missing" if settings.store_url else "note", found, add)


def _store(settings: Settings) -> Finding:
    if not settings.store_url:
        found = "none: each process judges by itself, and forgets when it ends"
        return Finding("store", "note", found, "LOOPGUARD_STORE_URL=redis://HOST:PORT/DB")
    try:
        store = open_store(settings)
        store.ping()
        store.close()
    except Exception as error:  # noqa: BLE001  # whatever a driver has to say
        why = str(error) or type(error).__name__
        add = "correct LOOPGUARD_STORE_URL, or start it"
        return Finding("store", "missing", f"cannot be used: {why}", add)
    return Finding("store", "ok", "answers")


def _hooks() -> Iterator[Finding]:
    found = [state for state in states(repository()) if state.mode or state.problem]
    for state in found:
        name = f"{state.agent}, {state.scope}"
        if wrong := lacking(state):
            add = f"otel-loopguard hook install {state.agent} --{state.scope}"
            mend = f"correct {state.file}" if state.problem else add
            yield Finding("hooks", "missing", f"{name}: {wrong}", mend)
        else:
            yield Finding("hooks", "ok", f"{name}: mode {state.mode}")
    if not found:
        add = "otel-loopguard hook install AGENT"
        yield Finding("hooks", "note", "no coding agent has hooks", add)
