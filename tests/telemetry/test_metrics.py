"""What comes out as metrics: every one, with the attributes that the table says."""

import gc
import os
import time
import weakref
from collections.abc import Callable

import pytest
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.metrics import MeterProvider as ApiMeterProvider
from opentelemetry.sdk.metrics import MeterProvider
from prometheus_client import CollectorRegistry

from otel_loopguard import LoopGuard, LoopGuardSpanProcessor, Settings, control, resilience
from otel_loopguard._util.errors import raise_faults
from otel_loopguard.core import Action, Kind, Step
from otel_loopguard.execution import admit
from otel_loopguard.sessions import feedback
from otel_loopguard.telemetry import METRICS
from otel_loopguard.telemetry.recorder import Counts
from tests.agents import agent, provider_with, tool_call
from tests.calls import SECOND
from tests.programs import printed
from tests.stores.servers import wait_for
from tests.tables import rows
from tests.telemetry.scene import Scene

BY_NAME = {metric.name: metric for metric in METRICS}


def counted(scene: Scene, case: str) -> None:
    """What came out is what a section of the table tells."""
    for metric, attributes, value in (row.values for row in rows(__file__, case)):
        labels = dict(one.split("=") for one in attributes.split())
        found = scene.total(f"loopguard.{metric}", **labels)
        assert found == pytest.approx(float(value), abs=0.1), (metric, labels)


def a_loop(scene: Scene) -> None:
    with agent(scene.tracer):
        scene.loop(5)


def a_stop(scene: Scene) -> None:
    start = time.time_ns()
    for at in range(start, start + 40 * SECOND, 10 * SECOND):
        model = Step(Kind.MODEL, "m", start=at, end=at + 1, tokens_in=90, tokens_out=10)
        call = Step(Kind.TOOL, "search", args={"q": 1}, outcome="no results", start=at + 2)
        call.end = at + 10 * SECOND
        scene.guard.observe(model, "s")
        scene.guard.observe(call, "s")


def a_recovery(scene: Scene) -> None:
    for tool, error in (("a", True), ("b", False), ("a", False)):
        step = Step(Kind.TOOL, tool, args={"q": tool}, outcome=f"{tool} {error}", error=error)
        scene.guard.observe(step, "s")


def a_choice(scene: Scene) -> None:
    for number in range(40):
        step = Step(Kind.TOOL, "fast", args={"n": number}, outcome=f"{number}")
        step.start, step.end = 1_000_000, 2_000_000
        scene.guard.observe(step, "s")
    known = admit("fast", {"n": 99})
    admit("never_seen", {"n": 1})
    feedback(known.id, choice="deny")
    choice = {"loopguard.execution.choice": known.choice.value}
    assert scene.total("loopguard.execution.answers", **choice) == 1
    errors = scene.metrics()["loopguard.estimate.error"][0][1]
    assert errors.count > 0
    assert 0 <= errors.sum / errors.count <= 1000


def a_confirmation(scene: Scene) -> None:
    with agent(scene.tracer):
        scene.loop(3)
        assert feedback(control.current().decision_id or "", false_alarm=False)


def a_false_alarm(scene: Scene) -> None:
    with agent(scene.tracer):
        scene.loop(3)
        for said in (False, True):
            assert feedback(control.current().decision_id or "", false_alarm=said)


def an_open_breaker(_scene: Scene) -> None:
    for _ in range(2):
        with pytest.raises(TimeoutError), resilience.breaker("flaky"):
            raise TimeoutError


def a_closed_breaker(scene: Scene) -> None:
    an_open_breaker(scene)
    resilience.breakers().reset("flaky")


def trouble(scene: Scene) -> None:
    for metric, *_ in (row.values for row in rows(__file__, "trouble")):
        assert scene.values(f"loopguard.{metric}", zeros=True) == [({}, 0)]
    for attempt in resilience.retrying(limit=1, delay_s=0):
        with attempt:
            if attempt.retry_state.attempt_number == 1:
                raise TimeoutError
    resilience.combined({"search": resilience.degraded("search", "it is down")})


def a_fault(scene: Scene) -> None:
    raise_faults(False)
    scene.guard.faults.note("on_step", ValueError("x"))


PLAYS = [a_loop, a_fault, a_stop, a_recovery, a_choice, a_confirmation, a_false_alarm]
PLAYS += [an_open_breaker, a_closed_breaker, trouble]


@pytest.mark.parametrize("play", PLAYS)
def test_what_happens_is_counted(play: Callable[[Scene], None]) -> None:
    """Loops, what a stop saved, recoveries, choices and answers (A10, C15), breakers, feedback."""
    scene = Scene(tuning={"resilience": {"breaker_failures": 2}})
    play(scene)
    counted(scene, play.__name__)
    for name, series in scene.metrics().items():  # no other attribute than in the table, and no id
        for labels, _ in series:
            assert set(labels) <= set(BY_NAME[name].attributes), name
            assert all(len(str(value)) <= 200 for value in labels.values())


def test_the_first_decision_is_an_increase() -> None:
    """Decisions are there with 0 before the first: for all, and for an agent that was seen."""
    scene = Scene()
    before = scene.values("loopguard.decisions", zeros=True)
    assert {labels["loopguard.decision.action"] for labels, _ in before} == {*map(str, Action)}
    assert all(value == 0 for _, value in before)
    wanted = [
        {"loopguard.decision.action": action, "gen_ai.agent.name": "a"}
        for action in ("hint", "deny", "abort")
    ]
    for calls, times in ((1, 0), (5, 1)):
        with agent(scene.tracer):
            scene.loop(calls)
            found = scene.values("loopguard.decisions", zeros=True)
        assert all((labels, times) in found for labels in wanted)
        assert bool(scene.values("loopguard.detector.decisions", zeros=True)) is bool(times)


def test_who_does_nothing_wrong_has_few_series() -> None:
    """Three searches: fewer than 200 series, as Prometheus counts them."""
    registry = CollectorRegistry()
    reader = PrometheusMetricReader(True, scope_info_enabled=False, registry=registry)
    meters = MeterProvider([reader], shutdown_on_exit=False)
    guard = LoopGuard(meter_provider=meters)
    tracer = provider_with(LoopGuardSpanProcessor(guard)).get_tracer("agent")
    with agent(tracer):
        for city in ("Oslo", "Rome", "Bern"):
            tool_call(tracer, args=f'{{"q": "{city}"}}', result=f"rain in {city}")
    samples = [sample for metric in registry.collect() for sample in metric.samples]
    meters.shutdown()
    assert any(sample.value == 3 for sample in samples if "tool_calls" in sample.name)
    assert len(samples) < 200


def test_in_shadow_mode_decisions_are_marked() -> None:
    """An alert on aborts can tell that nothing was stopped; no loop counts as prevented."""
    scene = Scene(mode="shadow")
    with agent(scene.tracer):
        scene.loop(5)
    found = scene.values("loopguard.decisions")
    assert [labels["loopguard.decision.shadow"] for labels, _ in found] == [True] * 3
    assert scene.total("loopguard.loops.prevented") == scene.total("loopguard.saved.time") == 0


def test_sessions_are_counted_while_they_are_open() -> None:
    """Active and known sessions, open steps; the agent's series goes back to 0."""
    scene = Scene()
    call = {"gen_ai.operation.name": "execute_tool"}
    with agent(scene.tracer), scene.tracer.start_as_current_span("execute_tool t", attributes=call):
        assert scene.total("loopguard.session.active", gen_ai__agent__name="a") == 1
        assert scene.total("loopguard.step.open") == 2
    tool_call(scene.tracer)
    with agent(scene.tracer):
        tool_call(scene.tracer)
    after = scene.values("loopguard.session.active", zeros=True)
    assert ({"gen_ai.agent.name": "a"}, 0) in after
    assert scene.total("loopguard.session.known") >= 2


def test_a_stall_is_told_while_it_hangs() -> None:
    """`loopguard.session.stalled` is 1 while a call hangs, and 0 when it came back."""
    scene, stalled = Scene(step_timeout_s=0.2), "loopguard.session.stalled"
    slow = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "slow"}
    with agent(scene.tracer):
        tool_call(scene.tracer)
        with scene.tracer.start_as_current_span("execute_tool slow", attributes=slow):
            assert scene.total(stalled) == 0
            wait_for(lambda: scene.total(stalled, gen_ai__agent__name="a") == 1)
        assert scene.total(stalled) == 0
    stalls = scene.total("loopguard.detector.decisions", loopguard__detector__name="stall")
    assert stalls == scene.total("loopguard.detections", loopguard__detector__name="stall") > 0
    assert ({"gen_ai.agent.name": "a"}, 0) in scene.values(stalled, zeros=True)


def test_what_waits_for_people_is_counted_until_it_goes_on() -> None:
    """A paused session until it is resumed, an escalation until it is answered."""
    scene = Scene()
    waiting, paused = "loopguard.escalation.waiting", "loopguard.session.paused"
    assert scene.values(waiting, zeros=True) == [({}, 0)]
    with agent(scene.tracer):
        tool_call(scene.tracer)
        key = control.current().session or ""
        control.pause(key)
        assert scene.total(paused) == 1
        control.resume(key)
        assert scene.total(paused) == 0
        asked = control.escalate("is this the right file?")
        assert scene.total(waiting) == 1
        control.answer(asked, "continue", by="ada")
        assert scene.total(waiting) == 0


def test_the_guard_says_what_it_takes() -> None:
    """The first 64 ended spans are timed, then one of `telemetry.sample`; with an exemplar."""
    scene = Scene(tuning={"telemetry": {"sample": 10}})
    with agent(scene.tracer):
        for number in range(163):
            tool_call(scene.tracer, args=f'{{"n": {number}}}', result=f"page {number}")
    point = scene.metrics()["loopguard.evaluation.duration"][0][1]
    assert point.count == 64 + 10
    assert 0 < point.min <= point.max
    assert point.explicit_bounds[0] == 1e-5
    assert point.exemplars
    assert all(exemplar.trace_id for exemplar in point.exemplars)


def test_metrics_stay_bounded_whatever_names_there_are() -> None:
    """10,000 agents and random tools: a limit, then `other`; nothing overflows in the SDK."""
    scene = Scene(tuning={"telemetry": {"agents": 30, "tools": 40}}, max_sessions=100)
    for number in range(10_000):
        step = Step(Kind.TOOL, f"tool-{number}", args={"n": number}, outcome=f"{number}")
        step.agent, step.trace_id, step.span_id = f"agent-{number}", number + 1, number + 1
        scene.guard.observe(step, f"s{number % 50}")
    found = scene.metrics()
    tools = {labels["gen_ai.tool.name"] for labels, _ in found["loopguard.tool.calls"]}
    agents = {labels["gen_ai.agent.name"] for labels, _ in found["loopguard.steps"]}
    assert (len(tools), len(agents)) == (41, 31)
    assert "other" in tools & agents
    assert scene.total("loopguard.tool.calls") == 10_000
    for series in found.values():
        assert len(series) < 2000
        assert all("otel.metric.overflow" not in labels for labels, _ in series)


def test_a_table_of_counts_is_bounded_by_itself() -> None:
    """Past 1800 different attributes what is new is `other`, and nothing is lost."""
    counts = Counts()
    for number in range(5000):
        counts.add("m", (f"{number}", ""))
    found = counts.get("m")
    assert (len(found), found["other", ""], sum(found.values())) == (1801, 3200, 5000)


def test_guards_of_one_provider_are_added_up() -> None:
    """Two guards and one meter provider: one series, of both; one that is gone still counts."""
    scene = Scene()
    other = LoopGuard(meter_provider=scene.meters)
    step = Step(Kind.TOOL, "t", args={}, outcome="x")
    scene.guard.observe(step, "s")
    other.observe(step, "s")
    assert scene.total("loopguard.tool.calls") == 2
    gone = weakref.ref(other)
    del other
    gc.collect()
    assert gone() is None
    assert scene.total("loopguard.tool.calls") == 2
    scene.guard.observe(step, "s")
    assert scene.total("loopguard.tool.calls") == 3


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_the_child_of_a_fork_counts_anew() -> None:
    """What the parent counted is the parent's; the child counts, and hangs on no lock."""
    scene = Scene()
    scene.loop(2)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        scene.loop(1)
        os.write(writer, str(scene.total("loopguard.tool.calls")).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        assert float(pipe.read()) == 1
    os.waitpid(child, 0)
    assert scene.total("loopguard.tool.calls") == 2


class Throws(ApiMeterProvider):
    def get_meter(self, *_: object, **__: object) -> object:  # type: ignore[override]
        raise RuntimeError


def test_a_meter_provider_that_throws_is_swallowed_and_counted() -> None:
    """The guard works, and says once that the meter did not."""
    raise_faults(False)
    guard = LoopGuard(Settings(abort_after=2), meter_provider=Throws())
    tracer = provider_with(LoopGuardSpanProcessor(guard)).get_tracer("agent")
    with agent(tracer):
        for _ in range(5):
            tool_call(tracer)
        assert control.current().action is Action.ABORT
    assert guard.faults.counts["telemetry.meter:RuntimeError"] == 1


LATE = """
from opentelemetry import metrics
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from otel_loopguard import LoopGuard
from otel_loopguard.core import Kind, Step
guard, step = LoopGuard(), Step(Kind.TOOL, "t", args={}, outcome="x")
guard.observe(step, "s")
reader = InMemoryMetricReader()
metrics.set_meter_provider(MeterProvider([reader]))
for one in (guard, LoopGuard()):
    one.observe(step, "s")
found = [metric for resource in reader.get_metrics_data().resource_metrics
         for scope in resource.scope_metrics for metric in scope.metrics]
(calls,) = [metric for metric in found if metric.name == "loopguard.tool.calls"]
print(sum(point.value for point in calls.data.data_points))
"""


def test_a_provider_that_is_set_later_misses_nothing() -> None:
    """The global provider may be set after the guard: earlier counts are not lost."""
    assert printed(LATE) == "3\n"


def test_a_phase_is_told_when_it_is_over() -> None:
    """The duration by agent; an open run is not recorded."""
    scene, at = Scene(), time.time_ns()
    for name in ("planner", "coder", "coder", "editor"):
        step = Step(Kind.MODEL, "m", agent=name, start=at, end=at + 4 * SECOND)
        scene.guard.observe(step, "s")
        at += 10 * SECOND
    found = scene.metrics()["loopguard.run.phase.duration"]
    told = {labels["gen_ai.agent.name"]: (point.count, point.sum) for labels, point in found}
    assert told == {"planner": (1, pytest.approx(4)), "coder": (1, pytest.approx(14))}


def test_the_size_of_contexts_and_their_compactions_are_told() -> None:
    """Every model call that says its input tokens; a compaction that they show, and one said."""
    scene = Scene()
    for tokens in (10_000, 20_000, 3000, 3200, None):
        scene.guard.observe(Step(Kind.MODEL, "m", agent="a", tokens_in=tokens), "metrics-run")
    control.compacted("metrics-run")
    ((labels, point),) = scene.metrics()["loopguard.run.context.tokens"]
    assert (labels, point.count, point.max) == ({"gen_ai.agent.name": "a"}, 4, 20_000)
    assert scene.total("loopguard.run.compactions") == 2
