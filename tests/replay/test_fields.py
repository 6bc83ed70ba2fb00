"""Each entry of a recording is read as `fields.txt` has it."""

import json
from pathlib import Path
from typing import Any

import pytest

from otel_loopguard.replay import Run
from otel_loopguard.spans.reader import Reader
from tests.replay.conftest import Read, Reports
from tests.replay.rows import BASES, attribute, loaded
from tests.replay.transcripts.reading import cases

CASES = cases(Path(__file__).with_name("fields.txt"))
RUN = json.dumps({"id": "r", "steps": []})


def written(form: str, fields: str) -> str:
    if form == "document":
        return fields
    given = json.loads(fields)
    return json.dumps(attribute(given) if form == "value of OTLP" else BASES[form](given))


def fields_of(entry: Any, wanted: Any) -> Any:
    if isinstance(entry, Run):
        (entry,) = entry.steps
    found = {name: getattr(entry, name) for name in wanted if name != "step"}
    if "step" in wanted:
        step = Reader().read(entry)
        found["step"] = {name: loaded(getattr(step, name)) for name in wanted["step"]}
    return found


def plain(value: object) -> str:
    """As JSON, so that numbers and truth are told apart; NaN is equal to itself."""
    return json.dumps(value, default=bytes.hex)


@pytest.mark.parametrize(
    ("form", "fields", "wanted"),
    [
        pytest.param(name.partition(":")[0], *row.split(" -> "), id=f"{name}: {row}"[:90])
        for name, rows in CASES.items()
        for row in rows.strip().splitlines()
    ],
)
def test_an_entry(form: str, fields: str, wanted: str, read: Read, reports: Reports) -> None:
    content = written(form, fields)
    wanted, _, why = wanted.partition("! ")
    found = read(content)
    assert [said.startswith(why) for _, _, said in reports][:1] == [True] * bool(why)
    if form == "value of OTLP":
        assert plain(found[0].attributes["k"]) == plain(json.loads(wanted))
    elif wanted.startswith("{"):
        [entry] = found
        assert plain(fields_of(entry, json.loads(wanted))) == plain(json.loads(wanted))
    else:
        assert found == []


@pytest.mark.parametrize("place", range(3))
def test_what_is_broken_costs_nothing_else(place: int, read: Read, reports: Reports) -> None:
    for name, rows in CASES.items():
        for row in rows.strip().splitlines():
            fields, _, why = row.partition(" -> ! ")
            if why:
                lines = [RUN, RUN]
                lines.insert(place, written(name.partition(":")[0], fields))
                reports.clear()
                assert [run.id for run in read("\n".join(lines))] == ["r", "r"], row
                told = {(file.rpartition("/")[2], number) for file, number, _ in reports}
                assert told == {("recorded.jsonl", place + 1)}
