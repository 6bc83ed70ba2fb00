"""Checks to register: files, permissions, syntax, memory and disk space."""

from __future__ import annotations

import ast
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import orjson
import psutil

if TYPE_CHECKING:
    from otel_loopguard.resilience.checks import Check

Language = Literal["python", "json", "toml"]
Said = tuple[str, str]

_LONG: Final = 1_000_000
"""Characters up to which a syntax is checked: it is done on the thread that asks."""

_VERSION: Final = f"{sys.version_info[0]}.{sys.version_info[1]}"
_PARSERS: Final[dict[Language, Callable[[str], object]]] = {
    "python": ast.parse,
    "json": orjson.loads,
    "toml": import_module("tomllib" if sys.version_info >= (3, 11) else "tomli").loads,
}
_MODES: Final = {"read": os.R_OK, "write": os.W_OK, "run": os.X_OK}


def file_exists(argument: str = "path") -> Check:
    """A check that the file or folder of an argument is there.

    Args:
        argument: Name of the argument; a call without it passes.
    """

    def check(args: Mapping[str, object]) -> Said | None:
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

    def check(args: Mapping[str, object]) -> Said | None:
        path = _path(args, argument)
        if path is None:
            return None
        while mode == "write" and _there(path) is False and path != path.parent:
            path = path.parent
        if not _there(path) or os.access(path, _MODES[mode]):
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
    """
    name = {"python": f"Python {_VERSION}", "json": "JSON", "toml": "TOML"}[language]

    def check(args: Mapping[str, object]) -> Said | None:
        text = args.get(argument)
        if not isinstance(text, str) or len(text) > _LONG:
            return None
        try:
            _PARSERS[language](text)
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
        return f"`{argument}` is no valid {name}: {wrong}.", f"Correct `{argument}` there."

    return check


def resources(
    *, memory_mb: float | None = None, disk_mb: float | None = None, folder: str = "."
) -> Check:
    """A check that enough memory and disk space are left. 1 MB is a million bytes.

    Args:
        memory_mb: Memory that has to be available.
        disk_mb: Space that has to be free where `folder` is.
        folder: The folder.
    """

    def check(_args: Mapping[str, object]) -> Said | None:
        if memory_mb is not None:
            free = psutil.virtual_memory().available / 1e6
            if free < memory_mb:
                said = f"{free:,.0f} MB of memory are available, {memory_mb:,.0f} are needed."
                return said, "End something else first, or do it in smaller parts."
        if disk_mb is not None:
            free = shutil.disk_usage(folder).free / 1e6
            if free < disk_mb:
                said = f"{free:,.0f} MB of disk space are free, {disk_mb:,.0f} are needed."
                return said, "Make room first, or write less."
        return None

    return check


def _path(args: Mapping[str, object], argument: str) -> Path | None:
    path = args.get(argument)
    if not isinstance(path, str) or not path or "\0" in path:
        return None
    return Path(path)


def _there(path: Path) -> bool | None:
    """Whether a path exists; None if that is unknown."""
    try:
        return path.exists()
    except OSError:
        return None
