"""What opencode 1.18.33 kept of a session in its database is read.

It ran against a model with a script: a file that is missing is looked for three times, one file is
read and another is missing, then a sub-agent is asked.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from otel_loopguard.core import Kind
from otel_loopguard.errors import RecordingError
from tests.replay.transcripts import opencode
from tests.replay.transcripts.reading import Told, lines, one, read
from tests.replay.transcripts.test_captures import MISSING, of


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return opencode.whole(tmp_path / "opencode.db")


def change(database: Path, statement: str, *values: Any) -> None:
    with closing(sqlite3.connect(database)) as opened:
        opened.execute(statement, values)
        opened.commit()


def test_a_session_and_its_sub_agent_are_one(database: Path) -> None:
    run = one(database)
    assert run == one(database.parent)  # its folder
    assert (run.agent, run.version, run.cwd) == ("opencode", "1.18.33", "/app")
    assert (run.id, run.endings) == (opencode.SESSION, ("finished",))
    calls = of(run, Kind.TOOL)
    names = [call.name for call in calls]
    assert names == ["bash"] * 3 + ["read"] * 2 + ["bash"] * 2 + ["task"]
    assert [call.error for call in calls] == [True] * 3 + [False, True] + [False] * 3
    assert calls[0].args == {"command": "cat missing.txt", "description": "Look"}
    assert [call.error_text for call in calls[:3]] == [f"{MISSING}\n"] * 3
    assert calls[4].error_text == "File not found: /app/nope.txt"
    assert len({call.agent for call in calls[5:7]} | {"main"}) == 2
    assert all((call.start or 0) < (call.end or 0) for call in calls)
    answers = [step for step in of(run, Kind.MODEL) if step.agent == "main"]
    assert [answer.tokens for answer in answers] == [15, 25, 35, 45, 55, 65, 75]
    assert answers[0].text == "Let me look."
    assert {answer.model for answer in answers} == {"scripted-model"}
    assert len(of(run, Kind.OTHER)) == 1
    named = one(database / opencode.SESSION)
    assert named.id == opencode.SESSION
    assert len(of(named, Kind.TOOL)) == 6  # without those of the sub-agent


@pytest.mark.parametrize(
    "bad", ["{broken", "[]", "", 7, b"{}", b"\xff\xfe", f'{{"type": "tool", "x": {"[" * 99_999}']
)
def test_rows_that_are_broken_are_told_and_passed_over(database: Path, bad: object) -> None:
    calls = len(of(one(database), Kind.TOOL))
    change(database, "UPDATE part SET data = ? WHERE data LIKE '%nope.txt%'", bad)
    told: Told = []
    assert len(of(one(database, told), Kind.TOOL)) == calls - 1 or bad == b"{}"
    assert len(told) == (bad != b"{}")
    change(database, "UPDATE message SET data = ?", bad)
    told.clear()
    assert not read(database, told)
    assert len(told) >= 11


@pytest.mark.parametrize("column", ["id", "time_created"])
@pytest.mark.parametrize("bad", [b"\xff", "a/b", "", -1.5])
def test_keys_that_are_none_do_not_keep_it_from_ending(
    database: Path, column: str, bad: object
) -> None:
    change(
        database,
        f"UPDATE message SET {column} = ? WHERE rowid = 3",  # of this table
        bad,
    )
    assert of(one(database, []), Kind.TOOL)


def test_what_is_no_database_is_passed_over(database: Path) -> None:
    database.write_text("no database " * 99)
    with pytest.raises(RecordingError, match="the folder holds no transcript"):
        read(database)
    database.unlink()
    with closing(sqlite3.connect(database)) as opened:
        opened.execute("CREATE TABLE session (id)")
    with pytest.raises(RecordingError, match="the folder holds no transcript"):
        read(database)


def row(kind: str, key: str, **data: Any) -> dict[str, Any]:
    return {"opencode": kind, "id": key, "data": data}


def answer(**more: Any) -> dict[str, Any]:
    return row("message", "m2", role="assistant", time={"created": 2, "completed": 9}, **more)


PERSON = [row("part", "p1", type="text", text="do it"), row("message", "m1", role="user")]


@pytest.mark.parametrize(
    ("why", "stopped"),
    [
        ("The user rejected permission to use this specific tool call.", True),
        ("Tool execution aborted", True),
        ("The user has specified a rule which prevents you from using this tool", False),
        ("No such file", False),
    ],
)
def test_who_was_refused_by_a_person_did_not_fail(why: str, stopped: bool, tmp_path: Path) -> None:
    state = {"status": "error", "input": {}, "error": why, "time": {"start": 3, "end": 4}}
    part = row("part", "p2", type="tool", tool="bash", state=state)
    aborted = answer(error={"name": "MessageAbortedError"})
    run = one(lines(tmp_path / "s.jsonl", [row("session", "s"), *PERSON, part, aborted]))
    (call,) = of(run, Kind.TOOL)
    assert call.error is not stopped
    assert run.endings == ("interrupted",)


def test_what_opencode_writes_in_a_users_name_is_no_prompt(tmp_path: Path) -> None:
    own = [
        row("part", "p3", type="text", text="Continue", synthetic=True),
        row("message", "m3", role="user"),
    ]
    done = answer(finish="stop")
    written = [row("session", "s"), *PERSON, done, *own, done, *PERSON, done]
    run = one(lines(tmp_path / "s.jsonl", written))
    assert run.endings == ("finished", "finished")


def test_a_call_that_did_not_end_has_no_result_and_tokens_are_those_of_the_cache_too(
    tmp_path: Path,
) -> None:
    state = {"status": "running", "input": {"command": "make"}, "time": {"start": 3}}
    part = row("part", "p2", type="tool", tool="bash", state=state)
    used = {"input": 10, "output": 7, "reasoning": 3, "cache": {"read": 80, "write": 5}}
    written = [row("session", "s"), *PERSON, part, answer(tokens=used)]
    run = one(lines(tmp_path / "s.jsonl", written))
    assert of(run, Kind.TOOL) == []
    (step,) = of(run, Kind.MODEL)
    assert (step.tokens_in, step.tokens_out, step.cache_read, step.cache_write) == (95, 10, 80, 5)
