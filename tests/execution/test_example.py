"""The example of a tool that is sent to the background runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_a_long_tool_is_sent_to_the_background() -> None:
    """The agent goes on with the next call, and has its result at the end."""
    done = subprocess.run(
        [sys.executable, "examples/background_tool.py"],
        cwd=ROOT, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=60,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    said = [line.partition(",")[0] for line in done.stdout.splitlines()]
    assert said == [
        "file_read: execute_sync",
        "file_read is done",
        "video_process: auto_background",
        "file_write: execute_sync",
        "file_write is done",
        "video_process is done",
    ]
