"""Each example is a real agent that the guard stops."""

import re
from functools import cache
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests.docs.markdown import Block, blocks
from tests.frameworks.harness import FRAMEWORKS
from tests.zero_code.interpreter import ROOT, interpreter, run

PAGE = ROOT / "examples" / "README.md"
OUTPUTS = [block for block in blocks(PAGE) if block.note.startswith("of: ")]

ELSEWHERE = {
    "background_tool.py": "tests/execution/test_admission.py",
    "hung_tool.py": "tests/test_examples.py",
    "test_my_agent.py": "tests/testing/test_plugin.py",
    "two_processes.py": "tests/sessions/test_two_processes.py",
}
"""What runs the examples that no framework has; of those, `tests/frameworks/test_adapters.py`."""


@cache
def finished(name: str) -> CompletedProcess[str]:
    """An example, run once for all tests here."""
    return run(interpreter(), str(ROOT / "examples" / name))


def test_every_example_is_run() -> None:
    """A new example has to be added here."""
    found = {path.name for path in Path(ROOT, "examples").glob("*.py")}
    agents = {"langgraph_agent.py", *(f"{name}_agent.py" for name in FRAMEWORKS)}
    assert found == (agents | {*ELSEWHERE}) - {"langchain_agent.py"}
    for name, test in ELSEWHERE.items():
        assert name in Path(ROOT, test).read_text(encoding="utf-8")


@pytest.mark.parametrize("block", OUTPUTS[:2], ids=lambda block: block.note)
def test_an_example_prints_what_the_page_shows(block: Block) -> None:
    """Line by line, but for ids and durations."""
    done = finished(Path(block.note.removeprefix("of: ")).name)
    assert sorted(printed(done.stdout)) == sorted(printed(block.text))


def printed(text: str) -> list[str]:
    """The lines of a text, with each number of seconds and each made-up session written alike.

    A decision is printed on the thread that judged it: while another thread prints, it may come
    before or after that thread's line, or on it.
    """
    alike = re.sub(r"\d+(?:\.\d+)? s\b", "N s", re.sub(r"run-[0-9a-f]+", "run-ID", text))
    starts = r"\n|(?=(?:hint|deny|abort) after \d+ searches: |stopped: )"
    return [line for line in re.split(starts, alike) if line]


def test_a_hung_tool_is_noticed_and_then_cancelled() -> None:
    """First the guard's hint, then the limit, then the agent goes on; the tool never answered."""
    done = finished("hung_tool.py")
    assert done.returncode == 0, done.stderr
    hint, cancelled, after = done.stdout.splitlines()
    assert hint.startswith("hint: 'crawl' has been running for")
    assert cancelled == "cancelled: 'crawl' passed its limit of 1.5 s and was cancelled"
    assert after == "the agent goes on with another source"
