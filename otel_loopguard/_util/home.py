"""Where the user's own files are."""

from __future__ import annotations

import errno
from pathlib import Path


def home() -> Path:
    """The user's home directory.

    Raises:
        FileNotFoundError: There is none, as of a user without a name in a container.
    """
    try:
        return Path.home()
    except RuntimeError as error:
        why = "this user has no home directory"
        raise FileNotFoundError(errno.ENOENT, why, "HOME") from error
