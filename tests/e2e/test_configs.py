"""The configuration files are sound: the programs accept them, and they name what is there."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from stack.builds import BALANCER, COLLECTOR, HERE, JAEGER, Build
from stack.ports import Ports

from tests.e2e.running import need

if TYPE_CHECKING:
    from stack.stack import Stack

FILES = {
    "gateway.yaml": COLLECTOR,
    "agent.yaml": COLLECTOR,
    "scale/balancer.yaml": BALANCER,
    "jaeger/jaeger.yaml": JAEGER,
}
OLD = ("otlp/", "otlphttp", "loadbalancing", "filestorage", "spanmetrics", "signaltometrics")


def load(name: str) -> Any:
    """A file of collector-config/, parsed."""
    return yaml.safe_load((HERE / name).read_text(encoding="utf-8"))


@pytest.mark.parametrize(("name", "build"), FILES.items(), ids=FILES)
def test_the_program_accepts_its_file(name: str, build: Build, tmp_path: Path) -> None:
    """`validate` has nothing against the file as it stands, without any variable set."""
    need(build)
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    command = [str(build.path()), "validate", "--config", str(HERE / name)]
    done = subprocess.run(
        command, check=False, cwd=tmp_path, env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "deprecated" not in done.stderr.lower()


def test_the_gateway_takes_the_overlay(tmp_path: Path) -> None:
    """gateway.yaml with backends/otlp.yaml over it is sound, and keeps the way to Jaeger."""
    need(COLLECTOR)
    files = ["--config", str(HERE / "gateway.yaml"), "--config", str(HERE / "backends/otlp.yaml")]
    command = [str(COLLECTOR.path()), "validate", *files]
    done = subprocess.run(command, check=False, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    line = "traces/agents"
    ours = load("backends/otlp.yaml")["service"]["pipelines"][line]["exporters"]
    assert set(load("gateway.yaml")["service"]["pipelines"][line]["exporters"]) < set(ours)


@pytest.mark.parametrize("name", FILES)
def test_no_alias_of_old_is_used(name: str) -> None:
    """Components are named as they are named now; aliases will be gone some day."""
    config = load(name)
    used = [
        name
        for part in ("receivers", "processors", "exporters", "connectors", "extensions")
        for name in config.get(part, {})
        if name.startswith(OLD)
    ]
    assert used == []


@pytest.mark.parametrize("name", ["gateway.yaml", "agent.yaml", "scale/balancer.yaml"])
def test_every_component_is_one_that_is_built(name: str) -> None:
    """What a file uses is in the manifest of its program under its own name, not an alias."""
    build = FILES[name]
    need(build)
    done = subprocess.run([str(build.path()), "components"], capture_output=True, check=True)
    built = yaml.safe_load(done.stdout)
    config = load(name)
    for part in ("receivers", "processors", "exporters", "connectors", "extensions"):
        known = {each["name"] for each in built.get(part) or ()}
        assert {used.partition("/")[0] for used in config.get(part, {})} <= known, part


@pytest.mark.parametrize("name", FILES)
def test_everything_defined_is_used(name: str) -> None:
    """A component that no pipeline names does nothing, without a word."""
    config = load(name)
    lines = config["service"]["pipelines"].values()
    used = {each for line in lines for part in line.values() for each in part}
    used |= set(config["service"]["extensions"])
    for part in ("receivers", "processors", "exporters", "connectors", "extensions"):
        assert set(config.get(part, {})) <= used, part


@pytest.mark.parametrize("name", FILES)
def test_everything_listens_on_loopback(name: str) -> None:
    """Nothing can be reached from outside until somebody says so."""
    text = (HERE / name).read_text(encoding="utf-8")
    found = re.findall(
        r"(?:endpoint|host|http|grpc): (\S*\d+\.\d+\.\d+\.\d+\S*|0\.0\.0\.0\S*)", text
    )
    assert found
    assert all("127.0.0.1" in each for each in found), found


def test_memory_is_limited_first() -> None:
    """In each pipeline that takes data in, what is too much is refused before anything else."""
    for name in ("gateway.yaml", "agent.yaml", "scale/balancer.yaml"):
        for line, parts in load(name)["service"]["pipelines"].items():
            if "otlp" in parts["receivers"]:
                assert parts["processors"][0] == "memory_limiter", (name, line)


def test_decisions_pass_nothing_that_holds_state() -> None:
    """Between the receiver and the disk there is no batch and no sampling for agents and events."""
    for name, lines in (
        ("gateway.yaml", ("traces/in", "traces/agents", "logs/decisions")),
        ("agent.yaml", ("traces", "logs")),
    ):
        pipelines = load(name)["service"]["pipelines"]
        used = {part for line in lines for part in pipelines[line]["processors"]}
        assert {each.partition("/")[0] for each in used} <= {
            *("memory_limiter", "filter", "transform"),
        }
    for name, exporter in (
        ("gateway.yaml", "otlp_grpc/jaeger"),
        ("agent.yaml", "otlp_grpc/gateway"),
    ):
        queue = load(name)["exporters"][exporter]
        assert queue["sending_queue"]["storage"] == "file_storage"
        assert queue["retry_on_failure"]["max_elapsed_time"] == "0s"


def test_the_gateway_starts_without_a_word_of_deprecation(stacks: Callable[[], Stack]) -> None:
    """Gateway, sidecar and Jaeger run, stop when asked, and warn of nothing deprecated."""
    stack = stacks()
    running = [stack.jaeger(), stack.gateway(), stack.sidecar()]
    stack.stop(30)
    for program in running:
        log = program.log.read_text(encoding="utf-8")
        assert "deprecat" not in log.lower(), program.name
        assert "\terror\t" not in log, program.name


def test_the_ports_are_those_of_the_files() -> None:
    """The stack's usual ports are the defaults that the files name."""
    known = {str(port) for port in vars(Ports()).values()}
    for name in ("gateway.yaml", "agent.yaml", "jaeger/jaeger.yaml"):
        text = (HERE / name).read_text(encoding="utf-8")
        assert set(re.findall(r":-(?:127\.0\.0\.1:)?(\d{4,5})\}", text)) <= known, name


def test_versions_agree() -> None:
    """All parts of a manifest are of one version, and compose.yaml runs the same."""
    for manifest in ("builder-config.yaml", "builder-config.scale.yaml"):
        config = load(manifest)
        parts = [p["gomod"] for name in config if name != "dist" for p in config[name]]
        beta = {each.split(" v")[1] for each in parts if " v0." in each}
        assert beta == {config["dist"]["version"]}
    version = load("builder-config.yaml")["dist"]["version"]
    assert load("compose.yaml")["services"]["gateway"]["image"].endswith(f":{version}")


def test_compose_names_files_that_are_there() -> None:
    """Every file and folder that compose.yaml mounts exists, and is one of those tested here."""
    compose = load("compose.yaml")
    mounts = [
        mount.split(":")[0]
        for service in compose["services"].values()
        for mount in service.get("volumes", ())
        if mount.startswith("./")
    ]
    assert {"./gateway.yaml", "./jaeger/jaeger.yaml"} <= set(mounts)
    assert [mount for mount in mounts if not (HERE / mount).exists()] == []


def test_compose_is_sound() -> None:
    """Names lead somewhere: dependencies, volumes, and the hosts in addresses and targets."""
    compose = load("compose.yaml")
    services = compose["services"]
    for name, service in services.items():
        assert ":" in service["image"], f"{name} has no version"
        assert set(service.get("depends_on", ())) <= set(services), name
        for mount in service.get("volumes", ()):
            assert mount.startswith("./") or mount.split(":")[0] in compose["volumes"], mount
        for port in service.get("ports", ()):
            assert port.startswith("127.0.0.1:"), f"{name} is open to the world: {port}"
    hosts = re.findall(r"(?<![\w/.@])([a-z]+):\d{4,5}\b", (HERE / "compose.yaml").read_text())
    targets = "".join(path.read_text() for path in (HERE / "compose/targets").glob("*.yaml"))
    hosts += re.findall(r"([a-z]+):\d+", targets)
    assert set(hosts) <= set(services), set(hosts) - set(services)


def test_compose_sets_variables_that_the_files_read() -> None:
    """A variable that no file reads would be a mistake that nobody notices."""
    services = load("compose.yaml")["services"]
    for name, file in (("gateway", "gateway.yaml"), ("jaeger", "jaeger/jaeger.yaml")):
        text = (HERE / file).read_text(encoding="utf-8")
        read = set(re.findall(r"\$\{env:(\w+)", text))
        assert set(services[name]["environment"]) <= read


def test_compose_scrapes_what_the_stack_scrapes() -> None:
    """The target files of compose have the names of those that Prometheus is configured with."""
    ours = {path.name for path in (HERE / "compose/targets").glob("*.yaml")}
    assert ours == {path.name for path in (HERE / "prometheus/targets").glob("*.yaml")}
