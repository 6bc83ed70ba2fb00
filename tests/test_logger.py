"""Every message of the package begins with its name."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import otel_loopguard

PACKAGE = Path(otel_loopguard.__file__).parent


def test_a_bare_standard_error_says_whose_a_message_is() -> None:
    """Without any logging set up, a decision on standard error begins with the package's name."""
    program = """
from otel_loopguard import LoopGuard
from otel_loopguard.core import Kind, Step
guard = LoopGuard()
for _ in range(6):
    guard.observe(Step(Kind.TOOL, "search", args={"q": 1}, outcome="nothing was found here"), "s")
guard.shutdown()
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    lines = done.stderr.splitlines()
    assert lines
    assert [line for line in lines if not line.startswith("otel-loopguard: ")] == []


def test_no_module_logs_past_it() -> None:
    """Only `_util/logger.py` makes the package's logger; others filter it, or quiet a library's."""
    makers = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if "getLogger(" in path.read_text(encoding="utf-8")
    }
    assert makers == {
        "_util/logger.py",
        "backtest/run.py",
        "cli/output.py",
        "server/access.py",
    }
