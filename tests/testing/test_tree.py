"""The trace tree in the message of a failed assertion."""

import re
from contextlib import ExitStack

from otel_loopguard.spans.reader import Reader
from otel_loopguard.testing import LoopGuardFixture, watching
from otel_loopguard.testing.spans import tree
from tests.agents import Ended, agent, provider_with, tool_call


def shown(ended: Ended) -> list[str]:
    """The lines of the tree of spans without decisions."""
    return tree(ended.spans, (), Reader().read).splitlines()


def looped(calls: int) -> LoopGuardFixture:
    """What a guard saw of a run of equal calls; a test may ask while it goes on."""
    with watching("own") as loopguard:
        tracer = loopguard.tracer()
        with agent(tracer):
            for _ in range(calls):
                tool_call(tracer, args='{"query": "weather in Paris"}')
            assert loopguard.tree().splitlines()[0] == "invoke_agent a  (still open)"
        loopguard.decisions  # noqa: B018  # counts what is held back, while the guard is there
    return loopguard


def test_spans_hang_below_their_parents() -> None:
    """In the order of start; for logs that others read arguments and errors may be left out."""
    loopguard = looped(5)
    first, *calls = loopguard.tree().splitlines()
    assert (first, calls[0]) == (
        "invoke_agent a", '├─ execute_tool search  {"query": "weather in Paris"}'
    )  # fmt: skip
    text = loopguard.tree(arguments=False)
    assert "Paris" not in text
    assert "◆ execute_tool search  ✗" in text


def test_a_long_tree_is_cut_and_keeps_what_matters() -> None:
    """Of 400 spans the first 30 are shown, those with decisions, and how many are left out."""
    with watching("own") as loopguard:
        tracer = loopguard.tracer()
        with agent(tracer):
            for number in (*range(200), -1, -1, -1, *range(200, 400)):
                args = f'{{"page": {number}}}'
                tool_call(tracer, args=args, result=f"page {number}: {number**7}")
        lines = loopguard.tree().splitlines()
    hidden = sum(int(found[1]) for found in map(re.compile(r"… (\d+) more").search, lines) if found)
    spans = [line for line in lines if "execute_tool" in line]
    marked = [line for line in spans if "◆" in line]
    assert len(spans) + hidden == 403
    assert len(marked) == len({decision.span_id for decision in loopguard.decisions}) > 0
    assert len(spans) < 30 + len(marked)


def test_a_deep_chain_and_an_orphan_are_shown() -> None:
    """Depth is cut at 40, and a span whose parent is not there stands at the top."""
    ended = Ended()
    tracer = provider_with(ended).get_tracer("t")
    with ExitStack() as open_spans:
        for depth in range(61):
            open_spans.enter_context(tracer.start_as_current_span(f"level {depth}"))
    del ended.spans[-1]
    lines = shown(ended)
    assert (lines[0], len(lines)) == ("level 1", 31)
    assert lines[-1].endswith("30 more spans")
    del ended.spans[20:]
    assert shown(ended)[0] == "level 41"


def test_any_name_is_one_short_line() -> None:
    """Line ends and length of names do no harm; no spans are no tree."""
    ended = Ended()
    assert shown(ended) == []
    provider_with(ended).get_tracer("t").start_span("a\nb" * 100).end()
    (line,) = shown(ended)
    assert len(line) == 60
