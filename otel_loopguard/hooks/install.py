"""Installs the hooks of coding agents in the agents' own settings, and removes them.

`install.txt` says where each agent looks for hooks, and how it writes them.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

from otel_loopguard._util.fields import mapping, sequence
from otel_loopguard._util.tables import read_table
from otel_loopguard.errors import LoopGuardSettingsError
from otel_loopguard.hooks import jsonc
from otel_loopguard.hooks.agents import AGENTS, filled
from otel_loopguard.replay.transcripts.folders import home


def command_of(program: str, agent: str, mode: str) -> dict[str, str]:
    """The command of an agent's hook, which exits with 0 and prints `{}` if the program is gone.

    Returns:
        By its names in `install.txt`: SHELL for any POSIX shell, WINDOWS for `cmd` and PowerShell,
        HERE for an agent that has one command for all systems.
    """
    words = f"hook run {agent} --mode {mode}"
    inner = f"{shlex.quote(program)} {words} || echo {{}}"
    shell = f"sh -c {shlex.quote(inner)}"
    named = program if os.name == "nt" else PROGRAM
    windows = f'"{named}" {words}' if " " in named else f"{named} {words}"
    here = windows if os.name == "nt" else shell
    return {"SHELL": shell, "WINDOWS": windows, "HERE": here}


class HookFile:
    """The places and the layout of one agent's hooks, as `install.txt` has them.

    Attributes:
        project: File of a project's hooks, below its folder.
        grouped: True if handlers stand in groups.
        off: The member that turns all hooks off, and where a project may have it; or nothing.
        todo: What the user still has to do.
        start: What a new file begins as.
    """

    def __init__(self, row: Mapping[str, str]) -> None:
        self._user = row["user"].split()
        self._handler: object = json.loads(row.get("handler", "{}"))
        self.project = row["project"]
        self.grouped = "grouped" in row
        self.off = row.get("off", "").split()
        self.todo = row["todo"]
        self.start = f"{json.dumps(json.loads(row.get('start', '{}')), indent=2)}\n"

    def user(self) -> Path:
        """The file of the user's own hooks."""
        variable, usual, file = self._user
        named = os.environ.get(variable)
        return (Path(named) if named else home() / usual) / file

    def handler(self, command: Mapping[str, str]) -> dict[str, Any]:
        """The entry that calls a command, in the agent's own form."""
        return filled(self._handler, command)


_LABELS: Final = ("user", "project", "handler", "grouped", "start", "off", "todo")
HOOK_FILES: Final = {
    row.name: HookFile(row.labelled(*_LABELS)) for row in read_table(__name__, "install.txt")
}
"""By name of the agent; opencode has a plugin in place of hooks."""


PROGRAM: Final = "otel-loopguard"
SCOPES: Final = ("user", "project")
BACKUP: Final = ".loopguard-backup"
# Settings of agents have some kilobytes; one that keeps its history there has megabytes.
_MOST_BYTES: Final = 4 * 1024 * 1024
# Bounded: a settings file may come with anybody's repository.
_OURS: Final = re.compile(r"otel-loopguard\S{0,20} hook run \S{1,100}(?: --mode (\w{1,20}))?")
_PLUGIN: Final = Path(__file__).with_name("data") / "opencode.js"
_CONST: Final = re.compile(r'^const (PROGRAM|MODE) = (".*")$', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Change:
    """A change of one file.

    Attributes:
        file: The file.
        changed: True if the file was changed.
        backup: Copy of the file as it was before the first change; None if there was none, it
            had hooks of ours, or nothing is left.
    """

    file: Path
    changed: bool
    backup: Path | None = None


@dataclass(frozen=True, slots=True)
class State:
    """The state of one agent's hooks in one place.

    Attributes:
        agent: Name of the agent.
        scope: `user` or `project`.
        file: The file that has them.
        mode: `observe` or `enforce`; None if none are installed.
        program: What they call; None if that cannot be read.
        program_found: True if the program is there.
        missing_events: Those for which a newer version would install hooks, too.
        problem: Why the file cannot be read.
        off_in: The file that turns all hooks of the agent off; None if none does.
    """

    agent: str
    scope: str
    file: Path
    mode: str | None = None
    program: str | None = None
    program_found: bool = False
    missing_events: tuple[str, ...] = ()
    problem: str | None = None
    off_in: Path | None = None


_Hooks = dict[str, list[object]]


def install(agent: str, scope: str, mode: str, project: Path, program: str | None = None) -> Change:
    """Installs the hooks of an agent; a second time, it changes nothing.

    Args:
        agent: Name of the agent, one of `HOOK_FILES`.
        scope: `user`, or `project` for all who work on it.
        mode: `observe` or `enforce`.
        project: Folder of the project.
        program: Program to call; by default this one, by its name in a project's settings and by
            its path in the user's.

    Raises:
        LoopGuardSettingsError: The file cannot be read or written; it is as it was.
    """
    places, file = HOOK_FILES[agent], _file(agent, scope, project)
    program = program or (PROGRAM if scope == "project" else _program_path())
    if agent == "opencode":
        return _install_plugin(file, mode, program)
    before = _read(file)
    text = before if before and not before.isspace() else places.start
    handler = places.handler(command_of(program, agent, mode))
    entry = {"hooks": [handler]} if places.grouped else handler
    try:
        hooks = _hooks(jsonc.loads(text))
        kept = _foreign_hooks(hooks)
        wanted = kept | {event: [*kept.get(event, ()), entry] for event in AGENTS[agent].installed}
        after = text if wanted == hooks else jsonc.with_member(text, "hooks", wanted)
    except ValueError as error:
        raise _unusable(file, error) from None
    return _change(file, before, after)


def uninstall(agent: str, scope: str, project: Path) -> Change:
    """Removes the hooks of an agent, and the file if it has nothing else.

    Where nothing else was changed since `install`, the file is as it was first, and its copy gone.

    Raises:
        LoopGuardSettingsError: The file cannot be read or written; it is as it was.
    """
    file = _file(agent, scope, project)
    before = _read(file)
    if before is None:
        return Change(file, changed=False)
    if agent == "opencode":
        return _change(file, before, None) if _is_ours(before) else Change(file, changed=False)
    try:
        hooks = _hooks(jsonc.loads(before))
        kept = _foreign_hooks(hooks)
        if kept == hooks:
            return Change(file, changed=False)
        after = jsonc.with_member(before, "hooks", kept or None)
        first = _original(file, after, kept)
        left = jsonc.loads(after) in ({}, {"version": 1}) and "/" not in after
    except ValueError as error:
        raise _unusable(file, error) from None
    if first is not None:
        return _change(file, before, first, backup_done=True)
    return _change(file, before, None if left and not file.is_symlink() else after)


def _original(file: Path, after: str, hooks: _Hooks) -> str | None:
    """The original copy of the file, if without our hooks the file says the same."""
    backup = _backup(file)
    try:
        text = None if backup.is_symlink() else _read(backup)
        if text is None or _hooks(jsonc.loads(text)) != hooks:
            return None
    except ValueError:
        return None
    others = (jsonc.with_member(each, "hooks", None).split() for each in (text, after))
    return text if len({"".join(words) for words in others}) == 1 else None


def states(project: Path) -> Iterator[State]:
    """State of each agent's hooks, for the user and for the project."""
    for agent in HOOK_FILES:
        for scope in SCOPES:
            yield _state(agent, scope, project)


def _state(agent: str, scope: str, project: Path) -> State:
    file = _file(agent, scope, project)
    try:
        text = _read(file)
        if text is None:
            return State(agent, scope, file)
        if agent == "opencode":
            return _plugin_state(scope, file, text)
        commands = _commands(_hooks(jsonc.loads(text)))
    except ValueError as error:
        return State(agent, scope, file, problem=str(error))
    if not commands:
        return State(agent, scope, file)
    command = next(iter(commands.values()))
    mode, program = _OURS.search(command), _program(command)
    missing = tuple(sorted(set(AGENTS[agent].installed) - commands.keys()))
    return State(
        agent, scope, file, (mode and mode[1]) or "observe", program,
        bool(program and shutil.which(program)), missing, off_in=_off_in(agent, project),
    )  # fmt: skip


def _off_in(agent: str, project: Path) -> Path | None:
    """The file that turns all hooks of an agent off: the first that says whether they are."""
    places = HOOK_FILES[agent]
    for file in (*(project / name for name in places.off[1:]), places.user()):
        try:
            said = mapping(jsonc.loads(_read(file) or "{}")).get("".join(places.off[:1]))
        except ValueError:
            continue
        if isinstance(said, bool):
            return file if said else None
    return None


def _file(agent: str, scope: str, project: Path) -> Path:
    places = HOOK_FILES[agent]
    return project / places.project if scope == "project" else places.user()


def _program_path() -> str:
    """The path of this program that stays valid after an upgrade.

    Raises:
        LoopGuardSettingsError: The program is not in the PATH.
    """
    started = Path(sys.argv[0])
    beside = Path(sys.executable).with_name(started.name if os.name == "nt" else PROGRAM)
    for path in (started, beside):
        if path.stem == PROGRAM and path.is_file():
            return Path(os.path.abspath(path)).as_posix()  # noqa: PTH100  # keeps links
    found = shutil.which(PROGRAM)
    if found is None:
        msg = f"there is no program {PROGRAM} in the PATH for a hook to call"
        raise LoopGuardSettingsError(msg)
    return Path(found).as_posix()


def _hooks(settings: object) -> _Hooks:
    """The hooks in an agent's settings: handlers, or groups of them, by event.

    Raises:
        ValueError: They have another form.
    """
    _expect(settings, dict, "an object at the top")
    hooks = mapping(settings).get("hooks", {})
    _expect(hooks, dict, "an object at hooks")
    found = cast("_Hooks", hooks)
    for event, entries in found.items():
        _expect(entries, list, f"a list at hooks.{event:.60}")
    return found


def _expect(value: object, kind: type, what: str) -> None:
    if not isinstance(value, kind):
        raise ValueError(f"expected {what}")  # noqa: TRY004  # caught together with errors of JSON


def _foreign_hooks(hooks: _Hooks) -> _Hooks:
    """The hooks without ours, whichever version installed them, and without groups left empty."""
    kept: _Hooks = {}
    for event, entries in hooks.items():
        left = [entry for entry in map(_without_ours, entries) if entry is not None]
        if left or not entries:
            kept[event] = left
    return kept


def _without_ours(entry: object) -> object:
    """A handler or a group of handlers without ours; None if nothing is left."""
    inner = _inner(entry)
    others = [handler for handler in inner if _own_command(handler) is None]
    if len(others) < len(inner):
        return {**mapping(entry), "hooks": others} if others else None
    return None if _own_command(entry) is not None else entry


def _commands(hooks: _Hooks) -> dict[str, str]:
    """Our command at each event that has one."""
    handlers = ((event, handler) for event, entries in hooks.items() for entry in entries
                for handler in (entry, *_inner(entry)))  # fmt: skip
    return {
        event: command
        for event, handler in handlers
        if (command := _own_command(handler)) is not None
    }


def _inner(entry: object) -> Sequence[object]:
    """The handlers in a group; none in what is no group."""
    return sequence(mapping(entry).get("hooks"))


def _own_command(handler: object) -> str | None:
    """The command of a handler, if it is ours."""
    command = mapping(handler).get("command")
    return command if isinstance(command, str) and _OURS.search(command) else None


def _program(command: str) -> str | None:
    try:
        words = shlex.split(command)
        return shlex.split(words[2])[0] if words[:2] == ["sh", "-c"] else words[0]
    except (ValueError, IndexError):
        return None


def _install_plugin(file: Path, mode: str, program: str) -> Change:
    before = _read(file)
    if before is not None and not _is_ours(before):
        raise _unusable(file, "another plugin has this name")
    named = {"PROGRAM": program, "MODE": mode}
    template = _PLUGIN.read_text(encoding="utf-8")
    after = _CONST.sub(lambda found: f"const {found[1]} = {json.dumps(named[found[1]])}", template)
    return _change(file, before, after)


def _is_ours(plugin: str) -> bool:
    return plugin.startswith("// Written by `otel-loopguard hook install opencode`")


def _plugin_state(scope: str, file: Path, text: str) -> State:
    if not _is_ours(text):
        return State("opencode", scope, file, problem="another plugin has this name")
    named = {name: json.loads(value) for name, value in _CONST.findall(text)}
    program, mode = str(named.get("PROGRAM")), str(named.get("MODE"))
    return State("opencode", scope, file, mode, program, shutil.which(program) is not None)


def _read(file: Path) -> str | None:
    """The text of a file; None where there is none.

    Raises:
        LoopGuardSettingsError: It cannot be read.
    """
    try:
        if not file.is_file() and file.exists():  # a device or a pipe may never end
            raise _unusable(file, "it is not a regular file")
        with file.open("rb") as stream:
            found = stream.read(_MOST_BYTES + 1)
        text = found.decode()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise _unusable(file, error) from None
    if len(found) > _MOST_BYTES:
        raise _unusable(file, f"it has more than {_MOST_BYTES:,} bytes")
    return text


def _unusable(file: Path, why: object) -> LoopGuardSettingsError:
    return LoopGuardSettingsError(f"{file}: {why}; nothing was changed")


def _has_ours(text: str) -> bool:
    return _is_ours(text) or _OURS.search(text) is not None


def _backup(file: Path) -> Path:
    # A link stays a link: people keep their settings in a repository.
    real = Path(os.path.realpath(file))
    return real.with_name(real.name + BACKUP)


def _change(
    file: Path, before: str | None, after: str | None, *, backup_done: bool = False
) -> Change:
    """Writes a file and keeps what was there first beside it; for None, removes the file."""
    if before == after:
        return Change(file, changed=False)
    real, backup = Path(os.path.realpath(file)), None
    try:
        if before is not None and after is not None and not _has_ours(before):
            backup = _backup(file)
            if backup.is_symlink() or not backup.is_file():
                _write(backup, before, stat.S_IMODE(real.stat().st_mode))
        if _read(file) != before:
            raise _unusable(file, "it was written by something else just now")
        if after is None:
            real.unlink()
        else:
            _write(real, after, stat.S_IMODE(real.stat().st_mode) if real.exists() else 0o644)
        if backup_done:
            _backup(file).unlink()
    except OSError as error:
        raise _unusable(file, error) from None
    return Change(file, changed=True, backup=backup)


def _write(file: Path, text: str, mode: int) -> None:
    """Writes a file atomically; a link in its place is replaced, not followed."""
    file.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)
    try:
        with os.fdopen(descriptor, "wb") as written:
            written.write(text.encode())
            written.flush()
            os.fsync(written.fileno())
        Path(name).chmod(mode)
        Path(name).replace(file)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
