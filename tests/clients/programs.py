"""What the tests of clients need besides Python."""

from __future__ import annotations

import os
import shutil

import pytest

from tests.dialects.agents import go


def program(name: str) -> str:
    """Where a program is; skips without it, but CI has to have it."""
    found = go() if name == "go" else shutil.which(name)
    if not found:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(f"there is no {name}")
    return found
