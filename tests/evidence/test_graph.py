"""Visits of nodes and runs of agents: what `readings.txt` cannot say."""

from hypothesis import given
from hypothesis import strategies as st

from otel_loopguard import Settings
from otel_loopguard.core import Kind, Progress, Step
from otel_loopguard.core.evidence import NodeVisit
from otel_loopguard.evidence import Extractors
from tests.calls import EPOCH, SECOND, agent, call, node, said

TIMES = {"at", "took", "trace", "error"}
FLAGS = ("known", "news", "again", "idle", "unseen", "home", "waiting")


def visits(*steps: Step) -> list[NodeVisit]:
    """Evidence of the visits among the steps."""
    extractors = Extractors(Settings(), Progress())
    found = [extractor.extract(step) for step in steps for extractor in extractors.get(step)]
    return [visit for visit in found if isinstance(visit, NodeVisit)]


def told(*steps: list[object]) -> list[str]:
    """What is known of each visit: `1 a news`; a step is the name of a helper and its arguments."""
    helpers = {
        "node": node, "call": call, "said": said, "agent": agent,
        "root": lambda name: Step(Kind.AGENT, name, trace_id=1, span_id=2),
        "model": lambda start, end: Step(
            Kind.MODEL, "m", text="", start=EPOCH + start * SECOND, end=EPOCH + end * SECOND
        ),
    }  # fmt: skip
    made: list[Step] = []
    for name, *values in steps:
        more = values.pop() if isinstance(values[-1], dict) and {*values[-1]} <= TIMES else {}
        made.append(helpers[name](*values, **more))
    graphs: dict[int, int] = {}
    return [
        " ".join([
            str(graphs.setdefault(visit.graph, len(graphs) + 1)), visit.name,
            *(flag for flag in FLAGS if getattr(visit, flag)),
        ])
        for visit in visits(*made)
    ]  # fmt: skip


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


def test_a_home_that_is_left_is_given_up() -> None:
    """The graph goes on in another circle: that has a home too."""
    first = [node(name, {"gave": name}) for name in "ab"]
    second = [node(name, {"gave": name}) for name in "cd"]
    found = visits(*second, *first * 3, *second * 20)
    assert any(visit.home for visit in found[:8])
    assert sum(visit.home for visit in found[-10:]) == 5


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
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
    assert visits(Step(Kind.NODE), Step(Kind.NODE)) == []  # nobody named them
    assert len(visits(node("a", deep), node("a", circle), node("a", object()))) == 3
