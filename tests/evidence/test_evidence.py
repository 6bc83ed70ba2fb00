"""Evidence of calls, nodes, texts and sets of keys: what `readings.txt` cannot say."""

from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from xxhash import xxh3_64_intdigest as key_of

from otel_loopguard import Settings
from otel_loopguard._util.bounded import BloomSketch
from otel_loopguard.core import Evidence, Kind, Progress, Step
from otel_loopguard.core.evidence import ModelText, NodeVisit
from otel_loopguard.evidence import Extractors, ToolCallExtractor, prepare
from otel_loopguard.evidence.calls import Call, Calls
from otel_loopguard.evidence.model_text import ModelTextExtractor
from otel_loopguard.evidence.tool_calls import Rounds
from tests.calls import EPOCH, SECOND, Run, agent, call, node, said


def of(arguments: object, tool: str = "search", agent: str | None = None, **given: Any) -> Call:
    """The identity of one call."""
    step = call(tool, arguments)
    step.agent = agent
    return Calls(Settings(**given)).identify(step, prepare(step), 1)


def test_a_declared_key_is_the_identity() -> None:
    """`key` of a tool names the arguments that matter; without any of them all do (C5)."""
    tools = {"search": {"key": ("q", "lang")}}
    one = of({"q": "x", "page_size": 10, "mood": "calm"}, tools=tools)
    other = of({"q": "x", "page_size": 50, "mood": "keen"}, tools=tools)
    assert one.key == other.key
    assert one.exact == other.exact
    assert not one.guessed
    assert one.key != of({"q": "y", "page_size": 10}, tools=tools).key
    assert of({"p": 1}, tools=tools).key != of({"p": 2}, tools=tools).key
    assert of({"q": "x", "n": 1}, "find", tools=tools).key != of({"q": "x"}, "find").key


def test_long_arguments_are_bounded() -> None:
    """Told by head, tail and length; of samples 256 characters are kept, whole ones."""
    assert len(of({"q": "x" * 10_000}).sample) == 256
    assert of({"q": "ä" * 10_000}).sample.startswith('{"q":"ää')
    long, short = "x" * 10_000_000, {"calls": {"value_chars": 1000}}
    calls = [of(text, tuning=short) for text in (long, long + "y", "y" + long)]
    assert len({one.key for one in calls}) == 3
    assert len(calls[0].raw) < 1100


@pytest.mark.parametrize("kind", ["TimeoutError", "TypeError"])
@pytest.mark.parametrize("text", ["", "Error: it failed\nsee the log"])
def test_the_type_of_an_error_tells_that_no_answer_came(kind: str, text: str) -> None:
    step = Step(Kind.TOOL, "create_order", args={}, error=True, error_type=kind, error_text=text)
    found = ToolCallExtractor(Settings(), Progress()).extract(step)
    assert found is not None
    assert found.unanswered is (kind == "TimeoutError")


IN_VAIN = "no results for weather in Paris"


def rounds_of(*cells: str) -> list[int]:
    """Rounds of calls, `10..10.1 of 2`; `asked of 2` is a model call, `x 9` one each 0.1 s."""
    rounds, found = Rounds(), list[int]()
    for what, *more in map(str.split, cells):
        said = dict(zip(more[::2], map(int, more[1::2]), strict=True))
        if what == "asked":
            rounds.asked(said.get("of", 0))
            continue
        for number in range(said.get("x", 1)):
            start, end = (round((float(at) + number / 10) * SECOND) for at in what.split(".."))
            call = said.get("call", len(found))
            found.append(rounds.add(start, end, said.get("of", 0), call))
    return found


@pytest.mark.parametrize(
    ("named", "models", "healthy"), [*product((True, False), repeat=3)], ids=str
)
def test_two_agents_side_by_side_are_noticed(named: bool, models: bool, healthy: bool) -> None:
    """Each calls one after the other, and always while the other's call runs."""
    steps: list[Step] = []
    for number in range(60):
        agent, at = number % 2, number / 2
        tool, args, said = ("search", "fetch")[agent], {"q": "x"}, IN_VAIN
        if agent and healthy:
            args, said = {"q": f"{number}"}, f"page {number} is about {number * 7919:x}"
        name = "ab"[agent] if named else None
        if models:
            start = EPOCH + round((at - 0.05) * SECOND)
            steps.append(Step(Kind.MODEL, "m", start=start, end=start + 10_000_000, agent=name))
        steps.append(replace(call(tool, args, said, at=at, took=0.9), agent=name))
    run = Run()
    run.calls(*sorted(steps, key=lambda step: step.end or 0))
    assert "exact_repeat" in {one.detector for one in run.decisions}


def evidence(*steps: Step) -> list[Evidence]:
    observer = ToolCallExtractor(Settings())
    return [observer.evidence(step) for step in steps]


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


def say(text: str | None, agent: str | None = "writer", model: str | None = "m") -> Step:
    return Step(Kind.MODEL, "chat", agent=agent, model=model, text=text)


def seen(*steps: Step) -> list[ModelText]:
    sense = ModelTextExtractor(Settings(), Progress())
    return [found for step in steps if (found := sense.extract(step)) is not None]


def test_a_long_text_has_done_what_it_announces() -> None:
    text = "I will run the tests. " + "They are described in the manual, chapter by chapter. " * 20
    (saying,) = seen(say(text))
    assert saying.promise is None
    # Evidence is numbers, apart from the name of the agent: the text is not held.
    values = [getattr(saying, name) for name in ModelText.__slots__]
    assert [value for value in values if isinstance(value, str)] == ["'writer'"]


def test_samples_are_kept_of_few_speakers() -> None:
    """Four samples of 2,000 characters, however many speakers and texts there are."""
    sense = ModelTextExtractor(Settings(), Progress())
    for number in range(500):
        sense.extract(say("x y " * 10_000, agent=f"agent {number}"))
    kept = list(sense._last.values())  # pyright: ignore[reportPrivateUsage]
    assert len(kept) == 4
    assert sum(len(last.sample) for last in kept) <= 8_000


KEYS = st.lists(st.integers(0, 2**64 - 1), max_size=60)


def keys(start: int, stop: int) -> list[int]:
    return [key_of(b"%d" % number) for number in range(start, stop)]


@given(KEYS, KEYS)
def test_what_was_shown_is_known(shown: list[int], others: list[int]) -> None:
    """No key of the newest thousands is ever taken for new again, nor twice within one call."""
    sketch = BloomSketch()
    assert set(sketch.add(shown)) == set(shown)
    sketch.add(others)
    assert sketch.add(shown) == set()
    assert BloomSketch().add([5, 5, 5]) == {5}


def test_new_keys_are_new_and_the_newest_are_known() -> None:
    """One in fifty is taken for known at most; the oldest are forgotten, and nothing grows."""
    sketch = BloomSketch()
    sketch.add(keys(0, 60))
    assert sketch._new is None  # few keys are kept as they are
    new = 0
    for start in range(60, 100_060, 50):
        new += len(sketch.add(keys(start, start + 50)))
        for table in (sketch._new, sketch._old):  # two generations of 4 KiB
            assert table is None or len(table) * table.itemsize == 4096
    assert new >= 0.98 * 100_000
    assert sketch.add(keys(97_560, 100_060)) == set()
    assert len(sketch.add(keys(0, 1000))) >= 0.95 * 1000


def test_the_id_of_a_call_makes_its_answer_no_other_one() -> None:
    """Frameworks quote it where a person refused: `call_...` and `toolu_...` mask nothing else."""
    ids = ["call_4Xh2kQpZbTn81LwY", "toolu_01A09q90qw90lq91"]
    steps = [call("send", {"to": "ann"}, f"A person refused {one}.") for one in [*ids, "order 7"]]
    for step, one in zip(steps, [*ids, ids[0]], strict=True):
        step.call_id = one
    first, second, other = evidence(*steps)
    assert first.outcome == second.outcome != other.outcome
    assert first.outcome_exact == second.outcome_exact
