"""MLflow: assessments of traces and of their spans, by its REST API.

MLflow 3 takes OTLP, and makes `tr-` and the 32 hex digits of a trace id its own. It takes an
assessment only of a trace that is there.
"""

from __future__ import annotations

import base64
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Final

from otel_loopguard import semconv
from otel_loopguard.telemetry.verdicts.api import BackendAPI, required
from otel_loopguard.telemetry.verdicts.verdict import NAME, SOURCE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from otel_loopguard.telemetry.verdicts.verdict import Verdict

_ADDRESS: Final = "MLFLOW_TRACKING_URI"
_TRACES: Final = "/api/3.0/mlflow/traces"


class MLflow:
    """Writes feedback. MLflow assigns its own id, so earlier feedback is found by ours."""

    def __init__(self, environment: Mapping[str, str], limit_s: float) -> None:
        url = required(environment, "mlflow", _ADDRESS)
        self.api = BackendAPI(_ADDRESS, url, _authorization(environment), limit_s)

    def write(self, verdict: Verdict) -> None:
        """Assesses the span, or the trace if the session ended; again, in place of the first."""
        if not verdict.trace_id:
            return
        trace_id = f"tr-{verdict.trace_id:032x}"
        assessments = f"{_TRACES}/{trace_id}/assessments"
        known = self._known(trace_id, verdict)
        if known is None:
            self.api.call("POST", assessments, {"assessment": _assessment(verdict, trace_id)})
            return
        changed = _assessment(verdict, trace_id)
        body = {"assessment": changed, "update_mask": "feedback,rationale,metadata"}
        self.api.call("PATCH", f"{assessments}/{known}", body)

    def _known(self, trace_id: str, verdict: Verdict) -> str | None:
        """The assessment that this verdict is already."""
        found: Any = self.api.call("GET", f"{_TRACES}/{trace_id}")
        try:
            info: dict[str, Any] = found["trace"]["trace_info"]
            for each in info.get("assessments", ()):
                if each.get("metadata", {}).get(semconv.VERDICT_ID) == verdict.id:
                    return str(each["assessment_id"])
        except (AttributeError, KeyError, TypeError):
            # Not as this version of MLflow says it; one that is there twice does little harm.
            return None
        return None


def _assessment(verdict: Verdict, trace_id: str) -> dict[str, Any]:
    at = datetime.fromtimestamp(verdict.time / 1e9, timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
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


def _authorization(environment: Mapping[str, str]) -> dict[str, str]:
    user, password, token = (
        environment.get(f"MLFLOW_TRACKING_{name}", "") for name in ("USERNAME", "PASSWORD", "TOKEN")
    )
    if user and password:
        basic = base64.b64encode(f"{user}:{password}".encode()).decode()
        return {"authorization": f"Basic {basic}"}
    return {"authorization": f"Bearer {token}"} if token else {}
