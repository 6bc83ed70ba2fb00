"""The public surface."""

import importlib
import re
from pathlib import Path

import pytest

import otel_loopguard

ROOT = Path(__file__).parents[1]
PAGES = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md"))


def test_all_is_sorted_and_is_what_can_be_imported() -> None:
    """`__all__` has every public name, sorted, and nothing else."""
    public = {name for name in dir(otel_loopguard) if not name.startswith("_")} | {"__version__"}
    assert otel_loopguard.__all__ == sorted(public)
    assert [name for name in public if not hasattr(otel_loopguard, name)] == []


@pytest.mark.parametrize(
    "room",
    ["", ".control", ".core", ".escalation", ".execution", ".plans", ".resilience", ".sessions"],
)
def test_a_public_name_is_in_the_docs(room: str) -> None:
    """What no page names is internal: it is imported from the module that has it."""
    module = importlib.import_module(f"otel_loopguard{room}")
    pages = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    coded = set(re.findall(r"\w+", " ".join(re.findall(r"```.*?```|`[^`]+`", pages, re.DOTALL))))
    assert set(module.__all__) - coded - {"__version__"} == set()


ADAPTERS = re.findall(
    r"`from (otel_loopguard\.integrations\.\w+) import ([\w, ]+)`",
    (ROOT / "docs/frameworks.md").read_text(encoding="utf-8"),
)


@pytest.mark.parametrize(
    ("module", "name"), [(module, name) for module, own in ADAPTERS for name in own.split(", ")]
)
def test_an_adapter_that_is_looked_for_at_the_top_is_told_of(module: str, name: str) -> None:
    """By the error of the import, which says where it is."""
    with pytest.raises(ImportError, match=f"from .*{module}"):
        exec(f"from otel_loopguard import {name}")
