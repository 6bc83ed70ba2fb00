"""Every way in which an instrumentation writes a span is read as the table says."""

import json

import pytest

from otel_loopguard import LoopGuard
from otel_loopguard.dialects import RecordedSpan
from tests.dialects.told import sections, told

TABLE = sections("spans.txt")
CASES = [title for title, lines in TABLE.items() if lines[-1].startswith("= ")]


@pytest.mark.parametrize("case", CASES)
def test_a_span_is_the_step_that_the_table_tells(case: str) -> None:
    """Kind, name, content, failure, whose it is, and no more: a trace id is no session."""
    *lines, expected = TABLE[case]
    step = LoopGuard(clock="replay").reader.read(span_of(lines))
    assert step is not None
    assert f"= {told(step)}" == expected


def span_of(lines: list[str]) -> RecordedSpan:
    name, scope, *more = lines[0].split("  ")
    said = dict(one.split(" ") for one in more if " " in one)
    span = RecordedSpan(name, scope[2:].removesuffix("-"), said.get("kind", "INTERNAL"), 7, start=1)
    span.end, span.status = None if "open" in more else 9, said.get("status", "unset")
    for line in lines[1:]:
        if line.startswith("+ "):
            span.attributes |= span_of(["x  @ -", *TABLE[line[2:]]]).attributes
        elif line.startswith("event "):
            event, _, attributes = line[6:].partition(": ")
            span.events = [*span.events, (event, json.loads(attributes))]
        elif line.startswith("at its start := "):
            span.start_attributes = json.loads(line[16:])
        elif " := " in line:
            key, _, value = line.partition(" := ")
            span.attributes[key] = json.loads(value)
        elif line.startswith("description: "):
            span.description = json.loads(line[13:])
        else:
            key, _, value = line.partition(": ")
            span.attributes[key] = value
    return span
