"""LangSmith: feedback on runs."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any, Final

from otel_loopguard.telemetry.verdicts.api import BackendAPI, DeliveryError, required
from otel_loopguard.telemetry.verdicts.verdict import NAME, SOURCE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from otel_loopguard.telemetry.verdicts.verdict import Verdict

_ADDRESS: Final = "https://api.smith.langchain.com"


def run_of(span_id: int) -> str:
    """The run that LangSmith makes of a span: its id, in the last 8 of 16 bytes."""
    return str(uuid.UUID(int=span_id))


class LangSmith:
    """Writes feedback on the run that the judged span is.

    With `LANGSMITH_PROJECT` it says in which project the run is, which newer servers want.
    """

    def __init__(self, environment: Mapping[str, str], limit_s: float) -> None:
        key = required(environment, "langsmith", "LANGSMITH_API_KEY")
        url = environment.get("LANGSMITH_ENDPOINT", "").strip() or _ADDRESS
        self.api = BackendAPI("LANGSMITH_ENDPOINT", url, {"x-api-key": key}, limit_s)
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
        self.api.call("POST", "/feedback", feedback)

    def _project_of(self) -> str:
        """The id of the project, which is there once it has its first run."""
        if self._project_id is None:
            found: Any = self.api.call("GET", "/sessions", name=self._project, limit=1)
            try:
                self._project_id = str(found[0]["id"])
            except (IndexError, KeyError, TypeError):
                msg = "there is no project of the name in LANGSMITH_PROJECT"
                raise DeliveryError(msg, again=True) from None
        return self._project_id
