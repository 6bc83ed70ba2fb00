"""The server stops a stuck agent of any kind: what it really exports, and agents that ask it."""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from otel_loopguard.server import Tenants
from tests.dialects.agents import AGENTS, GO, JAVA, built_go, built_java, run
from tests.dialects.recording import PARIS, recording
from tests.server.serving import PROTOBUF, call, serving
from tests.server.serving import request as spans

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from otel_loopguard.server import Server

JSON = {"content-type": "application/json"}
TOKEN = "one-of-sixteen-signs-or-more"  # as agents have it, without a space
BEARER = {"authorization": f"Bearer {TOKEN}"}


def need(program: str, path: str = "") -> None:
    """Skips without a program; CI has to have it."""
    if shutil.which(program) or os.path.exists(path):  # noqa: PTH110
        return
    if os.environ.get("CI"):
        pytest.fail(f"expected {program}")
    pytest.skip(f"there is no {program}")


@pytest.mark.parametrize("name", sorted(AGENTS))
def test_a_stuck_agent_is_stopped(name: str) -> None:
    agent = AGENTS[name]
    with serving() as server:
        # The record of the prompt comes first, as it does from the agent.
        for path, kind in [("logs", "logs"), ("traces", "otlp")][not agent.logs :]:
            for line in (agent.folder / f"{name}-stuck.{kind}.jsonl").read_bytes().splitlines():
                url = f"{server.url}/v1/{path}"
                httpx.post(url, content=line, headers=JSON).raise_for_status()
        (row,) = httpx.get(f"{server.url}/v1/sessions").json()["sessions"]
        control = httpx.get(f"{server.url}/v1/sessions/{row['session']}/control").json()
    assert (control["action"], control["by"]) == ("abort", "policy")


@pytest.fixture(scope="module")
def java(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    need("mvn")
    return built_java(tmp_path_factory.mktemp("java"))


@pytest.fixture(scope="module")
def go(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    need("go", "/usr/local/go/bin/go")
    return built_go(tmp_path_factory.mktemp("go"))


@pytest.mark.rare
def test_an_agent_of_spring_ai_is_hinted_at_refused_and_stopped(
    java: list[str], tmp_path: Path
) -> None:
    with recording([PARIS] * 30) as model, guarding() as (server, known):
        asks = (f"{model.url}/openai/v1", server.url, "chat-1")
        said = run(*java, *asks, at=tmp_path, **known)
        row = session_of(server)
    told = [[one["content"] for one in asked["messages"] if one["role"] == "system"]
            for asked in model.asked]  # fmt: skip
    results = [one["content"] for one in model.asked[-1]["messages"] if one["role"] == "tool"]
    assert said.startswith("stopped: 'search' was called")
    assert any("was called" in text for texts in told for text in texts)
    assert any("The same again is refused" in text for text in results)
    assert (row["session"], row["action"]) == ("chat-1", "abort")


@pytest.mark.rare
def test_an_agent_of_adk_for_go_is_refused_and_stopped(go: list[str], tmp_path: Path) -> None:
    with guarding() as (server, known):
        said = run(*go, server.url, "chat-1", "30", at=tmp_path, **known)
        row = session_of(server)
    refused, stopped = said.splitlines()[0], said.splitlines()[-1]
    assert refused.startswith("refused: 'search' was called")
    assert stopped.startswith("stopped: 'search' was called")
    assert (row["session"], row["action"]) == ("chat-1", "abort")


@pytest.mark.rare
def test_a_loop_of_ones_own_in_go_is_refused_and_stopped(go: list[str], tmp_path: Path) -> None:
    with guarding() as (server, known):
        said = run(*go, "own", server.url, "chat-1", at=tmp_path, **known).splitlines()
    assert said[0] == "nothing was found for this query"
    assert "The same again is refused" in said[-2]
    assert said[-1].startswith("stopped: 'search' was called")


@pytest.mark.rare
@pytest.mark.parametrize("language", ["go", "java"])
def test_the_code_of_the_page_follows_the_flag(
    language: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    command: list[str] = request.getfixturevalue(language)
    ask = [*command, "ask"] if language == "go" else [*command[:-1], "Asks"]
    ask += ["hinted", "denied & refused", "aborted"]
    with guarding() as (server, known):
        for session, count in zip(ask[-3:], (3, 4, 3), strict=True):
            for number in range(count):
                made = spans(call(number + 10 * len(session), session)).SerializeToString()
                post(server, "/v1/traces", content=made, headers={**PROTOBUF, **BEARER})
        post(server, "/v1/sessions/aborted/abort", json={"reason": "enough"}, headers=BEARER)
        hint, repeated, mine, other, stopped = run(*ask, at=tmp_path, **known).splitlines()
        wrong = subprocess.run(
            ask, cwd=tmp_path, env={**os.environ, **known, "LOOPGUARD_TOKEN": "of another"},
            text=True, check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        ).stdout  # fmt: skip
    assert hint.startswith("hint: ")
    assert "search" in hint
    assert repeated == "hint: "
    assert mine.startswith("refused: 'search' was called")
    assert other == "refused: "
    assert stopped == "stopped: enough"
    assert wrong.count("401") == wrong.count("the run goes on unguarded") == 1
    assert "stopped: <nil>" in wrong


@contextmanager
def guarding() -> Generator[tuple[Server, dict[str, str]]]:
    """A server that takes one token, and the variables by which agents know both."""
    with serving(Tenants({TOKEN: "default"})) as server:
        yield server, {
            "LOOPGUARD_URL": server.url, "LOOPGUARD_TOKEN": TOKEN,
            "OTEL_EXPORTER_OTLP_HEADERS": f"authorization=Bearer {TOKEN}",
        }  # fmt: skip


def session_of(server: Server) -> dict[str, object]:
    """The only session of a server."""
    (row,) = httpx.get(f"{server.url}/v1/sessions", headers=BEARER).json()["sessions"]
    return row


def post(server: Server, path: str, **given: Any) -> None:
    """Posts what the server has to take."""
    httpx.post(server.url + path, **given).raise_for_status()


@pytest.mark.parametrize(
    "file",
    [
        JAVA / "src/main/java/ConversationFilter.java",
        JAVA / "src/main/java/LoopGuard.java",
        JAVA / "src/main/java/LoopGuardAdvisor.java",
        JAVA / "src/main/java/GuardedTool.java",
        GO / "conversation.go",
        GO / "guard.go",
        GO / "adk.go",
        GO / "loop.go",
    ],
    ids=lambda file: file.name,
)
def test_the_page_shows_what_runs_here(file: Path) -> None:
    page = AGENTS["adk-go"].folder.parents[2] / "docs" / "other-languages.md"
    assert file.read_text().rstrip() in page.read_text()
