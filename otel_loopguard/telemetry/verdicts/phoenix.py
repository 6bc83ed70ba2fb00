"""Arize Phoenix: annotations of spans, traces and sessions.

Phoenix keeps what comes before its span, and writes it down once the span is there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from otel_loopguard._util.bounded import BoundedDict
from otel_loopguard.telemetry.verdicts.api import BackendAPI
from otel_loopguard.telemetry.verdicts.verdict import NAME, SOURCE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from otel_loopguard.telemetry.verdicts.verdict import Verdict

_PORT: Final = "6006"
_TRACES: Final = "/v1/traces"
_KEPT: Final = 10_000


class Phoenix:
    """Writes annotations; a trace and a session keep the strongest verdict."""

    def __init__(self, environment: Mapping[str, str], limit_s: float) -> None:
        name, url = _address(environment)
        key = environment.get("PHOENIX_API_KEY", "").strip()
        headers = {"authorization": f"Bearer {key}"} if key else {}
        self.api = BackendAPI(name, url, headers, limit_s)
        self._strongest: BoundedDict[str, float] = BoundedDict(_KEPT)

    def write(self, verdict: Verdict) -> None:
        """Annotates the span, its trace, and its session if spans carry the key of that."""
        trace_id = f"{verdict.trace_id:032x}"
        if verdict.span_id:
            place = {"span_id": f"{verdict.span_id:016x}"}
            self._annotate("span", {**place, **_annotation(verdict, verdict.id)})
        if verdict.trace_id and self._stands(trace_id, verdict):
            self._annotate("trace", {"trace_id": trace_id, **_annotation(verdict, SOURCE)})
        if verdict.named and self._stands(f"session {verdict.session}", verdict):
            place = {"session_id": verdict.session}
            self._annotate("session", {**place, **_annotation(verdict, SOURCE)})

    def _stands(self, place: str, verdict: Verdict) -> bool:
        """Whether nothing stronger was written: a late try must not undo what came since."""
        if self._strongest.get(place, 0.0) > verdict.score:
            return False
        self._strongest[place] = verdict.score
        return True

    def _annotate(self, scope: str, annotation: dict[str, Any]) -> None:
        self.api.call("POST", f"/v1/{scope}_annotations", {"data": [annotation]}, sync="false")


def _annotation(verdict: Verdict, identifier: str) -> dict[str, Any]:
    return {
        "name": NAME,
        "annotator_kind": "CODE",
        # With a score, Phoenix shows the mean of scores in the place of the label.
        "result": {"label": verdict.label, "explanation": verdict.explanation},
        "metadata": {**verdict.metadata, "score": verdict.score},
        "identifier": identifier,
    }


def _address(environment: Mapping[str, str]) -> tuple[str, str]:
    """The address of Phoenix, and the variable that names it."""
    name = "PHOENIX_COLLECTOR_ENDPOINT"
    url = environment.get(name, "").strip().rstrip("/")
    if url:
        return name, url.removesuffix(_TRACES)
    name = "PHOENIX_HOST"
    host = environment.get(name, "").strip() or "127.0.0.1"
    if "://" in host:
        return name, host
    port = environment.get("PHOENIX_PORT", "").strip() or _PORT
    # What a server listens on is no address to call.
    return name, f"http://{'127.0.0.1' if host == '0.0.0.0' else host}:{port}"  # noqa: S104
