"""`otel-loopguard doctor` says what is there, what is missing, and the line that adds it."""

import json
import os
import re
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from otel_loopguard.cli import doctor
from tests.cli.conftest import Command

Found = list[dict[str, Any]]
SECRET = "hunter2-hunter2-hunter2"


@pytest.fixture
def ask(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Found]:
    """Runs it in a clean environment with these variables, and gives what it found."""
    for name in list(os.environ):
        if name.startswith(("OTEL_", "LOOPGUARD_", "OPENINFERENCE_", "TRACELOOP_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    project = tmp_path / "project"
    (project / ".git").mkdir(parents=True)
    monkeypatch.chdir(project)

    def run(*arguments: object, code: int, **variables: str) -> Found:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        result = command("doctor", *arguments, "--format", "json")
        assert result.exit_code == code, result.output
        assert SECRET not in result.output + command("doctor", *arguments).output
        return [json.loads(line) for line in result.stdout.splitlines()]

    return run


def missing(found: Found) -> list[dict[str, Any]]:
    return [each for each in found if each["state"] == "missing"]


def test_an_environment_that_lacks_nothing(ask: Callable[..., Found]) -> None:
    """It names what is installed, and ends with 0."""
    found = ask(code=0, LOOPGUARD_DIGEST_KEY=SECRET)
    assert {"package", "spans", "exporters", "settings", "digest key", "store", "hooks"} <= {
        each["about"] for each in found
    }
    (key,) = (each for each in found if each["about"] == "digest key")
    assert key["state"] == "ok"


def test_what_sets_up_a_provider_is_named_where_it_lacks(
    ask: Callable[..., Found], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`opentelemetry-instrument` comes without."""
    versions = {"opentelemetry-instrumentation": "1", "opentelemetry-distro": None}
    known = doctor._version
    monkeypatch.setattr(doctor, "_version", lambda name: versions.get(name, known(name)))
    adds = [each["add"] for each in ask(code=0)]
    assert "pip install opentelemetry-distro" in adds
    versions["opentelemetry-distro"] = "1"
    assert "pip install opentelemetry-distro" not in [each["add"] for each in ask(code=0)]


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., None]:
    """Installs an instrumentation of psutil that can be imported, or cannot."""
    pytest.importorskip("opentelemetry.instrumentation.dependencies")

    def install(requires: str, *, importable: bool = False) -> None:
        found = tmp_path / "opentelemetry_instrumentation_psutil-1.dist-info"
        found.mkdir()
        needs = f"Provides-Extra: instruments\nRequires-Dist: {requires}; extra == 'instruments'"
        more = "Requires-Dist: opentelemetry-util-genai"
        text = f"Name: opentelemetry-instrumentation-psutil\n{needs}\n{more}\n"
        (found / "METADATA").write_text(text)
        entry = "psutil = openinference.instrumentation.psutil:Instrumentor"
        (found / "entry_points.txt").write_text(f"[opentelemetry_instrumentor]\n{entry}\n")
        monkeypatch.syspath_prepend(tmp_path)
        if importable:
            module = ModuleType("openinference.instrumentation.psutil")
            vars(module)["Instrumentor"] = object
            monkeypatch.setitem(sys.modules, module.__name__, module)

    return install


def test_an_instrumentation_of_another_version_is_named(
    ask: Callable[..., Found], installed: Callable[..., None]
) -> None:
    """It is installed, and instruments nothing: its own log says so, once, at the start."""
    installed("psutil<1")
    told = [each for each in ask(code=0) if "instrumentation.psutil" in each["found"]]
    assert [each["state"] for each in told] == ["note"]
    assert "psutil<1" in told[0]["found"]


def test_an_instrumentation_that_cannot_be_imported_is_missing(
    ask: Callable[..., Found], installed: Callable[..., None]
) -> None:
    """Where a part that it needs is of another version."""
    installed("psutil")
    told = [each["found"] for each in missing(ask(code=1))]
    assert any("psutil" in each and "ModuleNotFoundError" in each for each in told)


def test_an_instrumentation_that_must_be_asked_for_content_is_named(
    ask: Callable[..., Found], installed: Callable[..., None]
) -> None:
    """Its spans have neither arguments nor results by default."""
    installed("psutil", importable=True)

    def told(**variables: str) -> list[dict[str, Any]]:
        found = ask(code=bool(variables.get("CODE")), **variables)
        return [each for each in found if each["about"] == "content"]

    variable = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
    (first,) = told()
    assert first["state"] == "note"
    assert f"{variable}=span_only" in first["add"]
    assert told(**{variable: "SPAN_ONLY"}) == []
    (second,) = told(**{variable: "EVENT_ONLY"}, CODE="1")
    assert (second["state"], f"{variable}=span_only" in second["add"]) == ("missing", True)


def test_an_old_framework_is_missing_only_if_nothing_else_needs_it(
    ask: Callable[..., Found], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An upgrade might break the OpenAI Agents SDK, which brings MCP along."""
    versions, known = {"mcp": "1.0", "crewai": "1.0"}, doctor._version
    monkeypatch.setattr(doctor, "_version", lambda name: versions.get(name, known(name)))
    found = {each["found"].split()[0]: each for each in ask(code=1)}
    assert (found["mcp"]["state"], found["mcp"]["add"]) == ("note", "")
    assert "openai-agents" in found["mcp"]["found"]
    assert found["crewai"]["state"] == "missing"


def test_a_store_that_does_not_answer(ask: Callable[..., Found]) -> None:
    """It is not waited for, and a shared store without a digest key is told."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        found = missing(ask(code=1, LOOPGUARD_STORE_URL=f"redis://127.0.0.1:{port}/0"))
    assert [each["about"] for each in found] == ["store", "digest key"]


def test_hooks_whose_program_is_gone(ask: Callable[..., Found], command: Command) -> None:
    """They look installed, and guard nothing."""
    ask(code=0)
    assert command("hook", "install", "claude-code", "--project").exit_code == 0
    (path,) = Path.cwd().rglob("settings*.json")
    path.write_text(
        re.sub(r"\S*otel-loopguard hook", "/nowhere/otel-loopguard hook", path.read_text())
    )
    (found,) = missing(ask(code=1))
    assert found["about"] == "hooks"
