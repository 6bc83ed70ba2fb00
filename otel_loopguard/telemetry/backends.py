"""Backends that verdicts are written to: Langfuse, LangSmith, MLflow, Phoenix. Needs httpx."""

from __future__ import annotations

import base64
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from typing import Any, Final

import orjson

from otel_loopguard import semconv
from otel_loopguard._util.bounded import BoundedDict
from otel_loopguard._util.http import Endpoint
from otel_loopguard._util.text import encoded
from otel_loopguard._util.worker import DeliveryError
from otel_loopguard.errors import LoopGuardSettingsError
from otel_loopguard.telemetry.verdicts import NAME, SOURCE, Verdict

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
        try:
            self.endpoint = Endpoint(url, limit_s)
        except ValueError as error:
            msg = f"{variable}: {error}"
            raise LoopGuardSettingsError(msg) from None
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


def _required(environment: Mapping[str, str], backend: str, name: str) -> str:
    found = environment.get(name, "").strip()
    if not found:
        msg = f"verdicts (LOOPGUARD_VERDICTS) is {backend!r}, which needs the variable {name}"
        raise LoopGuardSettingsError(msg)
    return found


def _key(environment: Mapping[str, str], name: str) -> str:
    """A key that goes into a header as it is; what else is in one is told by who sends it."""
    found = environment.get(name, "").strip()
    if not (found.isascii() and found.isprintable()):
        msg = f"{name}: expected printable ASCII only"
        raise LoopGuardSettingsError(msg)
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

    def __init__(self, environment: Mapping[str, str], limit_s: float) -> None:
        keys = ("LANGFUSE_PUBLIC_KEY", "LANGFUSE_SECRET_KEY")
        headers = _basic(*(_required(environment, "langfuse", name) for name in keys))
        variables = ("LANGFUSE_HOST", "LANGFUSE_BASE_URL")
        name = next((name for name in variables if environment.get(name, "").strip()), variables[0])
        url = environment.get(name, "").strip() or "https://cloud.langfuse.com"
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

    def __init__(self, environment: Mapping[str, str], limit_s: float) -> None:
        _required(environment, "langsmith", "LANGSMITH_API_KEY")
        key = _key(environment, "LANGSMITH_API_KEY")
        url = environment.get("LANGSMITH_ENDPOINT", "").strip() or "https://api.smith.langchain.com"
        super().__init__("LANGSMITH_ENDPOINT", url, {"x-api-key": key}, limit_s)
        self._project = environment.get("LANGSMITH_PROJECT", "").strip()
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

    def __init__(self, environment: Mapping[str, str], limit_s: float) -> None:
        variable = "MLFLOW_TRACKING_URI"
        url = _required(environment, "mlflow", variable)
        user, password = (
            environment.get(f"MLFLOW_TRACKING_{name}", "") for name in ("USERNAME", "PASSWORD")
        )
        token = _key(environment, "MLFLOW_TRACKING_TOKEN")
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
        try:
            info: dict[str, Any] = trace["trace"]["trace_info"]
            for each in info.get("assessments", ()):
                if each.get("metadata", {}).get(semconv.VERDICT_ID) == verdict.id:
                    return str(each["assessment_id"])
        except (AttributeError, KeyError, TypeError):
            # Not as this version of MLflow says it; a second assessment does little harm.
            return None
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

    def __init__(self, environment: Mapping[str, str], limit_s: float) -> None:
        name = "PHOENIX_COLLECTOR_ENDPOINT"
        url = environment.get(name, "").strip().rstrip("/") or "http://127.0.0.1:6006"
        key = _key(environment, "PHOENIX_API_KEY")
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


BACKENDS: Final[Mapping[str, Callable[[Mapping[str, str], float], Backend]]] = {
    "langfuse": Langfuse,
    "langsmith": LangSmith,
    "mlflow": MLflow,
    "phoenix": Phoenix,
}
"""By the name in the setting `verdicts`."""
