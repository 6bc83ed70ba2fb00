"""Transcripts are followed while they are written: what comes in pieces is judged as a whole is."""

import os
import random
import re
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pytest

from otel_loopguard import Decision, LoopGuard, Settings
from otel_loopguard.cli.replay import result_of
from otel_loopguard.replay import FollowedFolders
from otel_loopguard.replay import followed_transcripts as followed
from tests.replay.transcripts import opencode
from tests.replay.transcripts.reading import CAPTURES, lines, one

Told = tuple[str, str, str]
"""Action, rule and sentence of a decision."""


def told(decision: Decision) -> Told:
    return decision.action.value, decision.reason, decision.message


class Following:
    """Follows a folder as `watch --agents` does, with every look made by the test."""

    def __init__(self, folder: Path) -> None:
        self.broken: list[str] = []
        self.new: list[Told] = []
        self.old: list[Told] = []
        self._made: list[Told] = []
        self.guard = LoopGuard(
            Settings(session_ttl_s=1e9), local=False,
            on_decision=lambda _, decision: self._made.append(told(decision)),
        )  # fmt: skip
        self.folders = FollowedFolders(
            [folder], lambda _, __, why: self.broken.append(why), self.guard.forget
        )

    def look(self) -> None:
        for session in self.folders.look():
            for found in session.look():
                self._made.clear()
                self.guard.observe(found.step, found.session)
                (self.old if found.old else self.new).extend(self._made)


def wanted(path: Path) -> list[Told]:
    """What `transcripts` says of the whole file."""
    return [told(decision) for decision in result_of(one(path), Settings()).decisions]


@pytest.fixture(autouse=True)
def _every_look_walks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(followed, "_WALK_SHARE", 0)


@pytest.fixture
def stuck() -> list[str]:
    """The lines of a real transcript of Claude Code in which the guard would have stopped it."""
    (path,) = (CAPTURES / "claude/projects/-app").glob("*.jsonl")
    return path.read_text("utf-8").splitlines(keepends=True)


@pytest.mark.parametrize("agent", ["claude", "codex", "gemini"])
def test_pieces_are_judged_as_the_whole(agent: str, tmp_path: Path, seeds: range) -> None:
    """Transcripts that agents wrote, cut behind each line, and anywhere in them."""
    source = CAPTURES / agent
    for seed in seeds:
        draw, place = random.Random(seed), tmp_path / str(seed)
        place.mkdir()
        following = Following(place)
        for path in sorted(source.rglob("*.jsonl"), key=lambda path: len(path.parts)):
            copy, data = place / path.relative_to(source), path.read_bytes()
            copy.parent.mkdir(parents=True, exist_ok=True)
            cuts = [found.end() for found in re.finditer(b"\n", data)]
            if seed:
                cuts = sorted(draw.randrange(len(data)) for _ in range(20))
            for start, end in pairwise([0, *cuts, len(data)]):
                with copy.open("ab") as file:
                    file.write(data[start:end])
                following.look()
        assert following.new == wanted(source)
        assert following.new
        assert not following.old
        assert not following.broken


def test_what_opencode_writes_into_its_database_is_followed(tmp_path: Path) -> None:
    """With a look between any two of its statements, also within a transaction."""
    said = wanted(opencode.whole(tmp_path / "opencode.db"))
    place = tmp_path / "live"
    place.mkdir()
    with closing(opencode.tables(place / "opencode.db")) as agent:
        following = Following(place)
        for change in opencode.changes():
            agent.execute(*change)
            following.look()
            agent.commit()
            following.look()
            # Nobody else holds the database, nor keeps it from being tidied.
            assert agent.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone() == (0, 0, 0)
    assert following.new == said
    assert [action for action, _, _ in said] == ["hint", "deny"]
    assert not following.old
    assert not following.broken


def test_a_session_of_opencode_that_was_there_before_is_known(tmp_path: Path) -> None:
    written = list(opencode.changes())
    calls = [n for n, (_, row) in enumerate(written) if '"exit":1' in str(row)]
    with closing(opencode.tables(tmp_path / "opencode.db")) as agent:
        half = calls[1] + 3  # the message of the second call is complete
        for change in written[:half]:
            agent.execute(*change)
        agent.commit()
        following = Following(tmp_path)
        following.look()
        assert not following.old
        for change in written[half:]:
            agent.execute(*change)
        agent.commit()
        following.look()
    assert [*following.old, *following.new] == wanted(tmp_path / "opencode.db")
    assert following.old
    assert following.new


def test_a_message_that_opencode_did_not_end_is_read_when_another_follows(tmp_path: Path) -> None:
    """It was killed in a call, and started again."""
    with closing(opencode.tables(tmp_path / "opencode.db")) as agent:
        following = Following(tmp_path)
        answers = 0
        for statement, row in opencode.changes():
            answers += statement.startswith("INSERT INTO message") and "assistant" in row[4]
            if not (answers == 4 and statement.startswith("UPDATE message")):
                agent.execute(statement, row)
                agent.commit()
                following.look()
    assert [action for action, _, _ in following.new] == ["hint", "deny"]
    assert not following.broken


def test_what_was_there_before_is_known_and_not_told_again(
    tmp_path: Path, stuck: list[str]
) -> None:
    place = tmp_path / "projects"
    place.mkdir()
    path = place / "session.jsonl"
    half = next(n for n in range(len(stuck)) if len(_all_of(tmp_path / f"{n}", stuck[:n])) == 1)
    _append(path, stuck[:half])
    following = Following(place)
    following.look()
    assert not following.old
    assert not following.new  # nothing is read of what nobody writes
    _append(path, stuck[half:])
    following.look()
    whole = _all_of(tmp_path / "whole", stuck)
    assert [*following.old, *following.new] == whole
    assert len(following.old) == 1
    assert any(action == "deny" for action, _, _ in following.new)


def _all_of(folder: Path, written: list[str]) -> list[Told]:
    path, following = _begun(folder)
    _append(path, written)
    following.look()
    return following.new


def _begun(folder: Path) -> tuple[Path, Following]:
    """A transcript that is not there yet, in a folder that is followed."""
    folder.mkdir()
    return folder / "session.jsonl", Following(folder)


def _append(path: Path, written: list[str]) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.writelines(written)


@pytest.mark.parametrize("how", ["truncated", "replaced"])
def test_a_file_that_is_written_anew_is_read_anew(
    how: str, tmp_path: Path, stuck: list[str]
) -> None:
    """Of what is in it again nothing is told again; what comes after is judged with it."""
    whole = _all_of(tmp_path / "whole", stuck)
    path, following = _begun(tmp_path / "here")
    half = len(stuck) // 2
    _append(path, stuck[:half])
    following.look()
    before = list(following.new)
    assert before
    if how == "truncated":
        path.write_text("\n" + "".join(stuck[:half]), "utf-8")  # longer: only its content tells
    else:
        other = path.with_suffix(".new")
        other.write_text("".join(stuck[:half]), "utf-8")
        other.replace(path)
    following.look()
    assert following.new == before
    assert following.old == before
    _append(path, stuck[half:])
    following.look()
    assert following.new == whole


@pytest.mark.parametrize("place", ["/dev/zero", "pipe"])
def test_what_takes_the_place_of_a_file_holds_up_nobody(
    place: str, tmp_path: Path, stuck: list[str]
) -> None:
    """An agent could blind the watch for all others; its file is read on once it is there again."""
    path, following = _begun(tmp_path / "here")
    _append(path, stuck)
    following.look()
    before = list(following.new)
    path.rename(tmp_path / "kept")
    if place == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(place)
    for _ in range(2):
        following.look()
    assert set(following.broken) == {"cannot be read: it is not a regular file"}
    (tmp_path / "kept").replace(path)
    following.look()
    assert following.new == before


def test_a_file_that_was_moved_here_is_old(tmp_path: Path, stuck: list[str]) -> None:
    """As Codex moves a rollout that is archived."""
    away = tmp_path / "away.jsonl"
    _append(away, stuck)
    os.utime(away, (1_700_000_000, 1_700_000_000))
    path, following = _begun(tmp_path / "here")
    away.replace(path)
    following.look()
    assert not following.new
    assert not following.old


def test_a_line_that_is_torn_waits_and_one_that_is_broken_is_passed_over(
    tmp_path: Path, stuck: list[str]
) -> None:
    whole = _all_of(tmp_path / "whole", stuck)
    path, following = _begun(tmp_path / "here")
    written = "".join([stuck[0], "{broken\n", "[]\n", "\n", *stuck[1:]]).encode()
    with path.open("wb", buffering=0) as file:
        for start in range(0, len(written), 999):
            file.write(written[start : start + 999])
            following.look()
    assert following.new == whole
    assert following.broken == ["invalid JSON", "the line is not an object"]


def test_only_so_many_sessions_are_held(
    tmp_path: Path, stuck: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that goes on after others took its place is judged on, and tells nothing twice."""
    monkeypatch.setattr(followed, "_SESSIONS", 3)
    whole = _all_of(tmp_path / "whole", stuck)
    first, following = _begun(tmp_path / "here")
    half = len(stuck) // 2
    _append(first, stuck[:half])
    following.look()
    before = list(following.new)
    for number in range(5):
        key = f"session-{number}"
        person = {"type": "user", "message": {"role": "user", "content": "do it"}}
        lines(first.with_name(f"{key}.jsonl"), [{**person, "sessionId": key, "uuid": "u"}])
        following.look()
    assert len(list(following.folders.look())) == 3
    _append(first, stuck[half:])
    following.look()
    assert following.new == whole
    assert following.old == before
