"""`hook`: the commands that install the hooks of a coding agent, and those that hooks call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from enum import Enum
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from otel_loopguard.cli.output import Format, console, give, say, table
from otel_loopguard.errors import LoopGuardError, LoopGuardSettingsError, StoreError
from otel_loopguard.hooks.install import HOOK_FILES, SCOPES, State, install, states, uninstall
from otel_loopguard.hooks.state_folder import StateFolder

_ROOM = 64 * 1024
"""Bytes that an event may need in the state: some pages of its file."""

app = typer.Typer(
    name="hook", help="Guards a coding agent through its own hooks.", no_args_is_help=True
)


class Mode(str, Enum):
    """Modes of the hooks."""

    OBSERVE = "observe"
    ENFORCE = "enforce"


Named = Annotated[str, typer.Argument(metavar="AGENT", help=f"{', '.join(HOOK_FILES)}.")]

Folder = Annotated[
    str | None,
    typer.Option(
        "--state", metavar="DIR",
        help="Folder of the state; by default otel-loopguard below XDG_STATE_HOME.",
    ),
]  # fmt: skip


@app.command("install")
def install_hooks(
    agent: Named,
    project: Annotated[
        bool, typer.Option("--project/--user", help="For this project, or for you everywhere.")
    ] = False,
    mode: Annotated[
        Mode, typer.Option(help="observe logs what it would do; enforce does it.")
    ] = Mode.OBSERVE,
) -> None:
    """Installs the hooks of a coding agent; its other settings are left alone."""
    scope = SCOPES[project]
    change = install(_known(agent), scope, mode.value, repository())
    done = f"hooks installed, mode {mode.value}" if change.changed else "nothing to change"
    say(f"{agent}: {done}: {change.file}")
    if change.backup:
        say(f"backup: {change.backup}")
    for state in states(repository()):
        if (state.agent, state.scope) == (agent, scope) and (why := lacking(state)):
            say(f"nothing is guarded: {why}", error=True)
    say(f"to do: {HOOK_FILES[agent].todo}")


@app.command("uninstall")
def uninstall_hooks(
    agent: Named,
    project: Annotated[
        bool | None, typer.Option("--project/--user", help="Only this project's, or only your own.")
    ] = None,
) -> None:
    """Removes the hooks of a coding agent, from this project and from your own settings."""
    scopes = SCOPES if project is None else (SCOPES[project],)
    changes = [uninstall(_known(agent), scope, repository()) for scope in scopes]
    for change in changes:
        if change.changed:
            say(f"{agent}: hooks removed: {change.file}")
    if not any(change.changed for change in changes):
        say(f"{agent}: no hooks are installed")


@app.command()
def status(
    form: Annotated[Format, typer.Option("--format", help="table, or JSON lines.")] = Format.TABLE,
) -> None:
    """Shows where hooks are installed, in which mode, and what is left to do."""
    if problem := StateFolder().problem:
        say(f"no event is judged: {problem}", error=True)
    give(states(repository()), form, _row, _show)


def _show(found: Sequence[State]) -> None:
    known = [
        (state.agent, state.scope, state.mode or "unknown", _todo(state), str(state.file))
        for state in found
        if state.mode or state.problem
    ]
    if known:
        console().print(table(("agent", "scope", "mode", "to do~", "file"), known))
    without = sorted({state.agent for state in found} - {agent for agent, *_ in known})
    if without:
        say(f"no hooks: {', '.join(without)} (`otel-loopguard hook install AGENT` installs them)")


# `otel_loopguard.cli.main` runs the next two itself, without this module: an agent waits for them.


@app.command()
def run(
    agent: Named,
    mode: Annotated[
        Mode, typer.Option(help="observe logs what it would do; enforce does it.")
    ] = Mode.OBSERVE,
    state: Folder = None,
    no_process: Annotated[
        bool,
        typer.Option(
            "--no-process", help="Judges in this process: slower, and leaves none running."
        ),
    ] = False,
) -> None:
    """Answers one event of an agent, from stdin to stdout; always exits with 0."""


@app.command()
def serve(
    state: Folder = None,
    idle: Annotated[float, typer.Option(help="Minutes without an event until it ends.")] = 30,
) -> None:
    """Judges the events of agents; the first event starts it."""


def _row(state: State) -> dict[str, object]:
    return {
        **asdict(state),
        "file": str(state.file),
        "off_in": state.off_in and str(state.off_in),
        "installed": state.mode is not None,
        "todo": _todo(state) if state.mode or state.problem else None,
    }


def lacking(state: State) -> str:
    """The reason why installed hooks judge nothing; empty if they do."""
    if state.problem:
        return state.problem
    if not state.program_found:
        # The settings of a project are shared: it is called by its name alone.
        by_name = state.program is not None and state.program == Path(state.program).name
        remedy = "put its folder on the PATH of the agent" if by_name else "install again"
        return f"the program {state.program} is not found: {remedy}"
    if state.missing_events:
        return f"no hooks for {', '.join(state.missing_events)}: install again"
    if state.off_in:
        return f"no hook runs: {state.off_in} turns all of them off"
    why = _unjudged()
    return why and f"no event is judged: {why}"


def _unjudged() -> str:
    """The reason why no event is judged; empty if they are."""
    from otel_loopguard.hooks.process import RequestHandler  # noqa: PLC0415  # the whole guard

    try:
        folder = StateFolder()
        folder.make()  # as their first event does
        with TemporaryDirectory(dir=folder.path, ignore_cleanup_errors=True) as trial:
            (Path(trial) / "room").write_bytes(bytes(_ROOM))
            handler = RequestHandler(StateFolder(trial))
            handler.close()
            handler.send(0)
    except (OSError, StoreError) as error:
        return f"{error}; set XDG_STATE_HOME to another folder"
    except LoopGuardError as error:
        return str(error)
    return handler.off


def _todo(state: State) -> str:
    return lacking(state) or HOOK_FILES[state.agent].todo


def _known(agent: str) -> str:
    if agent not in HOOK_FILES:
        msg = f"there is no agent {agent!r:.100}: expected one of {', '.join(HOOK_FILES)}"
        raise LoopGuardSettingsError(msg)
    return agent


def repository() -> Path:
    """The folder of the repository that this is called in; without one the folder itself."""
    here = Path.cwd()
    return next((each for each in (here, *here.parents) if (each / ".git").exists()), here)
