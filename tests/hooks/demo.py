"""A recorded session of a stuck coding agent, played through its installed hooks: `make demo-hook`.

The events are those that Claude Code 2.1.330 gave its hooks while its model, a scripted one, ran
the same failing test again and again. All of it happens in a home of its own.
"""

import json
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.hooks.running import MESSAGE_S, Home

RECORDED = Path(__file__).with_name("data") / "claude-code-stuck.jsonl"
_PAUSE_S = 0.5


def recorded() -> Iterator[dict[str, Any]]:
    """The events, as they stood on standard input."""
    with RECORDED.open(encoding="utf-8") as stream:
        for line in stream:
            yield json.loads(line)


def installed(home: Home) -> dict[str, str]:
    """The command lines that Claude Code calls, by event, once the hooks are installed."""
    done = home.run("hook", "install", "claude-code", "--user", "--mode", "enforce")
    if done.returncode:
        sys.exit(done.stderr.decode())
    settings = json.loads((home.folder / ".claude" / "settings.json").read_text())
    return {name: groups[0]["hooks"][0]["command"] for name, groups in settings["hooks"].items()}


def played(home: Home) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Each event that the agent would still have had, and the answer to it."""
    lines, refused, ended = installed(home), set[str](), False
    for event in recorded():
        name, call = event["hook_event_name"], event.get("tool_use_id", "")
        if name not in lines or call in refused or (ended and name.endswith("ToolUse")):
            continue
        done = subprocess.run(
            lines[name], shell=True, input=json.dumps(event).encode(), capture_output=True,
            check=True, env=home.environment, cwd=home.folder,
        )  # fmt: skip
        answer = json.loads(done.stdout)
        if answer.get("hookSpecificOutput", {}).get("permissionDecision") == "deny":
            refused.add(call)
            time.sleep(MESSAGE_S)
        ended = ended or answer.get("continue") is False
        yield event, answer
        if name == "SessionStart":
            home.up()  # the agent takes longer than that to begin


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        home = Home(Path(folder))
        try:
            for event, answer in played(home):
                _show(event, answer)
        finally:
            home.end()


def _show(event: dict[str, Any], answer: dict[str, Any]) -> None:
    name = event["hook_event_name"]
    more = answer.get("hookSpecificOutput", {})
    if name == "UserPromptSubmit":
        print(f"user   {event['prompt']}")
    elif name == "PreToolUse":
        print(f"agent  {event['tool_name']}: {event['tool_input']['command']}")
    elif name.startswith("PostToolUse"):
        print(f"tool   {event['error'].splitlines()[-1]}")
    for title, said in (
        ("hint", more.get("additionalContext")),
        ("deny", more.get("permissionDecisionReason")),
        ("stop", answer.get("stopReason") and "the turn is over: the user is asked"),
    ):
        if said:
            lead = f"guard  {title}: "
            print(textwrap.fill(said, 100, initial_indent=lead, subsequent_indent=" " * 7))
    if name.startswith("PostToolUse"):
        time.sleep(_PAUSE_S)


if __name__ == "__main__":
    main()
