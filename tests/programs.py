"""Programs in a process of their own."""

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_SERVE = """
import importlib, json, os, signal, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
def run(path, text, arguments, folder, environment, out, main):
    import os, signal, sys
    signal.alarm(600)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    for number, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(f"{out}/{name}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), number)
    for name in [name for name in main if not name.startswith("__")]:
        del main[name]
    main["__file__"], sys.argv[:] = path, [path, *arguments]
    exec(compile(text, path, "exec"), main)
    raise SystemExit
for line in sys.stdin:
    child = os.fork()
    if child == 0:
        run(*json.loads(line), globals())
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


class Interpreter:
    """Runs programs one after the other, each in a fork of one that has these modules loaded.

    So each has a process of its own, and the imports are paid once.
    """

    def __init__(
        self, python: Sequence[str], modules: Sequence[str], environment: dict[str, str]
    ) -> None:
        self._environment = environment
        self._out = tempfile.TemporaryDirectory()
        self._process = subprocess.Popen(
            [*python, "-c", _SERVE, *modules], env=environment, text=True, start_new_session=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip

    def start(
        self, text: str, folder: Path, *arguments: str, path: str = "<string>", **variables: str
    ) -> None:
        """Starts a program in a folder, with these variables besides."""
        assert self._process.stdin
        known = {**self._environment, **variables}
        asked = [path, text, arguments, str(folder), known, self._out.name]
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()

    def ended(self, limit_s: float = 0) -> bool:
        """Whether it has ended, at the latest after so many seconds."""
        return bool(select.select([self._process.stdout], [], [], limit_s)[0])

    def finish(self, limit_s: float = 600) -> subprocess.CompletedProcess[str]:
        """What the program printed; one that does not end in time is killed, and this with it."""
        assert self._process.stdout
        if not self.ended(limit_s):
            self._kill()
        line = self._process.stdout.readline() if self.usable else ""
        code = int(line or -signal.SIGKILL)
        said = [Path(self._out.name, name).read_text("utf-8") for name in ("stdout", "stderr")]
        return subprocess.CompletedProcess([], code, *said)

    @property
    def usable(self) -> bool:
        return self._process.poll() is None

    def close(self) -> None:
        """Ends this, and the program that runs."""
        self._kill()
        self._out.cleanup()

    def _kill(self) -> None:
        if self.usable:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.communicate()


def ran(
    *command: str | Path, limit_s: float = 600, **options: Any
) -> subprocess.CompletedProcess[str]:
    """A command that has ended, which has to go well, with what it printed."""
    given = {"capture_output": True, "encoding": "utf-8", "timeout": limit_s, **options}
    done = subprocess.run([str(word) for word in command], check=False, **given)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def printed(program: str, **environment: str) -> str:
    """What a Python program prints, on both of its streams; it has to end well."""
    known = {name: value for name, value in os.environ.items() if "LOOPGUARD" not in name}
    done = ran(sys.executable, "-c", program, env={**known, **environment})
    return done.stdout + done.stderr
