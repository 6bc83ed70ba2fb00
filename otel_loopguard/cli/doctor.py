"""`doctor`: what this environment or a recording has, what is missing, and how to add it."""

from __future__ import annotations

import ast
import os
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from rich.table import Table
from rich.text import Text

from otel_loopguard._util.tables import read_table
from otel_loopguard._util.text import truncate
from otel_loopguard.cli.hook import lacking, repository
from otel_loopguard.cli.output import Format, Inputs, cell, console, counted, give, line
from otel_loopguard.cli.replay import recorded_steps
from otel_loopguard.core import Action, Kind, Step
from otel_loopguard.errors import LoopGuardError
from otel_loopguard.guard import LoopGuard
from otel_loopguard.hooks.install import states
from otel_loopguard.replay import Run
from otel_loopguard.sdk.provider import sdk_disabled
from otel_loopguard.settings import Settings
from otel_loopguard.settings._group import NO_SECRET
from otel_loopguard.settings._sources import FILE, PREFIX, unknown
from otel_loopguard.spans.reader import Reader, ScopeKind, collect_keys
from otel_loopguard.stores import open_store
from otel_loopguard.version import __version__

if TYPE_CHECKING:
    from otel_loopguard.spans.views import RecordedSpan


class Finding(NamedTuple):
    """One thing that was looked at, by `findings.txt`; never with a secret, argument or result."""

    about: str
    state: str
    found: str
    add: str


_FINDINGS: Final = {
    row.name: row.labelled("about", "found", "add") for row in read_table(__name__, "findings.txt")
}
_MARKS: Final = {"ok": ("✓", "green"), "missing": ("✗", "bold red"), "note": ("·", "dim")}


def print_findings(files: Sequence[str], form: Format) -> int:
    """Prints an object or a few lines per finding; returns the exit code, 1 if one is missing."""
    with Inputs(files) as inputs:
        found = [each for one in inputs for each in examine(one.name, inputs.entries(one))]
    if not files:
        found = list(examine_environment())
    if found:
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


def _finding(which: str, /, **values: object) -> Finding:
    row = _FINDINGS[which]
    about, found, add = (row.get(key, "").format(**values) for key in ("about", "found", "add"))
    return Finding(about, row[""], found, add)


_CONTENT: Final = {
    "genai": "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=span_only and "
    "OTEL_SEMCONV_STABILITY_OPT_IN=gen_ai_latest_experimental",
    "openllmetry": "TRACELOOP_TRACE_CONTENT=true",
    "openinference": "no OPENINFERENCE_HIDE_* variable",
    "adk": "ADK_CAPTURE_MESSAGE_CONTENT_IN_SPANS=true",
    "haystack": "HAYSTACK_CONTENT_TRACING_ENABLED=true",
}
"""The setting that lets the spans of a dialect carry content."""
# Names in a sentence: with more it is no longer read.
_NAMES_SHOWN: Final = 5
# Sessions that are told apart; of more, a person learns nothing new.
_SESSIONS_COUNTED: Final = 100_000


@dataclass(slots=True)
class _Seen:
    """Counts of one recording."""

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
    named: int = 0  # steps that name their agent
    sessions: Counter[str] = field(default_factory=Counter[str])  # tool calls of each

    def add(self, step: Step, session: str) -> None:
        """Counts a step, which is one however many spans describe it."""
        self.kinds[step.kind] += 1
        self.named += step.agent is not None
        if step.kind is Kind.TOOL:
            for what in step.lacks:
                self.lacking[what][step.name or "(no name)"] += 1
        elif step.kind is Kind.MODEL:
            self.tokens += step.tokens is not None
        if session in self.sessions or len(self.sessions) < _SESSIONS_COUNTED:
            self.sessions[session] += step.kind is Kind.TOOL


def examine(name: str, entries: Iterable[RecordedSpan | Run]) -> Iterator[Finding]:
    """Findings about a recording."""
    seen = _Seen()
    for found in recorded_steps(name, _looked(seen, entries)):
        seen.add(found.step, found.session)
    for findings in (_spans, _calls, _content, _sessions):
        for found in findings(seen):
            yield found._replace(about=name)


def _looked(seen: _Seen, entries: Iterable[RecordedSpan | Run]) -> Iterator[RecordedSpan | Run]:
    """Yields a recording's items, counting them before they are replayed."""
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


def _spans(seen: _Seen) -> Iterator[Finding]:
    """Findings on what was read, and in which dialects."""
    if seen.runs:
        yield _finding("runs", count=seen.runs)
    read, count = sum(seen.dialects.values()), seen.spans
    if read:
        yield _finding("agent spans", read=read, count=count, dialects=_most(seen.dialects))
    elif count:
        yield _finding("no agent span", count=count, scopes=_most(seen.scopes))


def _calls(seen: _Seen) -> Iterator[Finding]:
    """The kinds of steps, and what judging them lacks."""
    kinds = seen.kinds
    if not kinds:
        return
    counts = ", ".join(f"{kinds[kind]:,} {kind.value}" for kind in sorted(kinds, key=str))
    yield _finding("steps", counts=counts)
    if not kinds[Kind.TOOL]:
        yield _finding("no tool call")
    if kinds[Kind.MODEL] and not seen.tokens:
        yield _finding("no tokens")
    if not seen.named and seen.spans:
        yield _finding("no agent")


def _content(seen: _Seen) -> Iterator[Finding]:
    """Share of tool calls with arguments and with results."""
    calls = seen.kinds[Kind.TOOL]
    content = "".join(f"{line}, or " for name, line in _CONTENT.items() if name in seen.dialects)
    for what, tools in seen.lacking.items() if calls else ():
        bare = sum(tools.values())
        captured = {"captured": calls - bare, "calls": calls}
        if bare:
            found = _finding(f"no {what}", **captured, names=_most(tools), content=content)
            # What is blind for most calls is blind; a tool or two may keep theirs on purpose.
            yield found if 2 * bare > calls else found._replace(state="note")
        else:
            yield _finding(what, **captured)


def _sessions(seen: _Seen) -> Iterator[Finding]:
    """By what a session is known."""
    count = len(seen.sessions)
    if not count or not seen.spans:
        return
    shown = ("at least " if count == _SESSIONS_COUNTED else "") + counted(count, "session")
    if seen.keys:
        yield _finding("sessions", shown=shown, keys=", ".join(seen.keys))
    elif count > 1 and all(calls == 1 for calls in seen.sessions.values()):
        yield _finding("sessions of one call", shown=shown)
    else:
        yield _finding("sessions by trace", shown=shown)


def _most(found: Counter[str]) -> str:
    """The most common names with their numbers."""
    named = ", ".join(f"{name} {count:,}" for name, count in found.most_common(_NAMES_SHOWN))
    more = len(found) - _NAMES_SHOWN
    return f"{named} and {more:,} more" if more > 0 else named


_PACKAGE: Final = "otel-loopguard"
_GENAI_CONTENT: Final = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
_LONGEST_FAULT: Final = 200  # characters of an error: two lines
_HIDING: Final = {
    "OPENINFERENCE_HIDE_": ("true", "1"),
    "TRACELOOP_TRACE_CONTENT": ("false", "0"),
    _GENAI_CONTENT: ("false", "no_content", "event_only"),
    "ADK_CAPTURE_MESSAGE_CONTENT_IN_SPANS": ("false", "0"),
}
"""Prefixes of variables that keep content out of spans, and the values that do so."""
_DROPPING: Final = (
    *("always_off", "traceidratio"),
    *("parentbased_always_off", "parentbased_traceidratio"),
)
"""Samplers of the SDK whose dropped spans the guard never sees."""


def examine_environment() -> Iterator[Finding]:
    """Findings about this environment, in the order in which to fix them."""
    python = ".".join(map(str, sys.version_info[:3]))
    yield _finding("package", version=__version__, python=python)
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
    yield _finding("extras", names=", ".join(complete) or "none")
    frameworks = 0
    for extra, spec in adapters.items():
        for place, (package, least) in enumerate(needs[extra] if spec is not None else ()):
            version = _version(package)
            if version is None:
                continue
            frameworks += 1
            name = f"{package} {version}"
            if _numbers(version) < _numbers(least):
                user = _user_of(package)
                what = "old framework in use" if user else "old framework"
                yield _finding(what, name=name, least=least, extra=extra, user=user)
            elif not place:
                yield _finding("adapter", name=name, usage=_usage(extra, spec))
    if not frameworks:
        yield _finding("no framework")


def _instrumentations() -> Iterator[Finding]:
    """Instrumentations whose spans tell of agents, and what sets up a provider for them."""
    if _version("opentelemetry-instrumentation") and _version("opentelemetry-distro") is None:
        yield _finding("no distro")
    reader = Reader()
    entries = metadata.entry_points(group="opentelemetry_instrumentor")
    found_by_scope = {each.value.partition(":")[0]: each for each in entries}
    of_agents = {
        scope: each
        for scope, each in sorted(found_by_scope.items())
        if not scope.startswith("otel_loopguard") and reader.interest(scope) is not ScopeKind.NONE
    }
    working = dict(of_agents)
    for scope, entry in of_agents.items():
        found = _fault(scope, entry)
        if found is not None:
            yield found
            del working[scope]
    if working:
        yield _finding("instrumentations", names=", ".join(working))
    elif not of_agents:
        yield _finding("no instrumentation")
    asked = os.environ.get(_GENAI_CONTENT)
    if not asked and (bare := [name for name, each in working.items() if _must_be_asked(each)]):
        yield _finding("content not asked", names=", ".join(bare))


def _fault(scope: str, entry: metadata.EntryPoint) -> Finding | None:
    """Why an instrumentation writes no spans: by the versions that are installed."""
    try:
        from opentelemetry.instrumentation.dependencies import get_dist_dependency_conflicts  # noqa: PLC0415  # no extra has it
    except ImportError:
        return None
    conflict = None if entry.dist is None else get_dist_dependency_conflicts(entry.dist)
    if conflict is not None:
        if conflict.found is None:
            return None  # what it instruments is not there
        wanted = str(conflict.required).partition(";")[0]
        why = f"{conflict.found} is installed, and it instruments {wanted}"
        return _finding("instrumentation refuses", scope=scope, why=why)
    try:
        entry.load()
    except Exception as error:  # noqa: BLE001  # whatever its import does
        why = f"{type(error).__name__}: {error}"
        return _finding("instrumentation broken", scope=scope, why=truncate(why, _LONGEST_FAULT))
    return None


def _must_be_asked(entry: metadata.EntryPoint) -> bool:
    """True if an instrumentation captures content only when the variable asks for it."""
    needs = () if entry.dist is None else entry.dist.requires or ()
    return any(need.startswith("opentelemetry-util-genai") for need in needs)


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
    """Usage of an adapter from its docstring; imports neither adapter nor framework."""
    origin = getattr(spec, "origin", None)
    text = ast.get_docstring(ast.parse(Path(origin).read_text("utf-8"))) if origin else None
    examples = re.findall(r"^    (\S.*)$", text or "", re.MULTILINE)
    examples = examples or re.findall(r"`([^`]*\(.*?)`", text or "")
    module = _module(extra)
    return f"{'; '.join(examples)}  (from {module})" if examples else f"import {module}"


def _listed(variable: str) -> list[str]:
    """The names in a variable, as the SDK reads them."""
    return [name.strip() for name in os.environ.get(variable, "").split(",")]


def _telemetry() -> Iterator[Finding]:
    """Effects of OTEL_* variables, and those of instrumentations, on the spans of agents."""
    if sdk_disabled():
        yield _finding("SDK disabled")
    sampler = os.environ.get("OTEL_TRACES_SAMPLER", "")
    if sampler in _DROPPING:
        yield _finding("sampler drops", sampler=sampler)
    for name, value in sorted(os.environ.items()):
        for begin, values in _HIDING.items():
            if name.startswith(begin) and value.lower() in values:
                remedy = f"{name}=span_only" if name == _GENAI_CONTENT else f"unset {name}"
                yield _finding("content hidden", name=name, value=value.lower(), remedy=remedy)
    known = {each.name for each in metadata.entry_points(group="opentelemetry_traces_exporter")}
    asked = _listed("OTEL_TRACES_EXPORTER")
    if "loopguard" in asked:
        asked.append(os.environ.get("LOOPGUARD_EXPORTER") or "otlp")
    for exporter in (name for name in asked if re.fullmatch(r"(?!none$)\w{1,60}", name)):
        # `otlp` stands for one whose name has its protocol, too.
        there = any(f"{name}_".startswith(f"{exporter}_") for name in known)
        yield _finding("exporter" if there else "no exporter", exporter=exporter)
    yield _finding("exporters", names=", ".join(sorted(known)))
    yield from _variables("OTEL_", "OPENINFERENCE_", "TRACELOOP_")


def _variables(*begins: str, but: Collection[str] = ()) -> Iterator[Finding]:
    """The names of variables that are set."""
    named = os.environ.keys() - set(but)
    names = sorted(name for name in named if name.upper().startswith(begins))
    if names:
        yield _finding("variables", names=", ".join(names))


def _settings() -> Iterator[Finding]:
    strangers = {name.partition(" ")[0]: name for name in unknown(Settings)}
    yield from _variables(PREFIX, but=strangers)
    for variable, name in strangers.items():
        yield _finding("unknown variable", name=name, variable=variable)
    file = os.environ.get(FILE)
    try:
        settings = Settings()
        # What settings name is imported and looked at; nobody is told that this process is there.
        alone = {"store_url": NO_SECRET, "control_socket": ""}
        LoopGuard(settings.model_copy(update=alone), local=False)
    except LoopGuardError as error:
        yield _finding("settings invalid", error=error)
        return
    yield _finding("settings file" if file else "settings", file=file, variable=FILE)
    if not settings.enabled:
        yield _finding("guard off")
    elif settings.mode == "shadow":
        yield _finding("shadow")
    elif not Action(settings.max_action).stops:
        yield _finding("hints only", action=settings.max_action)
    if "loopguard" in _listed("OTEL_PROPAGATORS") and not settings.propagation_key:
        yield _finding("no propagation key")
    yield _store(settings)
    if settings.digest_key:
        yield _finding("digest key")
    else:
        yield _finding("no shared digest key" if settings.store_url else "no digest key")


def _store(settings: Settings) -> Finding:
    if not settings.store_url:
        return _finding("no store")
    try:
        store = open_store(settings)
        store.ping()
        store.close()
    except Exception as error:  # noqa: BLE001  # whatever a driver has to say
        return _finding("store unusable", why=str(error) or type(error).__name__)
    return _finding("store")


def _hooks() -> Iterator[Finding]:
    found = [state for state in states(repository()) if state.mode or state.problem]
    for state in found:
        why = lacking(state)
        what = "hooks unreadable" if state.problem else "hooks lack" if why else "hooks"
        yield _finding(what, **asdict(state), why=why)
    if not found:
        yield _finding("no hooks")
