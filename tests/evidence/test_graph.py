"""Visits of nodes and runs of agents, and what is new between them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_loopguard import Settings
from otel_loopguard.core import Kind, Step
from otel_loopguard.core.evidence import NodeVisit
from otel_loopguard.core.progress import Progress
from otel_loopguard.evidence import Extractors
from tests.calls import EPOCH, SECOND, agent, call, node, said


def visits(*steps: Step, **settings: object) -> list[NodeVisit]:
    """Evidence of the visits among the steps."""
    extractors = Extractors(Settings(**settings), Progress())
    found = [extractor.extract(step) for step in steps for extractor in extractors.get(step)]
    return [visit for visit in found if isinstance(visit, NodeVisit)]


def test_the_first_visit_is_new_and_the_same_again_is_not() -> None:
    """A state that was given before, and nothing else in between."""
    first, second = visits(node("a", {"x": 1}), node("a", {"x": 1}))
    assert (first.news, first.again) == (True, False)
    assert (second.news, second.again, second.idle) == (False, True, True)
    assert (first.key, first.state) == (second.key, second.state)
    assert second.name == "a"
    # Without its state or a call it is neither new nor idle.
    _, second = visits(node("a"), node("a"))
    assert (second.news, second.known, second.unseen, second.idle) == (False, False, False, False)
    # A text that was not captured by itself is in the state of its node.
    *_, last = visits(node("a", {"x": 1}), said(None), node("a", {"x": 1}))
    assert last.idle
    # A node that nobody named cannot be told from others.
    assert visits(Step(Kind.NODE), Step(Kind.NODE)) == []


@pytest.mark.parametrize(
    ("step", "unseen"),
    [
        (call("t", {"q": 1}, None), True),
        (call("t", None, "found"), True),
        (call("t", None, None, error="gone"), True),
        (call("t", {"q": 1}, "found"), False),
        (said(None), True),
        (said(""), False),
    ],
    ids=["no outcome", "no arguments", "an error without arguments", "all captured", "no text",
         "a text that is empty"],
)  # fmt: skip
def test_what_was_not_captured_is_unseen(step: Step, unseen: bool) -> None:
    """Missing is not empty: it may be new."""
    *_, last = visits(node("a"), step, node("a"), step, node("a"))
    assert last.unseen is unseen
    assert not last.news


def test_runs_of_a_graph_are_told_apart_by_their_parent() -> None:
    """The same node under another trace has seen nothing yet."""
    first, again, other = visits(
        node("a", {"x": 1}, at=1, trace=5),
        node("a", {"x": 1}, at=2, trace=5),
        node("a", {"x": 1}, at=3, trace=6),
    )
    assert (first.graph == again.graph, again.graph == other.graph) == (True, False)
    assert (again.news, other.news) == (False, True)
    assert again.gap == SECOND
    assert other.gap is None


def test_what_happens_is_news_to_every_run_that_goes_on() -> None:
    """A node of an outer graph and of an inner one, around the same call."""
    inner = Step(
        Kind.NODE, "in", trace_id=5, span_id=3, parent_id=2, start=EPOCH + 9, end=EPOCH + 10
    )
    outer = node("out", at=0, trace=5, took=0)
    new = call("t", {"q": "new"}, "an answer")
    later = Step(
        Kind.NODE, "in", trace_id=5, span_id=4, parent_id=2, start=EPOCH + 19, end=EPOCH + 20
    )
    found = visits(outer, inner, new, later, node("out", at=1, trace=5))
    assert [(visit.name, visit.news) for visit in found[2:]] == [("in", True), ("out", True)]


@pytest.mark.parametrize(
    ("steps", "names"),
    [
        # Agents that are nested end the inner one first; overlapping ones are one round.
        ([node("inner", {"x": 1}, at=5, took=1, trace=5), node("outer", {"x": 1}, took=10, at=0,
          trace=5), node("next", {"x": 1}, at=11, took=1, trace=5)], "inner next"),
        # A clock that jumps is another clock: two hours earlier is not beside the one before.
        ([node("a", at=9000, trace=5), node("b", at=0, trace=5)], "a b"),
        # Numbered steps are visits of one node; a number without a space is part of the name.
        ([node("Step 1"), node("Step 12"), node("agent1"), node("agent2"), node("7")],
         "Step Step agent1 agent2 7"),
    ],
    ids=["around another", "a clock that jumps", "numbered"],
)  # fmt: skip
def test_what_is_a_visit_of_its_own(steps: list[Step], names: str) -> None:
    assert [visit.name for visit in visits(*steps)] == names.split()


def test_an_agent_at_the_root_is_the_whole_run() -> None:
    """It is no visit, and agents after it are those of another run."""
    root = Step(Kind.AGENT, "main", trace_id=1, span_id=2)
    one, other = visits(agent("sub", "the same"), root, agent("sub", "the same"))
    assert one.graph != other.graph
    assert other.news


def test_a_stretch_without_news_has_one_home() -> None:
    """Once per go-round, from the second on; news end it."""
    turn = [node(name, {"gave": name}) for name in "abc"]
    found = visits(*turn * 4, node("a", {"gave": "new"}), *turn)
    homes = [place for place, visit in enumerate(found) if visit.home]
    assert homes == [5, 8, 11, 13]


def test_a_home_that_is_left_is_given_up() -> None:
    """The graph goes on in another circle: that has a home too."""
    first = [node(name, {"gave": name}) for name in "ab"]
    second = [node(name, {"gave": name}) for name in "cd"]
    found = visits(*second, *first * 3, *second * 20)
    assert any(visit.home for visit in found[:8])
    assert sum(visit.home for visit in found[-10:]) == 5


def test_thinking_is_no_waiting() -> None:
    """Ten seconds of a model's work against ten seconds of nothing."""
    model = Step(Kind.MODEL, "m", text="", start=EPOCH + SECOND, end=EPOCH + 10 * SECOND)
    first = node("a", {"x": 1}, at=0, trace=5)
    late = node("a", {"x": 1}, at=11, trace=5)
    assert [visit.waiting for visit in visits(first, late)] == [False, True]
    assert [visit.waiting for visit in visits(first, model, late)] == [False, False]


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(_JSON, _JSON)
def test_any_state_is_read(gave: object, got: object) -> None:
    """Bad data never throws, and the same again is never new."""
    found = visits(node("a", gave, got), node("a", gave, got))
    assert not found[1].news
    assert found[0].state == found[1].state


def test_a_deep_state_and_a_circle_are_read() -> None:
    """Neither depth nor a state that holds itself has no end."""
    deep: list[object] = []
    for _ in range(5000):
        deep = [deep]
    circle: dict[str, object] = {"x": 1}
    circle["self"] = circle
    assert len(visits(node("a", deep), node("a", circle), node("a", object()))) == 3
