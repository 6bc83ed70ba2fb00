"""`hook run` as coding agents start it, and `hook serve`, the process that judges."""

import json
import os
import random
import re
import signal
import socket
import subprocess
import threading
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from otel_loopguard.hooks import client
from otel_loopguard.hooks.install import command_of
from otel_loopguard.hooks.state_folder import GREETING, MOST_BYTES, StateFolder
from tests.hooks.demo import played
from tests.hooks.exchanges import something
from tests.hooks.running import PROGRAM, Home, hint_of, is_denied, told
from tests.server.serving import attributes, next_hop
from tests.stores.servers import free_port, wait_for

TIMES = re.compile(r"(\d+) times")


def forgotten(home: Home) -> int:
    """How many of the calls are not in what the next hint or denial says of them.

    A process that was killed may not have delivered its hint: the next one gives it, in words of
    its own.
    """
    said = told(home, lambda answer: TIMES.search(str(answer)))
    found = TIMES.search(str(said))
    assert found is not None
    return home.calls - int(found[1]) - is_denied(said)


def test_events_before_the_process_is_there_are_counted(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They wait for it, in the order in which they came."""
    folder = StateFolder(str(home.state))
    folder.make()
    (home.state / "starting").touch()  # somebody is starting it

    def here(*arguments: str, given: bytes) -> subprocess.CompletedProcess[bytes]:
        said = client.run([*arguments[2:], "--state", str(home.state)], given)
        return subprocess.CompletedProcess(arguments, 0, said)

    with monkeypatch.context() as quick:  # ten seconds later it would be taken for stuck
        quick.setattr(home, "run", here)
        for _ in range(4):
            assert home.call() == ({}, {})
    assert len(list((home.state / "spool").iterdir())) == 8
    (home.state / "starting").unlink()
    home.begin()
    assert "3 times" in hint_of(home.call()[0])  # which nobody has heard before
    assert forgotten(home) == 0
    told(home, is_denied)


@pytest.mark.parametrize("store", ["", "redis://127.0.0.1:1/0"], ids=["", "a store"])
def test_a_killed_process_forgets_nothing_that_it_answered(home: Home, store: str) -> None:
    """It is in the state: a store of the user's is not waited for."""
    home.environment["LOOPGUARD_STORE_URL"] = store
    home.begin()
    for _ in range(3):
        home.call()
    home.kill()
    home.begin()
    assert forgotten(home) == 0
    home.kill()
    home.begin()
    made = home.calls
    told(home, is_denied)
    assert home.calls - made < 4  # with which a process that forgets would begin


def test_where_no_process_comes_up_it_judges_itself(home: Home) -> None:
    """As where a sandbox kills what stays behind: what waits for long is taken in."""
    StateFolder(str(home.state)).make()
    spool = home.state / "spool"
    for _ in range(4):
        (home.state / "starting").touch()
        home.call()
    stored = [spool / f"{number:020d}-1" for number in range(8)]
    for path, old in zip(sorted(spool.iterdir()), stored, strict=True):
        path.rename(old)
    (home.state / "starting").unlink()
    assert "times" in hint_of(home.call()[0])
    assert not any(old.exists() for old in stored)


def test_mode_observe_answers_nothing_and_says_what_it_would_do(home: Home) -> None:
    assert home.event("SessionStart", "--mode", "observe") == {}
    home.up()
    rows: list[dict[str, Any]] = []
    while len(rows) < 2 and home.calls < 20:
        assert home.call("--mode", "observe") == ({}, {})
        log = home.state / "hook.log"
        lines = log.read_text().splitlines() if log.exists() else []
        rows = [json.loads(line) for line in lines]
    assert [row["would"] for row in rows][:2] == ["hint", "deny"]
    assert rows[0]["session"] == "chat"
    assert {(row["rule"], row["loop"]) for row in rows} == {("identical_call", rows[0]["loop"])}
    assert "pytest" not in str(rows)


@pytest.mark.parametrize("option", ["--call", "--session"])
def test_the_user_lets_through_what_was_refused(home: Home, option: str) -> None:
    """By the command that the refusal names, also where the program is in no PATH.

    The whole session, where an earlier process refused it.
    """
    home.environment["PATH"] = os.defpath
    home.begin()
    answer = told(home, is_denied)
    if option == "--session":
        home.kill()
    said = answer["hookSpecificOutput"]["permissionDecisionReason"]
    command = f"{said.rpartition(': ')[2]} {option}"
    subprocess.run(command, shell=True, env=home.environment, capture_output=True, check=True)
    for _ in range(4):
        assert home.call() == ({}, {})


def test_a_state_elsewhere_is_named_in_the_refusal(home: Home) -> None:
    folder = home.folder / ("long" * 30) / "state"  # too long for the address of a socket
    options = ("--mode", "enforce", "--state", str(folder))
    assert home.event("SessionStart", *options) == {}
    wait_for((folder / "hook.sock").exists)
    try:
        answer = told(home, is_denied, *options)
        said = answer["hookSpecificOutput"]["permissionDecisionReason"]
        assert f"--socket {folder}/hook.sock" in said
    finally:
        os.kill(int((folder / "hook.lock").read_text()), signal.SIGKILL)


@pytest.mark.parametrize(
    "wrong",
    [
        "", "claude-code --mode block", "claude-code --colour", "nobody", "--mode", "no folder",
        "others may write into it", "too large an event",
    ],
)  # fmt: skip
def test_what_cannot_be_used_stops_no_agent(home: Home, wrong: str) -> None:
    """Neither arguments nor a folder; a large event is read to its end: else the agent would fail
    to write it."""
    given = b'{"hook_event_name": "PreToolUse", "session_id": "chat", "tool_name": "Bash"}'
    arguments = ["claude-code"]
    if wrong == "no folder":
        (home.folder / "state").write_text("a file, and no folder")
    elif wrong == "too large an event":
        given += b" " * (MOST_BYTES + 1)
    elif wrong == "others may write into it":
        home.state.mkdir(parents=True)
        home.state.chmod(0o777)
    else:
        arguments = wrong.split()
    done = home.run("hook", "run", *arguments, given=given)
    assert (done.returncode, json.loads(done.stdout)) == (0, {})
    # Which agents there are, the process knows.
    assert wrong == "nobody" or not list(home.state.glob("spool/*"))


def test_an_agent_that_there_is_not_is_named_in_the_log(home: Home) -> None:
    done = home.run("hook", "run", "claude", "--no-process", given=b"{}")
    assert (done.returncode, json.loads(done.stdout)) == (0, {})
    assert "there is no agent 'claude'" in (home.state / "hook.log").read_text()
    assert not home.is_up()


def test_a_setting_that_cannot_be_used_stops_no_agent_and_is_named(home: Home) -> None:
    home.environment["LOOPGUARD_REPEAT_THRESHOLD"] = "many"
    alone = ("--mode", "enforce", "--no-process")
    payload = json.dumps({"hook_event_name": "Stop", "session_id": "chat"}).encode()
    done = home.run("hook", "run", "claude-code", *alone, given=payload)
    assert (done.returncode, json.loads(done.stdout)) == (0, {})
    assert b"many" in done.stderr
    assert b"Traceback" not in done.stderr
    assert home.run("hook", "serve").returncode == 2
    # An agent's events come from another program, which starts the process without its output.
    (home.state / "starting").touch()
    told = home.run("hook", "run", "claude-code", given=payload)
    assert (told.returncode, json.loads(told.stdout)) == (0, {})
    assert b"repeat_threshold (LOOPGUARD_REPEAT_THRESHOLD)" in told.stderr
    assert b"repeat_threshold (LOOPGUARD_REPEAT_THRESHOLD)" in home.run("hook", "status").stderr
    del home.environment["LOOPGUARD_REPEAT_THRESHOLD"]
    (home.state / "starting").unlink()
    home.begin()
    assert home.run("hook", "status").stderr == b""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_it_with_an_answer(home: Home, number: int) -> None:
    begun = "import os, sys; os.write(2, b'begun')\n"
    program = f"{begun}from otel_loopguard.hooks import client\n"
    # The handlers are set before it reads, and says that it does.
    program += "read = client.read_all\n"
    program += "client.read_all = lambda number: (os.write(2, b'!'), read(number))[1]\n"
    program += "client.main(['claude-code'])"
    python = str(PROGRAM.with_name("python"))
    with subprocess.Popen(
        [python, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, env=home.environment,
    ) as process:  # fmt: skip
        assert process.stderr is not None
        while process.stderr.read(1) != b"!":
            pass
        process.send_signal(number)
        out, _ = process.communicate(timeout=60)
    assert (process.returncode, json.loads(out)) == (0, {})


def test_thirty_two_at_once_lose_no_step_and_count_none_twice(home: Home) -> None:
    """Of two sessions, by the line that is installed, each event twice as by two hooks."""
    home.begin()
    line = command_of(str(PROGRAM), "claude-code", "enforce")["SHELL"]
    running: list[subprocess.Popen[bytes]] = []
    for number in range(32):
        session, call = ("one", "other")[number % 2], number // 2 % 8
        said: dict[str, Any] = {
            "hook_event_name": "PostToolUse", "session_id": session, "tool_name": "Read",
            "tool_input": {"file_path": f"{call}.py"}, "tool_use_id": f"toolu_{call}",
            "tool_response": f"text {call}",
        }  # fmt: skip
        process = subprocess.Popen(
            line, shell=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=home.environment
        )
        assert process.stdin is not None
        process.stdin.write(json.dumps(said).encode())
        process.stdin.close()
        running.append(process)
    for process in running:
        assert process.stdout is not None
        assert json.loads(process.stdout.read()) == {}
        process.stdout.close()
        assert process.wait(60) == 0

    def counted() -> bool:
        shown = [home.run("show", name, "--format", "json").stdout for name in ("one", "other")]
        return [json.loads(one)["steps"] for one in shown] == [8, 8]

    # Where the machine was slow some wait in the spool.
    wait_for(lambda: not list((home.state / "spool").iterdir()))
    wait_for(counted)


def test_a_stuck_session_is_refused_beside_one_that_gets_on(home: Home) -> None:
    home.begin()

    def is_refused(session: str) -> bool:
        for number in range(12):
            said: dict[str, Any] = {
                "session": session, "tool_name": "Bash", "tool_use_id": f"toolu_{number}",
                "tool_input": {"command": "pytest -q"},
            }  # fmt: skip
            if is_denied(home.event("PreToolUse", **said)):
                return True
            failures = 20 if session == "stuck" else 20 - number
            answer = {"stdout": f"{failures} failed", "stderr": "", "interrupted": False}
            assert not is_denied(home.event("PostToolUse", tool_response=answer, **said))
        return False

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(is_refused, ("stuck", "working"))) == [True, False]


def test_whatever_an_agent_says_it_is_answered_with_json(home: Home) -> None:
    """Through the entry of the client, with a real process behind it."""
    home.begin()
    random_ = random.Random(4711)
    names = ["PreToolUse", "PostToolUse", "Stop", "UserPromptSubmit", "PreCompact", "x", None, 3]
    agents = ["claude-code", "codex", "gemini", "vscode", "cursor", "opencode", "nobody"]
    for _ in range(600):
        payload = {
            name: something(random_) for name in ("tool_name", "tool_input", "tool_response")
        }
        payload["hook_event_name"] = random_.choice(names)
        payload["session_id"] = random_.choice(["s", "", None, 7, ["s"], "\ud800"])
        payload["tool_use_id"] = random_.choice(["t", None, 5])
        data = json.dumps(payload).encode()
        if random_.random() < 0.2:
            data = data[: random_.randrange(len(data))]
        if random_.random() < 0.1:
            data = random_.randbytes(40)
        mode = random_.choice(["observe", "enforce"])
        arguments = [random_.choice(agents), f"--mode={mode}", f"--state={home.state}"]
        assert isinstance(json.loads(client.run(arguments, data) or b""), dict)
    told(home, is_denied)  # it judges as before


def test_it_imports_next_to_nothing(home: Home) -> None:
    """An agent waits for it twice a call."""
    home.begin()
    python = str(PROGRAM.with_name("python"))
    program = (
        "import sys; before = set(sys.modules); sys.argv[1:] = ['hook', 'run', 'claude-code']\n"
        "from otel_loopguard import cli\nfrom otel_loopguard.hooks import client\n"
        "client._write = lambda answer: print(*set(sys.modules) - before)\ncli.main()"
    )
    payload = json.dumps({"hook_event_name": "Stop", "session_id": "chat"})
    done = subprocess.run(
        [python, "-c", program], input=payload, capture_output=True, text=True, check=False,
        env=home.environment,
    )  # fmt: skip
    loaded = set(done.stdout.split())
    assert "otel_loopguard.hooks.client" in loaded, done
    unused = {"json", "typing", "socket", "subprocess", "pathlib", "typer", "opentelemetry", "re"}
    assert loaded & unused == set()


@contextmanager
def serving(home: Home, *options: str) -> Generator[subprocess.Popen[bytes]]:
    with subprocess.Popen(
        [PROGRAM, "hook", "serve", *options], env=home.environment, stderr=subprocess.PIPE
    ) as process:
        try:
            wait_for(lambda: home.is_up() or process.poll() is not None)
            yield process
        finally:
            process.kill()


def test_a_recorded_session_through_the_installed_hooks(home: Home) -> None:
    """Of the real Claude Code, with a model that is stuck; as `make demo-hook` shows it."""
    answers = [(event["hook_event_name"], answer) for event, answer in played(home)]
    assert sum(bool(hint_of(answer)) for _, answer in answers) == 2
    assert sum(is_denied(answer) for _, answer in answers) == 2
    assert sum(answer.get("continue") is False for _, answer in answers) == 1
    assert sum(name.startswith("PostToolUse") for name, _ in answers) == 4


@pytest.mark.parametrize("told_by", ["idleness", "a signal"])
def test_it_ends(home: Home, told_by: str) -> None:
    """By itself, or by a signal; the next event starts another."""
    with serving(home, *(("--idle", "0.001") if told_by == "idleness" else ())) as process:
        if told_by == "a signal":
            process.send_signal(signal.SIGTERM)
        assert (process.wait(60) == 0) is (told_by == "idleness")
    assert (home.state / "hook.sock").exists() is (told_by == "a signal")
    home.begin()
    assert home.call() == ({}, {})


def test_there_is_one_for_a_state(home: Home) -> None:
    """Only the user can read what it writes. One of another version gives way, as after an upgrade:
    the next event is judged by what was installed."""
    with serving(home) as first:
        assert home.run("hook", "serve").returncode == 0
        assert first.poll() is None
        assert home.call() == ({}, {})
        for path in home.state.iterdir():
            assert not path.stat().st_mode & 0o077, path
        request = f"{GREETING} 99.0.0 claude-code enforce\n".encode() + b'{"hook_event_name": "x"}'
        assert client.send(StateFolder(str(home.state)), request) == b"{}"
        assert first.wait(60) == 0


@pytest.mark.parametrize("content", [False, True])
def test_calls_are_spans_where_telemetry_goes_somewhere(home: Home, content: bool) -> None:
    with next_hop() as (sink, url):
        home.environment |= {
            "OTEL_EXPORTER_OTLP_ENDPOINT": url, "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
            "OTEL_BSP_SCHEDULE_DELAY": "50", "OTEL_BLRP_SCHEDULE_DELAY": "50",
            "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "true" if content else "false",
        }  # fmt: skip
        with serving(home):
            told(home, is_denied)
            wait_for(lambda: len(sink.spans()) >= home.calls)
            wait_for(lambda: any("deny" in str(log) for log in sink.records()))
    assert [span.name for span in sink.spans()] == ["execute_tool Bash"] * home.calls
    spans = [attributes(span) for span in sink.spans()]
    assert {span["gen_ai.conversation.id"] for span in spans} == {"chat"}
    assert {span["gen_ai.agent.name"] for span in spans} == {"claude-code"}
    assert [span["gen_ai.tool.call.id"] for span in spans][:2] == ["toolu_1", "toolu_2"]
    decided = [span.get("loopguard.decision.action") for span in spans]
    assert [action for action in decided[:-1] if action] == ["hint", "deny"]
    assert spans[-1]["error.type"] == "loopguard_deny"
    assert ("pytest" in str(spans)) is content


def test_an_endpoint_that_is_not_there_delays_no_answer_and_no_end(home: Home) -> None:
    home.environment["OTEL_EXPORTER_OTLP_ENDPOINT"] = f"http://127.0.0.1:{free_port()}"
    with serving(home):
        told(home, is_denied)


def test_an_endpoint_that_hangs_holds_up_no_agent(home: Home) -> None:
    """Where there is no process, the agent waits until its hook has ended."""
    home.environment["OTEL_EXPORTER_OTLP_TIMEOUT"] = "600"
    ended = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as endpoint, ThreadPoolExecutor() as collector:
        home.environment["OTEL_EXPORTER_OTLP_ENDPOINT"] = address(endpoint)

        def hang() -> bool:
            endpoint.settimeout(0.1)
            while not ended.is_set():
                with suppress(TimeoutError), endpoint.accept()[0]:
                    return ended.wait(25)  # by itself it would end after 30 seconds
            return True

        hung = collector.submit(hang)
        home.call("--no-process")
        ended.set()
        assert hung.result()


def address(endpoint: socket.socket) -> str:
    return f"http://127.0.0.1:{endpoint.getsockname()[1]}"
