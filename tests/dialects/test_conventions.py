"""Spans of newer GenAI conventions are read as what ran, and a healthy run of them is left alone.

`loop_captures/background__genai.json` is what `opentelemetry-instrumentation-genai-openai` 1.3b0
writes. No instrumentation of today writes the others: `convention_captures/` is written by hand
after the examples of open-telemetry/semantic-conventions-genai, `turns` of pull request 571,
`transfers` of 98 and 447, `around` of v0.1.0.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import pytest

from otel_loopguard.core import Kind
from otel_loopguard.dialects import RecordedSpan
from tests.dialects import loops
from tests.test_untraced import Seen

FOLDER = Path(__file__).parent / "convention_captures"
FOUND = {
    "turns": [
        (Kind.TOOL, "build_status", "triage_agent"),
        (Kind.AGENT, "triage_agent", "triage_agent"),
        (Kind.WORKFLOW, "triage_agent", "triage_agent"),
    ] * 5,
    "transfers": [
        (Kind.TOOL, "transfer_to_weather_agent", "source"),
        (Kind.HANDOFF, "weather_agent", "source"),
        (Kind.HANDOFF, "billing-agent", "weather_agent"),
        (Kind.HANDOFF, "billing-agent", "triage-agent"),
        (Kind.AGENT, "source", "source"),
    ],
    "around": [
        *[
            (Kind.OTHER, "search_memory", None),
            (Kind.OTHER, "retrieval docs", None),
            (Kind.OTHER, "embeddings m", None),
            (Kind.OTHER, "plan planner", "planner"),
            (Kind.OTHER, "upsert_memory", None),
            (Kind.TOOL, "remember", None),
        ] * 12,
        (Kind.OTHER, "create_agent helper", "helper"),
        (Kind.OTHER, "delete_memory_store", None),
        (Kind.AGENT, "planner", "planner"),
    ],
}  # fmt: skip
"""What each capture has, in the order in which the spans ended."""


@pytest.mark.parametrize("name", FOUND)
def test_a_span_of_a_newer_convention_is_the_step_that_it_says(name: str) -> None:
    """Kind, name and agent, whether or not the convention is merged; a healthy run is left alone.

    Asked the same in every turn; what a program does around its model is no call.
    """
    spans = loops.spans(name, FOLDER)
    steps = filter(None, map(Seen().guard.reader.read, spans))
    assert [(step.kind, step.name, step.agent) for step in steps] == FOUND[name]
    seen = Seen().replay(spans)
    expected = [one[1] for one in FOUND[name] if one[0] in (Kind.TOOL, Kind.HANDOFF)]
    assert [call.name for call in seen.calls] == expected
    assert seen.decisions == []


def background() -> list[RecordedSpan]:
    return loops.spans("background__genai")


def test_a_loop_in_the_background_is_found_as_any_other() -> None:
    """The same calls with and without `background` lead to the same decisions."""
    said = [
        [(one.action, one.reason, one.count) for one in Seen().replay(loops.spans(name)).decisions]
        for name in ("background__genai", "responses__openinference")
    ]
    assert said[0] == said[1] != []


def fetches(times: int, status: str) -> list[RecordedSpan]:
    """The capture, with the first look of a status at each answer taken so many times."""
    made, fresh = list[RecordedSpan](), itertools.count(1 << 32)
    looked = set[object]()
    for span in background():
        made.append(span)
        answer, end = span.attributes.get("gen_ai.response.id"), span.end or 0
        if span.attributes.get("gen_ai.response.status") == status and answer not in looked:
            looked.add(answer)
            made += [
                replace(span, span_id=next(fresh), start=end + look, end=end + look + 1)
                for look in range(1, times)
            ]
    return made


@pytest.mark.parametrize("status", ["in_progress", "completed"])
def test_looking_again_at_an_answer_adds_nothing(status: str) -> None:
    """However often it is looked at, and fetched once it is there: it is one answer."""
    once, often = (
        ([(call.name, call.call_id, call.outcome) for call in seen.calls],
         [(one.action, one.reason) for one in seen.decisions])
        for seen in (Seen().replay(background()), Seen().replay(fetches(50, status)))
    )  # fmt: skip
    assert often == once


def test_part_of_an_answer_is_no_answer() -> None:
    """What a look shows before the answer is there asks for no call."""
    spans = background()
    parts = [span for span in spans if "gen_ai.output.messages" in span.attributes]
    for span in parts:
        span.attributes = {**span.attributes, "gen_ai.response.status": "in_progress"}
    assert Seen().replay(spans).calls == []
