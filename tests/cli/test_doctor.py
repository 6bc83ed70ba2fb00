"""`otel-loopguard doctor` says what is there, what is missing, and the line that adds it."""

from __future__ import annotations

import json
import os
import re
import socket
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.cli.conftest import CALL, spans

if TYPE_CHECKING:
    from tests.cli.conftest import Command

Found = list[dict[str, Any]]
SECRET = "hunter2-hunter2-hunter2"
CONTENTS = ("gen_ai.tool.call.arguments", "gen_ai.tool.call.result")


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


LACKING: list[tuple[dict[str, str], str, str]] = [
    ({"OTEL_SDK_DISABLED": "true"}, "spans", "OTEL_SDK_DISABLED"),
    ({"OTEL_TRACES_SAMPLER": "always_off"}, "spans", "OTEL_TRACES_SAMPLER=loopguard"),
    ({"OPENINFERENCE_HIDE_INPUTS": "True"}, "content", "OPENINFERENCE_HIDE_INPUTS"),
    ({"TRACELOOP_TRACE_CONTENT": "false"}, "content", "TRACELOOP_TRACE_CONTENT"),
    ({"LOOPGUARD_MOED": SECRET}, "variables", "is LOOPGUARD_MODE meant?"),
    ({"LOOPGUARD_REPEAT_THRESHOLD": "many"}, "settings", "repeat_threshold"),
    ({"LOOPGUARD_DIGEST_KEY": "short"}, "settings", "digest_key"),
    ({"LOOPGUARD_SETTINGS_FILE": "gone.toml"}, "settings", "gone.toml"),
    ({"LOOPGUARD_ENABLED": "false"}, "settings", "LOOPGUARD_ENABLED=true"),
    (
        {"LOOPGUARD_STORE_URL": f"redis://:{SECRET}@[::1]:1/0", "LOOPGUARD_DIGEST_KEY": SECRET},
        "store",
        "[::1]:1",
    ),
]


@pytest.mark.parametrize(
    ("variables", "about", "part"), LACKING, ids=[next(iter(each[0])) for each in LACKING]
)
def test_what_an_environment_lacks(
    ask: Callable[..., Found], variables: dict[str, str], about: str, part: str
) -> None:
    """One finding with what is wrong and what mends it; the exit code is 1."""
    (found,) = missing(ask(code=1, **variables))
    assert found["about"] == about
    assert part in found["found"] + found["add"]
    assert found["add"]


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


@pytest.mark.parametrize(
    ("name", "lacks"),
    [
        ("langgraph__openinference", []),
        ("langgraph__genai-default", ["arguments", "results"]),
        ("agent-framework__native-nosensitive", ["arguments", "results"]),
    ],
)
def test_what_a_recording_lacks(
    ask: Callable[..., Found], shared: Path, name: str, lacks: list[str]
) -> None:
    """How many spans are of agents, and what of their calls was not captured."""
    found = ask(shared / f"spans/{name}.otlp.jsonl", code=bool(lacks))
    assert {each["about"] for each in found} == {f"{name}.otlp.jsonl"}
    assert [each["found"].split()[0] for each in missing(found)] == lacks
    assert any("13 tool" in each["found"] for each in found)
    assert any("1 session, by" in each["found"] for each in found)


@pytest.mark.parametrize(
    ("attributes", "part"),
    [
        ({}, "none of 3 spans is of an agent (scopes: my.app 3)"),
        (CALL | dict.fromkeys(CONTENTS, SECRET), "each with one tool call"),
        ({"gen_ai.operation.name": "chat"}, "no tool call is seen"),
    ],
    ids=["no agent", "separate traces", "no tools"],
)
def test_a_recording_of_which_nothing_can_be_judged(
    ask: Callable[..., Found], tmp_path: Path, attributes: dict[str, str], part: str
) -> None:
    """It says why, in one finding."""
    path = tmp_path / "spans.jsonl"
    path.write_text(spans(1, 1, 1, **attributes))
    (found,) = missing(ask(path, code=1))
    assert part in found["found"]
    assert found["add"]
