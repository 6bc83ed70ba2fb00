"""The trace tree in the message of a failed assertion."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from otel_loopguard.spans.reader import Reader
from otel_loopguard.testing import LoopGuardFixture, watching
from otel_loopguard.testing.spans import tree
from tests.agents import Ended, agent, provider_with, tool_call

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan


def shown(spans: list[ReadableSpan]) -> list[str]:
    """The lines of a tree without decisions."""
    return tree(spans, (), Reader().read).splitlines()


def looped(calls: int) -> LoopGuardFixture:
    """What a guard saw of a run of equal calls."""
    with watching("own") as loopguard:
        tracer = loopguard.tracer()
        with agent(tracer):
            for _ in range(calls):
                tool_call(tracer, args='{"query": "weather in Paris"}')
        loopguard.decisions  # noqa: B018  # counts what is held back, while the guard is there
    return loopguard


def test_spans_hang_below_their_parents() -> None:
    """Lines, arguments and the order of start; below what decided stands the sentence."""
    loopguard = looped(5)
    first, *calls = loopguard.tree().splitlines()
    assert first == "invoke_agent a"
    assert calls[0] == '├─ execute_tool search  {"query": "weather in Paris"}'
    assert calls[2] == '├─ ◆ execute_tool search  {"query": "weather in Paris"}'
    said = "│      hint (warning) by exact_repeat: 'search' was called 3 times"
    assert calls[3].startswith(said)
    # For logs that others read arguments and errors may be left out.
    text = loopguard.tree(arguments=False)
    assert "Paris" not in text
    assert "◆ execute_tool search  ✗" in text


def test_a_long_tree_is_cut_and_keeps_what_matters() -> None:
    """Of 400 spans the first 30 are shown, those with decisions, and how many are left out."""
    with watching("own") as loopguard:
        tracer = loopguard.tracer()

        def page(number: int) -> None:
            said = f"page {number}: {number**7}"
            tool_call(tracer, args=f'{{"page": {number}}}', result=said)

        with agent(tracer):
            for number in range(200):
                page(number)
            for _ in range(3):
                tool_call(tracer, args='{"page": -1}', result="there is no such page, see the list")
            for number in range(200, 400):
                page(number)
        lines = loopguard.tree().splitlines()
    hidden = [int(found[1]) for line in lines if (found := re.search(r"… (\d+) more spans", line))]
    spans = [line for line in lines if "execute_tool" in line]
    marked = [line for line in spans if "◆" in line]
    assert len(spans) + sum(hidden) == 403
    assert len(marked) == len({decision.span_id for decision in loopguard.decisions})
    assert len(spans) < 30 + len(marked)


def test_what_is_open_says_so() -> None:
    """A test may ask while the run goes on."""
    with watching("own") as loopguard:
        tracer = loopguard.tracer()
        with agent(tracer):
            tool_call(tracer)
            assert loopguard.tree().splitlines()[0] == "invoke_agent a  (still open)"


def test_a_deep_chain_and_an_orphan_are_shown() -> None:
    """Depth is cut at 40, and a span whose parent is not there stands at the top."""
    ended = Ended()
    tracer = provider_with(ended).get_tracer("t")

    def nest(depth: int) -> None:
        with tracer.start_as_current_span(f"level {depth}"):
            if depth < 60:
                nest(depth + 1)

    nest(0)
    lines = shown(ended.spans[:-1])
    assert len(lines) == 31
    assert lines[0] == "level 1"
    assert lines[-1].endswith("30 more spans")
    text = tree(ended.spans[:20], (), Reader().read)
    assert text.splitlines()[0] == "level 41"


def test_any_name_is_one_short_line() -> None:
    """Line ends and length of names do no harm; no spans are no tree."""
    ended = Ended()
    provider_with(ended).get_tracer("t").start_span("a\nb" * 100).end()
    (line,) = shown(ended.spans)
    assert len(line) == 60
    assert tree((), (), Reader().read) == ""
