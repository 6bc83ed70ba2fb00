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
