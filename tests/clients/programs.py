"""What the tests of clients need besides Python."""

import shutil

from tests.dialects.agents import go
from tests.zero_code.interpreter import lacking


def program(name: str) -> str:
    """Where a program is; skips without it, but CI has to have it."""
    found = go() if name == "go" else shutil.which(name)
    return found or lacking(f"there is no {name}")
