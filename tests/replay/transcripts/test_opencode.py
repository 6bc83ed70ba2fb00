"""The database of opencode: its sessions, and what is broken in it."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from otel_loopguard import RecordingError
from otel_loopguard.core import Kind
from otel_loopguard.replay.transcripts.opencode import stored_sessions
from tests.replay.transcripts import opencode
from tests.replay.transcripts.reading import Told, of, one, read


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return opencode.whole(tmp_path / "opencode.db")


def change(database: Path, statement: str, *values: Any) -> None:
    with closing(sqlite3.connect(database)) as opened:
        opened.execute(statement, values)
        opened.commit()


def test_a_session_and_its_sub_agent_are_one(database: Path) -> None:
    """In the folder of the database, too; one that is named is without the sub-agent."""
    run = one(database)
    assert run == one(database.parent)
    named = one(database / opencode.SESSION)
    assert named.id == run.id == opencode.SESSION
    assert (len(of(named, Kind.TOOL)), len(of(run, Kind.TOOL))) == (6, 8)


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
    change(database, f"UPDATE message SET {column} = ? WHERE rowid = 3", bad)
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


@pytest.mark.parametrize("table", ["session", "message", "part"])
@pytest.mark.parametrize(
    "made",
    [
        "VIEW {} AS WITH RECURSIVE n(id) AS (VALUES (1) UNION ALL SELECT 1 FROM n) SELECT * FROM n",
        "TABLE {} (id AS (zeroblob(1000000000)), session_id, time_updated)",
    ],
    ids=["endless", "huge"],
)
def test_a_table_that_is_a_program_is_not_read(database: Path, table: str, made: str) -> None:
    """A view may never end, and a column that is worked out may fill the memory."""
    change(database, f"DROP TABLE {table}")
    change(database, f"CREATE {made}".format(table))
    assert not stored_sessions(database)
    with pytest.raises(RecordingError, match="cannot be read"):
        read(database / opencode.SESSION)
