"""The server stops a stuck agent of any kind: what it really exports, and agents that ask it."""

import os
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from otel_loopguard import Settings
from otel_loopguard.server import Server, Tenants
from tests.clients.programs import program
from tests.dialects.agents import (
    AGENTS,
    GO,
    TYPESCRIPT,
    built_go,
    built_java,
    built_typescript,
    run,
)
from tests.dialects.recording import PARIS, recording
from tests.server.serving import bearer, control, post, serving, sessions

ROOT = Path(__file__).resolve().parents[2]
JSON = {"content-type": "application/json"}
TOKEN = "one-of-sixteen-signs-or-more"  # as agents have it, without a space


@pytest.mark.parametrize("name", sorted(AGENTS))
def test_a_stuck_agent_is_stopped(name: str) -> None:
    agent = AGENTS[name]
    with serving() as server:
        # The record of the prompt comes first, as it does from the agent.
        for path, kind in [("logs", "logs"), ("traces", "otlp")][not agent.logs :]:
            for line in (agent.folder / f"{name}-stuck.{kind}.jsonl").read_bytes().splitlines():
                post(server, body=line, path=path, **JSON).raise_for_status()
        (row,) = sessions(server)
        found = control(server, row["session"])
    assert (found["action"], found["by"]) == ("abort", "policy")


@pytest.fixture(scope="module")
def java(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    program("mvn")
    return built_java(tmp_path_factory.mktemp("java"))


@pytest.fixture(scope="module")
def go(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    program("go")
    return built_go(tmp_path_factory.mktemp("go"))


@pytest.fixture(scope="module")
def typescript() -> list[str]:
    program("npm")
    built_typescript()
    return ["node", str(TYPESCRIPT / "own-loop.mjs")]


@pytest.mark.rare
def test_an_agent_of_spring_ai_is_hinted_at_refused_and_stopped(
    java: list[str], tmp_path: Path
) -> None:
    with recording([PARIS] * 30) as model, guarding() as (server, known):
        asks = (f"{model.url}/openai/v1", server.url, "chat-1")
        said = run(*java, *asks, at=tmp_path, **known)
        assert is_aborted(server)
    told = [[one["content"] for one in asked["messages"] if one["role"] == "system"]
            for asked in model.asked]  # fmt: skip
    results = [one["content"] for one in model.asked[-1]["messages"] if one["role"] == "tool"]
    assert said.startswith("stopped: 'search' was called")
    assert any("was called" in text for texts in told for text in texts)
    assert any("The same calls are refused" in text for text in results)


@pytest.mark.rare
def test_an_agent_of_adk_for_go_is_refused_and_stopped(go: list[str], tmp_path: Path) -> None:
    with guarding() as (server, known):
        said = run(*go, server.url, "chat-1", "30", at=tmp_path, **known).splitlines()
        assert is_aborted(server)
    assert said[0].startswith("refused: 'search' was called")
    assert said[-1].startswith("stopped: 'search' was called")


DELAYS = [
    # TypeScript needs no compiler, and 200 ms are soon over: all else is rare.
    pytest.param(
        language, delay,
        marks=() if (language, delay) == ("typescript", "200") else pytest.mark.rare,
    )
    for language in ("typescript", "go", "java")
    for delay in ("200", "5000")
]  # fmt: skip


@pytest.mark.parametrize(("language", "delay_ms"), DELAYS)
def test_a_loop_of_ones_own_hears_hint_deny_and_abort_in_this_order(
    language: str, delay_ms: str, request: pytest.FixtureRequest
) -> None:
    """Whatever the exporter of its SDK waits for; the model makes the same call each time."""
    own: list[str] = request.getfixturevalue(language)
    own = [*own, "own"] if language == "go" else [*own[:-1], {"java": "Own"}.get(language, own[-1])]
    with serving(guard=Settings()) as server:
        told = {
            "LOOPGUARD_URL": server.url, "OTEL_EXPORTER_OTLP_ENDPOINT": server.url,
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf", "OTEL_BSP_SCHEDULE_DELAY": delay_ms,
            "OTEL_METRICS_EXPORTER": "none", "OTEL_LOGS_EXPORTER": "none",
        }  # fmt: skip
        done = subprocess.run(
            [*own, "chat-1"], env={**os.environ, **told}, text=True, check=False,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
    assert done.returncode == 0, done.stdout
    heard = [line.partition(": ") for line in done.stdout.splitlines()]
    kinds = [kind for kind, _, _ in heard if kind in ("hint", "refused", "stopped")]
    assert list(dict.fromkeys(kinds)) == ["hint", "refused", "stopped"], done.stdout
    said = {kind: text for kind, _, text in reversed(heard)}
    assert "search" in said["hint"]
    assert "'search' was called" in said["refused"]
    assert said["stopped"].startswith("'search' was called")
    assert said["stopped"].endswith("(session chat-1 aborted)")
    if delay_ms == "5000":
        assert done.stdout.count("too late to warn") == 1, done.stdout


@contextmanager
def guarding() -> Generator[tuple[Server, dict[str, str]]]:
    """A server that takes one token, and the variables by which agents know both."""
    # A scripted model answers at once: its agent would be done before the first step is judged.
    with serving(Tenants({TOKEN: "default"}), lateness_s=0.02) as server:
        yield server, {
            "LOOPGUARD_URL": server.url, "LOOPGUARD_TOKEN": TOKEN,
            "OTEL_EXPORTER_OTLP_HEADERS": f"authorization=Bearer {TOKEN}",
        }  # fmt: skip


def is_aborted(server: Server) -> bool:
    """True if the only session of a server is the agent's, and aborted."""
    (row,) = sessions(server, **bearer(TOKEN))
    return (row["session"], row["action"]) == ("chat-1", "abort")


def test_the_page_shows_what_runs_here() -> None:
    page = (ROOT / "docs" / "other-languages.md").read_text()
    assert (GO / "loop.go").read_text().strip() in page
    text = (TYPESCRIPT / "own-loop.mjs").read_text()
    assert text.partition("// begin\n")[2].partition("// end")[0].strip() in page
