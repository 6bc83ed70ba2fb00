"""Attribute values of any type and size, written out and generated: nothing is thrown or lost."""

import json
import logging
import math
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.trace import Status, StatusCode
from prometheus_client import CollectorRegistry, generate_latest

from lab import tables
from lab.recorded import steps as steps_of
from lab.tables import Table
from otel_loopguard import LoopGuard, Settings
from otel_loopguard.core import Kind, Step
from otel_loopguard.spans.values import LONGEST_ID
from tests.calls import Run
from tests.hostile.fuzz import KEYS, MOST, Fuzz
from tests.hostile.rig import LOOP, MARK, TOOL, VALUES, Rig, Throwing, cyclic, ended, sizes
from tests.stores.servers import wait_for


def same(first: Mapping[str, object], second: Mapping[str, object]) -> bool:
    """True if two sets of attributes hold the very same objects, NaN being itself."""
    return [*first] == [*second] and all(first[key] is second[key] for key in first)


@pytest.mark.parametrize("wrapped", [False, True], ids=["alone", "with the exporter"])
@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES.keys())
def test_any_value_of_arguments_and_result(
    value: object, wrapped: bool, rigs: Callable[..., Rig]
) -> None:
    """Every call counts as a step, nothing is thrown, and the exporter gets what was set."""
    rig = rigs(wrapped=wrapped)
    for _ in range(2):
        span = rig.tracer.start_span("execute_tool search", attributes=TOOL)
        span.set_attribute("gen_ai.tool.call.arguments", value)  # type: ignore[arg-type]
        span.set_attribute("gen_ai.tool.call.result", value)  # type: ignore[arg-type]
        before = dict(span.attributes)  # type: ignore[attr-defined]
        span.end()
        assert same(before, dict(rig.exported[-1].attributes or {}))
    assert [step.name for step in rig.steps] == ["search", "search"]


LISTS = "todo_write", "write_todos", "update_plan"
CUT: dict[str, object] = {
    "a text that is cut": '{"instruction": "look at',
    "10,000 names": " ".join(f"the Name{number}" for number in range(10_000)),
    "no list of tasks": [1, None, {}],
}


@pytest.mark.parametrize("value", {**VALUES, **CUT}.values(), ids={**VALUES, **CUT}.keys())
def test_any_value_of_steps(value: object) -> None:
    """Of hand-offs, nodes, agents and lists of tasks, bare and in what these are given."""
    run = Run()
    for args in (value, {"instruction": value}, {"coworker": "b", "task": value}):
        for to in ("planner", "planner", None):
            run.calls(Step(Kind.HANDOFF, to, agent="critic", args=args))
            run.calls(Step(Kind.NODE, "n", args=args, outcome=value))
            run.calls(Step(Kind.AGENT, "a", agent="a", args=args, outcome=value))
    for tool in LISTS:
        run.calls(*(Step(Kind.TOOL, tool, args=args) for args in (value, {"todos": value})))
    assert run.guard.faults.counts == {}


MARKS = [
    tuple(mark.split("="))
    for mark in (
        "gen_ai.operation.name=execute_tool gen_ai.operation.name=chat "
        "gen_ai.operation.name=invoke_agent openinference.span.kind=TOOL "
        "openinference.span.kind=LLM openinference.span.kind=CHAIN traceloop.span.kind=tool "
        "traceloop.span.kind=task langsmith.span.kind=tool langsmith.span.kind=llm "
        "langfuse.observation.type=tool langfuse.observation.type=generation "
        "gen_ai.system=autogen ai.operationId=ai.toolCall mcp.method.name=tools/call"
    ).split()
]
SCOPES = [
    f"opentelemetry.instrumentation.{name}" for name in "langchain agno mcp llamaindex".split()
]
NAMED = "name agent node task model error_type error_text text".split()
KEPT = "name session agent call_id error_type".split()
TEXTS = "name session agent node call_id error_text error_type model text".split()


def well_formed(step: Step) -> bool:
    """True if the fields of a step have their types."""
    return (
        all(isinstance(getattr(step, name), (str, type(None))) for name in TEXTS)
        and all(isinstance(one, (int, type(None))) for one in (step.tokens_in, step.tokens_out))
        and isinstance(step.error, bool)
    )


EVERYWHERE: dict[str, object] = {
    **VALUES,
    "a list that contains itself": cyclic(),
    "1 MB that looks like agno": "status='failure' result=" + " error=" * 150_000,
    "1 MB in Python's syntax": '{"input_str": "' + "(" * 1_000_000 + '"}',
    "1 MB after a name of an error": "A" * 1_000_000 + "Error: x",
}


LARGE = re.compile("MB|100,000")


@pytest.mark.parametrize(
    ("name", "mark"),
    # Of the largest values three marks, whose dialects read all that others do.
    [(name, mark) for name in EVERYWHERE for mark in MARKS[: 3 if LARGE.search(name) else None]],
    ids=str,
)
def test_any_value_under_every_key_at_once(name: str, mark: tuple[str, str], rig: Rig) -> None:
    """Names, ids, sessions and tokens of wrong types and sizes lose no step, in any dialect."""
    value = EVERYWHERE[name]
    attributes = {**dict.fromkeys(KEYS, value), mark[0]: mark[1]}
    failed = [("exception", {"exception.type": value, "exception.message": value})]
    for at, scope in enumerate(SCOPES):
        rig.processor.on_end(ended(attributes, "span", scope, at + 1, at + 1, at=at, events=failed))
    assert len(rig.steps) == len(SCOPES)
    assert all(map(well_formed, rig.steps))
    # Tables keep thousands of them.
    kept = [getattr(step, key) for key in KEPT for step in rig.steps]
    assert all(len(text or "") <= LONGEST_ID for text in kept)


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES.keys())
def test_any_value_of_an_event(value: object, rig: Rig) -> None:
    """An exception event with odd attributes is read past; the step counts as failed."""
    span = rig.tracer.start_span("execute_tool search", attributes=TOOL)
    event = {"exception.type": value, "exception.message": value, "message": value}
    for name in ("exception", "gen_ai.choice", "", "gen_ai.client.inference.operation.details"):
        span.add_event(name, {**event, "gen_ai.input.messages": value})  # type: ignore[dict-item]
    span.set_status(Status(StatusCode.ERROR, "\ud800" if value is None else "x" * 100_000))
    span.end()
    assert [step.error for step in rig.steps] == [True]
    assert len(rig.exported[0].events) == 4


def test_attributes_that_throw_are_one_counted_fault(
    no_raise: None, caplog: pytest.LogCaptureFixture
) -> None:
    """The fault is counted for every span, logged once, and stops at the hook."""
    rig = Rig()
    for number in range(5):
        rig.processor.on_end(ended(Throwing(), span_id=number))
    rig.guard.settle()
    # A log line waits until its thread holds no lock, or another thread writes it.
    wait_for(lambda: bool(caplog.records))
    assert [*rig.faults.values()] == [5]
    assert len(caplog.records) == 1
    assert rig.steps == []


NAMES = {
    "empty": "", "1 MB": "x" * 1_000_000, "surrogate": "\ud800", "NUL": "\0", "number": 5,
    "prefix only": "execute_tool ", "None": None, "bytes": b"x", "tuple": ("x",), "map": {},
}  # fmt: skip


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES.keys())
def test_any_name(name: Any, rig: Rig) -> None:
    """The SDK lets any object be a name; its call, and the calls below it, are steps."""
    outer = {**TOOL, "gen_ai.tool.name": "delegate"}
    with rig.tracer.start_as_current_span(name, attributes=outer):
        for below, attributes in (("execute_tool x", TOOL), (name, {MARK: "execute_tool"})):
            rig.tracer.start_span(below, attributes=attributes).end()
    assert len(rig.steps) == 3
    assert rig.exported[-1].name == name


@pytest.mark.parametrize("scope", [None, "", "x" * 1_000_000, "\ud800", 5, b"x"], ids=range(6))
def test_any_scope(scope: object, rig: Rig) -> None:
    """A scope of None, of no text or of 1 MB hides no step."""
    for number in range(3):
        rig.processor.on_end(ended(TOOL, scope=scope, span_id=number))
    assert len(rig.steps) == 3


ANSWERED = {**TOOL, "gen_ai.tool.call.result": "No results found."}


def test_a_tool_of_a_megabyte_is_shortened_in_what_we_say(rig: Rig) -> None:
    """A name that a model made up at length does not fill attributes, hints and logs."""
    said = {**ANSWERED, "gen_ai.tool.name": "y" * 1_000_000, "gen_ai.tool.call.arguments": "{}"}
    for number in range(LOOP):
        rig.processor.on_end(ended(said, span_id=number, at=number))
    assert rig.actions == ["hint", "deny", "abort"]
    assert all(len(decision.message) < 500 for decision in rig.decisions)


def test_json_text_and_the_equal_map_are_one_call_whatever_the_size(rig: Rig) -> None:
    """Canonical forms hold for large values too."""
    value = {f"k{number}": [number, str(number)] for number in range(20_000)}
    for number in range(5):
        args = {"gen_ai.tool.call.arguments": json.dumps(value) if number % 2 else value}
        rig.processor.on_end(ended({**ANSWERED, **args}, span_id=number, at=number))
    assert rig.actions == ["hint", "deny"]


TEXT = st.text(st.characters(), max_size=12)
LEAVES: st.SearchStrategy[Any] = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.binary(max_size=6), TEXT,
    st.sampled_from(["execute_tool", "chat", "{", "[1.0]", '{"a": 1}', "null", "[" * 2000]),
)  # fmt: skip
ANYTHING = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.tuples(inner), st.dictionaries(TEXT, inner, max_size=3)
    ),
    max_leaves=6,
)
ATTRIBUTES = st.dictionaries(
    st.one_of(st.sampled_from([*KEYS, MARK, "openinference.span.kind", "logfire.span_type"]), TEXT),
    ANYTHING,
    max_size=7,
)
TIMES = st.one_of(
    st.none(), st.integers(-(2**70), 2**70), st.floats(allow_nan=False, allow_infinity=False)
)
IDS = st.integers(0, 6)
EVENTS = st.lists(
    st.tuples(st.sampled_from(["exception", "gen_ai.choice", ""]), ATTRIBUTES), max_size=2
)
SPANS = st.builds(
    ended,
    attributes=st.one_of(st.none(), ATTRIBUTES),
    name=st.one_of(TEXT, st.sampled_from(["execute_tool x", "invoke_agent a"]), LEAVES),
    scope=st.sampled_from([None, "", "x", "openinference.instrumentation.langchain", 7]),
    span_id=IDS,
    trace_id=IDS,
    parent_id=st.one_of(st.none(), IDS),
    start=TIMES,
    end=TIMES,
    events=EVENTS,
    status=st.sampled_from([Status(code) for code in StatusCode]),
)


@settings(suppress_health_check=list(HealthCheck))
@given(st.lists(st.tuples(st.sampled_from(["start", "end", "tick"]), SPANS), max_size=25))
def test_no_order_of_any_spans_throws(events: list[tuple[str, Any]]) -> None:
    """Starts without ends, ends without starts, twice, with equal ids, at any time."""
    rig = Rig()
    for event, span in events:
        if event == "tick":
            rig.guard.tick(int(span.start_time or 0))
        elif event == "start":
            rig.processor.on_start(span)
        else:
            rig.processor.on_end(span)
    rig.processor.shutdown()
    assert rig.faults == {}
    assert len(rig.steps) <= sum(event == "end" for event, _ in events)
    assert all(map(well_formed, rig.steps))


ARGUMENTS = st.one_of(
    st.integers(), TEXT, st.sampled_from("command content file_path limit page query ts".split())
)
STEPS = st.builds(
    Step,
    kind=st.sampled_from([Kind.TOOL, Kind.TOOL, Kind.TOOL, Kind.MODEL, Kind.OTHER]),
    name=st.one_of(st.none(), TEXT, st.sampled_from(["bash", "python", "sql", "wait", "user"])),
    start=st.integers(-(2**63), 2**63),
    end=st.one_of(st.none(), st.integers(-(2**63), 2**63)),
    args=st.one_of(ANYTHING, st.dictionaries(ARGUMENTS, ANYTHING, max_size=3)),
    outcome=ANYTHING,
    error=st.booleans(),
    error_text=st.one_of(st.none(), TEXT, st.just("429 too many requests")),
    error_type=st.one_of(st.none(), TEXT),
)


@example([(Step(Kind.TOOL, error=True, error_text=" "), 1)], "s")
@example(
    [(Step(Kind.TOOL, args={"ts": math.inf}), 1), (Step(Kind.TOOL, args={"ts": math.nan}), 1)], "s"
)
@example([(Step(Kind.TOOL, args={"page": 10**400}), 2)], "s")
@given(st.lists(st.tuples(STEPS, st.integers(1, 8)), max_size=12), st.sampled_from(["s", "", "\0"]))
def test_any_steps_are_judged(steps: list[tuple[Step, int]], session: str) -> None:
    """Every observed step is counted once, in order, and decided about in that order."""
    seen: list[int] = []
    decisions: list[int] = []
    guard = LoopGuard(
        clock="replay",
        on_step=lambda _session, index, _step: seen.append(index),
        on_decision=lambda _session, decision: decisions.append(decision.step),
    )
    for step, times in steps:
        for _ in range(times):
            guard.observe(step, session)
    assert seen == list(range(sum(times for _, times in steps)))
    assert decisions == sorted(decisions)
    assert guard.faults.counts == {}


STUCK = tables.load(Path(__file__).parents[2] / "scenarios" / "stuck.txt")


@pytest.mark.parametrize("table", STUCK, ids=lambda table: table.name)
def test_half_a_character_in_each_name_switches_nothing_off(table: Table) -> None:
    """JavaScript writes one where it cuts a name; a detector that fails is not asked again."""
    run = Run(Settings(breaker="session", limits="standard"))
    for step in steps_of(table.draw(1)):
        names = {key: f"{value}\ud83d" for key in NAMED if (value := getattr(step, key))}
        run.calls(replace(step, **names))
    assert run.guard.faults.counts == {}


def test_half_a_character_in_a_name_is_no_end_of_the_application_s_metrics() -> None:
    """Prometheus' page is written as a whole: nothing was on it any more."""
    registry = CollectorRegistry()
    reader = PrometheusMetricReader(registry=registry)
    guard = LoopGuard(meter_provider=MeterProvider([reader], shutdown_on_exit=False))
    for name in ("search\ud83d", "search\ude00"):
        step = Step(Kind.TOOL, name, error=True, error_type=name, agent=name, end=1)
        guard.observe(step, "s")
    assert generate_latest(registry).count(b'gen_ai_tool_name="search\\\\ud') >= 2


# A percentage in an answer is the progress of something that is waited for.
ANSWERS = st.text(st.characters(exclude_characters="%", exclude_categories=["Cs"]), min_size=20)


@given(ANYTHING.filter(lambda value: value is not None), ANSWERS)
def test_any_call_that_repeats_is_noticed(args: object, outcome: str) -> None:
    """Whatever the arguments are, four equal calls with an equal answer are a repeat."""
    found: list[str] = []
    guard = LoopGuard(
        Settings(), clock="replay", on_decision=lambda _, decision: found.append(decision.reason)
    )
    for _ in range(4):
        guard.observe(Step(Kind.TOOL, "lookup", args=args, outcome=f"no {outcome}"), "s")
    assert {*found} == {"identical_call"}


FUZZED = int(os.environ.get("LOOPGUARD_FUZZ_SPANS", "20000"))


@pytest.mark.usefixtures("no_raise")
@pytest.mark.parametrize("spans", [[1_000], pytest.param([5_000, FUZZED], marks=pytest.mark.rare)])
def test_no_fault_is_counted(spans: list[int]) -> None:
    """Of a thousand spans, or as many as the environment says, whose tables hold little more."""
    guards = []
    logging.disable(logging.CRITICAL)  # of the SDK, too
    try:
        for number in spans:
            fuzz = Fuzz()
            fuzz.run(number)
            guards.append(fuzz.guard)
    finally:
        logging.disable(logging.NOTSET)
    assert all(guard.faults.counts == {} and len(guard._sessions) <= MOST for guard in guards)
    assert sizes(guards[-1]) < 4 * sizes(guards[0])
