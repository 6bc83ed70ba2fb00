"""Names the repository in the metadata of a build: the place that this clone came from."""

from __future__ import annotations

import re
import subprocess
from contextlib import suppress
from pathlib import Path

from hatchling.metadata.plugin.interface import MetadataHookInterface


def urls(origin: str) -> dict[str, str]:
    """Addresses of the project below the one that git knows; none for a path on this machine.

    A user name or a token in it is left out.
    """
    found = re.fullmatch(
        r"(?:(?:https?|ssh|git)://)?(?:[^@/\s]+@)?(?P<host>[\w-]+(?:\.[\w-]+)+)(?::\d+)?[:/]"
        r"(?P<path>[\w.~/-]+?)(?:\.git)?/?",
        origin,
    )
    if not found:
        return {}
    source = f"https://{found['host']}/{found['path']}"
    return {
        "Source": source,
        "Issues": f"{source}/issues",
        "Changelog": f"{source}/blob/HEAD/CHANGELOG.md",
        "Security": f"{source}/blob/HEAD/SECURITY.md",
    }


class Repository(MetadataHookInterface):
    """Fills `project.urls`; what is built without git, or from a path, has none."""

    def update(self, metadata: dict[str, object]) -> None:  # noqa: D102
        origin = ""
        if Path(self.root, ".git").exists():  # else git would look in the folders above
            command = ["git", "-C", self.root, "config", "--get", "remote.origin.url"]
            with suppress(OSError):
                origin = subprocess.run(command, capture_output=True, text=True).stdout.strip()  # noqa: PLW1510, S603
        metadata["urls"] = urls(origin)
