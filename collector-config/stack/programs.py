"""A program that runs in the background: started, waited for, stopped, maltreated."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from stack.builds import MissingError

_PAUSE_S = 0.05


def wait_for(true: Callable[[], object], what: str, limit_s: float = 60) -> None:
    """Waits until something is true.

    Args:
        true: Asked again and again; an `OSError` counts as not yet.
        what: What is waited for, for the message.
        limit_s: Seconds to wait at most.

    Raises:
        TimeoutError: It did not come true in time.
    """
    until = time.monotonic() + limit_s
    while not _answers(true):
        if time.monotonic() > until:
            raise TimeoutError(f"{what}: not so within {limit_s:g} s")
        time.sleep(_PAUSE_S)


def _answers(true: Callable[[], object]) -> bool:
    try:
        return bool(true())
    except OSError:
        return False


def installed(*names: str, package: str) -> str:
    """The first of some programs that is there.

    Args:
        names: Names of the program, the usual one first.
        package: Debian's package that has it.

    Raises:
        MissingError: None is there.
    """
    for name in names:
        found = shutil.which(name)
        if found is not None:
            return found
    raise MissingError(f"{names[0]} is missing: apt-get install --no-install-recommends {package}")


class Program:
    """One program, its log in a file of its own.

    Args:
        name: What people call it.
        command: Program and arguments.
        folder: Where it runs; its log is `NAME.log` in there, appended to when it starts again.
        ready: Says whether it answers.
        env: Variables beside those of this process.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        folder: Path,
        ready: Callable[[], object],
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        self._command = list(command)
        self._folder = folder
        self._ready = ready
        self._env = {**os.environ, **(env or {})}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Its process; 0 while it does not run."""
        return 0 if self._process is None else self._process.pid

    def start(self, limit_s: float = 60) -> Program:
        """Starts it, and waits until it answers.

        Raises:
            RuntimeError: It ended instead; the end of its log is in the message.
            TimeoutError: It did not answer in time.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            # A session of its own: Ctrl-C is for the stack, which ends its programs in order.
            self._process = subprocess.Popen(
                self._command, stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                cwd=self._folder, env=self._env, start_new_session=True,
            )  # fmt: skip
        wait_for(self._is_up, f"{self.name} answers", limit_s)
        return self

    def stop(self, limit_s: float = 20) -> None:
        """Asks it to end; ends it if it does not."""
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        process.send_signal(signal.SIGCONT)
        try:
            process.wait(limit_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def kill(self) -> None:
        """As a crash: nothing is said to anybody."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def freeze(self) -> None:
        """Keeps it from running, connections open: a machine that hangs."""
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Lets it run again."""
        os.kill(self.pid, signal.SIGCONT)

    def _is_up(self) -> bool:
        if self._process is None or self._process.poll() is not None:
            tail = "\n".join(self.log.read_text(errors="replace").splitlines()[-15:])
            raise RuntimeError(f"{self.name} ended instead of starting:\n{tail}")
        return bool(self._ready())
