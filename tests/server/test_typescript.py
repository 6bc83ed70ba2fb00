"""The TypeScript client, and real agents in Node that it stops."""

from __future__ import annotations

import json
import os
import shutil
from typing import TYPE_CHECKING

import pytest

from tests.dialects.agents import CLIENTS, TYPESCRIPT, built_typescript, run
from tests.server.serving import serving, sessions

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.skipif(
    shutil.which("npm") is None and "CI" not in os.environ, reason="there is no npm"
)


@pytest.fixture(scope="module")
def built() -> Path:
    """The client, built, and what the agents need."""
    built_typescript()
    return TYPESCRIPT


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
        (row,) = sessions(server)
        assert (row["session"], row["by"]) == ("chat-1", "policy")


ENTRIES = ("otel-loopguard", "otel-loopguard/ai-sdk", "otel-loopguard/mastra")
USER = """
import { LoopGuardControl, LoopGuardStop, type Control } from "otel-loopguard";
import { prepareStep, stopWhen } from "otel-loopguard/ai-sdk";
import * as mastra from "otel-loopguard/mastra";
const control = new LoopGuardControl({ session: "chat-1", onProblem: () => {} });
const found: Control = await control.check();
const warning: string | null | undefined = found.warning;
const error = new LoopGuardStop(found);
export { error, mastra, prepareStep, stopWhen, warning };
"""


@pytest.mark.parametrize("packed", [False, pytest.param(True, marks=pytest.mark.rare)])
def test_it_is_installed_from_the_repository(tmp_path: Path, built: Path, packed: bool) -> None:
    """As the page says, from a fresh clone into an empty project, with its types."""
    del built  # for the compiler
    clone, project = tmp_path / "otel-loopguard/clients/typescript", tmp_path / "project"
    ignored = shutil.ignore_patterns("dist", "node_modules")
    shutil.copytree(CLIENTS / "typescript", clone, ignore=ignored)
    project.mkdir()
    (project / "package.json").write_text('{"type": "module", "private": true}')
    source = str(clone)
    if packed:
        name = run("npm", "pack", "--silent", at=clone).split()[-1]
        source = str(clone / name)
    run("npm", "install", "--no-audit", "--no-fund", "--install-links", source, at=project)
    installed = project / "node_modules/otel-loopguard"
    assert not installed.is_symlink()
    assert {one.name for one in installed.iterdir()} == {"README.md", "dist", "package.json"}
    imports = "".join(f"await import('{entry}');" for entry in ENTRIES)
    run("node", "--input-type=module", "-e", imports, at=project)
    (project / "user.ts").write_text(USER)
    compiler = CLIENTS / "typescript/node_modules/typescript/bin/tsc"
    options = ("--noEmit", "--strict", "--module", "nodenext", "--target", "es2022")
    run("node", str(compiler), *options, "user.ts", at=project)
