"""A real Prometheus and a real Alertmanager on free local ports."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any, Final

import httpx
import yaml

from tests.operations.programs import CONFIG, RULES, need, run
from tests.stores.servers import free_port, wait_for

_SLOW_S: Final = 60


class _Server:
    """A program that serves HTTP from a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def get(self, path: str, **parameters: str | float) -> Any:
        """What a GET answers, as JSON; an error's answer too."""
        return httpx.get(f"{self.url}{path}", params=parameters, timeout=_SLOW_S).json()

    def post(self, path: str, body: object) -> None:
        """Sends JSON."""
        httpx.post(f"{self.url}{path}", json=body, timeout=_SLOW_S)

    def _start(self, command: list[str]) -> None:
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.folder)
        wait_for(self._ready, _SLOW_S)

    def _ready(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, (self.folder / "log").read_text()
        try:
            return httpx.get(f"{self.url}/-/ready").is_success
        except httpx.TransportError:
            return False

    def stop(self) -> None:
        """Ends it, and waits until it has."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


class Prometheus(_Server):
    """A Prometheus with the rules of this repository, which scrapes nothing; or with others.

    It knows a history from the start, in the format of OpenMetrics with times.
    """

    def __init__(self, folder: Path, history: str) -> None:
        super().__init__(folder)
        past = folder / "history.om"
        past.write_text(history, encoding="utf-8")
        run(need("promtool"), "tsdb", "create-blocks-from", "openmetrics", past, folder / "data")

    def start(self, config: dict[str, Any] | None = None) -> Prometheus:
        rules = [str(path) for path in RULES]
        config = config or {"global": {"evaluation_interval": "1s"}, "rule_files": rules}
        (self.folder / "prometheus.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
        self._start([
            need("prometheus"),
            "--config.file=prometheus.yaml",
            "--storage.tsdb.path=data",
            f"--web.listen-address=127.0.0.1:{self.port}",
        ])  # fmt: skip
        return self

    def query(self, expr: str, time: float) -> dict[str, Any]:
        """The answer to an instant query."""
        return self.get("/api/v1/query", query=expr, time=time)

    def newest(self, expr: str) -> list[Any]:
        """What an instant query finds now."""
        answer = self.get("/api/v1/query", query=expr)
        assert answer["status"] == "success", answer
        return answer["data"]["result"]

    def range(self, expr: str, start: float, end: float, step: float) -> dict[str, Any]:
        """The answer to a range query."""
        return self.get("/api/v1/query_range", query=expr, start=start, end=end, step=step)


class Alertmanager(_Server):
    """An Alertmanager with the configuration of this repository."""

    def start(self) -> Alertmanager:
        self._start([
            need("prometheus-alertmanager", "alertmanager"),
            f"--config.file={CONFIG / 'alertmanager/alertmanager.yaml'}",
            "--storage.path=data",
            f"--web.listen-address=127.0.0.1:{self.port}",
            "--cluster.listen-address=",
        ])  # fmt: skip
        return self
