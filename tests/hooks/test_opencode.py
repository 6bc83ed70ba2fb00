"""The plugin for opencode, in Node, with a program that is asked as the real one is."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from otel_loopguard.hooks.agents import AGENTS
from otel_loopguard.hooks.install import install

DRIVER = Path(__file__).with_name("node") / "opencode.mjs"
GUARD = """\
#!{python}
# Judges by the command alone, and writes down what it is asked.
import json, sys
from otel_loopguard.hooks.agents import AGENTS
from otel_loopguard.hooks.agents import EventKind, HookAnswer, Reply
payload = json.load(sys.stdin)
with open({log!r}, "a") as log:
    log.write(json.dumps([sys.argv[1:], payload]) + "\\n")
event = AGENTS["opencode"].read(payload)
word = (event.args or {{}}).get("command", "").split(" ")[0]
if word == "crash":
    sys.exit(1)
if word == "garble":
    sys.exit(print("no JSON"))
calls = {{"loop": Reply.DENY, "end": Reply.STOP, "early": Reply.HINT}}
reply = calls.get(word) if event.kind is EventKind.CALL else None
if event.kind is EventKind.RESULT and word == "late":
    reply = Reply.HINT
said = HookAnswer(reply or Reply.NOTHING, word, word)
print(json.dumps(AGENTS["opencode"].answer(payload, said)))
"""

pytestmark = pytest.mark.skipif(
    shutil.which("node") is None and "CI" not in os.environ, reason="there is no Node"
)


class OpenCode:
    """opencode with the plugin as it is installed, and a guard that it asks."""

    def __init__(self, folder: Path) -> None:
        self.log = folder / "asked.jsonl"
        program = folder / "otel-loopguard"
        program.write_text(GUARD.format(python=sys.executable, log=str(self.log)), encoding="utf-8")
        program.chmod(0o755)
        self.program = program
        plugin = install("opencode", "project", "enforce", folder, program=str(program)).file
        self.plugin = plugin.rename(folder / "plugin.mjs")

    def play(self, *script: list[Any]) -> dict[str, Any]:
        done = subprocess.run(
            ["node", str(DRIVER), str(self.plugin)], input=json.dumps(script), text=True,
            capture_output=True, check=False, timeout=120,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def asked(self) -> list[dict[str, Any]]:
        lines = self.log.read_text(encoding="utf-8").splitlines()
        told = [json.loads(line) for line in lines]
        words = ["hook", "run", "opencode", "--mode", "enforce"]
        assert all(arguments == words for arguments, _ in told)
        return [payload for _, payload in told]


@pytest.fixture
def opencode(tmp_path: Path) -> OpenCode:
    return OpenCode(tmp_path)


def before(command: str, call: str = "call_1", session: str = "ses_1") -> list[Any]:
    called = {"tool": "bash", "sessionID": session, "callID": call}
    return ["tool.execute.before", called, {"args": {"command": command}}]


def after(command: str, call: str = "call_1", code: int = 0) -> list[Any]:
    args = {"command": command}
    called = {"tool": "bash", "sessionID": "ses_1", "callID": call, "args": args}
    metadata = {"exit": code, "description": "x" * 100}
    return ["tool.execute.after", called, {"title": "", "output": "done", "metadata": metadata}]


def failed(call: str) -> list[Any]:
    """A call that failed, as opencode reports it: again at each change of the part."""
    state = {"status": "error", "input": {"command": "read"}, "error": "not found"}
    part = {"type": "tool", "sessionID": "ses_1", "callID": call, "tool": "bash", "state": state}
    return ["event", {"event": {"type": "message.part.updated", "properties": {"part": part}}}]


def test_a_call_is_refused_with_the_reason(opencode: OpenCode) -> None:
    """Its error is not one of the tool."""
    said = opencode.play(before("loop"), failed("call_1"), before("go", "call_2"))
    assert [each["refused"] for each in said["told"]] == ["loop\nloop", None, None]
    assert said["aborted"] == []
    assert [each["event"] for each in opencode.asked()] == ["tool.execute.before"] * 2


def test_a_hint_stands_behind_an_output(opencode: OpenCode) -> None:
    """Behind the next one where it came before a call; and once."""
    said = opencode.play(
        before("early"), after("early"), after("go"), before("late"), after("late"), after("go")
    )
    outputs = [each["output"] for each in said["told"] if each["output"] is not None]
    assert outputs == ["done\n\nearly\nearly", "done", "done\n\nlate\nlate", "done"]


def test_a_turn_is_ended(opencode: OpenCode) -> None:
    """Also where opencode does not know the session any more."""
    said = opencode.play(before("end"), before("end", session="gone"))
    assert said["aborted"] == ["ses_1", "gone"]
    assert all("end" in each["refused"] for each in said["told"])


def test_a_guard_that_does_not_answer_lets_all_through(opencode: OpenCode) -> None:
    said = opencode.play(before("crash"), before("garble"))
    assert [each["refused"] for each in said["told"]] == [None, None]
    opencode.program.unlink()
    said = opencode.play(before("loop"), after("loop"))
    assert [each["refused"] for each in said["told"]] == [None, None]


def test_what_it_sends_is_read(opencode: OpenCode) -> None:
    """Each event once, with its outcome; a failed one too."""
    opencode.play(
        ["chat.message", {"sessionID": "ses_1"}, {"parts": [{"type": "text", "text": "Fix it"}]}],
        before("make"),
        after("make", code=2),
        failed("call_2"),
        failed("call_2"),
        ["event", {"event": {"type": "session.idle", "properties": {"sessionID": "ses_1"}}}],
        ["event", {"event": {"type": "session.deleted", "properties": {"info": {"id": "ses_1"}}}}],
        ["event", {"event": {"type": "server.connected", "properties": {}}}],
    )
    read = [AGENTS["opencode"].read(payload) for payload in opencode.asked()]
    events = [each for each in read if each]
    assert len(events) == len(read)
    assert [event.kind.value for event in events] == [
        "prompt", "call", "result", "result", "stop", "session_end",
    ]  # fmt: skip
    assert {event.session for event in events} == {"ses_1"}
    assert [event.error for event in events] == [None, None, "done", "not found", None, None]
    assert events[0].text == "Fix it"
    assert events[1].call_id == events[2].call_id == "call_1"
    assert events[1].args == events[2].args == {"command": "make"}
