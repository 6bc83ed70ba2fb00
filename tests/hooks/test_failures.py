"""Whether a command failed, from its text alone, as Codex reports it."""

from __future__ import annotations

import pytest

from otel_loopguard.hooks.agents import AGENTS

FAILED = [
    ("cat missing.txt", "cat: missing.txt: No such file or directory\n"),
    ("cargo test", "bash: line 1: cargo: command not found\n"),
    ("cd src && /usr/bin/make test", "make: *** No rule to make target 'test'.  Stop.\n"),
    ("ls a b", "ls: cannot access 'a': No such file or directory\nls: cannot access 'b': Not a"),
    ("python run.py", "Traceback (most recent call last):\n  File x\nValueError: no\n"),
    ("FOO=1\ngrep x nothing", "grep: nothing: No such file or directory"),
]
HEALTHY = [
    ("grep -rn 'not found' docs", "docs/faq.md:3: bash: cargo: command not found\n"),
    ("grep -h cat: log.txt", "cat: missing.txt: No such file or directory\n"),
    ("make", "make: Nothing to be done for 'all'.\n"),
    ("true", "bash: warning: setlocale: LC_ALL: cannot change locale\n"),
    ("cat log.txt", "Traceback (most recent call last):\n  File x\n    cut here"),
    ("cat log.txt", "cat: a: No such file or directory\nand then a whole file\n"),
    ("pytest", "1 failed, 3 passed"),
    ("echo", ""),
]


def read(written: str, line: str) -> tuple[object, str | None]:
    """The outcome and the error of a command that wrote this."""
    said = {
        "hook_event_name": "PostToolUse", "session_id": "chat", "tool_name": "Bash",
        "tool_input": {"command": line}, "tool_response": written,
    }  # fmt: skip
    event = AGENTS["codex"].read(said)
    assert event is not None
    return event.outcome, event.error


@pytest.mark.parametrize(("line", "written"), FAILED)
def test_a_text_that_is_a_complaint_is_a_failure(line: str, written: str) -> None:
    assert read(written, line) == (written, written)


@pytest.mark.parametrize(("line", "written"), HEALTHY)
def test_a_text_that_names_one_is_none(line: str, written: str) -> None:
    """A search for errors that finds them went well."""
    assert read(written, line) == (written, None)


@pytest.mark.parametrize(
    "written", ["a: " * 500_000, "x" * 10**6, "\n" * 10**6, "sh: " + " " * 10**6]
)
def test_a_long_text_is_read(written: str) -> None:
    line = "| " * 500_000
    assert read(written, line)[0] == written
