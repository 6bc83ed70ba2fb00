"""Real agents beside the span processors of logfire and OpenInference, and told by messages."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.zero_code.interpreter import interpreter, run

SCRIPT = Path(__file__).with_name("processors_run.py")
NAMES = ["alice", "bob", "carol", "dave", "erin", "frank"]
NEEDS = {
    "logfire": ["logfire"],
    "openinference-first": ["openinference.instrumentation.pydantic_ai"],
    "openinference-last": ["openinference.instrumentation.pydantic_ai"],
    "langgraph": ["openinference.instrumentation.langchain"],
}


@pytest.mark.parametrize(
    ("framework", "how"),
    [
        *[("pydantic_ai", how) for how in ("logfire", "openinference-first", "openinference-last")],
        *[(one, how) for one in ("pydantic_ai", "langgraph") for how in ("whole", "models")],
    ],
)
def test_six_different_calls_count_once_each_and_are_no_loop(framework: str, how: str) -> None:
    """Scrubbed, rewritten, or told by messages alone, the calls are read as they were made.

    logfire scrubs "session" out of arguments and results before other processors see the ended
    span: six different calls would look like one.
    """
    python = interpreter(framework, *NEEDS.get(how, ()), *NEEDS.get(framework, ()))
    done = run(python, str(SCRIPT), framework, how)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout.splitlines()[-1])
    assert (seen["decisions"], seen["faults"]) == ([], {})
    assert len(seen["calls"]) == len(NAMES)
    for (dialect, name, args, outcome), one in zip(seen["calls"], NAMES, strict=True):
        assert (dialect == "messages") is (how == "models")
        assert name == "reset"
        assert f"reset session for {one}" in args
        assert outcome == f"the session cookie was reset: reset session for {one}"
