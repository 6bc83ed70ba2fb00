"""The example of a hung tool does what it says."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.docs.markdown import ROOT


def test_the_hung_tool_is_noticed_and_then_cancelled() -> None:
    """First the guard's hint, then the limit, then the agent goes on; the tool never answered."""
    done = subprocess.run(
        [sys.executable, "-W", "error", str(ROOT / "examples" / "hung_tool.py")],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    hint, cancelled, after = done.stdout.splitlines()
    assert hint.startswith("hint: 'crawl' has been running for")
    assert cancelled == "cancelled: 'crawl' passed its limit of 1.5 s and was cancelled"
    assert after == "the agent goes on with another source"
