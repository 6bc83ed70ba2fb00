"""The example of tests is run by pytest, as its first line says."""

from __future__ import annotations

import os
import sys

from tests.zero_code.interpreter import ROOT, run


def test_the_example_passes() -> None:
    """`pytest examples/test_my_agent.py`, with the plugin that is installed."""
    file = str(ROOT / "examples" / "test_my_agent.py")
    done = run(
        sys.executable, "-m", "pytest", "-q", "-c", os.devnull, "-p", "no:cacheprovider", file
    )
    assert done.returncode == 0, done.stdout
    assert "3 passed" in done.stdout
