"""A real Prometheus and a real Alertmanager on free local ports."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import yaml
from stack.programs import Program
from stack.web import answers

from tests.operations.programs import CONFIG, RULES, need, run
from tests.stores.servers import free_port

_SLOW_S = 60
_RECEIVER = "http://localhost:9095/alerts"


class _Server(Program):
    """A program that serves HTTP from a folder of its own."""

    def __init__(self, folder: Path, program: str, *options: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        port = free_port()
        command = [program, *options, f"--web.listen-address=127.0.0.1:{port}"]
        super().__init__(Path(program).name, command, folder, answers(port, "/-/ready"))
        self._url = f"http://127.0.0.1:{port}"

    def get(self, path: str, **parameters: str | float) -> Any:
        """What a GET answers, as JSON; an error's answer too."""
        return httpx.get(f"{self._url}{path}", params=parameters, timeout=_SLOW_S).json()

    def text(self, path: str) -> str:
        """What a GET answers."""
        return httpx.get(f"{self._url}{path}", timeout=_SLOW_S).text

    def post(self, path: str, body: object) -> None:
        """Sends JSON."""
        httpx.post(f"{self._url}{path}", json=body, timeout=_SLOW_S)


class Prometheus(_Server):
    """A Prometheus with the rules of this repository, which scrapes nothing; or with others.

    It knows a history from the start, in the format of OpenMetrics with times.
    """

    def __init__(self, folder: Path, history: str, config: dict[str, Any] | None = None) -> None:
        options = "--config.file=prometheus.yaml", "--storage.tsdb.path=data"
        super().__init__(folder, need("prometheus"), *options)
        past = folder / "history.om"
        past.write_text(history, encoding="utf-8")
        run(need("promtool"), "tsdb", "create-blocks-from", "openmetrics", past, folder / "data")
        rules = [str(path) for path in RULES]
        config = config or {"global": {"evaluation_interval": "1s"}, "rule_files": rules}
        (folder / "prometheus.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")

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
    """An Alertmanager with the configuration of this repository, and with another receiver."""

    def __init__(self, folder: Path, receiver: str = "") -> None:
        text = (CONFIG / "alertmanager/alertmanager.yaml").read_text(encoding="utf-8")
        assert _RECEIVER in text
        file = folder / "alertmanager.yaml"
        file.write_text(text.replace(_RECEIVER, receiver or _RECEIVER), encoding="utf-8")
        options = f"--config.file={file}", "--storage.path=data", "--cluster.listen-address="
        super().__init__(folder, need("prometheus-alertmanager", "alertmanager"), *options)
