"""Decisions as verdicts: on spans, as log events, and in backends, by the conventions of others."""

import base64
import gzip
import json
import logging
import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from langsmith import schemas
from openinference.semconv.trace import AnnotationAttributes, SpanAttributes
from opentelemetry.trace import SpanContext

from otel_loopguard import LoopGuardSettingsError, semconv
from otel_loopguard._util.worker import DeliveryError
from otel_loopguard.core import Kind, Step
from otel_loopguard.telemetry import verdicts
from otel_loopguard.telemetry.verdicts import MLflow, Verdict, run_of
from tests.agents import agent, tool_call
from tests.escalation.hooks import Hook, served
from tests.stores.servers import wait_for
from tests.tables import rows
from tests.telemetry.backends import Backend, serving
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


KEYS = {"PHOENIX_API_KEY": "key-of-phoenix", "LANGSMITH_API_KEY": "key-of-langsmith"}
KEYS |= {"LANGFUSE_PUBLIC_KEY": "pk-lf-1", "LANGFUSE_SECRET_KEY": "sk-lf-1"}
ADDRESSES = {
    "phoenix": "PHOENIX_COLLECTOR_ENDPOINT",
    "langfuse": "LANGFUSE_HOST",
    "langsmith": "LANGSMITH_ENDPOINT",
    "mlflow": "MLFLOW_TRACKING_URI",
}
PATHS = {"phoenix": "/v1/span_annotations", "langfuse": "/api/public/scores"}
PATHS |= {"langsmith": "/feedback"}

# Fields of `CreateScoreRequest` in the client of Langfuse 5.0.4, which is made of its OpenAPI.
_SCORE = {
    "id": str, "traceId": str, "sessionId": str, "observationId": str, "datasetRunId": str,
    "name": str, "value": (str, float), "comment": str, "metadata": dict, "environment": str,
    "queueId": str, "dataType": str, "configId": str, "source": str, "timestamp": str,
}  # fmt: skip


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> Iterator[Backend]:
    with serving() as found:
        for name, value in KEYS.items():
            monkeypatch.setenv(name, value)
        for name in ADDRESSES.values():
            monkeypatch.setenv(name, found.url)
        for name in ("LANGSMITH_PROJECT", "MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_TOKEN"):
            monkeypatch.delenv(name, raising=False)
        yield found


def guarded(name: str, **settings: Any) -> Scene:
    delivery = {"retry_s": 0.01, "flush_s": 30, **settings.pop("delivery", {})}
    return Scene(verdicts=name, tuning={"delivery": delivery}, **settings)


def looped(scene: Scene, **attributes: str) -> list[SpanContext]:
    """Makes five equal calls and waits for the verdicts on three of them; the calls."""
    call = {"args": f'{{"q": "{SECRET}"}}', "result": f"no results: {SECRET}"}
    with agent(scene.tracer, **attributes):
        spans = [tool_call(scene.tracer, **call).get_span_context() for _ in range(5)]
    scene.guard.telemetry.close()
    return spans


@pytest.mark.parametrize(("_", "variable", "said", "value"), rows(__file__, "unusable"))
def test_what_cannot_be_used_is_named_at_the_start_and_not_told(
    _: str, variable: str, said: str, value: str, backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not when the first verdict is lost: the log told the key with each of them."""
    monkeypatch.delenv(variable, raising=False)
    if value:
        monkeypatch.setenv(variable, value.encode().decode("unicode_escape"))
    with pytest.raises(LoopGuardSettingsError, match=said) as refused:
        guarded(variable.partition("_")[0].lower())
    assert "s3cret" not in str(refused.value)


def test_phoenix_gets_annotations_of_span_trace_and_session(backend: Backend) -> None:
    """By the ids of OpenTelemetry; of trace and session one, which the strongest verdict has."""
    scene = guarded("phoenix")
    spans = looped(scene, gen_ai__conversation__id="run-42")
    asked = backend.of("POST", "/v1/span_annotations")
    found = [one for request in asked for one in request.body["data"]]
    assert [one["span_id"] for one in found] == [f"{span.span_id:016x}" for span in spans[2:]]
    assert [one["result"]["label"] for one in found] == ["hint", "deny", "abort"]
    assert len({one["identifier"] for one in found}) == 3
    assert {one["annotator_kind"] for one in found} == {"CODE"}
    assert {request.headers["authorization"] for request in asked} == {"Bearer key-of-phoenix"}
    assert {request.query["sync"] for request in asked} == {"false"}
    traces = backend.of("POST", "/v1/trace_annotations")
    assert traces[-1].body["data"][0]["trace_id"] == f"{spans[0].trace_id:032x}"
    sessions = backend.of("POST", "/v1/session_annotations")
    assert sessions[-1].body["data"][0]["session_id"] == "run-42"
    for last in (traces[-1], sessions[-1]):
        (annotation,) = last.body["data"]
        assert set(annotation["result"]) == {"label", "explanation"}  # no mean is shown of a word
        assert annotation["metadata"]["score"] == 1.0
    assert len({one.body["data"][0]["identifier"] for one in traces + sessions}) == 1


def test_a_late_try_does_not_undo_a_stronger_verdict(backend: Backend) -> None:
    """The hint fails first, and comes after the abort; the trace stays aborted."""
    backend.statuses = [200, 503]
    looped(guarded("phoenix"))

    def labels(scope: str) -> list[str]:
        asked = backend.of("POST", f"/v1/{scope}_annotations")
        return [one.body["data"][0]["result"]["label"] for one in asked]

    assert sorted(labels("span")) == ["abort", "deny", "hint", "hint"]
    assert labels("trace")[-1] == "abort"


def test_langfuse_gets_scores_as_its_openapi_has_them(backend: Backend) -> None:
    """A category per call, with the ids of OpenTelemetry, and one id whenever it is sent again."""
    scene = guarded("langfuse")
    spans = looped(scene)
    asked = backend.of("POST", "/api/public/scores")
    for request in asked:
        for name, value in request.body.items():
            assert isinstance(value, _SCORE[name])
        assert request.body["dataType"] == "CATEGORICAL"
        assert request.body["traceId"] == f"{spans[0].trace_id:032x}"
    assert [request.body["value"] for request in asked] == ["hint", "deny", "abort"]
    places = [request.body["observationId"] for request in asked]
    assert places == [f"{span.span_id:016x}" for span in spans[2:]]
    basic = base64.b64encode(b"pk-lf-1:sk-lf-1").decode()
    assert {request.headers["authorization"] for request in asked} == {f"Basic {basic}"}


def test_langsmith_gets_feedback_as_its_client_has_it(backend: Backend) -> None:
    """On the runs that it makes of the spans, in the project that is named."""
    project = str(uuid.uuid4())
    backend.replies["/sessions"] = [{"id": project, "name": "mine"}]
    with pytest.MonkeyPatch.context() as changed:
        changed.setenv("LANGSMITH_PROJECT", "mine")
        spans = looped(guarded("langsmith"))
    (asked,) = backend.of("GET", "/sessions")
    assert asked.query["name"] == "mine"
    asked_for = backend.of("POST", "/feedback")
    found = [schemas.FeedbackCreate(**{"trace_id": None, **one.body}) for one in asked_for]
    assert [one.run_id for one in found] == [uuid.UUID(run_of(span.span_id)) for span in spans[2:]]
    assert [one.value for one in found] == ["hint", "deny", "abort"]
    assert {(one.key, one.score) for one in found} == {("agent_loop", None)}
    scores = [one.feedback_source.metadata["score"] for one in found if one.feedback_source]
    assert scores == [0.17, 0.67, 1.0]
    assert {str(one.session_id) for one in found} == {project}


def test_a_run_of_langsmith_is_what_its_own_package_says() -> None:
    """The id of a span, in a UUID."""
    otel = pytest.importorskip("langsmith.integrations.otel")
    named = getattr(otel, "langsmith_run_id_from_otel_span_id", None)
    if named is None:
        pytest.skip("this langsmith is older than the function")
    for span_id in (1, 0x0123456789ABCDEF, 2**64 - 1):
        assert run_of(span_id) == str(named(span_id))


def test_mlflow_changes_the_assessment_that_is_there(backend: Backend) -> None:
    """It assigns ids of its own: feedback with ours in its metadata is updated, all else is new."""
    spans = looped(guarded("mlflow"))
    trace = f"/api/3.0/mlflow/traces/tr-{spans[0].trace_id:032x}"
    made = [one.body["assessment"] for one in backend.of("POST", f"{trace}/assessments")]
    assert [one["feedback"]["value"] for one in made] == ["hint", "deny", "abort"]
    assert [one["span_id"] for one in made] == [f"{span.span_id:016x}" for span in spans[2:]]
    again = Verdict(
        "abort", 1.0, "why", f"{spans[2].trace_id:032x}", False, "exact_repeat",
        spans[2].trace_id, spans[2].span_id, True, 1, {},
    )  # fmt: skip
    ours = {semconv.VERDICT_ID: again.id}
    assert made[0]["metadata"].items() >= ours.items()
    known = [{"assessment_id": "a-0"}, {"assessment_id": "a-1", "metadata": ours}]
    backend.replies[trace] = {"trace": {"trace_info": {"assessments": known}}}
    MLflow(60).write(again)
    (changed,) = backend.of("PATCH", f"{trace}/assessments/a-1")
    assert changed.body["assessment"]["feedback"]["value"] == "abort"
    assert len(backend.of("POST", f"{trace}/assessments")) == 3


@pytest.mark.parametrize("name", PATHS)
def test_what_fails_for_a_while_is_tried_again_under_one_id(name: str, backend: Backend) -> None:
    """A verdict that a busy server refused arrives, and only counts when it has."""
    backend.statuses = [503, 429, 404]
    scene = guarded(name)
    looped(scene)
    asked = backend.of("POST", PATHS[name])
    assert len(asked) == 6
    assert len({json.dumps(_id_of(request.body)) for request in asked}) == 3
    counted = scene.values("loopguard.verdicts")
    assert counted == [({"loopguard.verdict.backend": name}, 3)]


def _id_of(body: dict[str, Any]) -> object:
    return body["data"][0]["identifier"] if "data" in body else body["id"]


def test_what_is_refused_for_good_is_counted_and_told_once(
    backend: Backend, caplog: pytest.LogCaptureFixture
) -> None:
    """A wrong key: no second try, one warning, and the key is not in it."""
    backend.statuses = [401] * 3
    scene = guarded("langfuse")
    looped(scene)
    assert len(backend.requests) == 3
    labels = {"loopguard__verdict__backend": "langfuse", "error__type": "failure"}
    assert scene.total("loopguard.verdicts", **labels) == 3
    told = [one.getMessage() for one in caplog.records if "verdicts" in one.getMessage()]
    assert len(told) == 1
    assert "langfuse (127.0.0.1): HTTP status 401" in told[0]
    assert not any(key in caplog.text for key in KEYS.values())


def test_a_backend_that_is_not_there_is_given_up_after_so_many_attempts(
    backend: Backend, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The agent does not notice; all that is lost is counted."""
    monkeypatch.setenv("PHOENIX_COLLECTOR_ENDPOINT", "http://127.0.0.1:9")
    scene = guarded("phoenix", delivery={"attempts": 2})
    with agent(scene.tracer):
        scene.loop(5)
    labels = {"loopguard__verdict__backend": "phoenix", "error__type": "failure"}
    wait_for(lambda: scene.total("loopguard.verdicts", **labels) == 3, 60)
    assert caplog.text.count("verdicts do not arrive") == 1


def test_what_waits_when_a_short_program_ends_is_told(
    backend: Backend, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Long before so many attempts that a verdict is given up."""
    monkeypatch.setenv("PHOENIX_COLLECTOR_ENDPOINT", "http://127.0.0.1:9")
    scene = guarded("phoenix", delivery={"flush_s": 1})
    with agent(scene.tracer):
        scene.loop(5)
    scene.guard.shutdown()
    (told,) = (one.getMessage() for one in caplog.records if "verdicts" in one.getMessage())
    assert "phoenix (127.0.0.1): " in told
    assert "what still waits is lost if the process ends" in told


def test_a_server_that_hangs_holds_neither_the_agent_nor_its_end(backend: Backend) -> None:
    """The queue is bounded, the rest is counted, and shutting down waits as configured."""
    backend.free.clear()
    scene = guarded("phoenix", delivery={"queue": 2, "flush_s": 0.05})
    for _ in range(3):
        with agent(scene.tracer):
            scene.loop(5)
    scene.guard.shutdown()
    labels = {"loopguard__verdict__backend": "phoenix", "error__type": "queue_full"}
    assert scene.total("loopguard.verdicts", **labels) >= 6
    assert len(backend.requests) <= 1
    backend.free.set()


def test_a_session_that_ended_well_is_told_too(backend: Backend) -> None:
    """On the trace, and on the session where there is one; then rates can be formed."""
    scene = guarded("phoenix")
    with agent(scene.tracer, gen_ai__conversation__id="run-42") as run:
        tool_call(scene.tracer)
    scene.guard.shutdown()
    for scope in ("span", "trace", "session"):
        (asked,) = backend.of("POST", f"/v1/{scope}_annotations")
        assert asked.body["data"][0]["result"]["label"] == "ok"
    assert asked.body["data"][0]["session_id"] == "run-42"
    (asked,) = backend.of("POST", "/v1/span_annotations")
    assert asked.body["data"][0]["span_id"] == f"{run.get_span_context().span_id:016x}"


@pytest.mark.parametrize("name", ADDRESSES)
def test_no_content_of_calls_goes_to_a_backend(name: str, backend: Backend) -> None:
    """Arguments, answers and errors stay inside; half a character in a name loses no verdict."""
    scene = guarded(name)
    looped(scene, gen_ai__conversation__id="s\ud83d")
    assert backend.requests
    assert SECRET not in str(backend.requests)
    assert scene.guard.faults.counts == {}


PACKED = gzip.compress(gzip.compress(b"[" + b" " * 100_000_000 + b"]"))


def mlflow(hook: Hook, limit_s: float = 60) -> MLflow:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_TRACKING_URI", hook.url.replace("://", "://me:hunter2@"))
        return MLflow(limit_s)


def test_a_reply_is_not_unpacked_and_the_address_not_told(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with served(Hook(lambda _: (200, PACKED), sent={"content-encoding": "gzip, gzip"})) as hook:
        assert mlflow(hook).call("POST", "/the-path", {"a": 1}) is None
    ((headers, body),) = hook.posts
    assert (headers["accept-encoding"], body) == ("identity", b'{"a":1}')
    assert headers["authorization"] == "Basic bWU6aHVudGVyMg=="
    assert "hunter2" not in caplog.text
    assert "the-path" not in caplog.text


def test_a_reply_without_end_is_no_reply() -> None:
    """A mebibyte is read of it."""
    with served(Hook(lambda _: (200, b"[" + b"1," * 5_000_000 + b"1]"))) as hook:
        assert mlflow(hook).call("POST", "/api", {}) is None


@pytest.mark.parametrize("how", [{"drip_s": 0.05}, {"drip_headers_s": 0.05}], ids=str)
def test_a_reply_that_drips_is_left_at_the_limit(how: dict[str, float]) -> None:
    """The limit is one of the whole request, and not of each piece."""
    with (
        served(Hook(lambda _: (200, b" " * 10_000), **how)) as hook,
        pytest.raises(DeliveryError, match=r"no whole reply within 0\.3 s") as failed,
    ):
        mlflow(hook, 0.3).call("POST", "/api", {})
    assert failed.value.again
