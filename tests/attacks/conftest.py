"""Attacks on the guard, as an adversary and as an operator would make them.

Each program here once broke something: memory, time, a lock, a secret, or the process. They are
dear, so most are marked `rare` and run by `make test-all`, or alone by

    pytest --rare tests/attacks

What they showed, with figures, is in `docs/security.md`. Loops that are dressed up to pass, and
honest work that looks like a loop, are in `tests/adversarial`. Cheap regressions stand in the
ordinary test beside what they guard. Evil files are written by programs, none is kept.
"""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Callable

import pytest

MEMORY = 1536 * 1024 * 1024
"""Bytes of address space of an attacked process: the machine has to survive a failure."""
SECONDS = 120
"""Seconds of processor time of an attacked process."""

Attacked = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def attacked() -> Attacked:
    """Runs the command line in a process that cannot take the machine with it."""

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    def run(*arguments: object) -> subprocess.CompletedProcess[str]:
        program = "from otel_loopguard.cli import main; main()"
        return subprocess.run(
            [sys.executable, "-c", program, *map(str, arguments)],
            capture_output=True,
            check=False,
            encoding="utf-8",
            errors="backslashreplace",
            preexec_fn=limited,  # nothing else runs in this process
            stdin=subprocess.DEVNULL,
        )

    return run
