"""Every real capture is read as what really ran."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from otel_loopguard.core import Kind
from otel_loopguard.dialects import Reader
from tests.dialects import captures
from tests.dialects.captures import PARTLY, SCRIPT, UNREADABLE, Run

NAMES = captures.names()
SCRIPTED = [name for name in NAMES if captures.scripted(name)]
WAYS = pytest.mark.parametrize("way", [captures.live, captures.recorded], ids=["live", "recorded"])

# The client's span of an MCP call is OK for a result that is an error.
SILENT = {"mcp-stdio__native"}


@pytest.fixture(autouse=True)
def _captures_are_there() -> None:
    captures.need_shared()


def test_the_captures_are_there() -> None:
    """The shared folder has at least the captures of docs/project/evaluation.md."""
    assert len(NAMES) >= 55
    assert len(SCRIPTED) >= 35


@pytest.mark.parametrize("name", SCRIPTED)
def test_the_calls_of_the_script_come_back(name: str) -> None:
    """Names, order, arguments and outcomes; the call that raises is the only failure.

    The same code reads a live run and its recording to the same calls.
    """
    run, again = (
        [(step.name, repr(step.args), repr(step.outcome), step.error, step.error_text)
         for step in way(name).of(Kind.TOOL)]
        for way in (captures.live, captures.recorded)
    )  # fmt: skip
    assert run == again
    steps = captures.live(name).of(Kind.TOOL)
    assert [step.name for step in steps] == [tool for tool, _ in SCRIPT]
    for step, (tool, args) in zip(steps, SCRIPT, strict=True):
        assert step.args is None or captures.same_args(step, args), step
        if tool != "broken" and step.outcome is not None:
            # The tools of the CrewAI script number their results.
            said = str(step.outcome).partition(" (attempt")[0]
            assert said == captures.expected_outcome(tool, args), step
    failed = [step.name for step in steps if step.error]
    assert failed == ([] if name in SILENT else ["broken"])


@pytest.mark.parametrize("name", [name for name in NAMES if "__open" in name])
def test_a_span_without_a_scope_is_read_by_its_shape(name: str) -> None:
    """Console JSON does not say the scope, by which the wrappings of each framework are known."""
    bare, whole = (
        [
            (step.kind, step.name, step.args, step.outcome, step.error, step.call_id, step.node)
            for step in filter(None, map(Reader().read, views))
            if step.kind in (Kind.TOOL, Kind.NODE)
        ]
        for known in [captures.views(name)]
        for views in ([replace(view, scope="") for view in known], known)
    )
    assert bare == whole


@pytest.mark.parametrize("name", sorted({*PARTLY, *UNREADABLE}))
def test_calls_that_have_a_span_come_back(name: str) -> None:
    """Where some calls have no span; a capture is unreadable only if no span reports a call."""
    assert captures.executed(name) > 0
    count, _ = PARTLY.get(name, (0, ""))
    assert len(captures.live(name).of(Kind.TOOL)) == count
    for span in captures.load(name)["spans"] if count == 0 else ():
        spelled = str(span["start"]["name"]) + str(span.get("end", {}).get("name"))
        assert "search" not in spelled
        assert "fetch" not in spelled


@WAYS
@pytest.mark.parametrize("name", [name for name in NAMES if "parallel" in name])
def test_parallel_calls_stay_parallel(name: str, way: Callable[[str], Run]) -> None:
    """Three calls at once, then three equal calls at once, are six calls."""
    steps = way(name).of(Kind.TOOL)
    asked = [str(captures.loaded(step.args)) for step in steps]
    assert len(steps) == 6
    assert all("paris" in args for args in asked[3:])
    for city in ("paris", "rome", "oslo"):
        assert sum(city in args for args in asked[:3]) == 1
    for together in (steps[:3], steps[3:]):
        assert max(step.start for step in together) < min(step.end or 0 for step in together)


HANDOFFS = [name for name in NAMES if "handoff" in name or "swarm" in name]
# The span does not say where the work goes to, in none of its attributes.
TARGETLESS = {"google-adk-handoff__native", "openai-agents-handoff__openllmetry"}
SOURCELESS = {"autogen-swarm__native", "autogen-swarm__openinference"}


@WAYS
@pytest.mark.parametrize("name", HANDOFFS)
def test_handoffs_say_from_and_to(name: str, way: Callable[[str], Run]) -> None:
    """Six handoffs go to and fro between planner and critic; none of them is a tool call."""
    run: Run = way(name)
    handoffs = run.of(Kind.HANDOFF)
    if name.endswith("__genai"):
        assert not handoffs
        pytest.skip("the convention has no span for a handoff")
    assert not run.of(Kind.TOOL)
    agents = ["planner", "critic"] * 3
    nothing: list[str | None] = [None] * 6
    assert [step.agent for step in handoffs] == (nothing if name in SOURCELESS else agents)
    assert [step.name for step in handoffs] == (nothing if name in TARGETLESS else agents[::-1])


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith("autogen")])
def test_traces_of_autogen_have_one_session(name: str) -> None:
    """Dozens of traces of one run carry one id, in every trace in which a tool is called."""
    run = captures.live(name)
    told = [one for one in (*run.read, *run.opened.values()) if one.session is not None]
    assert len({step.session for step in told}) == 1
    called = {step.trace_id for step in run.read if step.kind in (Kind.TOOL, Kind.HANDOFF)}
    assert called <= {step.trace_id for step in told}


def test_three_instrumentations_count_each_call_once() -> None:
    """39 tool spans of 13 calls are 13 steps, and 42 model spans of 14 calls are 14."""
    run = captures.live("langgraph__all3")
    assert sum(step.kind is Kind.TOOL for step in run.read) == 39
    assert (len(run.of(Kind.TOOL)), len(run.of(Kind.MODEL))) == (13, 14)


def test_inner_and_outer_span_of_autogen_make_one_step() -> None:
    """The native span knows of the failure, the one around it of the arguments: both are kept."""
    broken = captures.live("autogen__openinference").of(Kind.TOOL)[-1]
    assert captures.loaded(broken.args) == {"x": 1}
    assert broken.outcome == "broken backend for x=1"
    failed = (broken.error, broken.error_type, broken.call_id)
    assert failed == (True, "ValueError", "call_12")


@pytest.mark.parametrize("name", NAMES)
def test_tokens_are_counted_on_model_steps_only(name: str) -> None:
    """No span that repeats the totals of others carries tokens.

    Held steps are let go by the end of another span, never only by the clock.
    """
    run = captures.live(name)
    assert run.waited == 0
    assert all(step.tokens is None for step in run.read if step.kind is not Kind.MODEL)
    answered = [step for step in run.of(Kind.MODEL) if step.tokens is not None]
    asked = sum(body["kind"] == "llm" for body in captures.load(name)["bodies"])
    assert not asked or len(answered) in (0, asked)
