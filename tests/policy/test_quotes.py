"""What a hint says and quotes: for the model of this process, and nowhere else."""

import json
from dataclasses import replace

import pytest

from otel_loopguard.core import Step
from otel_loopguard.policy import STRATEGIES, alternatives
from otel_loopguard.policy.hints import kind_of
from tests.calls import Run, call, handle_of
from tests.policy import hint_texts
from tests.tables import rows

SECRET = "swordfish-4711"
ANSWER = f"No results for {SECRET}."


def test_the_texts_are_those_that_were_read() -> None:
    """`python -m tests.policy.hint_texts` writes them anew."""
    assert hint_texts.page() == hint_texts.GOLDEN.read_text(encoding="utf-8")


def said(*steps: Step) -> str:
    """The hint that a session ends with."""
    run = Run()
    run.calls(*steps)
    return run.guard.flag_named("run").take_hint() or ""


@pytest.mark.parametrize(("answer", "quote"), rows(__file__, "quotes"))
def test_one_line_of_sixty_printable_characters(answer: str, quote: str) -> None:
    """Whatever the answer is, nothing of it ends the quotation or changes how it is shown."""
    hint = said(*[call("read_file", {"path": "a"}, json.loads(answer))] * 3)
    assert f"The last answer: {quote} " in hint


def test_the_control_and_the_decision_have_no_quote() -> None:
    """They go to stores, servers, callbacks and logs: `tests/operations/test_privacy.py`."""
    run = Run()
    run.calls(*[call("search", {"q": 1}, ANSWER)] * 4)
    flag = run.guard.flag_named("run")
    assert SECRET in (flag.quoting_hint or "")
    told = [flag.control, run.decisions, replace(flag.control, session="b")]
    explained = handle_of(run.guard).explain()
    told += [str(explained), explained.to_dict()]
    assert not [one for one in map(repr, told) if SECRET in one]


@pytest.mark.parametrize("tool", ["Write", "TodoWrite", "update_order", "write_file"])
def test_who_writes_a_whole_is_not_told_how_to_replace_a_part(tool: str) -> None:
    ways = alternatives(tool, {})
    assert ways != alternatives("Edit", {})
    assert ways != alternatives("Read", {})


@pytest.mark.parametrize("tool", ["bash", "edit", "sql", "python", "search", "frobnicate"])
def test_every_tool_has_other_ways(tool: str) -> None:
    """At most three, and all different; a user's own stand in front, by name or by pattern."""
    ways = alternatives(tool, {})
    assert ways == STRATEGIES[kind_of(tool)]
    assert len(set(ways)) == len(ways) == 3
    own = {"grep": ("read the index",), f"{tool[:2]}*": ("ask the API", "ask me")}
    assert alternatives(tool, own)[:2] == ("ask the API", "ask me")
    assert alternatives("grep", own)[0] == "read the index"
