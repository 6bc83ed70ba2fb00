"""Real agents beside the span processors of logfire and OpenInference, and told by messages."""

import pytest

from tests.frameworks.harness import FRAMEWORKS, finished, line_of, started
from tests.zero_code.interpreter import interpreter

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
