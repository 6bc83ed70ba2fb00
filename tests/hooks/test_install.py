"""Hooks are installed in the agents' own settings, and removed, without harm to what is there."""

import json
import os
import shutil
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from otel_loopguard.cli.app import app
from otel_loopguard.hooks import jsonc
from otel_loopguard.hooks.agents import AGENTS
from otel_loopguard.hooks.install import BACKUP, HOOK_FILES, command_of, install
from tests import tables

WITH_HOOKS = [agent for agent in HOOK_FILES if agent != "opencode"]
MINE = (Path(__file__).with_name("data") / "mine.jsonc").read_text(encoding="utf-8")


def run(*words: str) -> Result:
    return CliRunner().invoke(app, ["hook", *words])


def done(*words: str) -> str:
    result = run(*words)
    assert result.exit_code == 0, result.output
    return result.output


def rows(agent: str) -> dict[str, dict[str, Any]]:
    """What `status` says of an agent, by scope."""
    lines = [json.loads(line) for line in done("status", "--format", "json").splitlines()]
    return {line["scope"]: line for line in lines if line["agent"] == agent}


def commands(file: Path) -> list[str]:
    return json.dumps(jsonc.loads(file.read_text(encoding="utf-8"))).split(" hook run ")[1:]


@pytest.fixture
def claude(user: Path) -> Path:
    """The user's settings of Claude Code, which are not there yet."""
    file = HOOK_FILES["claude-code"].user()
    file.parent.mkdir()
    return file


@pytest.mark.parametrize("scope", ["user", "project"])
@pytest.mark.parametrize("agent", AGENTS)
def test_hooks_are_set_once_and_taken_away(user: Path, agent: str, scope: str) -> None:
    """To observe, unless it is said otherwise; a second time changes nothing."""
    done("install", agent, f"--{scope}")
    row = rows(agent)[scope]
    file = Path(row["file"])
    assert file.is_relative_to(user / "project" if scope == "project" else user)
    assert row["installed"]
    assert row["mode"] == "observe"
    assert row["missing_events"] == []
    written, told = file.read_bytes(), file.stat().st_mtime_ns
    assert "nothing to change" in done("install", agent, f"--{scope}")
    assert (file.read_bytes(), file.stat().st_mtime_ns) == (written, told)

    done("install", agent, f"--{scope}", "--mode", "enforce")
    assert rows(agent)[scope]["mode"] == "enforce"
    assert b"observe" not in file.read_bytes()
    done("uninstall", agent)
    assert not [path for path in user.rglob("*") if path.is_file()]  # nor a copy of what was ours
    assert not rows(agent)[scope]["installed"]
    assert "no hooks are installed" in done("uninstall", agent)


@pytest.mark.parametrize("agent", WITH_HOOKS)
def test_each_event_that_is_read_has_one_hook(user: Path, agent: str) -> None:
    done("install", agent)
    hooks = jsonc.loads(HOOK_FILES[agent].user().read_text(encoding="utf-8"))["hooks"]
    assert tuple(hooks) == AGENTS[agent].installed
    assert all(len(each) == 1 for each in hooks.values())
    key = "hookEventName" if agent == "vscode" else "hook_event_name"
    named = {"session_id": "s", "conversation_id": "s", "source": "user"}
    assert all(AGENTS[agent].read({key: event, **named}) for event in hooks)


@pytest.mark.parametrize("agent", ["claude-code", "codex", "gemini"])
def test_other_hooks_and_comments_stay(user: Path, agent: str) -> None:
    """Whether they stand before or behind ours; what is left is what was there.

    Comments between hooks are in the copy beside it.
    """
    file = HOOK_FILES[agent].user()
    file.parent.mkdir(parents=True)
    file.write_text(MINE, encoding="utf-8")
    done("install", agent)
    text = file.read_text(encoding="utf-8")
    for each in ("// My settings.", '"say done"', r'"lint \ud83d"', "// mine"):
        assert each in text
    hooks = jsonc.loads(text)["hooks"]
    hooks["Stop"].append({"hooks": [{"command": "later"}]})
    file.write_text(jsonc.with_member(text, "hooks", hooks))
    done("install", agent, "--mode", "enforce")
    assert len(commands(file)) == file.read_text().count(f"hook run {agent} --mode enforce")
    done("uninstall", agent)
    left = jsonc.loads(file.read_text(encoding="utf-8"))
    before = jsonc.loads(MINE)
    before["hooks"]["Stop"].append({"hooks": [{"command": "later"}]})
    assert left == before


def test_what_was_there_lies_beside_it(claude: Path) -> None:
    """With the same permissions: such settings hold tokens."""
    claude.write_text(MINE, encoding="utf-8")
    claude.chmod(0o600)
    backup = claude.with_name(claude.name + BACKUP)
    assert str(backup) in done("install", "claude-code")
    assert str(backup) not in done("install", "claude-code", "--mode", "enforce")
    assert backup.read_text(encoding="utf-8") == MINE
    assert stat.S_IMODE(claude.stat().st_mode) == stat.S_IMODE(backup.stat().st_mode) == 0o600
    assert not list(claude.parent.glob(".*"))


@pytest.mark.parametrize("text", [MINE, "{}\n", '{"theme":"dark"}', '{\r\n\t"hooks": {}\r\n}\r\n'])
@pytest.mark.parametrize("agent", WITH_HOOKS)
def test_what_was_there_is_put_back(user: Path, agent: str, text: str) -> None:
    """Byte by byte, and nothing stays beside it; what was changed since then stays changed."""
    file = HOOK_FILES[agent].user()
    file.parent.mkdir(parents=True)
    for since in ("", "// since then\n", '"hooks"'):
        file.write_bytes(text.encode())
        done("install", agent)
        done("install", agent, "--mode", "enforce")
        now = file.read_bytes().decode()
        if since == '"hooks"':
            hooks = {**jsonc.loads(now)["hooks"], "Mine": [{"command": "since"}]}
            now = jsonc.with_member(now, "hooks", hooks)
        else:
            now = since + now
        file.write_bytes(now.encode())
        done("uninstall", agent)
        if since:
            assert "since" in file.read_bytes().decode()
            file.with_name(file.name + BACKUP).unlink()
        else:
            assert file.read_bytes() == text.encode()
            assert list(file.parent.iterdir()) == [file]


def test_a_link_stays_one(user: Path, claude: Path) -> None:
    """People keep their settings in a repository of their own."""
    real = user / "dotfiles.json"
    real.write_text("{}\n", encoding="utf-8")
    claude.symlink_to(real)
    done("install", "claude-code")
    assert claude.is_symlink()
    assert len(commands(real)) == len(AGENTS["claude-code"].installed)
    done("uninstall", "claude-code")
    assert claude.is_symlink()
    assert jsonc.loads(real.read_text(encoding="utf-8")) == {}


@pytest.mark.parametrize(("written", "told"), tables.rows(__file__, "broken"))
def test_a_broken_file_is_told_of_and_not_touched(claude: Path, written: str, told: str) -> None:
    """It hides no other."""
    text = tables.content(written)
    done("install", "codex")
    claude.write_bytes(text)
    for word in ("install", "uninstall"):
        result = run(word, "claude-code")
        assert result.exit_code == 2
        assert str(claude) in result.output
        assert told in result.output
    assert list(claude.parent.iterdir()) == [claude]
    assert claude.read_bytes() == text
    assert told in rows("claude-code")["user"]["problem"]
    assert rows("codex")["user"]["installed"]


def test_hooks_of_an_earlier_version_are_replaced(claude: Path) -> None:
    """Also at events that are no longer used, and in a group with others."""
    old = {"type": "command", "command": "/old/otel-loopguard hook run claude-code"}
    other = {"type": "command", "command": "lint"}
    hooks = {"PreToolUse": [{"hooks": [old, other]}], "WorktreeCreate": [{"hooks": [old]}]}
    claude.write_text(json.dumps({"hooks": hooks}), encoding="utf-8")
    row = rows("claude-code")["user"]
    assert (row["mode"], row["program_found"]) == ("observe", False)
    assert "Stop" in row["missing_events"]
    done("install", "claude-code")
    now = jsonc.loads(claude.read_text(encoding="utf-8"))["hooks"]
    assert "/old/" not in claude.read_text(encoding="utf-8")
    assert "WorktreeCreate" not in now
    assert now["PreToolUse"][0] == {"hooks": [other]}


def test_a_program_that_is_gone_is_told_of(user: Path) -> None:
    program = str(user / "gone" / "otel-loopguard")
    install("codex", "user", "observe", user, program=program)
    row = rows("codex")["user"]
    assert (row["program"], row["program_found"]) == (program, False)
    assert "is not found: install again" in done("status")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("LOOPGUARD_REPEAT_THRESHOLD", "abc"), ("LOOPGUARD_SETTINGS_FILE", "/gone.toml"),
        ("LOOPGUARD_ENABLED", "false"), ("XDG_STATE_HOME", __file__),  # no folder for a state
    ],
)  # fmt: skip
@pytest.mark.usefixtures("user")
def test_what_keeps_events_from_being_judged_is_told_of_before_the_first_one(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    told = done("install", "codex")
    assert "nothing is guarded: no event is judged" in told
    assert name in told
    assert name in rows("codex")["user"]["todo"]


@pytest.mark.parametrize("place", ["user", "project", "of this machine"])
def test_hooks_that_are_all_turned_off_are_told_of(user: Path, claude: Path, place: str) -> None:
    """Also elsewhere; what a project says goes before what its user says."""
    project = user / "project" / ".claude"
    project.mkdir(parents=True)
    named = {"user": claude, "project": project / "settings.json"}
    file = named.get(place, project / "settings.local.json")
    file.write_text('{"disableAllHooks": true}', encoding="utf-8")
    assert "nothing is guarded" in done("install", "claude-code")
    assert rows("claude-code")["user"]["off_in"] == str(file)
    assert "disableAllHooks" in file.read_text(encoding="utf-8")
    (project / "settings.local.json").write_text('{"disableAllHooks": false}', encoding="utf-8")
    assert rows("claude-code")["user"]["off_in"] is None


def test_a_program_that_a_project_names_is_to_be_on_the_path(
    user: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To install the hooks again would write the same."""
    monkeypatch.setenv("PATH", str(user))
    assert "PATH of the agent" in done("install", "claude-code", "--project")
    assert "PATH of the agent" in done("status")


def test_another_plugin_of_this_name_is_left_alone(user: Path) -> None:
    file = HOOK_FILES["opencode"].user()
    file.parent.mkdir(parents=True)
    file.write_text("export const Mine = 1\n", encoding="utf-8")
    assert run("install", "opencode").exit_code == 2
    done("uninstall", "opencode")
    assert file.read_text(encoding="utf-8") == "export const Mine = 1\n"
    assert "another plugin" in rows("opencode")["user"]["problem"]


SHELLS = [shell for shell in ("sh", "bash", "dash", "zsh", "fish") if shutil.which(shell)]


@pytest.mark.skipif(os.name == "nt", reason="a POSIX shell runs it")
@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("folder", ["bin", "my tools", "it's $HOME"])
@pytest.mark.parametrize("script", ["cat", "exit 2", "#!/no/such/python\n", None])
def test_a_line_never_blocks_the_agent(
    tmp_path: Path, shell: str, folder: str, script: str | None
) -> None:
    """It ends with 0 and `{}` also where the program is broken or gone, wherever it lies."""
    program = tmp_path / folder / "otel-loopguard"
    if script is not None:
        program.parent.mkdir()
        begin = "" if script.startswith("#!") else "#!/bin/sh\n"
        program.write_text(f'{begin}{script}; echo " $*"\n', encoding="utf-8")
        program.chmod(0o755)
    said = "{} hook run codex --mode enforce\n" if script == "cat" else "{}\n"
    line = command_of(str(program), "codex", "enforce")["SHELL"]
    assert subprocess.check_output([shell, "-c", line], input="{}", text=True) == said


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=12,
)


@pytest.mark.parametrize("written", tables.rows(__file__, "whole"))
def test_a_file_is_as_it_was_once_all_is_taken_away(written: str) -> None:
    """Comments, indentation, commas at the end."""
    text = tables.content(written).decode()
    added = jsonc.with_member(text, "hooks", {"Stop": [1]})
    assert jsonc.loads(added)["hooks"] == {"Stop": [1]}
    assert ("\r\n" in added) == ("\r\n" in text)
    changed = jsonc.with_member(added, "hooks", [])
    assert jsonc.loads(changed) == {**jsonc.loads(text), "hooks": []}
    assert jsonc.with_member(changed, "hooks", None) == text.replace("], //", "] //")  # a comma


@given(
    st.dictionaries(st.text(max_size=5), VALUES, max_size=5),
    st.sampled_from([None, 0, 2, "\t"]),
    st.text(max_size=5),
    VALUES.filter(lambda value: value is not None),
)
def test_any_member_is_changed_and_no_other(
    before: dict[str, Any], indent: int | str | None, key: str, value: object
) -> None:
    text = json.dumps(before, indent=indent, ensure_ascii=False)
    changed = jsonc.with_member(text, key, value)
    assert jsonc.loads(changed) == {**before, key: value}
    left = jsonc.loads(jsonc.with_member(changed, key, None))
    assert left == {name: each for name, each in before.items() if name != key}


def test_of_two_members_with_one_name_the_last_one_counts() -> None:
    """As to the agents that read it."""
    assert jsonc.loads(jsonc.with_member('{"a": 1, "a": 2}', "a", 3)) == {"a": 3}


@given(st.text(alphabet='{}[]",:/*\\\n ab1', max_size=40))
def test_no_text_breaks_it(text: str) -> None:
    """It is read or reported, and what JSON reads it reads the same."""
    try:
        found: object = jsonc.loads(text)
    except ValueError:
        return
    try:
        assert json.loads(text) == found
    except json.JSONDecodeError:
        assert "/" in text or "," in text


@pytest.mark.parametrize("text", ["[" * 5_000_000, '"\\' * 2_000_000, "/*" * 2_000_000])
def test_a_hostile_file_is_refused_at_once(text: str) -> None:
    with pytest.raises(ValueError, match=r"nested too deep|line 1"):
        jsonc.loads(text)
