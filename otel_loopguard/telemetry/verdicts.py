"""Decisions, and sessions that ended without one, as verdicts on spans and sessions.

They go to log events, span attributes, and the backends of the setting `verdicts`: Langfuse,
LangSmith, MLflow and Phoenix, which need httpx.
"""

from __future__ import annotations

import base64
import hashlib
import os
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import orjson

from otel_loopguard import semconv
from otel_loopguard._util.bounded import BoundedDict
from otel_loopguard._util.errors import InternalErrors, LogOnce, swallow
from otel_loopguard._util.locks import held, later
from otel_loopguard._util.text import encoded
from otel_loopguard._util.worker import DeliveryError, DeliveryQueue
from otel_loopguard.core import Action
from otel_loopguard.errors import LoopGuardSettingsError
from otel_loopguard.sessions.decisions import annotation
from otel_loopguard.settings import Settings, needing
from otel_loopguard.telemetry.events import INFO, Event, is_sampled, span_context

if TYPE_CHECKING:
    from otel_loopguard.sessions import Session
    from otel_loopguard.sessions.observation import DecisionRecord

NAME: Final = "agent_loop"
"""The name of every verdict: the same for all, so that they can be compared."""
SOURCE: Final = "otel-loopguard"
_OK: Final = "ok"

EVENT_EVALUATION: Final = "gen_ai.evaluation.result"
EVALUATION_NAME: Final = "gen_ai.evaluation.name"
EVALUATION_SCORE: Final = "gen_ai.evaluation.score.value"
EVALUATION_LABEL: Final = "gen_ai.evaluation.score.label"
EVALUATION_EXPLANATION: Final = "gen_ai.evaluation.explanation"

Attributes = dict[str, str | bool | int | float]

_METADATA: Final = (
    semconv.DECISION_ID, semconv.DECISION_REASON, semconv.DETECTOR_NAME,
    semconv.DETECTION_SEVERITY, semconv.DETECTION_SCORE, semconv.DETECTION_REPEAT_COUNT,
    semconv.LOOP_ID, semconv.SESSION_ID, semconv.DECISION_SHADOW,
)  # fmt: skip
"""Parts of a decision's annotation that its verdict repeats."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """A verdict on one span, or on a session that is over; without content of calls.

    Attributes:
        label: The action of the decision; `ok` for a session that ended without one.
        score: 0 for `ok` to 1 for `abort`, by the force of the action.
        explanation: A sentence.
        session: Key of the session.
        named: True if spans carry that key; else it is a trace id.
        detector: Name of the detector; empty for `ok`.
        trace_id: Trace of the span; 0 if there is none.
        span_id: The span judged; 0 if there is none.
        sampled: True if the span is exported.
        time: Nanoseconds since the epoch.
        metadata: Further facts, by the names of their span attributes.
    """

    label: str
    score: float
    explanation: str
    session: str
    named: bool
    detector: str
    trace_id: int
    span_id: int
    sampled: bool
    time: int
    metadata: Mapping[str, str | bool | int | float]

    @property
    def id(self) -> str:
        """An id from session, detector and span, equal in all processes; 32 hex digits."""
        text = "\0".join((self.session, self.detector, f"{self.trace_id:x}-{self.span_id:x}"))
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def of_decision(made: DecisionRecord) -> Verdict:
    """The verdict of a decision."""
    decision = made.decision
    said = annotation(decision, with_session=True).attributes
    metadata = {name: said[name] for name in _METADATA if name in said}
    return Verdict(
        decision.action.value,
        round(decision.action.rank / Action.ABORT.rank, 2),
        decision.message,
        decision.session,
        made.session.named,
        decision.detector,
        decision.trace_id,
        decision.span_id,
        is_sampled(made.opened),
        decision.time,
        metadata,
    )


def of_end(session: Session, time: int) -> Verdict:
    """The verdict on a session that ends without a decision: on the run that began last."""
    trace_id = next(reversed(session.traces), 0)
    run = session.run if trace_id else 0
    metadata = {semconv.SESSION_ID: session.key}
    text = "the session ended without a decision"
    return Verdict(
        _OK, 0.0, text, session.key, session.named, "", trace_id, run, True, time, metadata
    )


def evaluation(verdict: Verdict) -> Event:
    """The log event of a verdict, by the GenAI conventions."""
    attributes: Attributes = {
        **verdict.metadata,
        EVALUATION_NAME: NAME,
        EVALUATION_SCORE: verdict.score,
        EVALUATION_LABEL: verdict.label,
        EVALUATION_EXPLANATION: verdict.explanation,
    }
    place = span_context(verdict.trace_id, verdict.span_id, sampled=verdict.sampled)
    return Event(EVENT_EVALUATION, INFO, verdict.explanation, attributes, verdict.time, place)


def span_annotations(made: DecisionRecord) -> Attributes:
    """Attributes of the judged span, by OpenInference's convention for annotations."""
    return _annotation(of_decision(made), "annotations")


def topmost_annotations(made: DecisionRecord, said: Mapping[str, object]) -> Attributes:
    """Annotations of trace and session on the topmost span, each with the strongest verdict."""
    verdict, found = of_decision(made), Attributes()
    for scope in ("trace.annotations", "session.annotations")[: 1 + verdict.named]:
        before = said.get(f"{scope}.0.annotation.score")
        if not isinstance(before, float) or before <= verdict.score:
            found |= _annotation(verdict, scope)
    return found


def _annotation(verdict: Verdict, scope: str) -> Attributes:
    before = f"{scope}.0.annotation"
    return {
        f"{before}.name": NAME,
        f"{before}.score": verdict.score,
        f"{before}.label": verdict.label,
        f"{before}.explanation": verdict.explanation,
        f"{before}.annotator_kind": "CODE",
        f"{before}.identifier": SOURCE,
        f"{before}.metadata": encoded(dict(verdict.metadata)).decode(),
    }


# The largest reply is a trace of MLflow with its assessments, some kB.
_MOST_REPLY: Final = 1_048_576
_REFUSED: Final = frozenset({400, 401, 403, 405, 410, 413, 415, 422})
"""Statuses that stay. Not 404: the judged span may not have arrived yet."""


class Backend(ABC):
    """A backend and its API.

    Args:
        variable: The environment variable that the address comes from.
        url: The address.
        headers: Headers of every request; never logged.
        limit_s: Seconds that a request may take.

    Raises:
        LoopGuardSettingsError: The address cannot be used.
    """

    def __init__(self, variable: str, url: str, headers: Mapping[str, str], limit_s: float) -> None:
        with needing("verdicts (LOOPGUARD_VERDICTS)", "verdicts", "httpx"):
            from otel_loopguard._util.http import Endpoint  # noqa: PLC0415  # httpx is an extra
        try:
            self.endpoint = Endpoint(url, limit_s)
        except ValueError as error:
            raise LoopGuardSettingsError(f"{variable}: {error}") from None
        self._headers = headers

    @abstractmethod
    def write(self, verdict: Verdict) -> None:
        """Writes a verdict, in place of one with the same id. Blocks.

        Raises:
            DeliveryError: It was not taken.
        """

    def call(
        self, method: str, path: str, body: dict[str, Any] | None = None, **query: str | int
    ) -> Any:  # fmt: skip
        """The reply as JSON; None if it is none. Blocks.

        Raises:
            DeliveryError: There was no reply, or one with another status than 2xx.
        """
        content = None if body is None else encoded(body)
        status, said = self.endpoint.send(
            method, content, self._headers, most=_MOST_REPLY, path=path, query=query
        )
        if not 200 <= status < 300:
            why = f"HTTP status {status}"
            raise DeliveryError(why, again=status not in _REFUSED)
        try:
            return orjson.loads(said)
        except orjson.JSONDecodeError:
            return None


def _variable(name: str) -> str:
    """A variable of the environment; empty if it is not set."""
    return os.environ.get(name, "").strip()


def _required(backend: str, name: str) -> str:
    found = _variable(name)
    if not found:
        msg = f"verdicts (LOOPGUARD_VERDICTS) is {backend!r}, which needs the variable {name}"
        raise LoopGuardSettingsError(msg)
    return found


def _key(name: str) -> str:
    """A key that can be sent as a header unchanged."""
    found = _variable(name)
    if not (found.isascii() and found.isprintable()):
        raise LoopGuardSettingsError(f"{name}: expected printable ASCII only")
    return found


def _basic(user: str, password: str) -> dict[str, str]:
    basic = base64.b64encode(f"{user}:{password}".encode()).decode()
    return {"authorization": f"Basic {basic}"}


def _bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"} if token else {}


def _time(verdict: Verdict) -> datetime:
    return datetime.fromtimestamp(verdict.time / 1e9, timezone.utc)


class Langfuse(Backend):
    """Writes categorical scores; the label is the category. A score may precede its trace."""

    def __init__(self, limit_s: float) -> None:
        keys = ("LANGFUSE_PUBLIC_KEY", "LANGFUSE_SECRET_KEY")
        headers = _basic(*(_required("langfuse", name) for name in keys))
        variables = ("LANGFUSE_HOST", "LANGFUSE_BASE_URL")
        name = next(filter(_variable, variables), variables[0])
        url = _variable(name) or "https://cloud.langfuse.com"
        super().__init__(name, url, headers, limit_s)

    def write(self, verdict: Verdict) -> None:
        """Scores the span; without one its trace, and without that the session."""
        score: dict[str, Any] = {
            "id": verdict.id,
            "name": NAME,
            "value": verdict.label,
            "dataType": "CATEGORICAL",
            "comment": verdict.explanation,
            "metadata": {**verdict.metadata, "score": verdict.score},
            # The same id and time replace a score.
            "timestamp": _time(verdict).isoformat(),
        }
        if verdict.trace_id:
            score["traceId"] = f"{verdict.trace_id:032x}"
            if verdict.span_id:
                score["observationId"] = f"{verdict.span_id:016x}"
        else:
            score["sessionId"] = verdict.session
        self.call("POST", "/api/public/scores", score)


class LangSmith(Backend):
    """Writes feedback on the run that LangSmith makes of the judged span.

    With `LANGSMITH_PROJECT` it says in which project the run is, which newer servers want.
    """

    def __init__(self, limit_s: float) -> None:
        _required("langsmith", "LANGSMITH_API_KEY")
        key = _key("LANGSMITH_API_KEY")
        url = _variable("LANGSMITH_ENDPOINT") or "https://api.smith.langchain.com"
        super().__init__("LANGSMITH_ENDPOINT", url, {"x-api-key": key}, limit_s)
        self._project = _variable("LANGSMITH_PROJECT")
        self._project_id: str | None = None

    def write(self, verdict: Verdict) -> None:
        """Writes feedback, if there is a span that it can be on."""
        if not verdict.span_id:
            return
        metadata = {**verdict.metadata, "score": verdict.score, "by": SOURCE}
        feedback: dict[str, Any] = {
            "id": str(uuid.UUID(hex=verdict.id)),
            "run_id": run_of(verdict.span_id),
            "key": NAME,
            # With a score, LangSmith shows means of it in the place of the value.
            "value": verdict.label,
            "comment": verdict.explanation,
            "feedback_source": {"type": "api", "metadata": metadata},
        }
        if self._project:
            feedback["session_id"] = self._project_of()
        self.call("POST", "/feedback", feedback)

    def _project_of(self) -> str:
        """The id of the project, which exists once it has its first run."""
        if self._project_id is None:
            found: Any = self.call("GET", "/sessions", name=self._project, limit=1)
            try:
                self._project_id = str(found[0]["id"])
            except (IndexError, KeyError, TypeError):
                msg = "there is no project of the name in LANGSMITH_PROJECT"
                raise DeliveryError(msg, again=True) from None
        return self._project_id


def run_of(span_id: int) -> str:
    """The run that LangSmith makes of a span: its id, in the last 8 of 16 bytes."""
    return str(uuid.UUID(int=span_id))


class MLflow(Backend):
    """Writes assessments. MLflow assigns its own id, so earlier ones are found by ours.

    MLflow 3 takes OTLP, and makes `tr-` and the 32 hex digits of a trace id its own. It takes an
    assessment only of a trace that has arrived.
    """

    def __init__(self, limit_s: float) -> None:
        variable = "MLFLOW_TRACKING_URI"
        url = _required("mlflow", variable)
        user = os.environ.get("MLFLOW_TRACKING_USERNAME")
        password = os.environ.get("MLFLOW_TRACKING_PASSWORD")
        token = _key("MLFLOW_TRACKING_TOKEN")
        headers = _basic(user, password) if user and password else _bearer(token)
        super().__init__(variable, url, headers, limit_s)

    def write(self, verdict: Verdict) -> None:
        """Assesses the span, or the trace if the session ended; again, in place of the first."""
        if not verdict.trace_id:
            return
        trace_id = f"tr-{verdict.trace_id:032x}"
        trace = f"/api/3.0/mlflow/traces/{trace_id}"
        assessment = self._assessment(verdict, trace_id)
        known = self._known(self.call("GET", trace), verdict)
        if known is None:
            self.call("POST", f"{trace}/assessments", {"assessment": assessment})
        else:
            body = {"assessment": assessment, "update_mask": "feedback,rationale,metadata"}
            self.call("PATCH", f"{trace}/assessments/{known}", body)

    @staticmethod
    def _known(trace: Any, verdict: Verdict) -> str | None:
        """The id of the assessment that this verdict made earlier."""
        # Another version of MLflow may say it in another way; a second assessment does little harm.
        with suppress(AttributeError, KeyError, TypeError):
            for each in trace["trace"]["trace_info"].get("assessments", ()):
                if each.get("metadata", {}).get(semconv.VERDICT_ID) == verdict.id:
                    return str(each["assessment_id"])
        return None

    @staticmethod
    def _assessment(verdict: Verdict, trace_id: str) -> dict[str, Any]:
        at = _time(verdict).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        assessment: dict[str, Any] = {
            "assessment_name": NAME,
            "trace_id": trace_id,
            "source": {"source_type": "CODE", "source_id": SOURCE},
            "create_time": at,
            "last_update_time": at,
            "feedback": {"value": verdict.label},
            "rationale": verdict.explanation,
            "metadata": {
                **{name: str(value) for name, value in verdict.metadata.items()},
                "score": str(verdict.score),
                semconv.VERDICT_ID: verdict.id,
            },
        }
        if verdict.span_id:
            assessment["span_id"] = f"{verdict.span_id:016x}"
        return assessment


class Phoenix(Backend):
    """Writes annotations; a trace and a session keep the strongest verdict.

    Phoenix keeps an annotation that precedes its span until the span arrives.
    """

    # Of as many traces and sessions as a guard knows by default it is known what was written.
    _MOST_KNOWN: Final = 10_000

    def __init__(self, limit_s: float) -> None:
        name = "PHOENIX_COLLECTOR_ENDPOINT"
        url = _variable(name).rstrip("/") or "http://127.0.0.1:6006"
        key = _key("PHOENIX_API_KEY")
        super().__init__(name, url.removesuffix("/v1/traces"), _bearer(key), limit_s)
        self._strongest: BoundedDict[str, float] = BoundedDict(self._MOST_KNOWN)

    def write(self, verdict: Verdict) -> None:
        """Annotates the span, its trace, and its session if spans carry the key of that."""
        trace_id = f"{verdict.trace_id:032x}"
        if verdict.span_id:
            self._annotate("span", f"{verdict.span_id:016x}", verdict, verdict.id)
        if verdict.trace_id and self._stands(trace_id, verdict):
            self._annotate("trace", trace_id, verdict, SOURCE)
        if verdict.named and self._stands(f"session {verdict.session}", verdict):
            self._annotate("session", verdict.session, verdict, SOURCE)

    def _stands(self, place: str, verdict: Verdict) -> bool:
        """True if nothing stronger was written: a late attempt must not undo what came since."""
        if self._strongest.get(place, 0.0) > verdict.score:
            return False
        self._strongest[place] = verdict.score
        return True

    def _annotate(self, scope: str, place: str, verdict: Verdict, identifier: str) -> None:
        annotation: dict[str, Any] = {
            f"{scope}_id": place,
            "name": NAME,
            "annotator_kind": "CODE",
            # With a score, Phoenix shows the mean of scores in the place of the label.
            "result": {"label": verdict.label, "explanation": verdict.explanation},
            "metadata": {**verdict.metadata, "score": verdict.score},
            "identifier": identifier,
        }
        self.call("POST", f"/v1/{scope}_annotations", {"data": [annotation]}, sync="false")


BACKENDS: Final[Mapping[str, Callable[[float], Backend]]] = {
    "langfuse": Langfuse,
    "langsmith": LangSmith,
    "mlflow": MLflow,
    "phoenix": Phoenix,
}
"""By the name in the setting `verdicts`."""


class VerdictReporter:
    """Sends verdicts to the log events and the backends. Never waits, never raises.

    Args:
        settings: Settings.
        faults: Counts what is swallowed.
        emit: Emits a log event.
        count: Adds one to a metric, by the values of its attributes.
        live: Whether verdicts go to backends, too.

    Raises:
        LoopGuardSettingsError: A backend cannot be used.
    """

    def __init__(
        self, settings: Settings, faults: InternalErrors, emit: Callable[[Event], None],
        count: Callable[[str, tuple[str, ...]], None], *, live: bool,
    ) -> None:  # fmt: skip
        self._faults = faults
        self._emit = emit if "evaluations" in settings.verdicts else None
        self._count = count
        self._tuning = settings.tuning.delivery
        # With each the log of its first loss.
        self._queues: dict[str, tuple[LogOnce, DeliveryQueue[Verdict]]] = {}
        self._failures: dict[str, str] = {}  # the newest of each backend
        for name in sorted(settings.verdicts & BACKENDS.keys()) if live else ():
            backend = BACKENDS[name](self._tuning.timeout_s)
            log = LogOnce(f"verdicts do not arrive at {name} ({backend.endpoint.host})")
            self._queues[name] = log, self._queue(name, backend)

    def on_decision(self, made: DecisionRecord) -> None:
        """Reports a decision; a mere note judges nothing."""
        if made.decision.action is not Action.ALLOW:
            self._report(of_decision(made))

    def on_end(self, session: Session) -> None:
        """A session is over; reported once, and if nothing was decided. May be called anywhere."""
        with swallow(self._faults, "verdicts.end"):
            if session.judged or session.over or not (session.named or session.traces):
                return
            session.over = True
            verdict = of_end(session, time.time_ns())
            if held():
                later(partial(self._report, verdict))
            else:
                self._report(verdict)

    def close(self) -> None:
        """Delivers pending verdicts, within `tuning.delivery.flush_s` in all."""
        until = time.monotonic() + self._tuning.flush_s
        for name, (told, queue) in self._queues.items():
            if not queue.close(max(until - time.monotonic(), 0)):
                why = self._failures.get(name, "no answer in time")
                told.log("", f"{why}; what still waits is lost if the process ends")

    def _report(self, verdict: Verdict) -> None:
        if self._emit is not None:
            self._emit(evaluation(verdict))
        # A verdict on a span that no backend gets is of no use there.
        for name, (_, queue) in self._queues.items() if verdict.sampled else ():
            if not queue.put(verdict):
                self._lost(name, "queue_full", "too many wait")

    def _queue(self, name: str, backend: Backend) -> DeliveryQueue[Verdict]:
        def deliver(verdict: Verdict) -> None:
            backend.write(verdict)
            self._count(semconv.METRIC_VERDICTS, (name, ""))

        def failed(_: Verdict, why: str, again: bool) -> None:
            self._failures[name] = why
            if not again:
                self._lost(name, "failure", why)

        return DeliveryQueue(
            f"verdicts-{name}", deliver, self._faults, failed,
            maximum=self._tuning.queue, attempts=self._tuning.attempts,
            retry_s=self._tuning.retry_s,
        )  # fmt: skip

    def _lost(self, name: str, kind: str, why: str) -> None:
        self._count(semconv.METRIC_VERDICTS, (name, kind))
        self._queues[name][0].log("", f"{why}; more are counted, and not logged")
