"""The pytest plugin, in a pytest of its own: the cases of `plugin.txt`, whose head says how."""

import os
import re
import shlex
import sys
from pathlib import Path

import pytest

from tests.zero_code.interpreter import ROOT, run

pytestmark = pytest.mark.filterwarnings("default")

_, *_TOLD = re.split(
    r"^## (.+)\n", Path(__file__).with_name("plugin.txt").read_text("utf-8"), flags=re.MULTILINE
)
CASES = dict(zip(_TOLD[::2], _TOLD[1::2], strict=True))
COMMON = CASES.pop("in every case")
SLOW = ("logfire", "pytest_logfire", "langsmith_plugin", "hypothesispytest")
"""Plugins of others that import half a framework at every start."""


def files_of(case: str) -> tuple[str, dict[str, str]]:
    """What stands in front, and the files by their names."""
    head, *parts = re.split(r"^=== (\S+)\n", case, flags=re.MULTILINE)
    return head, dict(zip(parts[::2], parts[1::2], strict=True))


@pytest.mark.parametrize("name", CASES)
def test_it_comes_to_what_is_told(
    name: str, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Outcomes of the tests, and lines of what is printed."""
    for variable in [one for one in os.environ if one.startswith(("OTEL_", "PYTEST_"))]:
        monkeypatch.delenv(variable)
    head, files = files_of(CASES[name])
    printed = files.pop("printed", "").splitlines()
    for file, text in {**files_of(COMMON)[1], **files}.items():
        begin = "import pytest\nfrom agent import run, search\n" if file == "test_agent.py" else ""
        (pytester.path / file).write_text(begin + text, encoding="utf-8")
    given, _, outcomes = head.rpartition("$ ")[2].partition("=> ")
    options = shlex.split(given)
    while options and re.match(r"[A-Z_]+=", options[0]):
        monkeypatch.setenv(*options.pop(0).split("=", 1))
    rest = [f"-pno:{plugin}" for plugin in (*SLOW, "cacheprovider", "logging")]
    done = pytester.runpytest_subprocess(*rest, *options)
    counted = (one.split("=") for one in outcomes.split())
    done.assert_outcomes(**{name: int(count) for name, count in counted})
    done.stdout.fnmatch_lines([line for line in printed if line and not line.startswith("- ")])
    for line in printed:
        if line.startswith("- "):
            done.stdout.no_fnmatch_line(line[2:])


def test_the_example_passes() -> None:
    """`pytest examples/test_my_agent.py`, with the plugin that is installed."""
    file = str(ROOT / "examples" / "test_my_agent.py")
    done = run(
        sys.executable, "-m", "pytest", "-q", "-c", os.devnull, "-p", "no:cacheprovider", file
    )
    assert done.returncode == 0, done.stdout
    assert "3 passed" in done.stdout
