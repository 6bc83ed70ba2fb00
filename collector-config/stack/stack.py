"""The whole stack on loopback: each program with the configuration that this folder ships."""

from __future__ import annotations

import re
import shutil
import socket
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from stack import ui
from stack.builds import BALANCER, COLLECTOR, HERE, JAEGER, Build, MissingError
from stack.environments import MLFLOW, PHOENIX, Environment
from stack.programs import Program, installed
from stack.web import answers

if TYPE_CHECKING:
    from typing_extensions import Self

    from stack.ports import Ports

_Ready = Callable[[], object]
_DURATION = re.compile(r"\[(?:\d+[smh])\]|(?<=offset )\d+[smh]")


@dataclass(frozen=True)
class Pace:
    """How fast a stack lives; none means what the files say.

    Attributes:
        interval_s: Seconds between scrapes, and between evaluations of the rules.
        window_s: Seconds that rules look back, instead of minutes or hours.
        sampling_wait_s: Seconds that tail sampling waits for the rest of a trace.
        sampling_percent: Share of the traces without agents that it keeps.
    """

    interval_s: int = 1
    window_s: int = 10
    sampling_wait_s: int = 1
    sampling_percent: int = 5


class Stack:
    """Programs that belong together. They run in the order in which they are asked for.

    Args:
        folder: For everything that they write.
        ports: Where they listen.
        pace: How fast they live; as the files say by default.

    Attributes:
        folder: The same.
        ports: The same.
        decisions: The decision log that the gateway writes.
    """

    def __init__(self, folder: Path, ports: Ports, pace: Pace | None = None) -> None:
        self.folder = folder
        self.ports = ports
        self.decisions = folder / "gateway" / "decisions.jsonl"
        self._pace = pace
        self._running: list[Program] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self, limit_s: float = 20) -> None:
        """Ends all of them, the last one first.

        Args:
            limit_s: Seconds that each may take before it is killed; Jaeger takes ten.
        """
        while self._running:
            self._running.pop().stop(limit_s)

    def gateway(self, *also: Path, **env: str) -> Program:
        """The Collector with gateway.yaml.

        Args:
            also: Files that are laid over it.
            env: Variables that those read.
        """
        at, state = self.ports, self.folder / "gateway"
        env |= {
            "GATEWAY_GRPC": _local(at.gateway_grpc),
            "GATEWAY_HTTP": _local(at.gateway_http),
            "GATEWAY_HEALTH": _local(at.gateway_health),
            "GATEWAY_ZPAGES": _local(at.gateway_zpages),
            "GATEWAY_METRICS": _local(at.gateway_metrics),
            "GATEWAY_SELF_PORT": str(at.gateway_self),
            "GATEWAY_STATE": str(state),
            "JAEGER_ENDPOINT": _local(at.jaeger_grpc),
        }
        if self._pace is not None:
            env["SAMPLING_WAIT"] = f"{self._pace.sampling_wait_s}s"
            env["SAMPLING_PERCENT"] = str(self._pace.sampling_percent)
        ready = answers(at.gateway_health, "/")
        return self._collector("gateway", (HERE / "gateway.yaml", *also), env, ready)

    def sidecar(self) -> Program:
        """The Collector beside the agent, with agent.yaml."""
        at = self.ports
        env = {
            "AGENT_GRPC": _local(at.agent_grpc),
            "AGENT_HTTP": _local(at.agent_http),
            "AGENT_HEALTH": _local(at.agent_health),
            "AGENT_SELF_PORT": str(at.agent_self),
            "AGENT_STATE": str(self.folder / "sidecar"),
            "GATEWAY_ENDPOINT": _local(at.gateway_grpc),
        }
        ready = answers(at.agent_health, "/")
        return self._collector("sidecar", (HERE / "agent.yaml",), env, ready)

    def balancer(self, workers: Sequence[int]) -> Program:
        """The Collector in front of several, with scale/balancer.yaml; takes the gateway's place.

        Args:
            workers: Where they take OTLP by gRPC.
        """
        at = self.ports
        env = {
            "BALANCER_GRPC": _local(at.gateway_grpc),
            "BALANCER_HTTP": _local(at.gateway_http),
            "BALANCER_HEALTH": _local(at.gateway_health),
            "BALANCER_SELF_PORT": str(at.gateway_self),
            "BALANCER_STATE": str(self.folder / "balancer"),
            "WORKERS": f"[{', '.join(map(_local, workers))}]",
        }
        command = [_binary(BALANCER), "--config", str(HERE / "scale" / "balancer.yaml")]
        return self._start("balancer", command, answers(at.gateway_health, "/"), env)

    def fleet(self, workers: Sequence[int]) -> Program:
        """The Collector in front of several `otel-loopguard serve`, with fleet/fleet.yaml.

        Args:
            workers: Where they take OTLP by gRPC.
        """
        env = {"FLEET_WORKERS": str(self.route(workers)), "FLEET_RETRY": "200ms"}
        return self._front("fleet", env)

    def route(self, workers: Sequence[int]) -> Path:
        """Writes the list of workers that `fleet` reads when it starts, and at SIGHUP.

        Args:
            workers: Where they take OTLP by gRPC.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / "workers.yaml"
        path.write_text(f"[{', '.join(map(_local, workers))}]", encoding="utf-8")
        return path

    def worker(
        self, name: str, http: int, grpc: int, forward: str = "", *words: str, **env: str
    ) -> Program:
        """`otel-loopguard serve`, on this stack's Redis.

        Args:
            name: Its name.
            http: Its port for HTTP.
            grpc: Its port for gRPC.
            forward: Where spans and decisions go on to.
            words: Further options.
            env: Variables beside those of this process.
        """
        command = [
            *(str(Path(sys.executable).with_name("otel-loopguard")), "serve"),
            *("--http", _local(http), "--grpc", _local(grpc)),
            *(("--forward", forward) if forward else ()),
            *words,
        ]
        env = {
            "LOOPGUARD_STORE_URL": f"redis://{_local(self.ports.redis)}/0",
            "LOOPGUARD_DIGEST_KEY": "a key of all workers",
            **env,
        }
        return self._start(name, command, answers(http, "/healthz"), env)

    def jaeger(self) -> Program:
        """Jaeger with jaeger/jaeger.yaml, and with its page where there is one."""
        at = self.ports
        env = {
            "JAEGER_GRPC": _local(at.jaeger_grpc),
            "JAEGER_HTTP": _local(at.jaeger_http),
            "JAEGER_QUERY": _local(at.jaeger_query),
            "JAEGER_QUERY_GRPC": _local(at.jaeger_query_grpc),
            "JAEGER_HEALTH": _local(at.jaeger_health),
            "JAEGER_SELF_PORT": str(at.jaeger_self),
            "JAEGER_STATE": str(self.folder / "jaeger"),
            ui.VARIABLE: str(ui.page() or ""),
            "JAEGER_UI_CONFIG": str(HERE / "jaeger" / "ui.json"),
        }
        command = [_binary(JAEGER), "--config", str(HERE / "jaeger" / "jaeger.yaml")]
        return self._start("jaeger", command, answers(at.jaeger_query, "/api/services"), env)

    def prometheus(self) -> Program:
        """Prometheus with prometheus/, pointed at this stack."""
        at, folder = self.ports, self.folder / "prometheus"
        self._write_prometheus(folder)
        command = [
            installed("prometheus", package="prometheus"),
            f"--config.file={folder / 'prometheus.yaml'}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address={_local(at.prometheus)}",
            "--enable-feature=exemplar-storage",
            "--log.level=warn",
        ]
        return self._start("prometheus", command, answers(at.prometheus, "/-/ready"))

    def alertmanager(self) -> Program:
        """Alertmanager with alertmanager/, whose webhook is this stack's."""
        at, folder = self.ports, self.folder / "alertmanager"
        self._write_alertmanager(folder)
        package = "prometheus-alertmanager"
        command = [
            installed("alertmanager", package, package=package),
            f"--config.file={folder / 'alertmanager.yaml'}",
            f"--storage.path={folder / 'data'}",
            f"--web.listen-address={_local(at.alertmanager)}",
            "--cluster.listen-address=",
            "--log.level=warn",
        ]
        return self._start("alertmanager", command, answers(at.alertmanager, "/-/ready"))

    def phoenix(self, port: int, grpc_port: int) -> Program:
        """Arize Phoenix, which keeps what it has in a file.

        Args:
            port: Its pages, its API, and OTLP by HTTP.
            grpc_port: OTLP by gRPC.
        """
        env = {
            "PHOENIX_HOST": "127.0.0.1",
            "PHOENIX_PORT": str(port),
            "PHOENIX_GRPC_PORT": str(grpc_port),
            "PHOENIX_WORKING_DIR": str(self.folder / "phoenix"),
            "PHOENIX_TELEMETRY_ENABLED": "false",
        }
        (self.folder / "phoenix").mkdir(parents=True)
        command = [_binary(PHOENIX), "serve"]
        return self._start("phoenix", command, listens(port), env, limit_s=300)

    def mlflow(self, port: int) -> Program:
        """MLflow's server, which keeps what it has in a file.

        Args:
            port: Its pages, its API, and OTLP by HTTP.
        """
        folder = self.folder / "mlflow"
        folder.mkdir(parents=True)
        command = [
            *(_binary(MLFLOW), "server", "--host", "127.0.0.1", "--port", str(port)),
            *("--workers", "1", "--backend-store-uri", f"sqlite:///{folder / 'mlflow.db'}"),
            *("--artifacts-destination", str(folder / "artifacts")),
        ]
        env = {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
        return self._start("mlflow", command, answers(port, "/health"), env, limit_s=300)

    def redis(self) -> Program:
        """Redis, which keeps nothing on disk."""
        command = [
            *(installed("redis-server", package="redis-server"), "--bind", "127.0.0.1"),
            *("--port", str(self.ports.redis), "--save", "", "--dir", str(self.folder)),
        ]
        return self._start("redis", command, listens(self.ports.redis))

    def _front(self, name: str, env: dict[str, str]) -> Program:
        """The Collector with a file of fleet/, which takes the gateway's place."""
        at = self.ports
        env |= {
            "FLEET_GRPC": _local(at.gateway_grpc),
            "FLEET_HTTP": _local(at.gateway_http),
            "FLEET_HEALTH": _local(at.gateway_health),
            "FLEET_SELF_PORT": str(at.gateway_self),
            "FLEET_STATE": str(self.folder / name),
        }
        command = [_binary(BALANCER), "--config", str(HERE / "fleet" / f"{name}.yaml")]
        return self._start(f"{name}-front", command, answers(at.gateway_health, "/"), env)

    def _collector(
        self, name: str, configs: Sequence[Path], env: dict[str, str], ready: _Ready
    ) -> Program:
        files = [word for each in configs for word in ("--config", str(each))]
        return self._start(name, [_binary(COLLECTOR), *files], ready, env)

    def _start(
        self,
        name: str,
        command: Sequence[str],
        ready: _Ready,
        env: dict[str, str] | None = None,
        limit_s: float = 60,
    ) -> Program:
        program = Program(name, command, self.folder, ready, env)
        self._running.append(program)
        return program.start(limit_s)

    def _write_prometheus(self, folder: Path) -> None:
        shutil.copytree(HERE / "prometheus", folder, dirs_exist_ok=True)
        at = self.ports
        for name, port in (
            ("alertmanager", at.alertmanager),
            ("collector", at.gateway_self),
            ("guards", at.gateway_metrics),
        ):
            text = yaml.safe_dump([{"targets": [_local(port)]}])
            (folder / "targets" / f"{name}.yaml").write_text(text, encoding="utf-8")
        path = folder / "prometheus.yaml"
        config = yaml.safe_load(path.read_text(encoding="utf-8"))
        config["global"]["external_labels"]["jaeger_url"] = f"http://{_local(at.jaeger_query)}"
        if self._pace is not None:
            self._quicken(folder, config, self._pace)
        path.write_text(yaml.safe_dump(config), encoding="utf-8")

    def _quicken(self, folder: Path, config: dict[str, Any], pace: Pace) -> None:
        """Seconds for minutes, in the copies of configuration and rules."""
        interval = f"{pace.interval_s}s"
        config["global"] |= {"scrape_interval": interval, "evaluation_interval": interval}
        config["global"]["scrape_timeout"] = interval
        for path in (folder / "rules").glob("*.yaml"):
            rules = yaml.safe_load(path.read_text(encoding="utf-8"))
            for rule in (rule for group in rules["groups"] for rule in group["rules"]):
                rule["expr"] = quickened(rule["expr"], pace.window_s)
                rule |= {name: interval for name in ("for", "keep_firing_for") if name in rule}
            path.write_text(yaml.safe_dump(rules), encoding="utf-8")

    def _write_alertmanager(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        path = HERE / "alertmanager" / "alertmanager.yaml"
        config = yaml.safe_load(path.read_text(encoding="utf-8"))
        for receiver in config["receivers"]:
            for hook in receiver["webhook_configs"]:
                hook["url"] = f"http://{_local(self.ports.webhook)}/alerts"
        if self._pace is not None:
            config["route"] |= {"group_wait": "0s", "group_interval": "1s"}
        (folder / path.name).write_text(yaml.safe_dump(config), encoding="utf-8")


def quickened(expression: str, window_s: int) -> str:
    """A rule whose windows and offsets are some seconds long; a day's memory stays a day."""

    def shorter(found: re.Match[str]) -> str:
        text = found[0]
        return f"[{window_s}s]" if text.startswith("[") else f"{window_s}s"

    return _DURATION.sub(shorter, expression)


def listens(port: int) -> _Ready:
    """Says, when called, whether something takes connections at a port."""

    def connected() -> bool:
        with socket.create_connection(("127.0.0.1", port), 1):
            return True

    return connected


def _local(port: int) -> str:
    return f"127.0.0.1:{port}"


def _binary(build: Build | Environment) -> str:
    found = build.built()
    if found is None:
        msg = f"{build.name} is not there: make collector balancer jaeger phoenix mlflow"
        raise MissingError(msg)
    return str(found)
