"""Arize Phoenix, in an environment of its own: it brings two hundred packages along."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

from stack.builds import cache

_VERSION = "20.26.1"


class Phoenix:
    """The server, installed from PyPI once and kept beside what is built.

    Attributes:
        name: What people call it.
        variable: The environment variable that names a program to be taken instead.
    """

    name = "phoenix"
    variable = "PHOENIX"

    def path(self) -> Path:
        """Where the program is, or would be."""
        given = os.environ.get(self.variable)
        python = f"{sys.version_info.major}.{sys.version_info.minor}"
        made = cache() / f"phoenix-{_VERSION}-{python}" / "bin" / "phoenix"
        return Path(given) if given else made

    def built(self) -> Path | None:
        """The program, if it is there."""
        path = self.path()
        return path if path.is_file() else None

    def build(self) -> Path:
        """The program; installed first if it is not there.

        Raises:
            subprocess.CalledProcessError: It cannot be installed; pip's output was shown.
        """
        path = self.path()
        if not path.is_file():
            folder = path.parents[1]
            venv.create(folder, with_pip=True, clear=True)
            python = str(folder / "bin" / "python")
            # uv where it is, because it takes seconds and pip takes minutes.
            uv = shutil.which("uv", path=str(Path(sys.executable).parent))
            install = [uv, "pip", "install", "--python", python]
            pip = [python, "-m", "pip", "install"]
            command = [*(install if uv else pip), "--quiet", f"arize-phoenix=={_VERSION}"]
            subprocess.run(command, check=True)
        return path


PHOENIX = Phoenix()
