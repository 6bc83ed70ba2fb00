"""The TypeScript client, and real agents in Node that it stops."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import httpx
import pytest

from tests.dialects.agents import run
from tests.server.serving import serving

ROOT = Path(__file__).resolve().parents[2]
CLIENT, AGENTS = ROOT / "clients" / "typescript", ROOT / "tests" / "typescript"

pytestmark = pytest.mark.skipif(
    shutil.which("npm") is None and "CI" not in os.environ, reason="there is no npm"
)


@pytest.fixture(scope="module")
def built() -> Path:
    """The client, built, and what the agents need."""
    shutil.rmtree(CLIENT / "dist", ignore_errors=True)
    run("npm", "ci", "--no-audit", "--no-fund", at=CLIENT)  # as the page says
    run("npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts", at=AGENTS)
    return AGENTS


def test_the_client_follows_the_flag(built: Path) -> None:
    with serving() as server:
        said = run("node", "--test", "client.test.mjs", at=built, LOOPGUARD_URL=server.url)
    assert "fail 0" in said


def test_a_loop_of_ones_own_is_hinted_at_refused_and_stopped(built: Path) -> None:
    with serving() as server:
        said = json.loads(run("node", "own-loop.mjs", server.url, "chat-1", at=built))
    assert said["hints"] >= 1
    assert said["refused"] >= 1
    assert said["stopped"].startswith("'search' was called")
    assert said["stopped"].endswith("(session chat-1 aborted)")
    shown = (AGENTS / "own-loop.mjs").read_text().split("// begin\n")[1].split("// end")[0]
    assert shown.strip() in (ROOT / "docs" / "other-languages.md").read_text()


@pytest.mark.parametrize("agent", ["ai-sdk-agent.mjs", "mastra-agent.mjs"])
def test_an_agent_in_node_is_hinted_at_and_stopped(built: Path, agent: str) -> None:
    with serving() as server:
        said = json.loads(run("node", agent, server.url, "chat-1", at=built))
        assert said["action"] == "abort"
        assert said["hints"] >= 1
        assert said["steps"] < 30
        (row,) = httpx.get(f"{server.url}/v1/sessions").json()["sessions"]
        assert (row["session"], row["by"]) == ("chat-1", "policy")
