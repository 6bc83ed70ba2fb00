"""Checks before a call: learned from failures, or registered; some are made here."""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Callable, Mapping, Sized
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from importlib import import_module
from itertools import islice
from typing import TYPE_CHECKING, Final, Literal, cast

import orjson
import psutil

from otel_loopguard._util.bounded import BoundedDict
from otel_loopguard._util.clock import now
from otel_loopguard._util.errors import InternalErrors, attempt
from otel_loopguard._util.locks import new_lock
from otel_loopguard._util.text import check_number, expected, named
from otel_loopguard.core.evidence import ErrorClass
from otel_loopguard.evidence import as_data

if TYPE_CHECKING:
    from pathlib import Path

    from otel_loopguard.settings import Settings

# Arguments whose kind is looked at, and characters of their names: tools have fewer, and a model
# may make up any.
_ARGUMENTS: Final = 32
_LONGEST_NAME: Final = 64
# Orders of magnitude of texts, objects and lists, by their length at most.
_SIZES: Final = ((0, "empty"), (10, "tiny"), (100, "short"), (1_000, "long"), (10_000, "very long"))
_SIZED: Final = ((str, "text"), (Mapping, "object"), ((list, tuple), "list"))

Shape = tuple[tuple[str, str], ...]
"""Name of each argument (empty for arguments without names), and its type and size in words."""


def shape_of(args: object) -> Shape:
    """Kind of the arguments; O(number of arguments), of which the first 32 by name count."""
    if not isinstance(args, Mapping):
        return (("", _kind(args)),)
    items = islice(cast("Mapping[object, object]", args).items(), _ARGUMENTS)
    named = sorted((str(name)[:_LONGEST_NAME], value) for name, value in items)
    return tuple((name, _kind(value)) for name, value in named)


def described(shape: Shape) -> str:
    """A shape in words."""
    return ", ".join(f"{name}: {kind}" if name else kind for name, kind in shape) or "none"


def change(shape: Shape, good: Shape | None) -> str:
    """Says in a sentence what to change so that a call is like one that succeeded."""
    if good is None:
        return "No call of this tool has gone well yet: look at its description, or leave it."
    have, had = dict(shape), dict(good)
    advice = [f"leave out {_quoted(name)}" for name in have if name not in had]
    for name, kind in had.items():
        if name not in have:
            advice.append(f"give {_quoted(name)} ({kind})")
    for name, kind in had.items():
        if have.get(name, kind) != kind:
            advice.append(f"make {_quoted(name)} {kind} instead of {have[name]}")
    if not advice:
        return "Calls of this kind have gone well before: change what the arguments say."
    return f"As in the last call that went well: {'; '.join(advice[:4])}."


def _kind(value: object) -> str:
    """Type and order of magnitude of a value, in words."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "yes or no"
    if isinstance(value, (int, float)):
        if value <= 0:
            return "a zero number" if value == 0 else "a negative number"
        # Compared, not measured: no logarithm of a number of a thousand digits.
        size = "below 1" if value < 1 else "up to 1,000" if value <= 1_000 else "above 1,000"
        return f"a number {size}"
    name = next((name for kind, name in _SIZED if isinstance(value, kind)), None)
    if name is None:
        return "other"
    count = len(cast("Sized", value))
    return f"{next((word for most, word in _SIZES if count <= most), 'huge')} {name}"


def _quoted(name: str) -> str:
    return f"`{name}`" if name else "the arguments"


# Kinds of calls that are kept, the newest; more than any agent has tools.
_KINDS: Final = 1024
# One failure is chance, two may be a retry: from the third on the next like call is warned of.
_FAILURES: Final = 3
# For ten minutes after the last failure: by then the tool or its server may have been mended.
_KEPT_NS: Final = 600_000_000_000
_BY_VALUE: Final = frozenset(
    {
        "assertion", "auth", "conflict", "disk_full", "missing_module", "no_match", "not_found",
        "out_of_memory", "permission", "syntax", "unknown_name",
    }
)  # fmt: skip
"""Kinds of errors that depend on what the arguments say, or on the machine, and not on their kind.
The tool took the call."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a call would fail.

    Attributes:
        tool: Name of the tool.
        check: Name of the check; `learned` for what failed before.
        reason: What would fail, in a sentence.
        change: What to change, in a sentence.
        warns: Whether it only warns, and the call may be made: what was learned is a guess.
    """

    tool: str
    check: str
    reason: str
    change: str
    warns: bool = False

    def __str__(self) -> str:
        return f"{self.reason} {self.change}"


Check = Callable[[Mapping[str, object]], "tuple[str, str] | None"]
"""Takes the arguments; returns what would fail and what to change, or None. It is run on the thread
that asks and should be quick."""


def _checked(tool: str, name: str, check: Check, args: Mapping[str, object]) -> Problem | None:
    said = check(args)
    if said is None:
        return None
    reason, change = said
    return Problem(tool, name, reason, change)


@dataclass(slots=True)
class _Failing:
    """Failures in a row of one kind of call with one kind of error, and the time of the last."""

    signature: str
    count: int
    at: int


class Checks:
    """Finds what speaks against a call before it is made. Any thread may call it.

    It learns from finished calls: after three failures in a row of a tool with one kind of
    arguments and one kind of error, the next such call is warned of, until one goes well, or 600
    seconds after the last failure. The kind of arguments is their names, types and orders of
    magnitude; their values are not kept. So errors that depend on values (not found, no match,
    permission) are not learned, and show that the tool takes calls of this kind. Transient errors
    (time-outs, 429) are not learned either: breakers are for those. The newest 1024 kinds are kept.
    """

    def __init__(self, settings: Settings, faults: InternalErrors | None = None) -> None:
        self._exempt = settings.exempt
        self._faults = faults or InternalErrors()
        self._registered: tuple[tuple[str, str, Check], ...] = ()
        self._failing: BoundedDict[tuple[str, Shape], _Failing] = BoundedDict(_KINDS)
        # By tool: what the last call that went well was like; how many kinds of calls fail.
        self.good: BoundedDict[str, Shape] = BoundedDict(_KINDS)
        self.troubled: BoundedDict[str, int] = BoundedDict(_KINDS)
        self._lock = new_lock()

    def register(self, name: str, check: Check, *, tool: str = "*") -> None:
        """Adds a check; one of the same name is replaced.

        Raises:
            TypeError: It cannot be called.
            ValueError: It has no name.
        """
        named("name of a check", name)
        if not callable(check):
            raise TypeError(f"check {name!r}: {expected('a function', check)}")
        with self._lock:
            others = tuple(known for known in self._registered if known[0] != name)
            self._registered = (*others, (name, tool, check))

    def of(self, tool: str, args: Mapping[str, object] | None = None) -> tuple[Problem, ...]:
        """Everything that speaks against a call; empty if nothing does."""
        learned = self.learned(tool, args)
        found = [
            attempt(self._faults, name, partial(_checked, tool, name, run), args or {})
            for name, which, run in self._registered
            if fnmatchcase(tool, which)
        ]
        return tuple(one for one in (learned, *found) if one is not None)

    def may_object(self, tool: str) -> bool:
        """True if a registered or learned check may object to a call."""
        return bool(self._registered) or tool in self.troubled

    def learned(self, tool: str, args: object) -> Problem | None:
        """Earlier failures like this, from memory: no registered check is run."""
        if tool not in self.troubled:
            return None
        # As the spans have them.
        shape = shape_of(as_data(args))
        failing = self._failing.get((tool, shape))
        if failing is None or failing.count < _FAILURES or now() - failing.at > _KEPT_NS:
            return None
        reason = (
            f"{tool!r} with arguments of this kind ({described(shape)}) failed {failing.count} "
            f"times in a row: {failing.signature.replace('_', ' ')}."
        )
        return Problem(tool, "learned", reason, change(shape, self.good.get(tool)), warns=True)

    def finished(
        self,
        tool: str,
        args: object,
        error: bool,
        error_class: ErrorClass = ErrorClass.UNKNOWN,
        signature: str | None = None,
    ) -> None:
        """Learns from a call that ended. Waits for nothing."""
        if args is None or tool in self._exempt:
            return
        if error and signature in _BY_VALUE:
            if tool in self.troubled:
                self._forget(tool, shape_of(args))
        elif error and error_class is not ErrorClass.TRANSIENT:
            self._failed(tool, shape_of(args), signature or "an error without a text")
        elif not error and (tool in self.troubled or tool not in self.good):
            shape = shape_of(args)
            with self._lock:
                self._forget(tool, shape)
                self.good[tool] = shape

    def _failed(self, tool: str, shape: Shape, signature: str) -> None:
        with self._lock:
            failing = self._failing.get((tool, shape))
            self.troubled[tool] = self.troubled.get(tool, 0) + (failing is None)
            time = now()
            if failing is None or failing.signature != signature or time - failing.at > _KEPT_NS:
                failing = _Failing(signature, 0, time)
            failing.count += 1
            failing.at = time
            self._failing[tool, shape] = failing

    def _forget(self, tool: str, shape: Shape) -> None:
        """Calls of this kind are taken: what failed before is over."""
        with self._lock:
            if self._failing.pop((tool, shape), None) is not None:
                kinds = self.troubled.pop(tool, 1) - 1
                if kinds > 0:
                    self.troubled[tool] = kinds


Language = Literal["python", "json", "toml"]

_CHECKED_CHARS: Final = 1_000_000
"""Characters up to which a syntax is checked: it is done on the thread that asks."""


def file_exists(argument: str = "path") -> Check:
    """A check that the file or folder of an argument is there.

    Args:
        argument: Name of the argument; a call without it passes.
    """

    def check(args: Mapping[str, object]) -> tuple[str, str] | None:
        path = _path(args, argument)
        if path is None or _there(path) is not False:
            return None
        folder = "its folder is there" if _there(path.parent) else "neither is its folder"
        change = f"Give a `{argument}` that exists, or make it first."
        return f"The file of `{argument}` does not exist ({folder}).", change

    return check


def permitted(mode: Literal["read", "write", "run"] = "read", argument: str = "path") -> Check:
    """A check that this process may read, write or run the file of an argument.

    For a file to write that is not there its nearest folder that is there is asked.

    Args:
        mode: What is to be done with it.
        argument: Name of the argument; a call without it passes, and a missing file to read.
    """
    modes = {"read": os.R_OK, "write": os.W_OK, "run": os.X_OK}

    def check(args: Mapping[str, object]) -> tuple[str, str] | None:
        path = _path(args, argument)
        if path is None:
            return None
        while mode == "write" and _there(path) is False and path != path.parent:
            path = path.parent
        if not _there(path) or os.access(path, modes[mode]):
            return None
        what = "folder" if path.is_dir() else "file"
        change = f"Choose another `{argument}`, or have somebody give the permission."
        return f"This process may not {mode} the {what} of `{argument}`.", change

    return check


def syntax(language: Language, argument: str = "content") -> Check:
    """A check that the text of an argument is Python, JSON or TOML.

    Args:
        language: The language; Python as the running interpreter reads it.
        argument: Name of the argument; a call without it passes, and more than a million
            characters.

    Raises:
        ValueError: The language is none of these.
    """
    languages = _languages()
    if language not in languages:
        raise ValueError(f"language must be one of {', '.join(languages)}, got {language!r}")
    name, parse = languages[language]

    def check(args: Mapping[str, object]) -> tuple[str, str] | None:
        text = args.get(argument)
        if not isinstance(text, str) or len(text) > _CHECKED_CHARS:
            return None
        try:
            parse(text)
        except (RecursionError, MemoryError):
            return None  # nested too deeply to tell
        except SyntaxError as error:
            # A warning about an escape, in a program that has warnings raised.
            if error.msg.startswith("invalid escape"):
                return None
            wrong = f"line {error.lineno}: {error.msg}"
        except orjson.JSONDecodeError as error:
            wrong = f"line {error.lineno}: {error.msg}"
        except ValueError as error:
            wrong = "it has a null byte" if language == "python" else str(error)
        else:
            return None
        return f"`{argument}` is not valid {name}: {wrong}.", f"Correct `{argument}` there."

    return check


def resources(
    *, memory_mb: float | None = None, disk_mb: float | None = None, folder: str = "."
) -> Check:
    """A check that enough memory and disk space are left. 1 MB is a million bytes.

    Args:
        memory_mb: Memory that has to be available.
        disk_mb: Space that has to be free where `folder` is.
        folder: The folder.

    Raises:
        TypeError: One is no number.
        ValueError: One is below 0.
    """
    for what, given in (("memory_mb", memory_mb), ("disk_mb", disk_mb)):
        if given is not None:
            check_number(what, given, 0)

    def check(_args: Mapping[str, object]) -> tuple[str, str] | None:
        if memory_mb is not None:
            free = psutil.virtual_memory().available / 1e6
            if free < memory_mb:
                said = f"{free:,.0f} MB of memory are available, {memory_mb:,.0f} are needed."
                return said, "End something else first, or do it in smaller parts."
        if disk_mb is not None:
            free = psutil.disk_usage(folder).free / 1e6
            if free < disk_mb:
                said = f"{free:,.0f} MB of disk space are free, {disk_mb:,.0f} are needed."
                return said, "Make room first, or write less."
        return None

    return check


def _languages() -> Mapping[Language, tuple[str, Callable[[str], object]]]:
    """Name and parser by language; the parser of TOML is loaded on demand."""
    toml = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    return {
        "python": (f"Python {sys.version_info[0]}.{sys.version_info[1]}", ast.parse),
        "json": ("JSON", orjson.loads),
        "toml": ("TOML", toml.loads),
    }


def _path(args: Mapping[str, object], argument: str) -> Path | None:
    from pathlib import Path  # noqa: PLC0415  # for those who registered one

    path = args.get(argument)
    if not isinstance(path, str) or not path or "\0" in path:
        return None
    return Path(path)


def _there(path: Path) -> bool | None:
    """True if a path exists; None if that is unknown."""
    try:
        return path.exists()
    except OSError:
        return None
