"""What adapters do beyond the scenarios, in their real frameworks: `cases.toml`."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.frameworks.harness import FRAMEWORKS, Framework, finished, line_of, started
from tests.frameworks.looper import LIVE

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_TOML = Path(__file__).with_name("cases.toml").read_text(encoding="utf-8")
TABLE: dict[str, dict[str, Any]] = tomllib.loads(_TOML)
MORE = {"autogen": ("openinference", "both")}


def variants() -> Iterator[Any]:
    """Each framework with nothing but its adapter, with each instrumentation, and unguarded."""
    for name, framework in FRAMEWORKS.items():
        marks = pytest.mark.rare if framework.apart else ()
        for variant in ("bare", "instrumented", "unguarded", *MORE.get(name, ())):
            # A server in a process of its own hears of a trace by the spans of MCP only.
            if (name, variant) != ("mcp", "bare"):
                yield pytest.param(framework, variant, id=f"{name}-{variant}", marks=marks)


@pytest.mark.parametrize(("framework", "variant"), [*variants()])
def test_every_case_comes_to_what_is_told(framework: Framework, variant: str) -> None:
    """What each case is about stands in `looper.py`, and in the `agent.py` of its framework."""
    # A tool of everyday work is declared to be polled.
    running = started(framework, "cases", "--variant", variant, LOOPGUARD_POLL_TOOLS="look")
    said = line_of(finished(running))
    rows = {**TABLE["shared"], **TABLE[framework.name]}
    names = {name.split(", ")[0] for name in rows} - {"unguarded"}
    names -= {*LIVE} if framework.apart else set()
    if variant == "unguarded":
        names = {"unguarded"}
    assert said == {name: rows.get(f"{name}, {variant}", rows.get(name)) for name in names}
