"""Verdicts as attributes of spans, by OpenInference's convention for annotations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import orjson

from otel_loopguard.telemetry.verdicts.verdict import NAME, SOURCE, of_decision

if TYPE_CHECKING:
    from collections.abc import Mapping

    from otel_loopguard.sessions.observation import DecisionRecord
    from otel_loopguard.telemetry.verdicts.verdict import Verdict

Scope = Literal["annotations", "trace.annotations", "session.annotations"]
Attributes = dict[str, str | bool | int | float]


class VerdictAttributes:
    """What decisions are on spans, beside the attributes of our own."""

    def on_judged(self, made: DecisionRecord) -> Attributes:
        """What the span gets that a decision is about."""
        return _annotation(of_decision(made), "annotations")

    def on_topmost(self, made: DecisionRecord, said: Mapping[str, object]) -> Attributes:
        """Annotations of trace and session on the topmost span, each with the strongest verdict."""
        verdict, found = of_decision(made), Attributes()
        scopes: tuple[Scope, ...] = ("trace.annotations", "session.annotations")
        for scope in scopes[: 1 + verdict.named]:
            before = said.get(f"{scope}.0.annotation.score")
            if not isinstance(before, float) or before <= verdict.score:
                found |= _annotation(verdict, scope)
        return found


def _annotation(verdict: Verdict, scope: Scope) -> Attributes:
    before = f"{scope}.0.annotation"
    return {
        f"{before}.name": NAME,
        f"{before}.score": verdict.score,
        f"{before}.label": verdict.label,
        f"{before}.explanation": verdict.explanation,
        f"{before}.annotator_kind": "CODE",
        f"{before}.identifier": SOURCE,
        f"{before}.metadata": orjson.dumps(dict(verdict.metadata)).decode(),
    }
