"""Decisions as verdicts: attributes of spans, and log events, by the conventions of others."""

import json
import time

from openinference.semconv.trace import AnnotationAttributes, SpanAttributes

from otel_loopguard.core import Kind, Step
from otel_loopguard.telemetry import verdicts
from tests.agents import agent, tool_call
from tests.telemetry.scene import Scene

SECRET = "the-secret-of-the-house"
SCOPES = {
    "span": SpanAttributes.ANNOTATIONS,
    "trace": SpanAttributes.TRACE_ANNOTATIONS,
    "session": SpanAttributes.SESSION_ANNOTATIONS,
}
RESULT = "gen_ai.evaluation.result"


def annotation(attributes: object, scope: str) -> dict[str, object]:
    """What a span says by OpenInference's constants of one scope; nothing if it says nothing."""
    assert hasattr(attributes, "items")
    said = [(*name.partition(f"{SCOPES[scope]}.0."), one) for name, one in attributes.items()]
    found = {name: value for before, _, name, value in said if name and not before}
    known = {value for name, value in vars(AnnotationAttributes).items() if name.isupper()}
    assert found.keys() <= known
    return found


def test_a_judged_span_carries_an_annotation_of_openinference() -> None:
    """Name, score, label and explanation, by a program, with our id in the metadata."""
    scene = Scene(verdicts="annotations")
    with agent(scene.tracer, gen_ai__conversation__id="run-42"):
        scene.loop(5)
    *calls, run = scene.spans.get_finished_spans()
    found = [annotation(call.attributes, "span") for call in calls]
    names, last, attributes = AnnotationAttributes, found[-1], calls[-1].attributes or {}
    said = [(one.get(names.ANNOTATION_LABEL), one.get(names.ANNOTATION_SCORE)) for one in found]
    assert said == [*[(None, None)] * 2, ("hint", 0.17), ("deny", 0.67), ("abort", 1.0)]
    assert last[names.ANNOTATION_NAME] == "agent_loop"
    assert last[names.ANNOTATION_ANNOTATOR_KIND] == "CODE"
    assert last[names.ANNOTATION_EXPLANATION] == attributes["loopguard.decision.message"]
    metadata = json.loads(str(last[names.ANNOTATION_METADATA]))
    assert metadata["loopguard.decision.id"] == attributes["loopguard.decision.id"]
    assert annotation(run.attributes, "span") == {}


def test_the_topmost_span_says_it_of_trace_and_session() -> None:
    """The strongest verdict stands; of a session only where spans carry its id."""
    scene = Scene(verdicts="annotations")
    label = AnnotationAttributes.ANNOTATION_LABEL
    with agent(scene.tracer, gen_ai__conversation__id="run-42"):
        scene.loop(4)
        for _ in range(3):
            tool_call(scene.tracer, "fetch", args='{"q": "other"}')
    *calls, run = scene.spans.get_finished_spans()
    assert annotation(calls[-1].attributes, "span")[label] == "hint"
    assert annotation(run.attributes, "trace")[label] == "deny"
    assert annotation(run.attributes, "session")[label] == "deny"
    web = scene.provider.get_tracer("my.web")
    with web.start_as_current_span("POST /chat"), agent(scene.tracer):
        scene.loop(3)
    *_, run, top = scene.spans.get_finished_spans()
    assert annotation(run.attributes, "trace") == {}
    assert annotation(top.attributes, "trace")[label] == "hint"
    assert annotation(top.attributes, "session") == {}


def test_annotations_and_evaluations_are_off_by_default() -> None:
    """Who did not ask for them gets neither."""
    scene = Scene()
    with agent(scene.tracer):
        scene.loop(5)
    spans = scene.spans.get_finished_spans()
    assert not [name for span in spans for name in span.attributes or {} if "annotation" in name]
    scene.guard.shutdown()
    assert scene.events(RESULT) == []


def test_every_decision_is_an_evaluation_of_its_span() -> None:
    """One event each, in the context of the span that was judged, and no content of calls."""
    scene = Scene(verdicts="evaluations")
    with agent(scene.tracer):
        calls = [tool_call(scene.tracer, args=f'{{"q": "{SECRET}"}}') for _ in range(5)]
    found = scene.events(RESULT)
    assert labels_of(scene) == ["hint", "deny", "abort"]
    assert [one.span_id for one in found] == [c.get_span_context().span_id for c in calls[2:]]
    assert {event.attributes["gen_ai.evaluation.name"] for event in found} == {"agent_loop"}
    last = found[-1].attributes
    assert last["gen_ai.evaluation.score.value"] == 1.0
    decided = scene.events("loopguard.decision")[-1].attributes
    assert last["gen_ai.evaluation.explanation"] == decided["loopguard.decision.message"]
    assert last["loopguard.decision.id"] == decided["loopguard.decision.id"]
    assert SECRET not in str([(event.body, dict(event.attributes)) for event in found])


def test_a_session_that_ends_without_a_decision_is_ok() -> None:
    """Once, on its run, at shutdown at the latest; of those that were judged there is enough."""
    scene = Scene(verdicts="evaluations")
    with agent(scene.tracer, gen_ai__conversation__id="good") as run:
        tool_call(scene.tracer)
    with agent(scene.tracer, gen_ai__conversation__id="bad"):
        scene.loop(5)
    assert "ok" not in labels_of(scene)
    scene.guard.shutdown()
    scene.guard.shutdown()
    label = verdicts.EVALUATION_LABEL
    (ok,) = (event for event in scene.events(RESULT) if event.attributes[label] == "ok")
    assert ok.attributes["loopguard.session.id"] == "good"
    assert ok.attributes[verdicts.EVALUATION_SCORE] == 0.0
    place = run.get_span_context()
    assert (ok.trace_id, ok.span_id) == (place.trace_id, place.span_id)


def test_a_session_that_is_forgotten_by_age_has_ended() -> None:
    """Nobody needs to shut down for that."""
    scene = Scene(verdicts="evaluations", session_ttl_s=60)
    scene.guard.observe(Step(Kind.TOOL, "search", args={"q": "x"}, outcome="found"), "run")
    scene.guard.tick(time.time_ns() + 120 * 10**9)
    assert labels_of(scene) == ["ok"]


def labels_of(scene: Scene) -> list[str]:
    return [event.attributes[verdicts.EVALUATION_LABEL] for event in scene.events(RESULT)]
