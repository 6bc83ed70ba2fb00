"""Commands that read recordings and transcripts: real files, broken ones and none, and figures."""

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from otel_loopguard import LoopGuardError, Settings
from otel_loopguard.cli.calibrate import HIGHEST, allowed, changes
from otel_loopguard.cli.evaluate import Judgement, score
from otel_loopguard.core.report import Report
from otel_loopguard.replay import workers
from tests.browser import browser, needs_chromium
from tests.cli.conftest import KEY, line, tried
from tests.replay.transcripts import opencode
from tests.replay.transcripts.reading import CAPTURES
from tests.tables import rows

_RANDOM = re.compile(r'"id":"[0-9a-f]{16}"')  # ids of decisions

COMMANDS = ("steps", "replay", "report", "explain", "learn", "eval", "doctor")


@pytest.mark.parametrize("name", COMMANDS)
def test_broken_lines(command: Any, runs: Path, name: str) -> None:
    """Each fault is told once, ten in all, and then how many more; what is whole is read."""
    whole = command(name, runs, "--format", "json").stdout.splitlines()
    faults = [f'{{"{"a" * more}" no' for more in range(10)]
    broken = ["no json"] * 30 + faults
    runs.write_text("\n".join([*broken, runs.read_text()]))
    result = command(name, runs, "--format", "json")
    assert result.exit_code == 1
    assert len(result.stdout.splitlines()) == len(whole) > 0
    *reports, like_it, others = result.stderr.splitlines()
    told = [report.partition(": ")[0] for report in reports]
    assert told == [f"{runs}:{number}" for number in (1, *range(31, 40))]
    assert like_it == f"otel-loopguard: {runs}: 29 more lines like line 1"
    assert others == "otel-loopguard: 1 more line with other faults"


@pytest.mark.parametrize("name", COMMANDS)
def test_a_span_that_comes_again_counts_once(
    command: Any, shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """What an exporter sent twice, or files hold that overlap, is told and changes nothing."""
    monkeypatch.setenv("LOOPGUARD_DIGEST_KEY", KEY)
    lines = (shared / "spans/langgraph__genai.otlp.jsonl").read_bytes().splitlines(keepends=True)
    path = tmp_path / "spans.jsonl"
    path.write_bytes(b"".join(lines))
    once = command(name, path, "--format", "json")
    path.write_bytes(b"".join(line * 2 for line in lines) + b"".join(lines))
    again = command(name, path, "--format", "json")
    assert again.exit_code == once.exit_code
    assert _RANDOM.sub("", again.stdout) == _RANDOM.sub("", once.stdout)
    (told,) = set(again.stderr.splitlines()) - set(once.stderr.splitlines())
    assert "came again" in told


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("content", [b"", b"\x7fELF\0\0\n" * 100], ids=["empty", "binary"])
def test_a_file_that_holds_nothing(command: Any, tmp_path: Path, name: str, content: bytes) -> None:
    """It ends with 1 and one line that says so; one that is not there with 2."""
    path = tmp_path / "file"
    path.write_bytes(content)
    result = command(name, path)
    assert result.exit_code == 1
    [said] = result.stderr.splitlines()
    assert said.startswith(f"{path}:1: the file is ")
    result = command(name, "no-such-file")
    assert result.exit_code == (1 if name == "explain" else 2)  # there it may be a session
    assert result.stdout == ""
    assert "no-such-file" in result.stderr


def test_eval_with_workers(objects: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are the same and in the same order."""
    monkeypatch.setattr(workers, "_STEPS_WORTH_WORKERS", 100)
    path = tmp_path / "runs.jsonl"
    lines = [line(f"r{number}", loop=number % 3 == 0, calls=4 + number % 5) for number in range(80)]
    path.write_text("\n".join(lines))
    found = objects("eval", path, "--errors", "--jobs", 1)
    assert found == objects("eval", path, "--errors", "--jobs", 2)
    assert any(row.get("stopped_tp") for row in found)


@pytest.mark.parametrize("name", ["intercode.jsonl.gz", "trail.otlp.jsonl.gz"])
def test_report_agrees_with_replay(objects: Any, shared: Path, name: str) -> None:
    """The same decisions, run by run and trace by trace; times and tokens where spans have them."""
    path = shared / "traces" / name
    reports = objects("report", path)
    names = {each.name for each in fields(Report)} | {"source", "error_rate", "precision"}
    for replayed, report in zip(objects("replay", path), reports, strict=True):
        assert set(report) == names
        assert (replayed["session"], replayed["source"]) == (report["session"], report["source"])
        assert replayed["steps"] == report["steps"] > 0
        notes = sum(report["notes_by_type"].values())
        assert len(replayed["decisions"]) == report["alert_count"] + notes
    assert any(report["alerts"] for report in reports)
    if "otlp" in name:
        assert len({report["session"] for report in reports}) == 70
        assert any(report["tokens"] and report["duration_s"] for report in reports)


@pytest.mark.parametrize("name", ["trail.jsonl.gz", "trail.otlp.jsonl.gz"], ids=["steps", "spans"])
def test_trail(objects: Any, shared: Path, name: str) -> None:
    """On real durations 85 to 95 % hold, and at most 0.5 % of the steps are false alarms."""
    whole = objects("learn", shared / "traces" / name)[-1]
    assert whole["measured"] > 100
    assert 0.85 <= whole["within"] <= 0.95
    assert whole["false_alarm_rate"] <= 0.005


def test_steps_of_a_capture(objects: Any, shared: Path) -> None:
    """Every call of a captured agent is printed once, with its arguments and outcome."""
    rows = objects("steps", shared / "spans/langgraph__openinference.otlp.jsonl")
    assert {row["source"] for row in rows} == {"langgraph__openinference.otlp.jsonl"}
    [session] = {row["session"] for row in rows}
    assert session
    assert [row["index"] for row in rows] == list(range(len(rows)))
    tools = [row for row in rows if row["kind"] == "tool"]
    bodies = json.loads((shared / "spans/langgraph__openinference.json").read_text())["bodies"]
    assert [row["tool"] for row in tools] == [
        body["name"] for body in bodies if body["kind"] == "tool"
    ]
    assert tools[0]["args"] == "weather in Paris"
    assert tools[0]["outcome"] == "no results for weather in Paris"
    assert tools[0]["start"] < tools[0]["end"]


def test_the_sample_has_its_notice() -> None:
    """The recorded run is small, and its licence stands beside it."""
    data = Path(__file__).parents[2] / "otel_loopguard/cli/data"
    assert (data / "intercode-sql.otlp.jsonl.gz").stat().st_size < 200_000
    notice = (data / "NOTICE").read_text()
    assert "intercode-sql.otlp.jsonl.gz" in notice
    assert "Copyright (c) 2023 Princeton" in notice
    assert "Permission is hereby granted" in notice


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
    assert "was called 3 times with the same arguments" in text


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
def test_the_page_opens_in_a_browser(home: Path, command: Any) -> None:
    (path,) = (home / ".claude").rglob(f"{KEY}.jsonl")
    # What a transcript says is shown as text.
    path.write_text(path.read_text().replace('"/app"', json.dumps("/home/<img src=x>")))
    page = home / "sessions.html"
    assert command("transcripts", "--html", page, "--jobs", "1").exit_code == 0
    with browser() as started:
        opened = started.new_page()
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
        assert asked == [page.as_uri()]


def judged(
    loop: bool | None, noticed: int | None, stopped: int | None, onset: int | None = 1
) -> Judgement:
    return Judgement("t", "s", loop, 100, onset, noticed, stopped)


def test_scores() -> None:
    """Shares and medians are those of the definition; what cannot be said is None."""
    about = [
        judged(True, 3, 5), judged(True, 5, None), judged(True, None, None),
        judged(True, 9, None, onset=None), judged(False, 2, 4), judged(False, None, None),
        judged(None, 1, 1), judged(None, None, None),
    ]  # fmt: skip
    row = score(about)
    assert (row["n"], row["loops"], row["healthy"], row["unlabelled"]) == (8, 4, 2, 2)
    assert (row["noticed_tp"], row["noticed_fp"], row["noticed_recall"]) == (3, 1, 0.75)
    assert (row["stopped_tp"], row["stopped_fp"], row["stopped_false"]) == (1, 1, 0.5)
    assert (row["noticed_median_steps"], row["stopped_median_steps"]) == (3, 4)
    unsaid = score([judged(None, None, None)])
    assert unsaid["noticed_recall"] is unsaid["stopped_median_steps"] is None


@pytest.mark.parametrize(("given", "above"), rows(__file__, "allowed"))
def test_how_many_runs_may_be_stopped(given: str, above: str) -> None:
    """The line is put at the conformal quantile, ceil((n + 1)(1 - rate)) of n."""
    runs, rate = map(float, given.split())
    assert allowed(int(runs), rate) == int(above)


@pytest.mark.parametrize(("given", "said"), rows(__file__, "refused"))
def test_too_few_runs(given: str, said: str) -> None:
    """It is refused, with how many are needed and which rate there are enough for."""
    runs, rate = map(float, given.split())
    with pytest.raises(LoopGuardError, match=said):
        allowed(int(runs), rate)


def test_the_highest_line_is_a_setting() -> None:
    """Every line that may be tried is one that the settings take."""
    assert Settings(**changes(Settings(), HIGHEST)).deny_after == HIGHEST
    with pytest.raises(LoopGuardError):
        Settings(deny_after=HIGHEST + 1)


def test_files_are_read_more_than_once(command: Any, tmp_path: Path) -> None:
    """What is broken in them is told once, and a pipe is refused."""
    past, pipe = tmp_path / "past.jsonl", tmp_path / "pipe"
    past.write_text("\n".join([*map(tried, range(9), [9] + [0] * 8), "{broken"]))
    result = command("calibrate", past, "--false-stops", 0.1)
    assert (result.exit_code, result.stderr.count("past.jsonl:10")) == (1, 1)
    os.mkfifo(pipe)
    result = command("calibrate", pipe, "--false-stops", 0.5)
    assert result.exit_code == 2
    assert f"{pipe}: calibrate reads its files more than once" in result.stderr


def test_the_file_of_a_calibration_stands_alone(command: Any, tmp_path: Path) -> None:
    """It has the settings that the runs were replayed with, and no more readers than their file."""
    past, base, made = (tmp_path / name for name in ("past.jsonl", "base.toml", "made.toml"))
    past.write_text("\n".join(map(tried, range(9), [9] + [0] * 8)))
    base.write_text(
        'exempt_tools = ["sea*"]\nstore_prefix = "\\"é\\\\"\ndeny_after = 7\nsensitivity = 2\n'
        '[tools."a.b"]\nduration_ms = 1.5\nonce = true\n'
        "[agent_limits.x]\ncost = 1.5\n[tuning.text]\ntail_period = 9\n"
    )
    base.chmod(0o600)
    words = ("calibrate", past, "--false-stops", 0.1, "--settings", base, "--output", made)
    assert command(*words).exit_code == 0
    assert made.stat().st_mode & 0o777 == 0o600
    found = Settings.from_file(made).values()
    assert found == {**Settings.from_file(base).values(), **changes(Settings(deny_after=7), 1)}


@pytest.mark.parametrize(
    "words", ["replay", "eval --jobs 2", "calibrate --false-stops 0.5", "backtest --jobs 2"]
)
def test_a_variable_that_is_ignored_is_told(runs: Path, words: str) -> None:
    """Once, as the live guard does."""
    name = "LOOPGUARD_REPAET_THRESHOLD"
    done = subprocess.run(
        [sys.executable, "-m", "otel_loopguard", *words.split(), str(runs)],
        cwd=runs.parent, env={**os.environ, name: "2"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stderr.count(name) == 1
