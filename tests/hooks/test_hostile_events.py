"""What an agent passes on was written by models, tools and JavaScript: it may be any JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from otel_loopguard.hooks.process import RequestHandler
from otel_loopguard.hooks.state_folder import StateFolder
from otel_loopguard.version import __version__

NESTED = b"[" * 800 + b"]" * 800
INPUTS = {
    "half of a character": rb'{"command": "echo \ud83d"}',
    "a number of 5,000 digits": b'{"n": ' + b"9" * 5_000 + b"}",
    "a number without end": b'{"n": 1e400}',
    "no number": b'{"n": NaN}',
    "deep": b'{"n": ' + NESTED + b"}",
    "JSON in text": json.dumps(r'{"command": "\ud83d"}').encode(),
    "a large number in text": json.dumps('{"n": ' + "9" * 40 + "}").encode(),
    "deep JSON in text": json.dumps('{"n": ' + NESTED.decode() + "}").encode(),
}


@pytest.fixture
def handler(tmp_path: Path) -> Iterator[RequestHandler]:
    folder = StateFolder(str(tmp_path / "state"))
    folder.make()
    made = RequestHandler(folder)
    yield made
    made.close()


def ask(handler: RequestHandler, agent: str, event: bytes) -> bytes:
    return handler.handle(f"hook-1 {__version__} {agent} enforce\n".encode() + event)[0]


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("agent", ["claude-code", "codex", "vscode"])
@pytest.mark.parametrize("given", INPUTS.values(), ids=INPUTS)
def test_a_loop_is_seen_whatever_it_passes(
    handler: RequestHandler, agent: str, given: bytes, named: bool
) -> None:
    answers: list[bytes] = []
    for number in range(8):
        call = b'{"session_id": "s", "tool_name": "Bash", "tool_input": ' + given
        if named:
            call += b', "tool_use_id": "t%d"' % number
        answers.append(ask(handler, agent, call + b', "hook_event_name": "PreToolUse"}'))
        after = b', "hook_event_name": "PostToolUse", "tool_response": "1 failed \\udc00"}'
        ask(handler, agent, call + after)
    assert any(b"deny" in answer for answer in answers)
