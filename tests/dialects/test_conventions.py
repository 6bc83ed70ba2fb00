"""Spans of newer GenAI conventions are read as what ran, and a healthy run of them is left alone.

`loop_captures/background__genai.json` is what `opentelemetry-instrumentation-genai-openai` 1.3b0
writes. No instrumentation of today writes the others: `convention_captures/` is written by hand
after the examples of open-telemetry/semantic-conventions-genai, `turns` of pull request 571,
`transfers` of 98 and 447, `around` of v0.1.0.
"""

import itertools
import re
from dataclasses import replace
from pathlib import Path

import pytest

from otel_loopguard.dialects import RecordedSpan
from tests.dialects import loops
from tests.test_untraced import Seen

FOLDER = Path(__file__).parent / "convention_captures"
TURN = "tool build_status triage_agent|agent triage_agent triage_agent"
ROUND = "other search_memory None|other retrieval docs None|other embeddings m None"
FOUND = {
    "turns": f"{TURN}|workflow triage_agent triage_agent|" * 5,
    "transfers": "tool transfer_to_weather_agent source|handoff weather_agent source|handoff "
    "billing-agent weather_agent|handoff billing-agent triage-agent|agent source source|",
    "around": f"{ROUND}|other plan planner planner|other upsert_memory None|tool remember None|"
    * 12
    + "other create_agent helper helper|other delete_memory_store None|agent planner planner|",
}
"""Kind, name and agent of what each capture has, in the order in which the spans ended."""


@pytest.mark.parametrize("name", FOUND)
def test_a_span_of_a_newer_convention_is_the_step_that_it_says(name: str) -> None:
    """Kind, name and agent, whether or not the convention is merged; a healthy run is left alone.

    Asked the same in every turn; what a program does around its model is no call.
    """
    spans = loops.spans(name, FOLDER)
    steps = filter(None, map(Seen().guard.reader.read, spans))
    said = "".join(f"{step.kind.value} {step.name} {step.agent}|" for step in steps)
    assert said == FOUND[name]
    seen = Seen().replay(spans)
    calls = re.findall(r"(?:tool|handoff) (\S+)", FOUND[name])
    assert [call.name for call in seen.calls] == calls
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
    once, often = Seen().replay(background()), Seen().replay(fetches(50, status))
    calls, again = ([(c.name, c.call_id, c.outcome) for c in one.calls] for one in (once, often))
    assert calls == again
    told, more = ([(d.action, d.reason) for d in one.decisions] for one in (once, often))
    assert told == more


def test_part_of_an_answer_is_no_answer() -> None:
    """What a look shows before the answer is there asks for no call."""
    spans = background()
    parts = [span for span in spans if "gen_ai.output.messages" in span.attributes]
    for span in parts:
        span.attributes = {**span.attributes, "gen_ai.response.status": "in_progress"}
    assert Seen().replay(spans).calls == []
