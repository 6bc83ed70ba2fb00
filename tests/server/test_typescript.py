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
    for folder in (CLIENT, AGENTS):
        run("npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts", at=folder)
    run("npm", "run", "build", at=CLIENT)
    return AGENTS


def test_the_client_follows_the_flag(built: Path) -> None:
    with serving() as server:
        said = run("node", "--test", "client.test.mjs", at=built, LOOPGUARD_URL=server.url)
    assert "fail 0" in said


@pytest.mark.parametrize("agent", ["ai-sdk-agent.mjs", "mastra-agent.mjs"])
def test_an_agent_in_node_is_hinted_at_and_stopped(built: Path, agent: str) -> None:
    with serving() as server:
        said = json.loads(run("node", agent, server.url, "chat-1", at=built))
        assert said["action"] == "abort"
        assert said["hints"] >= 1
        assert said["steps"] < 30
        (row,) = httpx.get(f"{server.url}/v1/sessions").json()["sessions"]
        assert (row["session"], row["by"]) == ("chat-1", "policy")
