"""What the environment of a process has: packages, variables, settings, store, hooks."""

from __future__ import annotations

import ast
import os
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Final, Literal, NamedTuple

from otel_loopguard.cli.hook import lacking, repository
from otel_loopguard.errors import LoopGuardError
from otel_loopguard.guard import LoopGuard
from otel_loopguard.hooks.install import states
from otel_loopguard.settings import Settings
from otel_loopguard.settings._group import NO_SECRET
from otel_loopguard.settings._names import FILE, PREFIX, unknown
from otel_loopguard.spans.reader import Reader, ScopeKind
from otel_loopguard.stores import open_store
from otel_loopguard.version import __version__

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


_PACKAGE: Final = "otel-loopguard"
_CONTENT: Final = {
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


def examine() -> Iterator[Finding]:
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
        for begin, values in _CONTENT.items():
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
