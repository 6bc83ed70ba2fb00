"""Generated spans through the hooks, and generated steps through `LoopGuard.observe`."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from opentelemetry.trace import Status, StatusCode

from otel_loopguard import LoopGuard, Settings
from otel_loopguard.core import Kind, Step
from tests.bad_input.rig import KEYS, MARK, Rig, ended

TEXT = st.text(st.characters(), max_size=12)
LEAVES: st.SearchStrategy[Any] = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.binary(max_size=6), TEXT,
    st.sampled_from(["execute_tool", "chat", "{", "[1.0]", '{"a": 1}', "null", "[" * 2000]),
)  # fmt: skip
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.tuples(inner), st.dictionaries(TEXT, inner, max_size=3)
    ),
    max_leaves=6,
)
ATTRIBUTES = st.dictionaries(
    st.one_of(st.sampled_from([*KEYS, MARK, "openinference.span.kind", "logfire.span_type"]), TEXT),
    VALUES,
    max_size=7,
)
TIMES = st.one_of(
    st.none(), st.integers(-(2**70), 2**70), st.floats(allow_nan=False, allow_infinity=False)
)
IDS = st.integers(0, 6)
SPANS = st.fixed_dictionaries(
    {
        "attributes": st.one_of(st.none(), ATTRIBUTES),
        "name": st.one_of(TEXT, st.sampled_from(["execute_tool x", "invoke_agent a"]), LEAVES),
        "scope": st.sampled_from([None, "", "x", "openinference.instrumentation.langchain", 7]),
        "span_id": IDS,
        "trace_id": IDS,
        "parent_id": st.one_of(st.none(), IDS),
        "start": TIMES,
        "end": TIMES,
        "events": st.lists(
            st.tuples(st.sampled_from(["exception", "gen_ai.choice", ""]), ATTRIBUTES), max_size=2
        ),
        "status": st.sampled_from([Status(code) for code in StatusCode]),
    }
)


@settings(suppress_health_check=list(HealthCheck))
@given(st.lists(st.tuples(st.sampled_from(["start", "end", "tick"]), SPANS), max_size=25))
def test_no_order_of_any_spans_throws(events: list[tuple[str, dict[str, Any]]]) -> None:
    """Starts without ends, ends without starts, twice, with equal ids, at any time."""
    rig = Rig()
    marked = 0
    for event, fields in events:
        if event == "tick":
            rig.guard.tick(int(fields["start"] or 0))
            continue
        span = ended(**fields)
        if event == "start":
            rig.processor.on_start(span)  # type: ignore[arg-type]
        else:
            rig.processor.on_end(span)
            marked += 1
    rig.processor.shutdown()
    assert rig.faults == {}
    assert len(rig.steps) <= marked


STEPS = st.builds(
    Step,
    kind=st.sampled_from([Kind.TOOL, Kind.TOOL, Kind.TOOL, Kind.MODEL, Kind.OTHER]),
    name=st.one_of(st.none(), TEXT, st.sampled_from(["bash", "python", "sql", "wait", "user"])),
    start=st.integers(-(2**63), 2**63),
    end=st.one_of(st.none(), st.integers(-(2**63), 2**63)),
    args=st.one_of(VALUES, st.dictionaries(st.one_of(TEXT, st.integers()), VALUES, max_size=3)),
    outcome=VALUES,
    error=st.booleans(),
    error_text=st.one_of(st.none(), TEXT, st.just("429 too many requests")),
    error_type=st.one_of(st.none(), TEXT),
)


@given(st.lists(st.tuples(STEPS, st.integers(1, 8)), max_size=12), st.sampled_from(["s", "", "\0"]))
def test_any_steps_are_judged(steps: list[tuple[Step, int]], session: str) -> None:
    """Every observed step is counted once, in order; a decision never goes down in force."""
    seen: list[int] = []
    decisions: list[int] = []
    guard = LoopGuard(
        Settings(),
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


# A percentage in an answer is the progress of something that is waited for.
ANSWERS = st.text(st.characters(exclude_characters="%", exclude_categories=["Cs"]), min_size=20)


@given(VALUES.filter(lambda value: value is not None), ANSWERS)
def test_any_call_that_repeats_is_noticed(args: object, outcome: str) -> None:
    """Whatever the arguments are, four equal calls with an equal answer are a repeat."""
    found: list[str] = []
    guard = LoopGuard(
        Settings(), clock="replay", on_decision=lambda _, decision: found.append(decision.reason)
    )
    for _ in range(4):
        guard.observe(Step(Kind.TOOL, "lookup", args=args, outcome=f"no {outcome}"), "s")
    assert found[:1] == ["identical_call"]
    assert set(found) == {"identical_call"}
