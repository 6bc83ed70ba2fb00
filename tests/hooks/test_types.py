"""Events and answers have the types that the vendors publish, checked by the compiler."""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.hooks.exchanges import Exchange, every_exchange

NODE = Path(__file__).with_name("node")
PLUGIN = Path(__file__).parents[2] / "otel_loopguard" / "hooks" / "data" / "opencode.js"
OPTIONS = (
    "--noEmit --strict --noImplicitAny false --skipLibCheck --allowJs --checkJs "
    "--module nodenext --target es2022"
).split()

pytestmark = pytest.mark.skipif(
    shutil.which("npm") is None and "CI" not in os.environ, reason="there is no npm"
)


@pytest.fixture(scope="module")
def packages() -> Path:
    """The vendors' packages, without their programs."""
    # `npm ci` misses packages for other systems that Copilot's own list of dependencies has.
    command = "npm install --no-save --omit=optional --no-audit --no-fund --ignore-scripts"
    done = subprocess.run(command.split(), cwd=NODE, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return NODE / "node_modules"


def faults(packages: Path, folder: Path, source: str) -> str:
    """What the compiler says of a source."""
    (folder / "node_modules").symlink_to(packages)
    (folder / "package.json").write_text('{"type": "module"}', encoding="utf-8")
    file = folder / "source.ts"
    file.write_text(source, encoding="utf-8")
    compiler = packages / "typescript" / "bin" / "tsc"
    command = ["node", str(compiler), *OPTIONS, str(file)]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def typed(kind: str, values: list[Any]) -> str:
    """A list of values that have to be of a type: each one is looked at for too many fields."""
    return f"[{', '.join(json.dumps(each) for each in values)}] satisfies {kind}[];\n"


def exchanges(agent: str) -> list[Exchange]:
    return [each for each in every_exchange() if each.agent == agent]


def test_claude_code(packages: Path, tmp_path: Path) -> None:
    """Events are those that it sends, answers those that it takes."""
    told = exchanges("claude-code")
    known = [each.payload for each in told if each.event]
    source = 'import type { HookInput, SyncHookJSONOutput } from "@anthropic-ai/claude-agent-sdk"\n'
    source += typed("HookInput", known)
    source += typed("SyncHookJSONOutput", [one for each in told for one in each.answers.values()])
    assert faults(packages, tmp_path, source) == ""


def test_copilot(packages: Path, tmp_path: Path) -> None:
    """VS Code nests what the SDK of the same agent has at the top."""
    told = [one for each in exchanges("vscode") for one in each.answers.values()]
    nested = [dict(one["hookSpecificOutput"]) for one in told if "hookSpecificOutput" in one]
    names = ("PreToolUse", "PostToolUse", "PostToolUseFailure", "SessionStart")
    named: dict[str, list[Any]] = {name: [] for name in names}
    for answer in nested:
        named[answer.pop("hookEventName")].append(answer)
    # Copilot CLI takes the form of its SDK after a call, and the nested one before it.
    flat = [one for one in told if "additionalContext" in one]
    after = named["PostToolUse"] + named["PostToolUseFailure"]
    assert [{"additionalContext": one["additionalContext"]} for one in flat] == after
    source = f'import type {{ {", ".join(f"{name}HookOutput" for name in named)} }} from "'
    source += '@github/copilot-sdk"\n'
    for name, answers in named.items():
        assert answers
        source += typed(f"{name}HookOutput", answers)
    # The package exports few of its types.
    source = source.replace("@github", "./node_modules/@github").replace("sdk", "sdk/dist/types.js")
    assert faults(packages, tmp_path, source) == ""


def test_opencode(packages: Path, tmp_path: Path) -> None:
    """The plugin is one, down to the fields of the events that it reads."""
    marked = 'export const LoopGuard = /** @type {import("@opencode-ai/plugin").Plugin} */ (async'
    text = PLUGIN.read_text(encoding="utf-8")
    assert text.count("export const LoopGuard = async") == 1
    text = text.replace("export const LoopGuard = async", marked).rstrip() + ")\n"
    (tmp_path / "opencode.js").write_text(text, encoding="utf-8")
    source = 'import { LoopGuard } from "./opencode.js"\nexport default LoopGuard\n'
    source += 'import "./node.d.ts"\n'
    spawn = 'declare module "node:child_process" { export const spawn: any }\n'
    (tmp_path / "node.d.ts").write_text(spawn, encoding="utf-8")
    assert faults(packages, tmp_path, source) == ""


def test_the_compiler_sees_what_is_wrong(packages: Path, tmp_path: Path) -> None:
    source = 'import type { SyncHookJSONOutput } from "@anthropic-ai/claude-agent-sdk"\n'
    source += typed("SyncHookJSONOutput", [{"decision": "refuse"}, {"permission": "deny"}])
    said = faults(packages, tmp_path, source)
    assert "refuse" in said
    assert "permission" in said
