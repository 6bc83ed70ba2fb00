"""Real processes for tests of `watch --agents`: the watch, and an agent that writes."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from tests.escalation.agents import until

WRITER: Final = Path(__file__).with_name("writer.py")
PATIENCE_S: Final = 300.0
_TOLD: Final = re.compile(r"^\d\d:\d\d:\d\d (hint|steer|ask|deny|pause|abort) (\S+) ", re.MULTILINE)


def state_of(number: int) -> str:
    """The state of a process: `T` while it is stopped."""
    text = Path(f"/proc/{number}/stat").read_text("utf-8")
    return text.rpartition(")")[2].split()[0]


def watched(folder: Path, *options: str) -> list[str]:
    """The command that watches the agents of one folder."""
    # Whoever runs the tests may ignore Ctrl-C, as shells do for what runs in the background, and
    # the end of a terminal, as `nohup` does.
    code = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler);"
    code += "signal.signal(signal.SIGHUP, signal.SIG_DFL);"
    code += "from otel_loopguard.cli import main; main()"
    command = [sys.executable, "-c", code, "watch", "--agents", "--folder", str(folder)]
    return [*command, "--interval", "0.5", *options]


class Watch:
    """`otel-loopguard watch --agents` over one folder; what it prints is in a file."""

    def __init__(self, folder: Path, *options: str, place: Path) -> None:
        self._place = place
        with place.open("wb") as out:
            self.process = subprocess.Popen(
                watched(folder, *options),
                stdin=subprocess.PIPE, stdout=out, stderr=subprocess.STDOUT,
            )  # fmt: skip
        self.wait_for("following ")

    @property
    def printed(self) -> str:
        return self._place.read_text("utf-8")

    @property
    def told(self) -> list[tuple[str, str]]:
        """The decisions that it told: action and session."""
        return _TOLD.findall(self.printed)

    def wait_for(self, text: str) -> None:
        until(lambda: text in self.printed or self.process.poll() is not None)
        assert text in self.printed, self.printed

    def type(self, text: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(text.encode())
        self.process.stdin.flush()

    def end(self, number: signal.Signals = signal.SIGINT) -> str:
        if self.process.poll() is None:
            self.process.send_signal(number)
        assert self.process.wait(PATIENCE_S) == 0, self.printed
        return self.printed

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        if self.process.stdin is not None:
            with suppress(BrokenPipeError):
                self.process.stdin.close()


class Agent:
    """A process that writes a transcript line by line, when it is told to."""

    def __init__(self, transcript: Path, *options: str, argv0: str | None = None) -> None:
        self.process = subprocess.Popen(
            [argv0 or sys.executable, str(WRITER), str(transcript), *options],
            executable=sys.executable, cwd=transcript.parent,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def write(self, lines: Sequence[str]) -> None:
        """Has it write lines, and waits until they are in the file."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        for line in lines:
            self.ask(line)
            assert self.process.stdout.readline().strip().isdigit()

    def ask(self, line: str) -> None:
        """Has it write a line; one that is stopped does so when it goes on."""
        assert self.process.stdin is not None
        self.process.stdin.write(line)
        self.process.stdin.flush()

    @property
    def state(self) -> str:
        return state_of(self.process.pid)

    def wait_for(self, stopped: bool) -> None:
        until(lambda: (self.state == "T") is stopped)

    def end(self) -> None:
        """Ends it, stopped or not."""
        if self.process.poll() is None:
            os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait(PATIENCE_S)
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                with suppress(BrokenPipeError):
                    stream.close()
