"""Beside the span processors of logfire and OpenInference, in a real agent."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.zero_code.interpreter import interpreter, run

NAMES = ["alice", "bob", "carol", "dave", "erin", "frank"]


@pytest.mark.parametrize("how", ["logfire", "openinference-first", "openinference-last"])
def test_six_different_calls_are_no_loop(how: str) -> None:
    """Scrubbed or rewritten, the calls are read as they were made, each once, and left alone.

    logfire scrubs "session" out of arguments and results before other processors see the ended
    span: six different calls would look like one.
    """
    module = "logfire" if how == "logfire" else "openinference.instrumentation.pydantic_ai"
    python = interpreter("pydantic_ai", module)
    script = Path(__file__).with_name("pydantic_ai_run.py")
    done = run(python, str(script), how)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout.splitlines()[-1])
    assert seen["args"] == [{"what": f"reset session for {name}"} for name in NAMES]
    assert seen["outcomes"] == ["the session cookie was reset"] * 6
    assert seen["decisions"] == []
    assert seen["faults"] == {}


@pytest.mark.parametrize("what", ["whole", "models"])
@pytest.mark.parametrize("framework", ["pydantic_ai", "langgraph"])
def test_each_call_counts_once_by_its_span_or_by_its_messages(framework: str, what: str) -> None:
    """Tool spans and messages together are six calls; the messages alone are the same six."""
    modules = [framework] if framework == "pydantic_ai" else [
        framework, "openinference.instrumentation.langchain"
    ]  # fmt: skip
    script = Path(__file__).with_name("messages_run.py")
    done = run(interpreter(*modules), str(script), framework, what)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout.splitlines()[-1])
    assert seen["faults"] == {}
    words = ["one", "two", "three", "four", "five", "six"]
    assert len(seen["calls"]) == len(words)
    for (dialect, name, args, outcome), word in zip(seen["calls"], words, strict=True):
        assert (dialect == "messages") is (what == "models")
        assert name == "search"
        assert word in args
        assert outcome == f"nothing about {word}"
