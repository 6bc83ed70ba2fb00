"""A real process of `otel-loopguard serve`, and what its operator sees of it."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families
from typing_extensions import Self

from tests.server.serving import CLIENT, PROTOBUF, bearer, call, request
from tests.stores.servers import wait_for

PROGRAM = str(Path(sys.executable).with_name("otel-loopguard"))
_URL = re.compile(r"flag's API: (\S+)")


class Serve:
    """A server in a process of its own, as a context, with options of `serve` and more variables.

    Its log is a file; its address is by default any port.
    """

    def __init__(self, log: Path, *options: str, http: str = "127.0.0.1:0", **environ: str) -> None:
        self._log = log
        self._command = [PROGRAM, "serve", "--http", http, "--grpc", "", *options]
        kept = {key: value for key, value in os.environ.items() if not key.startswith("OTEL_")}
        self._environ = {**kept, "PYTHONUNBUFFERED": "1", **environ}
        self.url = ""

    def __enter__(self) -> Self:
        with self._log.open("wb") as log:
            out: Any = {"stdout": log, "stderr": log}
            self.process = subprocess.Popen(self._command, env=self._environ, **out)
        wait_for(self._listens)
        return self

    def __exit__(self, *_: object) -> None:
        self.tell(signal.SIGCONT)
        self.tell(signal.SIGKILL)
        self.process.wait()

    def tell(self, told: signal.Signals) -> None:
        """Sends it a signal, if it runs."""
        if self.process.poll() is None:
            self.process.send_signal(told)

    def logged(self, *words: str) -> list[str]:
        """The lines of its log that have all these words."""
        return [line for line in self.log.splitlines() if all(word in line for word in words)]

    @property
    def log(self) -> str:
        """Its log."""
        return self._log.read_text(encoding="utf-8")

    def send(self, number: int = 0, token: str = "") -> int:
        """Sends a span; returns the status code."""
        body = request(call(number)).SerializeToString()
        headers = {**PROTOBUF, **bearer(token)}
        url = f"{self.url}/v1/traces"
        return CLIENT.post(url, content=body, headers=headers).status_code

    def ready(self) -> tuple[int, dict[str, str]]:
        return ready(self)

    def metric(self, name: str, **labels: str) -> float:
        """The sum of the series of a metric that have these labels; -1 without any."""
        return total(CLIENT.get(f"{self.url}/metrics").text, name, **labels)

    def _listens(self) -> bool:
        assert self.process.poll() is None, self.log
        found = _URL.search(self.log)
        self.url = found[1] if found else ""
        return "spans go " in self.log


def ready(server: Any) -> tuple[int, dict[str, str]]:
    """What a server answers to an orchestrator: the status, and what is not well."""
    answer = CLIENT.get(f"{server.url}/readyz")
    return answer.status_code, {key: said for key, said in answer.json().items() if said != "ok"}


def total(text: str, name: str, **labels: str) -> float:
    """The sum of the series of a metric that have these labels; -1 without any."""
    found = [
        sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == name and labels.items() <= sample.labels.items()
    ]
    return sum(found) if found else -1
