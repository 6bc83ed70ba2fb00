"""The unit file and the container file of `serve`, as far as they can be tried without a daemon."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import httpx
import pytest

from tests.operations.programs import ROOT, run
from tests.server.process import PROGRAM
from tests.server.serving import certified
from tests.stores.servers import free_port, wait_for

DEPLOY: Final = ROOT / "deploy"
UNIT: Final = DEPLOY / "otel-loopguard.service"
INSTALLED: Final = "/opt/otel-loopguard/bin/otel-loopguard"


def settings_of_unit() -> dict[str, list[str]]:
    """The values of each name in the unit file, in their order."""
    found: dict[str, list[str]] = {}
    for line in UNIT.read_text(encoding="utf-8").splitlines():
        name, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            found.setdefault(name, []).append(value)
    return found


def analyzed(tmp_path: Path, *command: str) -> str:
    """What systemd says of the unit, with a program and a user that this machine has."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is missing")
    text = UNIT.read_text(encoding="utf-8").replace(INSTALLED, PROGRAM)
    unit = tmp_path / UNIT.name
    unit.write_text(text.replace("User=loopguard", "User=daemon"), encoding="utf-8")
    return run("systemd-analyze", *command, unit)


def test_systemd_reads_the_unit(tmp_path: Path) -> None:
    """And it may do little, by systemd's own measure, from 0 (best) to 10."""
    analyzed(tmp_path, "verify", "--man=no")
    said = analyzed(tmp_path, "security", "--offline=yes")
    found = re.search(r"exposure level for \S+: ([\d.]+)", said)
    assert found
    assert float(found[1]) < 2


def test_the_program_of_the_unit_starts_reloads_and_ends(tmp_path: Path) -> None:
    """Its command as it stands, with what the environment file of the page says."""
    unit = settings_of_unit()
    (line,) = unit["ExecStart"]
    assert line.startswith(f"{INSTALLED} ")
    at = f"127.0.0.1:{free_port()}"
    options = {"$OPTIONS": f"--http {at} --grpc ''"}
    words = [word for given in shlex.split(line) for word in shlex.split(options.get(given, given))]
    assert unit["ExecReload"] == ["/bin/kill -HUP $MAINPID"]
    assert unit["EnvironmentFile"] == ["-/etc/otel-loopguard/environment"]
    with started([PROGRAM, *words[1:]], tmp_path, {}, at) as (server, log):
        run("kill", "-HUP", str(server.pid))
        wait_for(lambda: "reloaded: nothing changed" in log.read_text(encoding="utf-8"))
        server.terminate()
        assert server.wait(60) == 0


class Step(NamedTuple):
    """An instruction of a container file."""

    name: str
    value: str


def container_file() -> list[Step]:
    """The instructions of the container file, in their order."""
    text = (DEPLOY / "Containerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [Step(*line.split(maxsplit=1)) for line in lines]


def last(name: str) -> str:
    """The value of the last instruction of a name, which is the one that holds."""
    return [step.value for step in container_file() if step.name == name][-1]


def test_the_container_file_copies_what_there_is() -> None:
    copied = [step.value for step in container_file() if step.name == "COPY"]
    sources = [word for one in copied if "--from=" not in one for word in one.split()[:-1]]
    assert {"pyproject.toml", "otel_loopguard", "README.md"} <= set(sources)
    assert [name for name in sources if not (ROOT / name).exists()] == []


def test_the_command_of_the_container_starts_with_a_token_only(tmp_path: Path) -> None:
    """And its own check of health finds it alive."""
    at = f"127.0.0.1:{free_port()}"
    _, *command = json.loads(last("ENTRYPOINT"))
    assert command[:5] == ["serve", "--http", "0.0.0.0:4318", "--grpc", "0.0.0.0:4317"]
    refused = subprocess.run(
        [PROGRAM, *command], capture_output=True, text=True, check=False, timeout=600
    )
    assert refused.returncode == 2
    assert "without tokens only loopback is served" in refused.stderr
    here = [PROGRAM, *command, "--http", at, "--grpc", ""]  # what is given after it holds
    token = {"LOOPGUARD_SERVE_TOKEN": "a long random text of this test"}
    certificate, key = certified(tmp_path)
    for tls in ([], ["--certificate", certificate, "--key", key]):
        with started([*here, *tls], tmp_path, token, at) as (server, _):
            check = json.loads(last("HEALTHCHECK").partition("CMD ")[2])
            assert check[1] == "-c"
            checked = check[2].replace("127.0.0.1:4318", at).replace("/1/", f"/{server.pid}/")
            run(sys.executable, "-c", checked)


@pytest.mark.rare
def test_the_steps_of_the_container_file_give_a_server(tmp_path: Path) -> None:
    """Each COPY and RUN, in a clean folder that stands for the root; it asks a registry."""
    values = {"EXTRAS": "cli,redis,server"}
    for step in container_file():
        if step.name == "COPY" and "--from=" not in step.value:
            *sources, target = step.value.split()
            copy(sources, tmp_path / target.strip("/"), whole=target.endswith("/"))
        elif step.name == "RUN":
            here = re.sub(r"(?<![\w.])/(opt|src)\b", rf"{tmp_path}/\1", step.value)
            path = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"}
            pip = {key: value for key, value in os.environ.items() if key.startswith("PIP_")}
            environ = {**path, **pip, **values}
            subprocess.run(here, shell=True, check=True, env=environ, timeout=1800)
    program = tmp_path / json.loads(last("ENTRYPOINT"))[0].strip("/")
    at = f"127.0.0.1:{free_port()}"
    with started([str(program), "serve", "--http", at, "--grpc", ""], tmp_path, {}, at):
        assert httpx.get(f"http://{at}/readyz").status_code == 200
        assert "loopguard_server_ready" in httpx.get(f"http://{at}/metrics").text


def copy(sources: list[str], target: Path, *, whole: bool) -> None:
    """Copies files into a folder, or the content of one folder."""
    if not whole:
        (source,) = sources
        shutil.copytree(ROOT / source, target)
        return
    target.mkdir(parents=True, exist_ok=True)
    for source in sources:
        shutil.copy(ROOT / source, target)


@contextmanager
def started(
    command: list[str], folder: Path, environ: dict[str, str], at: str
) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """A server that answers at an address, and the file of its log."""
    log = folder / "log"
    clean = {"PATH": "/usr/bin:/bin", "PYTHONUNBUFFERED": "1", **environ}
    scheme = "https" if "--certificate" in command else "http"
    with log.open("wb") as out:
        server = subprocess.Popen(command, stdout=out, stderr=out, env=clean, cwd="/")

    def answers() -> bool:
        assert server.poll() is None, log.read_text(encoding="utf-8")
        try:
            return httpx.get(f"{scheme}://{at}/livez", timeout=60, verify=False).is_success
        except httpx.TransportError:
            return False

    try:
        wait_for(answers)
        yield server, log
    finally:
        server.kill()
        server.wait()
