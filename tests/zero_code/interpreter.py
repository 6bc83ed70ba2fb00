"""Finds an interpreter that has what a test in a subprocess needs, and runs it there."""

import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import NoReturn

import pytest

ROOT = Path(__file__).parents[2]
VARIABLE = "LOOPGUARD_FRAMEWORKS_PYTHON"
PYTHON = os.environ.get(VARIABLE) or sys.executable

_PROBE = """
import sys
from importlib.metadata import entry_points
from importlib.util import find_spec
def there(name):
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:
        return False
missing = [name for name in sys.argv[1:] if not there(name)]
if not entry_points(group="opentelemetry_instrumentor", name="loopguard"):
    missing.append("otel-loopguard (installed)")
print(", ".join(missing))
"""


def interpreter(*modules: str) -> str:
    """Returns a Python that can import `modules` and has the package installed.

    That is the one in `LOOPGUARD_FRAMEWORKS_PYTHON`, else the current one. Without them the test
    is skipped with the reason; under `CI` it fails.
    """
    lacks = missing(PYTHON, modules)
    if lacks:
        lacking(f"{PYTHON} lacks {lacks}; set {VARIABLE} to a Python that has it")
    return PYTHON


def lacking(reason: str) -> NoReturn:
    """Skips a test that cannot run here; fails it under CI, which has to have everything."""
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


@cache
def missing(python: str, modules: tuple[str, ...]) -> str:
    """Which of these modules an interpreter lacks; empty if none."""
    command = [python, "-c", _PROBE, *modules]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=True)
    return done.stdout.strip()


def environment(**variables: str) -> dict[str, str]:
    """Returns the environment without any `OTEL_` or `LOOPGUARD_` variable but these."""
    ours = ("OTEL_", "LOOPGUARD_", "PYTHONPATH", "PYTHONWARNINGS")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return {**kept, "PYTHONPATH": str(ROOT), **variables}


def run(*command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs a command for at most two minutes and returns what it wrote."""
    return subprocess.run(
        command, cwd=ROOT, env=environment(**variables), capture_output=True, text=True,
        timeout=120, check=False,
    )  # fmt: skip
