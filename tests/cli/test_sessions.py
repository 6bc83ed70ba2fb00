"""People and live sessions: `sessions`, `watch`, `show`, `pause`, `resume`, `abort`, `answer`."""

import json
import os
import re
import socketserver
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from tests.escalation.agents import until
from tests.stores.servers import Server

Command = Callable[..., Result]
Start = Callable[..., Any]

_AGENT = """
import os, sys, time
from opentelemetry.sdk.trace import TracerProvider
from otel_loopguard import LoopGuardSpanProcessor, LoopGuardStop, control, session

provider = TracerProvider()
quick = {"admin": {"heartbeat_s": 0.2}}
processor = LoopGuardSpanProcessor(max_action="pause", pause_limit_s=60, tuning=quick)
provider.add_span_processor(processor)
tracer = provider.get_tracer("my.agent")
call = {"gen_ai.tool.name": "search", "gen_ai.tool.call.arguments": '{"query": "s3cret"}'}
agent = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "helper"}
with session(sys.argv[1]), tracer.start_as_current_span("invoke_agent", attributes=agent):
    try:
        for turn in range(int(sys.argv[2])):
            control.gate()
            if said := control.hint():
                print("hint", said, flush=True)
            with tracer.start_as_current_span("execute_tool search", attributes=call) as span:
                span.set_attribute("gen_ai.tool.call.result", "No results.")
            time.sleep(0.01)
        print("waits", flush=True)
        passed = control.gate().control
        print("goes on", passed.action, control.hint(), flush=True)
        sys.stdin.readline()
        control.check()
        print("done", flush=True)
    except LoopGuardStop as stop:
        print(type(stop).__name__, stop, flush=True)
provider.shutdown()
"""


class Agent:
    """An agent in a process of its own."""

    def __init__(self, session: str, calls: int, env: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", _AGENT, session, str(calls)],
            env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def says(self, beginning: str) -> str:
        """The next line that begins so."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith(beginning):
                return line.strip()
        pytest.fail(f"it never said {beginning!r}")

    def go_on(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def way(
    request: Any, tmp_path: Path, runtime_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[dict[str, str]]:
    """The environment of agents and command line: sockets, or Redis where a test asks for it."""
    server = None
    if getattr(request, "param", "") == "redis":
        server = Server(tmp_path / "redis").start()
        monkeypatch.setenv("LOOPGUARD_STORE_URL", server.url)
    else:
        monkeypatch.setenv("LOOPGUARD_CONTROL_SOCKET", "auto")
    yield dict(os.environ)
    if server is not None:
        server.kill()


@pytest.fixture
def agents(way: dict[str, str]) -> Iterator[Callable[..., Agent]]:
    """Starts agents."""
    started: list[Agent] = []

    def start(session: str, calls: int = 4) -> Agent:
        started.append(Agent(session, calls, way))
        return started[-1]

    yield start
    for agent in started:
        agent.end()


def listed(command: Command) -> dict[str, dict[str, Any]]:
    done = command("sessions", "--format", "json")
    assert done.exit_code == 0, done.output
    return {row["session"]: row for row in map(json.loads, done.stdout.splitlines())}


@pytest.mark.parametrize("way", ["redis", "socket"], indirect=True)
def test_pause_answer_and_abort_from_another_process(
    agents: Start, command: Command, tmp_path: Path
) -> None:
    """The whole way: it is stuck and waits, is listed and shown, is answered, and is aborted."""
    agent, other = agents("run-1"), agents("run-2", 1)
    agent.says("waits")
    until(lambda: listed(command).get("run-1", {}).get("action") == "pause")
    other.says("goes on")
    until(lambda: set(listed(command)) == {"run-1", "run-2"})
    row = listed(command)["run-1"]
    assert (row["agent"], row["step"], row["detector"]) == ("helper", "search", "exact_repeat")
    table = command("sessions").stdout
    assert row["escalation"] in table
    assert "s3cret" not in table

    shown = command("show", "run-1").stdout
    assert re.search(r"^ *3 +hint", shown, re.MULTILINE)
    for part in ("helper", "pause (by policy)", "exact_repeat", "skip_task:", row["escalation"]):
        assert part in shown
    view = json.loads(command("show", "run-1", "--format", "json").stdout)
    assert view["totals"]["actions"] == 4
    assert "s3cret" not in json.dumps(view) + shown

    plan = tmp_path / "plan.json"
    plan.write_text('[{"id": "a", "depends_on": ["b"]}]', encoding="utf-8")
    wrong = command("answer", row["escalation"], "modify-plan", "--plan", str(plan))
    assert wrong.exit_code == 1
    assert "1 problem:\n- task 'a' depends on 'b', and there is no such task\n" in wrong.stderr

    order = ("answer", row["escalation"], "modify-plan", "--guidance", "use B", "--by", "anna")
    done = command(*order)
    assert done.exit_code == 0, done.output
    assert "anna answered modify_plan" in done.stdout
    assert agent.says("goes on").endswith("use B")
    late = command(*order)
    assert late.exit_code == 1
    assert "is over: anna answered modify_plan" in late.output
    assert "over: modify_plan by anna: use B" in command("show", "run-1").stdout

    done = command("abort", "run-1", "--reason", "too dear", "--by", "bob")
    assert done.exit_code == 0, done.output
    assert "session run-1 is aborted, by bob" in done.stdout
    assert listed(command)["run-2"]["action"] == "allow"
    agent.go_on()
    assert agent.says("LoopGuardAbort").endswith("too dear (session 'run-1' aborted)")


def test_a_false_alarm_is_explained_and_allowed_from_another_process(
    agents: Start, command: Command
) -> None:
    """Once it is explained, a false alarm costs one command, and is not stopped for it again."""
    agent = agents("run-1")
    agent.says("waits")
    until(lambda: listed(command).get("run-1", {}).get("action") == "pause")
    done = command("explain", "run-1")
    assert done.exit_code == 0, done.output
    assert "session run-1: the flag is pause" in done.stdout
    told = json.loads(command("explain", "run-1", "--format", "json").stdout)
    assert [loop["action"] for loop in told["loops"]] == ["pause"]
    done = command("allow", "run-1", "--by", "anna")
    assert done.exit_code == 0, done.output
    assert "run-1 goes on, and is not stopped for this again, by anna" in done.stdout
    assert "to allow this for good, set exempt_tools = [" in done.stdout
    agent.says("goes on")
    assert listed(command)["run-1"]["action"] == "allow"
    done = command("allow", "run-1")
    assert (done.exit_code, "nothing of session run-1 is stopped" in done.stdout) == (0, True)


def test_pause_and_resume_by_hand(agents: Start, command: Command) -> None:
    """An agent that is well is held at its gate, and let go on."""
    agent = agents("run", 2000)
    until(lambda: "run" in listed(command))
    done = command("pause", "run", "--reason", "let me look", "--by", "anna")
    assert done.exit_code == 0, done.output
    until(lambda: listed(command)["run"]["action"] == "pause")
    row = listed(command)["run"]
    assert (row["by"], row["reason"]) == ("anna", "let me look")
    done = command("resume", "run", "--guidance", "use the index", "--by", "anna")
    assert done.exit_code == 0, done.output
    assert agent.says("hint use the index")


def test_unknown(agents: Start, command: Command) -> None:
    """A clear message on standard error, and exit code 1; an answer that is none is not sent."""
    agents("run", 1).says("goes on")
    until(lambda: "run" in listed(command))
    for what in ("show", "pause", "resume", "abort", "allow", "explain", "answer"):
        done = command(what, "nobody", *(["continue"] if what == "answer" else []))
        assert done.exit_code == 1
        kind = "escalation" if what == "answer" else "session"
        assert f"no live process knows the {kind} 'nobody'" in done.stderr
        assert "Traceback" not in done.output
    done = command("answer", "0123456789abcdef", "perhaps")
    assert done.exit_code == 2
    assert "answer must be one of continue, abort, modify_plan, skip_task" in done.stderr


def test_watch(agents: Start, command: Command) -> None:
    """One table for each look, where the output is no terminal."""
    agents("run", 1).says("goes on")
    until(lambda: listed(command).get("run", {}).get("agent"))
    done = command("watch", "--interval", "0.1", "--rounds", "3")
    assert done.exit_code == 0, done.output
    assert done.stdout.count("session") == 3
    assert done.stdout.count("helper") == 3


class _NoSession(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        self.rfile.readline()
        self.wfile.write(b'{"sessions": []}\n')


def test_nobody_has_a_session(command: Command, tmp_path: Path) -> None:
    """Where a process is reached that has no session any more, that is the reason given."""
    path = tmp_path / "guard.sock"
    with socketserver.ThreadingUnixStreamServer(str(path), _NoSession) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        done = command("watch", "--rounds", "1", "--socket", path)
        server.shutdown()
    assert done.exit_code == 0
    assert "1 process was reached, and it has no session now" in done.stderr
