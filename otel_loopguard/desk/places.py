"""Where the sockets of this user's processes are, and whether a place for them can be trusted."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path
from typing import Final

AUTO: Final = "auto"
_SUFFIX: Final = ".sock"
_LONGEST: Final = 100
"""Bytes that the path of a Unix socket may have: 108 on Linux, 104 elsewhere, with the end."""


class UntrustedPlaceError(OSError):
    """A folder for sockets belongs to somebody else, or others may write into it."""


def user() -> int:
    """Number of the user of this process.

    Raises:
        UntrustedPlaceError: This system has no such numbers, and so no sockets of one user.
    """
    if not hasattr(os, "getuid"):
        msg = "this system has no sockets that only one user may open: use a store"
        raise UntrustedPlaceError(msg)
    return os.getuid()


def folder() -> Path:
    """The folder of the sockets that find their place themselves: `auto`.

    Below `XDG_RUNTIME_DIR`, else one with the user's number below the folder for temporary files.
    """
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and Path(runtime).is_dir():
        return Path(runtime) / "otel-loopguard"
    return Path(tempfile.gettempdir()) / f"otel-loopguard-{user()}"


def trusted_folder(*, make: bool) -> Path | None:
    """The folder, once it is sure that nobody else may write into it.

    Args:
        make: Whether it is made where there is none.

    Returns:
        None if there is none.

    Raises:
        UntrustedPlaceError: It is no folder, belongs to another user, or lets others in.
    """
    mine = user()
    place = folder()
    if make:
        place.mkdir(mode=0o700, parents=False, exist_ok=True)
    try:
        found = place.lstat()
    except FileNotFoundError:
        return None
    if not stat.S_ISDIR(found.st_mode):
        msg = f"{str(place)!r} is no folder"
        raise UntrustedPlaceError(msg)
    if found.st_uid != mine:
        msg = f"folder {str(place)!r} belongs to user {found.st_uid}, not to {mine}"
        raise UntrustedPlaceError(msg)
    if found.st_mode & 0o077:
        msg = f"folder {str(place)!r} lets others in: mode {stat.S_IMODE(found.st_mode):o}, not 700"
        raise UntrustedPlaceError(msg)
    return place


def path_of(setting: str, number: int) -> Path:
    """Where a process puts its socket.

    Args:
        setting: `auto`, or a path.
        number: Which of its sockets it is, for `auto`.

    Raises:
        OSError: The place cannot be used.
    """
    user()
    if setting != AUTO:
        path = Path(setting)
    else:
        place = trusted_folder(make=True)
        if place is None:
            raise FileNotFoundError(str(folder()))
        path = place / f"{os.getpid()}-{number}{_SUFFIX}"
    if len(os.fsencode(path)) > _LONGEST:
        msg = f"path of a socket has more than {_LONGEST} bytes: {str(path)!r}"
        raise OSError(msg)
    return path


def sockets() -> list[Path]:
    """The sockets of all processes of this user that found their place themselves.

    Raises:
        UntrustedPlaceError: The folder cannot be trusted.
    """
    place = trusted_folder(make=False)
    return [] if place is None else sorted(place.glob(f"*{_SUFFIX}"))
