"""The configuration files are sound: the programs accept them, and they name what is there."""

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from stack.builds import BALANCER, COLLECTOR, HERE, JAEGER
from stack.ports import Ports
from stack.stack import Stack

from tests.e2e.running import need
from tests.programs import ran

FILES = {"gateway.yaml": COLLECTOR, "agent.yaml": COLLECTOR}
FILES |= {"scale/balancer.yaml": BALANCER, "jaeger/jaeger.yaml": JAEGER}
OURS = [name for name, build in FILES.items() if build is not JAEGER]
PARTS = ("receivers", "processors", "exporters", "connectors", "extensions")


def load(name: str) -> Any:
    return yaml.safe_load((HERE / name).read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    "names", [*((name,) for name in FILES), ("gateway.yaml", "backends/otlp.yaml")], ids="+".join
)
def test_the_program_accepts_its_files(names: tuple[str, ...], tmp_path: Path) -> None:
    """`validate` has nothing against them as they stand, without any variable set."""
    build = FILES[names[0]]
    need(build)
    configs = (f"--config={HERE / name}" for name in names)
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    done = ran(build.path(), "validate", *configs, env=environment, cwd=tmp_path)
    assert "deprecated" not in done.stderr.lower()


def test_the_overlay_keeps_the_way_to_jaeger() -> None:
    both = (load(name)["service"]["pipelines"] for name in ("gateway.yaml", "backends/otlp.yaml"))
    gateway, overlay = (set(lines["traces/agents"]["exporters"]) for lines in both)
    assert gateway < overlay


@pytest.mark.parametrize("name", FILES)
def test_everything_defined_is_used_and_listens_on_loopback(name: str) -> None:
    """A component that no pipeline names does nothing, without a word; nothing is open outside."""
    config, text = load(name), (HERE / name).read_text(encoding="utf-8")
    lines = config["service"]["pipelines"].values()
    used = {each for line in lines for part in line.values() for each in part}
    used |= set(config["service"]["extensions"])
    assert {each for part in PARTS for each in config.get(part, {})} <= used
    address = r"(?:endpoint|host|http|grpc): (\S*\d+\.\d+\.\d+\.\d+\S*|0\.0\.0\.0\S*)"
    found = re.findall(address, text)
    assert found
    assert all("127.0.0.1" in each for each in found), found


def test_decisions_pass_nothing_that_loses_them() -> None:
    """Memory is limited first; from receiver to disk there is no batch and no sampling."""
    for name in OURS:
        for line, parts in load(name)["service"]["pipelines"].items():
            if "otlp" in parts["receivers"]:
                assert parts["processors"][0] == "memory_limiter", (name, line)
    for name, lines, exporter in (
        ("gateway.yaml", ("traces/in", "traces/agents", "logs/decisions"), "otlp_grpc/jaeger"),
        ("agent.yaml", ("traces", "logs"), "otlp_grpc/gateway"),
    ):
        config = load(name)
        used = (
            each for line in lines for each in config["service"]["pipelines"][line]["processors"]
        )
        kinds = {each.partition("/")[0] for each in used}
        assert kinds <= {"memory_limiter", "filter", "transform"}
        queue = config["exporters"][exporter]
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


def test_compose_is_sound() -> None:
    """Names lead somewhere: files, dependencies, volumes, hosts, variables, and what is scraped."""
    compose = load("compose.yaml")
    services = compose["services"]
    for name, service in services.items():
        assert ":" in service["image"], f"{name} has no version"
        assert set(service.get("depends_on", ())) <= set(services), name
        for mount in service.get("volumes", ()):
            place = mount.split(":")[0]
            assert place in compose["volumes"] or (place[0] == "." and (HERE / place).exists())
        for port in service.get("ports", ()):
            assert port.startswith("127.0.0.1:"), f"{name} is open to the world: {port}"
    for name, file in (("gateway", "gateway.yaml"), ("jaeger", "jaeger/jaeger.yaml")):
        assert any(mount.startswith(f"./{file}:") for mount in services[name]["volumes"])
        read = set(re.findall(r"\$\{env:(\w+)", (HERE / file).read_text(encoding="utf-8")))
        assert set(services[name]["environment"]) <= read, "a variable that no file reads"
    targets = [*(HERE / "compose/targets").glob("*.yaml")]
    known = (HERE / "prometheus/targets").glob("*.yaml")
    assert {path.name for path in targets} == {path.name for path in known}
    hosts = re.findall(r"(?<![\w/.@])([a-z]+):\d{4,5}\b", (HERE / "compose.yaml").read_text())
    hosts += re.findall(r"([a-z]+):\d+", "".join(path.read_text() for path in targets))
    assert set(hosts) <= set(services), set(hosts) - set(services)
