"""What adapters do beyond the scenarios, in their real frameworks: `cases.toml`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.frameworks.harness import FRAMEWORKS, Framework, finished, line_of, started
from tests.frameworks.looper import LIVE
from tests.tables import toml
from tests.zero_code.interpreter import interpreter

TABLE: dict[str, dict[str, Any]] = toml(Path(__file__).with_name("cases.toml"))
MORE = {"autogen": ("openinference", "both"), "pydantic_ai": ("unwatched",)}


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


NAMES = ["alice", "bob", "carol", "dave", "erin", "frank"]
NEEDS = {"logfire": "logfire"}


@pytest.mark.parametrize(
    ("framework", "how"),
    [
        *(("pydantic_ai", how) for how in ("logfire", "first", "last")),
        *((one, how) for one in ("pydantic_ai", "langchain") for how in ("instrumented", "models")),
    ],
)
def test_six_different_calls_count_once_each_and_are_no_loop(framework: str, how: str) -> None:
    """Scrubbed, rewritten, or told by messages alone, the calls are read as they were made.

    logfire scrubs "session" out of arguments and results before other processors see the ended
    span: six different calls would look like one.
    """
    interpreter(NEEDS.get(how, "openinference.instrumentation.pydantic_ai"))
    seen = line_of(finished(started(FRAMEWORKS[framework], "six", "--variant", how)))
    assert (seen["decisions"], seen["faults"]) == ([], {})
    assert len(seen["calls"]) == len(NAMES)
    for (dialect, args, outcome), one in zip(seen["calls"], NAMES, strict=True):
        assert (dialect == "messages") is (how == "models")
        assert f"reset session for {one}" in args
        assert outcome == f"the session cookie was reset: reset session for {one}"
