"""Attacks on the guard, as an adversary and as an operator would make them.

Each program here once broke something: memory, time, a lock, a secret, or the process. The dear
ones are marked `rare` and run by `make test-all`, or alone by `pytest --rare tests/hostile`. What
they showed, with figures, is in `docs/security.md`; loops that are dressed up to pass are in
`deceptions.txt`. Evil files are written by programs, none is kept.
"""

import faulthandler
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from otel_loopguard._util.errors import raise_faults
from tests.hostile.rig import Rig

MEMORY = 1536 * 1024 * 1024
"""Bytes of address space of an attacked process: the machine has to survive a failure."""
SECONDS = 120
"""Seconds of processor time of an attacked process."""

Attacked = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def attacked() -> Attacked:
    """Runs the command line in a process that cannot take the machine with it."""

    def limited() -> None:
        for name, most in (("AS", MEMORY), ("CPU", SECONDS), ("CORE", 0)):
            resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (most, most))

    def run(*arguments: object) -> subprocess.CompletedProcess[str]:
        program = "from otel_loopguard.cli import main; main()"
        command = [sys.executable, "-c", program, *map(str, arguments)]
        how = {"capture_output": True, "encoding": "utf-8", "errors": "backslashreplace"}
        # Nothing else runs in this process.
        how |= {"preexec_fn": limited, "stdin": subprocess.DEVNULL}
        return subprocess.run(command, check=False, **how)  # type: ignore[call-overload]

    return run


@pytest.fixture(autouse=True)
def _no_deadlock() -> Iterator[None]:
    """A test that hangs shows all stacks and ends the run."""
    faulthandler.dump_traceback_later(600, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


@pytest.fixture
def rigs() -> Iterator[Callable[..., Rig]]:
    """Makes rigs; in the end no guard of theirs has counted a fault, of any span."""
    made: list[Rig] = []

    def make(settings: dict[str, Any] | None = None, *, wrapped: bool = False) -> Rig:
        made.append(Rig(settings or {}, wrapped))
        return made[-1]

    yield make
    assert [rig.faults for rig in made if rig.faults] == []


@pytest.fixture
def rig(rigs: Callable[..., Rig]) -> Rig:
    """One of them, with default settings."""
    return rigs()


@pytest.fixture
def no_raise(_nothing_is_left_of_other_tests: None) -> None:
    """Faults are swallowed, as they are outside of tests."""
    raise_faults(False)
