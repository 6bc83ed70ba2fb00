"""`otel-loopguard transcripts` shows which sessions with coding agents went in circles."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.browser import browser, needs_chromium
from tests.cli.conftest import KEY
from tests.replay.transcripts import opencode
from tests.replay.transcripts.reading import CAPTURES


def test_the_database_of_opencode_is_found(
    home: Path, objects: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = home / ".local/share/opencode"
    place.mkdir(parents=True)
    opencode.whole(place / "opencode.db")
    (row,) = [row for row in objects("transcripts", "--jobs", "1") if row["agent"] == "opencode"]
    assert (row["session"], row["cwd"]) == (opencode.SESSION, "/app")
    assert (row["stop"]["call"], row["whole"]["calls"]) == (3, 8)
    (again,) = objects("transcripts", row["path"], "--jobs", "1")
    assert again["whole"]["calls"] == 6  # the sub-agent has a session of its own
    monkeypatch.setenv("XDG_DATA_HOME", str(home / "nothing"))
    assert len(objects("transcripts", "--jobs", "1")) == 3


def test_folders_of_the_environment_are_asked_first(
    home: Path, objects: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(CAPTURES / "claude"))
    monkeypatch.setenv("CODEX_HOME", str(home / "nothing"))
    monkeypatch.setenv("GEMINI_CLI_HOME", str(CAPTURES / "gemini"))
    shutil.rmtree(home / ".claude")
    rows = objects("transcripts", "--jobs", "1")
    assert sorted(row["agent"] for row in rows) == ["claude-code", "gemini"]
    assert all(str(CAPTURES) in row["path"] for row in rows)


def test_sessions_are_chosen(home: Path, objects: Any, command: Any) -> None:
    """Those of some days, or one that is named, with its sub-agents."""
    for path in (home / ".codex").rglob("*.jsonl"):
        os.utime(path, (1_000_000_000, 1_000_000_000))
    rows = objects("transcripts", "--days", "7", "--jobs", "1")
    assert [row["agent"] for row in rows] == ["claude-code", "gemini"]
    (path,) = (home / ".claude").rglob(f"{KEY}.jsonl")
    (row,) = objects("transcripts", path, "--jobs", "1")
    assert row["whole"]["calls"] == 8
    empty = home / "empty"
    empty.mkdir()
    said = command("transcripts", empty, "--days", "7").stdout
    assert said == f"no sessions of the last 7 days in {empty}\n"


def test_a_model_without_a_price_is_shown_as_such(home: Path, command: Any) -> None:
    for path in (home / ".claude").rglob("*.jsonl"):
        path.write_text(path.read_text().replace("claude-sonnet-4-5", "our-own-model"))
    shutil.rmtree(home / ".codex")
    assert "tokens, at a price that is not known." in command("transcripts", "--jobs", "1").stdout


def test_a_broken_line_is_told_with_its_place(home: Path, command: Any) -> None:
    (path,) = (home / ".codex").rglob("*.jsonl")
    path.write_text(path.read_text() + '{"type": \n{"type": "event_msg", "payload": {}}\n')
    result = command("transcripts", "--jobs", "1", "--format", "json")
    assert result.exit_code == 1
    assert f"{path}:44: no valid JSON" in result.stderr
    assert len(result.stdout.splitlines()) == 3


def test_sessions_that_nobody_interrupted_set_the_stop_line(objects: Any, home: Path) -> None:
    (row,) = objects("calibrate", home, "--false-stops", "0.5")
    assert row["runs"] == 3
    (path,) = (home / ".codex").rglob("*.jsonl")
    path.write_text(path.read_text().replace('"task_complete"', '"turn_aborted"'))
    (row,) = objects("calibrate", home, "--false-stops", "0.5")
    assert row["runs"] == 2
    (row,) = objects("calibrate", home, "--false-stops", "0.5", "--except", KEY)
    assert row["runs"] == 1


def test_the_page_has_nothing_of_what_calls_held(home: Path, command: Any) -> None:
    page = home / "sessions.html"
    assert command("transcripts", "--html", page, "--jobs", "1").exit_code == 0
    text = page.read_text()
    content = ("missing.txt", "note.txt", "hello there", "SUBTASK", "find it", "http:", "https:")
    assert not [each for each in content if each in text]
    assert "default-src 'none'" in text
    # But the tool, and the sentence in the fold.
    assert "at call 3 of 8: identical_call" in text
    assert "was called 3 times with equal arguments" in text


def test_the_page_is_not_written_through_links_of_others(home: Path, command: Any) -> None:
    """In a folder that others can write to, as /tmp."""
    page, mine = home / "sessions.html", home / "mine"
    mine.write_text("mine")
    page.symlink_to(mine)
    for place in (page, home, home / "nowhere" / "page.html"):
        result = command("transcripts", "--html", place, "--jobs", "1")
        assert result.exit_code == 2
        assert f"otel-loopguard: {place}: " in result.stderr
    assert mine.read_text() == "mine"


@needs_chromium
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_opens_in_a_browser(scheme: Any, home: Path, command: Any) -> None:
    (path,) = (home / ".claude").rglob(f"{KEY}.jsonl")
    # What a transcript says is shown as text.
    path.write_text(path.read_text().replace('"/app"', json.dumps("/home/<img src=x>")))
    page = home / "sessions.html"
    assert command("transcripts", "--html", page, "--jobs", "1").exit_code == 0
    with browser() as started:
        opened = started.new_page(color_scheme=scheme)
        asked: list[str] = []
        opened.on("request", lambda request: asked.append(request.url))
        opened.goto(page.as_uri())
        expect(opened.get_by_role("heading", level=1)).to_have_text(
            "Sessions of your coding agents"
        )
        session = opened.locator("details.stop").filter(has_text="<img src=x>")
        expect(session.locator("li").first).to_be_hidden()
        session.locator("summary").click()
        expect(session.locator("li").first).to_contain_text("hint")
        expect(session).to_contain_text("stop at call 3 of 8: identical_call")
        assert opened.locator("img").count() == 0
        colours = opened.evaluate("getComputedStyle(document.body).backgroundColor")
        assert colours == ("rgb(255, 255, 255)" if scheme == "light" else "rgb(20, 24, 29)")
        assert asked == [page.as_uri()]
