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

EXAMPLES = {
    "langgraph_agent.py": ("langchain", "langgraph"),
    "openai_agents_agent.py": ("agents",),
    "pydantic_ai_agent.py": ("pydantic_ai",),
}

ELSEWHERE = {
    "background_tool.py": "tests/execution/test_admission.py",
    "hung_tool.py": "tests/test_examples.py",
    "test_my_agent.py": "tests/testing/test_plugin.py",
    "two_processes.py": "tests/sessions/test_two_processes.py",
}
"""Examples that show something else, and what runs them."""
APART = {f"{name}_agent.py" for name, framework in FRAMEWORKS.items() if framework.apart}
"""Examples that `tests/frameworks/test_adapters.py` runs in environments of their own."""


@cache
def finished(name: str) -> CompletedProcess[str]:
    """An example, run once for all tests here."""
    return run(interpreter(*EXAMPLES.get(name, ())), str(ROOT / "examples" / name))


def test_every_example_is_run() -> None:
    """A new example has to be added here."""
    found = {path.name for path in Path(ROOT, "examples").glob("*.py")}
    assert found == set(EXAMPLES) | APART | set(ELSEWHERE)
    for name, test in ELSEWHERE.items():
        assert name in Path(ROOT, test).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_is_stopped_by_the_guard(name: str) -> None:
    """A hint comes first, then the stop, and the tool ran fewer than fifteen times."""
    done = finished(name)
    assert done.returncode == 0, done.stderr
    said = printed(done.stdout)
    decisions = [
        found for line in said if (found := re.match(r"(\w+) after (\d+) searches: \S", line))
    ]
    assert decisions[0][1] == "hint"
    assert "abort" in [found[1] for found in decisions]
    (searches,) = re.findall(r"^stopped: .+ \((\d+) searches\)$", "\n".join(said), re.MULTILINE)
    assert int(decisions[0][2]) < int(searches) < 15


@pytest.mark.parametrize("block", OUTPUTS, ids=lambda block: block.note)
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
